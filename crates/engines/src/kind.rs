//! The engines we know by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which program answers at an endpoint.
///
/// `Unknown` is a fact like the others: the endpoint speaks an inference API and nothing more is known of it, so it
/// takes traffic and has no signals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// vLLM's OpenAI server.
    Vllm,
    /// SGLang's HTTP server.
    Sglang,
    /// TensorRT-LLM's own server, `trtllm-serve`.
    TrtLlm,
    /// NVIDIA Triton with the TensorRT-LLM backend.
    Triton,
    /// llama.cpp's `llama-server`.
    LlamaCpp,
    /// Ollama.
    Ollama,
    /// Hugging Face text-generation-inference.
    Tgi,
    /// Another ridge gateway.
    Ridge,
    /// Not recognised.
    #[default]
    Unknown,
}

impl EngineKind {
    /// Every kind, in the order in which they are listed to people.
    pub const ALL: [EngineKind; 9] = [
        EngineKind::Vllm,
        EngineKind::Sglang,
        EngineKind::TrtLlm,
        EngineKind::Triton,
        EngineKind::LlamaCpp,
        EngineKind::Ollama,
        EngineKind::Tgi,
        EngineKind::Ridge,
        EngineKind::Unknown,
    ];

    /// The name used in configuration, metrics labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            EngineKind::Vllm => "vllm",
            EngineKind::Sglang => "sglang",
            EngineKind::TrtLlm => "trtllm",
            EngineKind::Triton => "triton",
            EngineKind::LlamaCpp => "llamacpp",
            EngineKind::Ollama => "ollama",
            EngineKind::Tgi => "tgi",
            EngineKind::Ridge => "ridge",
            EngineKind::Unknown => "unknown",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A name that is none of the engines'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown engine `{0}`: use one of vllm, sglang, trtllm, triton, llamacpp, ollama, tgi, ridge, unknown, \
     or leave it out to have it detected"
)]
pub struct UnknownEngineKind(pub String);

impl FromStr for EngineKind {
    type Err = UnknownEngineKind;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        EngineKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name)
            .ok_or_else(|| UnknownEngineKind(name.chars().take(64).collect()))
    }
}

/// The path of the engine's Prometheus page, or `None` when it has none.
///
/// - `trtllm-serve` answers `/metrics` with JSON statistics of past iterations and mounts its Prometheus page at
///   `/prometheus/metrics` (only with `return_perf_metrics` set).
/// - Triton serves the page on a port of its own, 8002 unless told otherwise.
/// - llama.cpp answers only when started with `--metrics`, SGLang with `--enable-metrics`: a 404 there means unknown.
/// - Ollama has no metrics. A ridge gateway keeps its own on the admin listener, away from clients.
pub const fn metrics_path(kind: EngineKind) -> Option<&'static str> {
    match kind {
        EngineKind::Vllm
        | EngineKind::Sglang
        | EngineKind::Triton
        | EngineKind::LlamaCpp
        | EngineKind::Tgi => Some("/metrics"),
        EngineKind::TrtLlm => Some("/prometheus/metrics"),
        EngineKind::Ollama | EngineKind::Ridge | EngineKind::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for kind in EngineKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = "vLLM ".parse::<EngineKind>().unwrap_err().to_string();
        assert!(error.contains("`vLLM `") && error.contains("llamacpp"), "{error}");
    }
}
