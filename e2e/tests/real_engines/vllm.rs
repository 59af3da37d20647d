//! Two real vLLM servers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use e2e::engines::MODEL;
use e2e::header;
use rig::client::{self, post_bytes};
use rig::{End, RawClient, Response, wait_until};
use serde_json::{Value, json};

use crate::{before_vllm, vllm, vllm_alone};

const CHAT: &str = "/v1/chat/completions";

fn question(more: &Value) -> String {
    let mut body = json!({"model": MODEL, "temperature": 0, "max_tokens": 12,
        "messages": [{"role": "user", "content": "What is the capital of France?"}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    body.to_string()
}

/// The JSON of each event of a stream, `[DONE]` apart.
fn events(answer: &Response) -> Vec<Value> {
    let text = answer.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"))).collect()
}

/// Takes out what differs between two answers to the same question: identities, and what was cached, which depends on
/// who asked first. Floats are rounded, since a sum's last digits depend on what else is in the engine's batch.
fn without_identity(answer: Value) -> Value {
    match answer {
        Value::Object(fields) => {
            let changing = ["id", "created", "request_id", "created_at", "prompt_tokens_details"];
            let kept = fields.into_iter().filter(|(key, _)| !changing.contains(&key.as_str()));
            Value::Object(kept.map(|(key, value)| (key, without_identity(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_identity).collect()),
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().map(|float| (float * 100.0).round() / 100.0);
            rounded.map_or(Value::Null, Value::from)
        }
        other => other,
    }
}

/// What a stream says in all: the text, the tokens with log probabilities, how it finished. Engines put one token or
/// several into an event, as it happens.
fn said(answer: &Response) -> (String, Vec<String>, Vec<String>) {
    let (mut text, mut tokens, mut finishes) = (String::new(), Vec::new(), Vec::new());
    for choice in events(answer).iter().flat_map(|event| event["choices"].as_array().into_iter().flatten()) {
        text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        let with_logprobs = choice["logprobs"]["content"].as_array().into_iter().flatten();
        tokens.extend(with_logprobs.filter_map(|token| token["token"].as_str().map(str::to_owned)));
        finishes.extend(choice["finish_reason"].as_str().map(str::to_owned));
    }
    (text, tokens, finishes)
}

#[test]
fn answers_are_those_of_the_engine_itself() {
    let pair = vllm();
    let ridge = before_vllm(&pair);
    let weather = json!([{"type": "function", "function": {"name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]);
    for (path, body) in [
        (CHAT, question(&json!({}))),
        (CHAT, question(&json!({"tools": weather, "tool_choice": "auto"}))),
        (CHAT, question(&json!({"logprobs": true, "top_logprobs": 3}))),
        (CHAT, question(&json!({"n": 2, "stop": ["."]}))),
        (
            "/v1/completions",
            json!({"model": MODEL, "prompt": "One, two,", "temperature": 0, "max_tokens": 5, "logprobs": 1})
                .to_string(),
        ),
        ("/tokenize", json!({"model": MODEL, "prompt": "안녕 🦀"}).to_string()),
        ("/detokenize", json!({"model": MODEL, "tokens": [504, 3575]}).to_string()),
        ("/v1/messages/count_tokens", question(&json!({}))),
        // The engine's own refusals.
        (CHAT, question(&json!({"max_tokens": 100_000}))),
        (CHAT, question(&json!({"temperature": -1}))),
        (CHAT, question(&json!({"messages": "no list"}))),
    ] {
        let direct = client::post_json(pair.addr(0), path, &body);
        let through = client::post_json(ridge.gateway, path, &body);
        assert_eq!(through.status(), direct.status(), "{path} {body}: {}", through.text());
        assert_eq!(header(&through, "content-type"), header(&direct, "content-type"));
        assert_eq!(without_identity(through.json()), without_identity(direct.json()), "{path} {body}");
    }
}

#[test]
fn streams_are_those_of_the_engine_itself() {
    let pair = vllm();
    let ridge = before_vllm(&pair);
    for more in [
        json!({"stream": true}),
        json!({"stream": true, "stream_options": {"include_usage": true}}),
        json!({"stream": true, "logprobs": true, "top_logprobs": 2, "stream_options": {"continuous_usage_stats": true, "include_usage": true}}),
    ] {
        let direct = client::post_json(pair.addr(1), CHAT, question(&more));
        let through = client::post_json(ridge.gateway, CHAT, question(&more));
        assert_eq!((through.status(), through.end), (200, End::Complete));
        assert!(through.text().ends_with("data: [DONE]\n\n"));
        assert_eq!(said(&through), said(&direct));
        assert_eq!(said(&through).2, ["stop"]);
        assert!(through.arrivals.len() > 3, "it came in {} pieces", through.arrivals.len());
    }
}

#[test]
fn other_apis_stream_too() {
    let pair = vllm();
    let ridge = before_vllm(&pair);
    let messages = question(&json!({"stream": true}));
    let answer = client::post_json(ridge.gateway, "/v1/messages", messages);
    assert_eq!((answer.status(), answer.end), (200, End::Complete), "{}", answer.text());
    assert!(answer.text().contains("event: message_stop"), "{}", answer.text());
    let input = json!({"model": MODEL, "input": "Say hello.", "max_output_tokens": 8, "stream": true, "store": false});
    let answer = client::post_json(ridge.gateway, "/v1/responses", input.to_string());
    assert_eq!((answer.status(), answer.end), (200, End::Complete), "{}", answer.text());
    assert!(answer.text().contains("response.completed") || answer.text().contains("response.incomplete"));
}

#[test]
fn its_kind_models_and_state_are_known() {
    let pair = vllm();
    let ridge = before_vllm(&pair);
    wait_until("both are known as vLLM", || {
        let infos = ridge.metrics().series("ridge_endpoint_info");
        infos.iter().filter(|(labels, _)| labels.get("engine").is_some_and(|kind| kind == "vllm")).count()
            == 2
    });
    wait_until("the load of both is known", || {
        ridge.metrics().series("ridge_endpoint_running").len() == 2
            && ridge.metrics().series("ridge_endpoint_kv_usage").len() == 2
    });
    let models = client::get(ridge.gateway, "/v1/models").json();
    let ids: Vec<&str> =
        models["data"].as_array().into_iter().flatten().filter_map(|m| m["id"].as_str()).collect();
    assert_eq!(ids, [MODEL], "one model on two engines is one model");
}

#[test]
fn a_repeated_prompt_finds_its_cache() {
    let pair = vllm();
    let ridge = before_vllm(&pair);
    let context = "A long context that both requests share, word for word, to fill blocks. ".repeat(12);
    let mut endpoints = Vec::new();
    let mut cached = Vec::new();
    for ask in ["First?", "Second?", "Third?"] {
        let body =
            json!({"model": MODEL, "prompt": format!("{context}{ask}"), "max_tokens": 1, "temperature": 0});
        let answer = client::post_json(ridge.gateway, "/v1/completions", body.to_string());
        assert_eq!(answer.status(), 200, "{}", answer.text());
        endpoints.push(header(&answer, "x-ridge-endpoint"));
        cached.push(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0));
    }
    assert!(endpoints.iter().all(|endpoint| *endpoint == endpoints[0]), "{endpoints:?}");
    assert!(cached[1] > 100 && cached[2] > 100, "{cached:?}");
    ridge.wait_for_metric(
        "ridge_cached_tokens_reported_total",
        &[("endpoint", &endpoints[0])],
        cached.iter().sum::<u64>() as f64,
    );
}

#[test]
fn a_client_that_leaves_frees_its_place_in_the_engine() {
    let pair = vllm_alone();
    let ridge = before_vllm(&pair);
    let body = question(&json!({"stream": true, "max_tokens": 1500, "ignore_eos": true}));
    let mut clients: Vec<RawClient> = (0..4).map(|_| RawClient::connect(ridge.gateway)).collect();
    for client in &mut clients {
        client.send(post_bytes(CHAT, &body));
    }
    for client in &mut clients {
        client.read_until(|response| response.body().len() > 200);
    }
    assert_eq!(pair.running(0) + pair.running(1), 4.0);
    let left = Instant::now();
    drop(clients);
    wait_until("nothing runs in the engines", || pair.running(0) + pair.running(1) == 0.0);
    println!("engines idle {:?} after the clients left", left.elapsed());
    ridge.wait_for_metric("ridge_requests_in_flight", &[], 0.0);
}

#[test]
fn an_engine_killed_under_load_breaks_only_the_streams_it_had_begun() {
    let pair = vllm_alone();
    let ridge = before_vllm(&pair);
    let stop = AtomicBool::new(false);
    let results = thread::scope(|scope| {
        let loaders: Vec<_> = (0..6)
            .map(|at| {
                let (ridge, stop) = (&ridge, &stop);
                scope.spawn(move || {
                    let mut results = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let prompt = format!("Story {at} number {}: once upon a time", results.len());
                        let body = json!({"model": MODEL, "prompt": prompt, "max_tokens": 10, "stream": true, "ignore_eos": true});
                        results.push(client::post_json(ridge.gateway, "/v1/completions", body.to_string()));
                    }
                    results
                })
            })
            .collect();
        wait_until("both engines work", || pair.running(0) > 0.0 && pair.running(1) > 0.0);
        pair.kill(0);
        wait_until("the dead engine is known to be", || {
            ridge.metrics().sum("ridge_endpoint_up", &[("endpoint", "engine-1")]) == Some(0.0)
        });
        stop.store(true, Ordering::Relaxed);
        loaders.into_iter().flat_map(|loader| loader.join().expect("no panic")).collect::<Vec<Response>>()
    });
    let mut broken = 0;
    for answer in &results {
        assert_eq!(answer.status(), 200, "{}", answer.text());
        if answer.end == End::Complete {
            assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
        } else {
            assert_eq!(header(answer, "x-ridge-endpoint"), "engine-1");
            assert!(!answer.text().contains("[DONE]"));
            broken += 1;
        }
    }
    println!("{} answers, {broken} broken off", results.len());
    assert!(broken <= 6, "{broken} of at most one a client");
    ridge.wait_for_metric("ridge_requests_in_flight", &[], 0.0);
    pair.restart(0);
    wait_until("it is used again", || {
        ridge.metrics().sum("ridge_endpoint_up", &[("endpoint", "engine-1")]) == Some(1.0)
    });
}
