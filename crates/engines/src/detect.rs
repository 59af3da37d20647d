//! Which engine is it? The caller asks a few paths; this says what each answer proves.

use serde::Deserialize;

use crate::EngineKind;

/// One question to ask an unknown address: `GET path`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// The path, without host.
    pub path: &'static str,
}

/// The questions in order; stop at the first answer for which [`classify`] names an engine.
///
/// Another ridge comes first: it hands through its engines' model lists, so it would pass for one of them.
/// `/version` comes last, as several servers have one.
pub fn probes() -> &'static [Probe] {
    const PROBES: &[Probe] = &[
        Probe { path: "/livez" },
        Probe { path: "/v1/models" },
        Probe { path: "/api/version" },
        Probe { path: "/props" },
        Probe { path: "/get_model_info" },
        Probe { path: "/server_info" },
        Probe { path: "/info" },
        Probe { path: "/v2" },
        Probe { path: "/version" },
    ];
    PROBES
}

/// Where the engines listen when nobody said otherwise, for a look around on this machine.
pub fn usual_ports() -> &'static [(EngineKind, u16)] {
    &[
        (EngineKind::Vllm, 8000),
        (EngineKind::Sglang, 30000),
        (EngineKind::LlamaCpp, 8080),
        (EngineKind::Ollama, 11434),
        (EngineKind::Tgi, 3000),
    ]
}

/// What came back for one [`Probe`].
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// The path that was asked.
    pub path: &'a str,
    /// The HTTP status.
    pub status: u16,
    /// The `server` header, if there is one.
    pub server: Option<&'a str>,
    /// The body (bounded by the caller; a cut one proves nothing).
    pub body: &'a [u8],
}

#[derive(Deserialize)]
struct ModelList {
    data: Option<Vec<Owned>>,
}

#[derive(Deserialize)]
struct Owned {
    #[serde(default)]
    owned_by: String,
}

/// The engine that this answer proves, or `None` if it proves nothing (also for an answer that is not 200).
///
/// Not a promise: any server can say these words. It decides which metric names are tried, never what is allowed.
pub fn classify(answer: &Answer<'_>) -> Option<EngineKind> {
    // llama.cpp names itself on every answer, errors and the 401 of `--api-key` included.
    if answer.server.is_some_and(|server| server.eq_ignore_ascii_case("llama.cpp")) {
        return Some(EngineKind::LlamaCpp);
    }
    if answer.status != 200 {
        return None;
    }
    let body = answer.body;
    match answer.path {
        "/livez" => has_keys(body, &["ridge"]).then_some(EngineKind::Ridge),
        "/v1/models" => {
            let list: ModelList = serde_json::from_slice(body).ok()?;
            list.data?.iter().find_map(|model| match model.owned_by.as_str() {
                "vllm" => Some(EngineKind::Vllm),
                "sglang" => Some(EngineKind::Sglang),
                "llamacpp" => Some(EngineKind::LlamaCpp),
                "tensorrt_llm" => Some(EngineKind::TrtLlm),
                "library" => Some(EngineKind::Ollama),
                _ => None,
            })
        }
        "/api/version" | "/api/tags" => {
            // An Ollama without models answers /v1/models with nothing to go by.
            (has_keys(body, &["version"]) || has_keys(body, &["models"])).then_some(EngineKind::Ollama)
        }
        "/props" => has_keys(body, &["default_generation_settings"]).then_some(EngineKind::LlamaCpp),
        "/get_model_info" => has_keys(body, &["model_path", "is_generation"]).then_some(EngineKind::Sglang),
        "/server_info" => has_keys(body, &["mem_fraction_static"]).then_some(EngineKind::Sglang),
        "/info" => has_keys(body, &["model_id", "router"]).then_some(EngineKind::Tgi),
        "/v2" => text_field(body, "name").filter(|name| name == "triton").map(|_| EngineKind::Triton),
        // Only vLLM and TensorRT-LLM have this path; the latter was told apart by its model list already.
        "/version" => has_keys(body, &["version"]).then_some(EngineKind::Vllm),
        _ => None,
    }
}

/// Whether `body` is a JSON object with all these keys at its top.
fn has_keys(body: &[u8], keys: &[&str]) -> bool {
    type Object<'a> = std::collections::HashMap<std::borrow::Cow<'a, str>, &'a serde_json::value::RawValue>;
    serde_json::from_slice::<Object<'_>>(body)
        .is_ok_and(|object| keys.iter().all(|key| object.contains_key(*key)))
}

fn text_field(body: &[u8], key: &str) -> Option<String> {
    let mut object: std::collections::HashMap<String, serde_json::Value> =
        serde_json::from_slice(body).ok()?;
    match object.remove(key) {
        Some(serde_json::Value::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(path: &str, body: &str) -> Option<EngineKind> {
        classify(&Answer { path, status: 200, server: None, body: body.as_bytes() })
    }

    #[test]
    fn each_engine_is_known_by_its_own_words() {
        let owned = |by: &str| format!(r#"{{"object":"list","data":[{{"id":"m","owned_by":"{by}"}}]}}"#);
        for (by, kind) in [
            ("vllm", EngineKind::Vllm),
            ("sglang", EngineKind::Sglang),
            ("llamacpp", EngineKind::LlamaCpp),
            ("tensorrt_llm", EngineKind::TrtLlm),
            ("library", EngineKind::Ollama),
        ] {
            assert_eq!(answer("/v1/models", &owned(by)), Some(kind));
        }
        assert_eq!(answer("/v1/models", &owned("me")), None);
        assert_eq!(answer("/livez", r#"{"status":"ok","ridge":"0.1.0"}"#), Some(EngineKind::Ridge));
        assert_eq!(answer("/livez", "ok"), None);
        assert_eq!(answer("/api/version", r#"{"version":"0.17.4"}"#), Some(EngineKind::Ollama));
        assert_eq!(answer("/api/tags", r#"{"models":[]}"#), Some(EngineKind::Ollama));
        assert_eq!(
            answer("/props", r#"{"default_generation_settings":{},"total_slots":4}"#),
            Some(EngineKind::LlamaCpp)
        );
        assert_eq!(
            answer("/get_model_info", r#"{"model_path":"q","tokenizer_path":"q","is_generation":true}"#),
            Some(EngineKind::Sglang)
        );
        assert_eq!(
            answer("/info", r#"{"model_id":"m","router":"text-generation-router","version":"3.3.6"}"#),
            Some(EngineKind::Tgi)
        );
        assert_eq!(answer("/info", r#"{"version":"1"}"#), None);
        assert_eq!(answer("/v2", r#"{"name":"triton","version":"2.60.0"}"#), Some(EngineKind::Triton));
        assert_eq!(answer("/version", r#"{"version":"0.32.0"}"#), Some(EngineKind::Vllm));
    }

    #[test]
    fn an_ollama_without_models_proves_nothing_yet() {
        assert_eq!(answer("/v1/models", r#"{"object":"list","data":null}"#), None);
    }

    #[test]
    fn llama_cpp_is_known_by_its_header_even_when_it_refuses() {
        let refused = Answer { path: "/v1/models", status: 401, server: Some("llama.cpp"), body: b"{}" };
        assert_eq!(classify(&refused), Some(EngineKind::LlamaCpp));
    }

    #[test]
    fn an_error_or_a_page_proves_nothing() {
        let body = br#"{"version":"0.32.0"}"#;
        for status in [404, 500, 302] {
            let answer = Answer { path: "/version", status, server: Some("uvicorn"), body };
            assert_eq!(classify(&answer), None);
        }
        for probe in probes() {
            assert_eq!(answer(probe.path, "<html>version ridge</html>"), None, "{}", probe.path);
            assert_eq!(answer(probe.path, "[1]"), None, "{}", probe.path);
            assert_eq!(answer(probe.path, "{}"), None, "{}", probe.path);
            assert_eq!(answer(probe.path, &"[".repeat(100_000)), None, "{}", probe.path);
        }
    }

    #[test]
    fn the_probes_ask_for_another_ridge_first() {
        assert_eq!(probes()[0].path, "/livez");
    }
}
