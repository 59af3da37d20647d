//! Requests that are not passed on: each with a reason in the shape of the API that was called.

use e2e::{House, completion, header};
use rig::client::{self, post_bytes};
use rig::{RawClient, RidgeProcess, ScriptedEngine, script, wait_until};

#[test]
fn paths_that_no_client_should_reach() {
    let house = House::answering(script::json(200, "{}"));
    for path in [
        "/sleep",
        "/wake_up",
        "/v1/load_lora_adapter",
        "/collective_rpc",
        "/reset_prefix_cache",
        "/api/delete",
        "/api/pull",
        "/metrics",
        "/server_info",
        "/v1/chat/completions/",
        "//v1/chat/completions",
        "/v1/chat%2fcompletions",
        "/v1/../sleep",
        "/v1/chat/completions/../../../sleep",
    ] {
        let answer = client::post_json(house.addr(), path, completion("x"));
        assert_eq!(answer.status(), 404, "{path}");
        let error = answer.json();
        assert!(error["error"]["message"].as_str().is_some_and(|text| text.contains(path)), "{error}");
        assert!(error["error"]["code"].is_string(), "{error}");
    }
    assert!(house.engine().requests().is_empty());
}

#[test]
fn a_refusal_before_the_body_is_read_has_the_shape_of_the_call() {
    let house = House::with(vec![ScriptedEngine::answering(script::json(200, "{}"))], &[]);
    for (path, shape) in
        [("/v1/messages", "/error/type"), ("/api/chat", "/code"), ("/v1/responses", "/error/code")]
    {
        let mut client = rig::RawClient::connect(house.addr());
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: a\r\nauthorization: b\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        client.send(head.into_bytes());
        let answer = client.read_response();
        assert_eq!(answer.status(), 400, "{path}");
        assert!(answer.json().pointer(shape).is_some_and(|value| value.is_string()), "{}", answer.text());
    }
}

#[test]
fn a_path_that_the_configuration_lists_is_passed_on() {
    let engine = ScriptedEngine::answering(script::json(200, r#"{"ok":1}"#));
    let house = House::with(vec![engine], &["--allow-path", "/custom/*"]);
    let answer = client::post_json(house.addr(), "/custom/thing?x=1", "not even JSON");
    assert_eq!((answer.status(), answer.text().as_str()), (200, r#"{"ok":1}"#));
    assert_eq!(house.engine().requests()[0].target(), "/custom/thing?x=1");
    assert_eq!(client::post_json(house.addr(), "/other", "{}").status(), 404);
}

#[test]
fn a_method_that_the_path_does_not_have() {
    let house = House::answering(script::json(200, "{}"));
    let answer = client::get(house.addr(), "/v1/chat/completions");
    assert_eq!(answer.status(), 405);
    assert_eq!(header(&answer, "allow"), "POST");
}

#[test]
fn a_model_that_nobody_serves_names_those_that_are() {
    let engines: Vec<ScriptedEngine> = ["llama-8b", "qwen-4b"]
        .into_iter()
        .map(|model| {
            let engine = ScriptedEngine::answering(script::json(200, "{}"));
            engine.set_model(model);
            engine
        })
        .collect();
    let house = House::with(engines, &[]);
    wait_until("both models are known", || {
        client::get(house.addr(), "/v1/models").json()["data"].as_array().is_some_and(|list| list.len() == 2)
    });
    let body = r#"{"model":"nobody","messages":[]}"#;
    for (path, text_at) in [
        ("/v1/chat/completions", "/error/message"),
        ("/v1/messages", "/error/message"),
        ("/api/chat", "/error"),
    ] {
        let answer = client::post_json(house.addr(), path, body);
        assert_eq!(answer.status(), 404, "{path}");
        let error = answer.json();
        let text = error.pointer(text_at).and_then(serde_json::Value::as_str).unwrap_or_default();
        for word in ["nobody", "llama-8b", "qwen-4b"] {
            assert!(text.contains(word), "{word} in {error}");
        }
    }
    for (model, at) in [("llama-8b", 0), ("qwen-4b", 1)] {
        let body = format!(r#"{{"model":"{model}","prompt":"x"}}"#);
        assert_eq!(client::post_json(house.addr(), "/v1/completions", body).status(), 200);
        assert_eq!(house.engines[at].requests().len(), 1);
    }
}

#[test]
fn no_engine_at_all_is_503_with_a_time_to_come_back() {
    let mut engine = ScriptedEngine::answering(script::json(200, "{}"));
    engine.kill();
    let upstream = format!("{},model=m", engine.url());
    let ridge = RidgeProcess::serve(["--upstream", upstream.as_str()]);
    let house = House::around(ridge, vec![engine]);
    for (path, kind) in [("/v1/completions", "service_unavailable"), ("/v1/messages", "overloaded_error")] {
        let answer = client::post_json(house.addr(), path, completion("x"));
        assert_eq!(answer.status(), 503, "{}", answer.text());
        assert!(header(&answer, "retry-after").parse::<u32>().is_ok_and(|seconds| seconds >= 1));
        assert_eq!(answer.json()["error"]["type"], kind);
    }
    // And as soon as it is there, it is used.
    let mut house = house;
    house.engines[0].restart();
    wait_until("the engine is used", || {
        client::post_json(house.addr(), "/v1/completions", completion("x")).status() == 200
    });
}

#[test]
fn refusals_are_logged_and_counted_without_the_clients_words_as_labels() {
    let house = House::answering(script::json(200, "{}"));
    for i in 0..50 {
        let body = format!(r#"{{"model":"made-up-{i}","prompt":"x"}}"#);
        assert_eq!(client::post_json(house.addr(), "/v1/completions", body).status(), 404);
    }
    house.ridge.wait_for_metric("ridge_requests_total", &[("status", "404")], 50.0);
    let page = client::get(house.ridge.admin, "/metrics").text();
    assert!(!page.contains("made-up"), "{page}");
    wait_until("the log names the model", || house.ridge.output().contains("made-up-49"));
}

#[test]
fn a_refused_request_leaves_the_connection_usable() {
    let house = House::answering(script::json(200, "{}"));
    let mut client = RawClient::connect(house.addr());
    client.send(post_bytes("/nowhere", "{}"));
    assert_eq!(client.read_response().status(), 404);
    client.send(post_bytes("/v1/completions", r#"{"model":"other"}"#));
    assert_eq!(client.read_response().status(), 404);
    client.send(post_bytes("/v1/completions", completion("x")));
    assert_eq!(client.read_response().status(), 200);
}
