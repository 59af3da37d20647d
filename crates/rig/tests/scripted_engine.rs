//! The scripted engine and the raw client, tried on each other.

use std::time::Duration;

use rig::client::{self, post_bytes};
use rig::{End, RawClient, ScriptedEngine, Step, script, wait_until};

#[test]
fn keeps_the_request_as_it_came() {
    let engine = ScriptedEngine::answering(script::json(200, "{}"));
    let wire = b"POST /v1/x?y=1 HTTP/1.1\r\nHost: a\r\nX-Odd:  two  \r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let mut client = RawClient::connect(engine.addr());
    client.send_in_pieces(wire, 1);
    assert_eq!(client.read_response().status(), 200);
    let request = &engine.requests()[0];
    assert!(wire.starts_with(&request.head));
    assert_eq!(request.body, b"abcde");
    assert_eq!(request.target(), "/v1/x?y=1");
    assert!(request.complete);
}

#[test]
fn keeps_connections_and_counts_them() {
    let engine = ScriptedEngine::answering(script::sse(["data: 1\n\n", "data: 2\n\n"]));
    let mut client = RawClient::connect(engine.addr());
    for _ in 0..3 {
        client.send(post_bytes("/v1/completions", "{}"));
        let response = client.read_response();
        assert_eq!((response.end, response.body()), (End::Complete, &b"data: 1\n\ndata: 2\n\n"[..]));
        assert_eq!(response.chunk_sizes(), [9, 9]);
    }
    assert_eq!(engine.connections_accepted(), 1);
    assert_eq!(engine.requests()[2].index_on_connection, 2);
}

#[test]
fn pauses_are_seen_in_the_arrival_times() {
    let engine = ScriptedEngine::answering(script::paced(script::sse(["a", "b", "c"]), 60));
    let response = client::post_json(engine.addr(), "/v1/completions", "{}");
    let first = response.arrival_of(0).expect("the first byte");
    let last = response.arrival_of(2).expect("the last byte");
    assert!(last - first >= Duration::from_millis(100), "{:?}", last - first);
}

#[test]
fn resets_and_cuts_are_told_apart() {
    let begin = || script::Script::from([script::sse_head(), script::chunk("x")]);
    for (step, end) in [(Step::Reset, End::Reset), (Step::Close, End::Cut)] {
        let mut steps = begin();
        // Time for the bytes to be read: a reset throws away what still waits in the reader's kernel.
        steps.push(script::pause(100));
        steps.push(step);
        let engine = ScriptedEngine::answering(steps);
        let response = client::post_json(engine.addr(), "/v1/completions", "{}");
        assert_eq!((response.end, response.body()), (end, &b"x"[..]));
    }
}

#[test]
fn notices_a_client_that_leaves() {
    let engine = ScriptedEngine::answering(vec![script::sse_head(), Step::Hang]);
    let mut client = RawClient::connect(engine.addr());
    client.send(post_bytes("/v1/completions", "{}"));
    engine.wait_for_requests(1);
    client.close();
    wait_until("the abort is noted", || engine.requests()[0].aborted_at.is_some());
}

#[test]
fn notices_a_client_that_leaves_during_the_upload() {
    let engine = ScriptedEngine::answering(script::json(200, "{}"));
    let mut client = RawClient::connect(engine.addr());
    client.send("POST /v1/x HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nonly this");
    wait_until("part of the body has come", || {
        engine.requests().first().is_some_and(|request| request.body == b"only this")
    });
    client.reset();
    wait_until("the abort is noted", || engine.requests()[0].aborted_at.is_some());
    assert!(!engine.requests()[0].complete);
}

#[test]
fn looks_like_vllm_to_whoever_asks() {
    let engine = ScriptedEngine::answering(script::json(200, "{}"));
    engine.set_model("llama");
    engine.set_load(3, 2);
    let models = client::get(engine.addr(), "/v1/models").json();
    assert_eq!(models["data"][0]["id"], "llama");
    let metrics = rig::MetricsText::parse(&client::get(engine.addr(), "/metrics").text());
    assert_eq!(metrics.sum("vllm:num_requests_running", &[("model_name", "llama")]), Some(3.0));
    assert_eq!(client::get(engine.addr(), "/nowhere").status(), 404);
    assert!(engine.requests().is_empty());
}

#[test]
fn dies_and_comes_back_on_its_port() {
    let mut engine = ScriptedEngine::answering(vec![script::sse_head(), Step::Hang]);
    let mut client = RawClient::connect(engine.addr());
    client.send(post_bytes("/v1/completions", "{}"));
    let mut response = client.read_until(|_| true);
    engine.kill();
    client.read_on(&mut response);
    assert_ne!(response.end, End::Complete);
    engine.restart();
    assert_eq!(client::get(engine.addr(), "/health").status(), 200);
}

#[test]
fn answers_early_without_reading_the_body() {
    let engine = ScriptedEngine::answering(script::json(200, "{}"));
    engine.set_at_head(|request| (request.target() == "/big").then(|| script::json(413, "{}")));
    let mut client = RawClient::connect(engine.addr());
    client.send("POST /big HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nx");
    assert_eq!(client.read_response().status(), 413);
}
