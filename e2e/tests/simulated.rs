//! The gateway before simulated engines: answers to compare by the byte, real batching, faults on demand.

use std::thread;

use e2e::{before, header};
use rig::client::{self, post_bytes};
use rig::{End, RawClient, Response, RidgeProcess, SimProcess, wait_until};
use serde_json::{Value, json};

const COMPLETIONS: &str = "/v1/completions";

/// Engines as fast as the machine allows, so that tests wait for nothing.
fn fast(replicas: usize, more: &[&str]) -> (SimProcess, RidgeProcess) {
    let mut arguments = vec!["--speed", "100", "--block-size", "16"];
    arguments.extend(more);
    let sim = SimProcess::start(replicas, &arguments);
    let ridge = before(&sim.urls(), "sim");
    (sim, ridge)
}

/// Engines slow enough to be caught in the middle of an answer.
fn slow(replicas: usize) -> (SimProcess, RidgeProcess) {
    let sim = SimProcess::start(replicas, &["--speed", "2", "--block-size", "16"]);
    let ridge = before(&sim.urls(), "sim");
    (sim, ridge)
}

fn prompt(text: &str, more: &Value) -> String {
    let mut body = json!({"model": "sim", "prompt": text, "max_tokens": 20});
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    body.to_string()
}

fn fault(sim: &SimProcess, replica: usize, fault: &Value) {
    let answer = client::post_json(sim.replicas[replica], "/sim/fault", fault.to_string());
    assert!(answer.status() < 300, "{}", answer.text());
}

fn idle(ridge: &RidgeProcess) {
    ridge.wait_for_metric("ridge_requests_in_flight", &[], 0.0);
    assert!(!ridge.output().contains("panicked"), "{}", ridge.output());
}

#[test]
fn every_api_answers_as_the_engine_does() {
    let (sim, ridge) = fast(2, &[]);
    let ask = [json!({"role": "user", "content": "Tell me a story."})];
    for (path, body) in [
        ("/v1/chat/completions", json!({"model": "sim", "messages": ask, "max_tokens": 30})),
        ("/v1/chat/completions", json!({"model": "sim", "messages": ask, "max_tokens": 30, "stream": true})),
        (
            "/v1/chat/completions",
            json!({"model": "sim", "messages": ask, "stream": true, "max_tokens": 9, "stream_options": {"include_usage": true}}),
        ),
        (COMPLETIONS, json!({"model": "sim", "prompt": "Once", "max_tokens": 30})),
        (COMPLETIONS, json!({"model": "sim", "prompt": "Once", "max_tokens": 30, "stream": true})),
        ("/v1/responses", json!({"model": "sim", "input": "Once", "max_output_tokens": 30})),
        ("/v1/responses", json!({"model": "sim", "input": "Once", "max_output_tokens": 30, "stream": true})),
        ("/v1/embeddings", json!({"model": "sim", "input": ["one", "two"]})),
        ("/tokenize", json!({"model": "sim", "prompt": "one two three"})),
        (COMPLETIONS, json!({"model": "sim", "prompt": "Once", "max_tokens": -3})),
        (COMPLETIONS, json!({"model": "sim", "prompt": {"not": "a prompt"}})),
    ] {
        // Twice, so that what is cached is the same for the engine asked directly.
        let through = [0, 1].map(|_| client::post_json(ridge.gateway, path, body.to_string()));
        let answered = header(&through[1], "x-ridge-endpoint");
        let at = if answered == "engine-1" { 0 } else { 1 };
        let direct = client::post_json(sim.replicas[at], path, body.to_string());
        assert_eq!(through[1].status(), direct.status(), "{path} {body}");
        assert_eq!(header(&through[1], "content-type"), header(&direct, "content-type"));
        assert_eq!(through[1].end, End::Complete);
        assert_eq!(through[1].text(), direct.text(), "{path} {body}");
    }
    idle(&ridge);
}

#[test]
fn each_kind_of_engine_is_recognised() {
    for kind in ["vllm", "sglang", "trtllm"] {
        let (_sim, ridge) = fast(1, &["--engine-kind", kind]);
        wait_until(kind, || {
            let infos = ridge.metrics().series("ridge_endpoint_info");
            let squeezed = |text: &String| text.to_lowercase().replace(['-', '_'], "");
            infos.iter().any(|(labels, _)| {
                labels.get("engine").map(squeezed).is_some_and(|name| {
                    name.contains(kind) || name.starts_with("tensorrt") && kind == "trtllm"
                })
            })
        });
        wait_until("its load is read", || ridge.metrics().sum("ridge_endpoint_waiting", &[]).is_some());
    }
}

#[test]
fn a_conversation_stays_where_its_prefix_is_cached() {
    let (_sim, ridge) = fast(4, &[]);
    let mut text = "A system prompt that every turn begins with, long enough for several blocks. ".repeat(20);
    let mut endpoints = Vec::new();
    for turn in 0..8 {
        text.push_str(&format!("Turn {turn} adds a sentence of its own. "));
        let answer = client::post_json(ridge.gateway, COMPLETIONS, prompt(&text, &json!({})));
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
        assert!(turn == 0 || cached > 100, "turn {turn}: {cached}");
        endpoints.push(header(&answer, "x-ridge-endpoint"));
    }
    endpoints.dedup();
    assert_eq!(endpoints.len(), 1, "{endpoints:?}");
    let reported = || ridge.metrics().sum("ridge_cached_tokens_reported_total", &[]).unwrap_or(0.0);
    wait_until("the engine's account of its cache is counted", || reported() > 700.0);
}

#[test]
fn three_hundred_streams_at_once_are_each_their_own() {
    let (sim, ridge) = fast(3, &[]);
    let bodies: Vec<String> =
        (0..300).map(|i| prompt(&format!("Number {i} asks for itself"), &json!({"stream": true}))).collect();
    let mut clients: Vec<RawClient> = bodies.iter().map(|_| RawClient::connect(ridge.gateway)).collect();
    for (client, body) in clients.iter_mut().zip(&bodies) {
        client.send(post_bytes(COMPLETIONS, body));
    }
    let answers: Vec<Response> = clients.iter_mut().map(RawClient::read_response).collect();
    for (answer, body) in answers.iter().zip(&bodies).step_by(7) {
        let direct = client::post_json(sim.replicas[0], COMPLETIONS, body);
        assert_eq!((answer.status(), answer.end), (200, End::Complete));
        assert_eq!(answer.text(), direct.text());
    }
    idle(&ridge);
    for endpoint in ["engine-1", "engine-2", "engine-3"] {
        let share = answers.iter().filter(|answer| header(answer, "x-ridge-endpoint") == endpoint).count();
        assert!((70..=130).contains(&share), "{endpoint} has {share} of 300");
    }
}

#[test]
fn a_reset_in_the_middle_is_an_error_and_no_end() {
    let (sim, ridge) = slow(1);
    for after_tokens in [1, 5, 19] {
        fault(&sim, 0, &json!({"kind": "reset", "after_tokens": after_tokens}));
        let body = prompt("Once upon a time", &json!({"stream": true, "ignore_eos": true}));
        let answer = client::post_json(ridge.gateway, COMPLETIONS, body);
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert_ne!(answer.end, End::Complete, "after {after_tokens}: {}", answer.text());
        assert!(!answer.text().contains("[DONE]"));
    }
    idle(&ridge);
}

#[test]
fn a_client_that_gives_up_on_a_stalled_engine_leaves_nothing_behind() {
    let (sim, ridge) = slow(1);
    for kind in ["stall", "hang"] {
        fault(&sim, 0, &json!({"kind": kind}));
        let mut client = RawClient::connect(ridge.gateway);
        client.send(post_bytes(COMPLETIONS, prompt("Once", &json!({"stream": true}))));
        ridge.wait_for_metric("ridge_requests_in_flight", &[], 1.0);
        client.close();
        idle(&ridge);
        let free = || client::get(sim.replicas[0], "/metrics").text();
        wait_until("the engine is free", || {
            rig::MetricsText::parse(&free()).sum("vllm:num_requests_running", &[]) == Some(0.0)
        });
    }
}

#[test]
fn an_engine_that_crashes_under_load_breaks_only_what_it_had_begun() {
    let (sim, ridge) = slow(3);
    let loaders: Vec<_> = (0..12)
        .map(|at| {
            let gateway = ridge.gateway;
            thread::spawn(move || {
                let ask = |i| {
                    prompt(
                        &format!("{at} {i} begins otherwise"),
                        &json!({"stream": true, "ignore_eos": true}),
                    )
                };
                (0..25).map(|i| client::post_json(gateway, COMPLETIONS, ask(i))).collect::<Vec<Response>>()
            })
        })
        .collect();
    wait_until("all engines work", || {
        ["engine-1", "engine-2", "engine-3"].iter().all(|name| {
            ridge.metrics().sum("ridge_endpoint_requests_total", &[("endpoint", name)]) > Some(5.0)
        })
    });
    fault(&sim, 0, &json!({"kind": "crash"}));
    let answers: Vec<Response> =
        loaders.into_iter().flat_map(|loader| loader.join().expect("the loader does not panic")).collect();
    let mut broken = 0;
    for answer in &answers {
        assert_eq!(answer.status(), 200, "{}", answer.text());
        if answer.end == End::Complete {
            assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
        } else {
            assert_eq!(header(answer, "x-ridge-endpoint"), "engine-1");
            broken += 1;
        }
    }
    assert!(broken <= 12, "{broken} broken answers of at most one a client");
    idle(&ridge);
    ridge.wait_for_metric("ridge_endpoint_up", &[("endpoint", "engine-1")], 0.0);
}

#[test]
fn a_slow_engine_gets_less() {
    let sim = SimProcess::start(2, &["--speed", "20", "--replica", "0:slow=8"]);
    let ridge = before(&sim.urls(), "sim");
    let loaders: Vec<_> = (0..16)
        .map(|at| {
            let gateway = ridge.gateway;
            thread::spawn(move || {
                for i in 0..20 {
                    let body = prompt(&format!("{at} {i} begins otherwise"), &json!({"ignore_eos": true}));
                    assert_eq!(client::post_json(gateway, COMPLETIONS, body).status(), 200);
                }
            })
        })
        .collect();
    for loader in loaders {
        loader.join().expect("every answer is good");
    }
    let share =
        |name| ridge.metrics().sum("ridge_endpoint_requests_total", &[("endpoint", name)]).unwrap_or(0.0);
    assert!(share("engine-1") * 2.0 < share("engine-2"), "{} and {}", share("engine-1"), share("engine-2"));
}
