//! A real llama.cpp server.

use std::time::Duration;

use e2e::engines::{Llama, MODEL};
use rig::client::{self, post_bytes};
use rig::{End, RawClient, wait_until};
use serde_json::json;

use crate::gateway;

#[test]
fn is_recognised_and_its_state_is_read() {
    let llama = Llama::start();
    let ridge = gateway(&[llama.url()]);
    wait_until("its kind is known", || {
        let kinds = ridge.metrics().series("ridge_endpoint_info");
        kinds.iter().any(|(labels, _)| labels.get("engine").is_some_and(|kind| kind.contains("llama")))
    });
    wait_until("its load is known", || ridge.metrics().sum("ridge_endpoint_running", &[]).is_some());
}

#[test]
fn streams_and_tells_its_usage() {
    let llama = Llama::start();
    let ridge = gateway(&[llama.url()]);
    let body = json!({"model": MODEL, "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 8,
        "temperature": 0, "messages": [{"role": "user", "content": "Count to five."}]});
    let answer = client::post_json(ridge.gateway, "/v1/chat/completions", body.to_string());
    assert_eq!((answer.status(), answer.end), (200, End::Complete), "{}", answer.text());
    assert!(answer.text().trim_end().ends_with("data: [DONE]"), "{}", answer.text());
    ridge.wait_for_metric("ridge_output_tokens_total", &[], 8.0);
}

#[test]
fn its_own_habit_of_closing_idle_connections_costs_no_request() {
    // It closes a connection that was idle for five seconds; the pool must not hand such a one out, or must recover.
    let llama = Llama::start();
    let ridge = gateway(&[llama.url()]);
    let body = json!({"model": MODEL, "prompt": "x", "max_tokens": 1}).to_string();
    let mut client = RawClient::connect(ridge.gateway);
    for _ in 0..3 {
        client.send(post_bytes("/v1/completions", &body));
        assert_eq!(client.read_response().status(), 200);
        // Nothing comes for longer than the engine keeps an idle connection.
        assert!(!client.is_closed_within(Duration::from_millis(5_300)));
    }
}
