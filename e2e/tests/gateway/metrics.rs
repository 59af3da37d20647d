//! What operators see: counts that add up, one log line a request, a page.

use e2e::{House, chat, completion};
use rig::client::{self, post_bytes};
use rig::script::{self, Step};
use rig::{RawClient, ScriptedEngine, wait_until};
use serde_json::Value;

const PATH: &str = "/v1/chat/completions";

fn usage_stream() -> script::Script {
    script::sse([
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":2,\"total_tokens\":102,\"prompt_tokens_details\":{\"cached_tokens\":64}}}\n\n",
        "data: [DONE]\n\n",
    ])
}

/// The access log's lines for clients' POSTs so far.
fn log_lines(house: &House) -> Vec<Value> {
    let output = house.ridge.output();
    let lines = output
        .lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| serde_json::from_str(line).ok());
    lines.filter(|line: &Value| line["method"] == "POST").collect()
}

#[test]
fn counts_add_up() {
    let house = House::answering(usage_stream());
    for _ in 0..7 {
        assert_eq!(client::post_json(house.addr(), PATH, chat(true)).status(), 200);
    }
    house.engine().set(|request| (request.method() == "POST").then(|| script::json(400, "{}")));
    for _ in 0..3 {
        assert_eq!(client::post_json(house.addr(), PATH, chat(false)).status(), 400);
    }
    house.wait_until_idle();
    let page = house.ridge.metrics();
    let of = |name: &str, status: &str| {
        page.sum(name, &[("endpoint", "engine-1"), ("model", "m"), ("status", status)])
    };
    assert_eq!(of("ridge_requests_total", "200"), Some(7.0));
    assert_eq!(of("ridge_requests_total", "400"), Some(3.0));
    for (name, count) in [("ridge_ttft_seconds_count", 7.0), ("ridge_e2e_seconds_count", 10.0)] {
        assert_eq!(page.sum(name, &[("endpoint", "engine-1"), ("model", "m")]), Some(count), "{name}");
    }
    assert!(page.sum("ridge_itl_seconds_count", &[]) >= Some(7.0));
    assert_eq!(page.sum("ridge_prompt_tokens_total", &[]), Some(700.0));
    assert_eq!(page.sum("ridge_output_tokens_total", &[]), Some(14.0));
    assert_eq!(page.sum("ridge_cached_tokens_reported_total", &[]), Some(448.0));
}

#[test]
fn a_usage_that_is_nonsense_adds_nothing_absurd() {
    let house = House::answering(script::json(200, "{}"));
    for usage in [
        r#"{"usage":{"prompt_tokens":-5,"completion_tokens":-1}}"#,
        r#"{"usage":{"prompt_tokens":1e300,"completion_tokens":"many"}}"#,
        r#"{"usage":{"prompt_tokens":99999999999999999999999,"completion_tokens":null}}"#,
        r#"{"usage":[1,2,3]}"#,
        r#"{"usage":null}"#,
        r#"{"usage":{"prompt_tokens":{"a":1}}}"#,
        r#"{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":1000000}"}}]}"#,
    ] {
        house.engine().set(move |request| (request.method() == "POST").then(|| script::json(200, usage)));
        assert_eq!(client::post_json(house.addr(), PATH, chat(false)).text(), usage);
    }
    house.wait_until_idle();
    for name in ["ridge_prompt_tokens_total", "ridge_output_tokens_total"] {
        let total = house.ridge.metrics().sum(name, &[]).unwrap_or(0.0);
        assert!((0.0..100.0).contains(&total), "{name} {total}");
    }
}

#[test]
fn tokens_of_each_apis_stream_are_counted_at_any_cut() {
    let anthropic = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":11,\"output_tokens\":1}}}\n\n\
        event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\\\"usage\\\"\"}}\n\n\
        event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":7}}\n\n\
        event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let responses = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n\
        event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":11,\"output_tokens\":7,\"total_tokens\":18}}}\n\n";
    let ollama = "{\"model\":\"m\",\"message\":{\"content\":\"a\"},\"done\":false}\n\
        {\"model\":\"m\",\"done\":true,\"prompt_eval_count\":11,\"eval_count\":7}\n";
    for (path, kind, stream) in [
        ("/v1/messages", "text/event-stream", anthropic),
        ("/v1/responses", "text/event-stream; charset=utf-8", responses),
        ("/api/chat", "application/x-ndjson", ollama),
    ] {
        for size in [1, 13, 1000] {
            let head = script::head(200, &[("content-type", kind), ("transfer-encoding", "chunked")]);
            let mut steps = vec![script::bytes(head)];
            for piece in stream.as_bytes().chunks(size) {
                steps.push(script::chunk(piece));
            }
            steps.push(script::last_chunk());
            let house = House::answering(steps);
            let answer = client::post_json(house.addr(), path, chat(true));
            assert_eq!(answer.text(), stream);
            house.ridge.wait_for_metric("ridge_prompt_tokens_total", &[], 11.0);
            house.ridge.wait_for_metric("ridge_output_tokens_total", &[], 7.0);
        }
    }
}

#[test]
fn each_request_has_one_line_in_the_log() {
    let house = House::answering(usage_stream());
    for id in ["first", "second"] {
        let request = client::post_bytes_with(PATH, &[("x-request-id", id)], chat(true));
        assert_eq!(client::exchange(house.addr(), &request).status(), 200);
    }
    let hostile = "/nowhere\\\"}%0a{\"forged\":true}";
    let _ = client::post_json(house.addr(), hostile, "{}");
    house.engine().set(|request| (request.method() == "POST").then(|| vec![Step::Hang]));
    let mut gone = RawClient::connect(house.addr());
    gone.send(post_bytes(PATH, chat(true)));
    house.engine().wait_for_requests(3);
    gone.close();
    wait_until("all four are logged", || log_lines(&house).len() >= 4);
    let lines = log_lines(&house);
    assert_eq!(lines.len(), 4, "{lines:?}");
    let of = |id: &str| lines.iter().filter(|line| line["id"] == id).collect::<Vec<_>>();
    for id in ["first", "second"] {
        let line = of(id);
        assert_eq!(line.len(), 1);
        assert_eq!(
            (&line[0]["status"], &line[0]["model"], &line[0]["endpoint"]),
            (&200.into(), &"m".into(), &"engine-1".into())
        );
        assert_eq!((&line[0]["prompt_tokens"], &line[0]["output_tokens"]), (&100.into(), &2.into()));
        assert!(line[0]["duration_ms"].as_f64() >= line[0]["ttft_ms"].as_f64());
    }
    assert!(lines.iter().any(|line| line["error"] == "client_gone"), "{lines:?}");
    assert!(lines.iter().all(|line| line["forged"].is_null()));
}

#[test]
fn the_log_can_be_turned_off() {
    let house =
        House::with(vec![ScriptedEngine::answering(script::json(200, "{}"))], &["--access-log-to", "off"]);
    assert_eq!(client::post_json(house.addr(), "/v1/completions", completion("x")).status(), 200);
    house.wait_until_idle();
    assert!(log_lines(&house).is_empty());
}

#[test]
fn the_admin_page_is_one_file_and_shows_the_endpoints() {
    let house = House::answering(script::json(200, "{}"));
    assert_eq!(client::post_json(house.addr(), PATH, chat(false)).status(), 200);
    let page = client::get(house.ridge.admin, "/");
    assert_eq!(page.status(), 200);
    let text = page.text();
    for outside in ["src=\"http", "href=\"http", "@import", "//cdn"] {
        assert!(!text.contains(outside), "{outside} in the page");
    }
    assert!(page.header("content-type")[0].starts_with("text/html"));
    // Another site's page in the operator's browser must not read it.
    let request = b"GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    assert_ne!(client::exchange(house.ridge.admin, request).status(), 200);
}
