//! Sizes around every limit, and what is not a request at all.

use e2e::{House, chat, completion, header};
use rig::client::{self, post_bytes, post_bytes_with};
use rig::{RawClient, RidgeProcess, ScriptedEngine, script, wait_until};

const PATH: &str = "/v1/chat/completions";

fn sized(bytes: usize) -> String {
    let empty = completion("");
    let body = completion(&"a".repeat(bytes - empty.len()));
    assert_eq!(body.len(), bytes);
    body
}

#[test]
fn large_bodies_reach_the_engine_intact() {
    let house = House::answering(script::json(200, "{}"));
    let mut client = RawClient::connect(house.addr());
    // Around the usual defaults of web frameworks, then as large as image prompts get.
    for bytes in [1_900_000, 2_097_152, 2_097_153, 5 << 20, 8_500_000, 33_000_000] {
        let body = sized(bytes);
        client.send(post_bytes("/v1/completions", &body));
        assert_eq!(client.read_response().status(), 200, "{bytes}");
        let seen = house.engine().requests().pop().expect("a request");
        assert!(seen.body == body.as_bytes(), "{bytes} became {}", seen.body.len());
        house.engine().clear();
    }
}

#[test]
fn the_body_limit_is_exact() {
    let limit = 100_000;
    let house =
        House::with(vec![ScriptedEngine::answering(script::json(200, "{}"))], &["--limits-body", "100000B"]);
    for (bytes, status) in [(limit - 1, 200), (limit, 200), (limit + 1, 413), (10 * limit, 413)] {
        let answer = client::post_json(house.addr(), "/v1/completions", sized(bytes));
        assert_eq!(answer.status(), status, "{bytes}");
        let body = sized(bytes);
        let mut chunked = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
            body.len()
        );
        chunked.push_str(&body);
        chunked.push_str("\r\n0\r\n\r\n");
        let mut client = RawClient::connect(house.addr());
        // The gateway may answer and close before all is sent.
        let _ = client.try_send(&chunked);
        assert_eq!(client.read_response().status(), status, "{bytes} chunked");
    }
    assert!(house.engine().requests().iter().all(|request| request.body.len() <= limit));
    house.ridge.wait_for_metric("ridge_requests_total", &[("status", "413")], 4.0);
    wait_until("the refusal is in the log", || house.ridge.output().contains("413"));
}

#[test]
fn a_body_too_large_is_told_in_the_shape_of_each_api() {
    let house =
        House::with(vec![ScriptedEngine::answering(script::json(200, "{}"))], &["--limits-body", "2KiB"]);
    for (path, message, kind) in [
        (PATH, "/error/message", Some(("/error/type", "invalid_request_error"))),
        ("/v1/messages", "/error/message", Some(("/error/type", "request_too_large"))),
        ("/api/chat", "/error", None),
    ] {
        let answer = client::post_json(house.addr(), path, sized(5_000));
        assert_eq!(answer.status(), 413, "{path}");
        assert_eq!(header(&answer, "content-type"), "application/json");
        let body = answer.json();
        let text = body.pointer(message).and_then(serde_json::Value::as_str).unwrap_or_default();
        assert!(text.contains("2048") || text.contains("2 KiB") || text.contains("2KiB"), "{body}");
        if let Some((pointer, value)) = kind {
            assert_eq!(body.pointer(pointer).and_then(serde_json::Value::as_str), Some(value), "{body}");
        }
    }
    assert!(house.engine().requests().is_empty());
}

#[test]
fn a_body_too_large_is_refused_before_it_is_sent() {
    let house =
        House::with(vec![ScriptedEngine::answering(script::json(200, "{}"))], &["--limits-body", "2KiB"]);
    let mut client = RawClient::connect(house.addr());
    client.send(format!(
        "POST {PATH} HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\ncontent-length: 99999999999\r\n\r\n"
    ));
    let answer = client.read_response();
    assert_eq!((answer.status(), answer.interim.as_slice()), (413, &[][..]));
}

#[test]
fn a_client_that_waits_to_send_is_told_to_go_on() {
    let house = House::answering(script::json(200, "{}"));
    let body = chat(false);
    let mut client = RawClient::connect(house.addr());
    client.send(format!(
        "POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    ));
    let mut answer = client.read_until(|_| true);
    if answer.interim.is_empty() && !answer.has_head() {
        panic!("neither told to go on nor answered");
    }
    client.send(&body);
    client.read_on(&mut answer);
    assert_eq!(answer.status(), 200);
}

#[test]
fn bad_bodies_are_refused_with_a_reason() {
    let house = House::answering(script::json(200, "{}"));
    let deep = format!(r#"{{"model":"m","x":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let bodies: [(&str, &[u8]); 12] = [
        ("empty", b""),
        ("cut", br#"{"model":"m","#),
        ("no object", br#"["model"]"#),
        ("a number", b"7"),
        ("not UTF-8", b"{\"model\":\"m\",\"prompt\":\"\xff\xfe\"}"),
        ("no model", br#"{"prompt":"x"}"#),
        ("model of another type", br#"{"model":7,"prompt":"x"}"#),
        ("null model", br#"{"model":null,"prompt":"x"}"#),
        ("two models", br#"{"model":"m","model":"other","prompt":"x"}"#),
        ("stream of another type", br#"{"model":"m","stream":"yes","prompt":"x"}"#),
        ("something behind", br#"{"model":"m"} {"model":"m"}"#),
        ("too deep", deep.as_bytes()),
    ];
    for (what, body) in bodies {
        let answer = client::post_json(house.addr(), PATH, body);
        assert_eq!(answer.status(), 400, "{what}: {}", answer.text());
        let error = answer.json();
        assert!(error["error"]["code"].is_string(), "{what}: {error}");
        assert!(error["error"]["message"].as_str().is_some_and(|text| text.len() > 10), "{what}: {error}");
    }
    assert!(house.engine().requests().is_empty());
    // Each was counted.
    house.ridge.wait_for_metric("ridge_requests_total", &[("status", "400")], 12.0);
}

#[test]
fn heads_that_are_too_large_are_refused() {
    let house = House::answering(script::json(200, "{}"));
    let long = "x".repeat(70_000);
    let answer = client::exchange(house.addr(), &post_bytes_with(PATH, &[("x-long", &long)], chat(false)));
    assert_eq!(answer.status(), 431);
    let many: Vec<(&str, &str)> = (0..200).map(|_| ("x-many", "1")).collect();
    let answer = client::exchange(house.addr(), &post_bytes_with(PATH, &many, chat(false)));
    assert_eq!(answer.status(), 431);
    assert!(house.engine().requests().is_empty());
    assert_eq!(client::post_json(house.addr(), PATH, chat(false)).status(), 200);
}

#[test]
fn ambiguous_requests_never_reach_an_engine() {
    let house = House::answering(script::json(200, "{}"));
    let body = chat(false);
    let length = body.len();
    for head in [
        format!("content-length: {length}\r\ncontent-length: {}\r\n", length + 1),
        format!("content-length: +{length}\r\n"),
        "content-length: -1\r\n".to_owned(),
        "content-length: 99999999999999999999999\r\n".to_owned(),
        "transfer-encoding: gzip\r\n".to_owned(),
        format!("content-length: {length}\r\nx y: z\r\n"),
        format!("content-length: {length}\r\nx: a\0b\r\n"),
    ] {
        let mut client = RawClient::connect(house.addr());
        client.send(format!("POST {PATH} HTTP/1.1\r\nhost: g\r\n{head}\r\n{body}"));
        client.finish_sending();
        let answer = client.read_response();
        assert!(
            answer.status() == 0 || (400..500).contains(&answer.status()),
            "{head:?}: {}",
            answer.status()
        );
    }
    assert!(house.engine().requests().is_empty(), "{:?}", house.engine().requests()[0].headers());
}

#[test]
fn a_length_beside_chunks_does_not_smuggle_a_second_request() {
    let house = House::answering(script::json(200, "{}"));
    let body = chat(false);
    let smuggled = "POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 0\r\n\r\n";
    let wire = format!(
        "POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let mut client = RawClient::connect(house.addr());
    client.send(wire + smuggled);
    let answer = client.read_response();
    // Refusing is right; so is dropping the length and reading the chunks.
    if answer.status() == 200 {
        let seen = &house.engine().requests()[0];
        assert_eq!(seen.body, body.as_bytes());
        assert!(seen.header("content-length").len() + seen.header("transfer-encoding").len() == 1);
    } else {
        assert_eq!(answer.status(), 400);
    }
}

#[test]
fn nonsense_on_the_port_harms_nobody() {
    let house = House::answering(script::json(200, "{}"));
    for nonsense in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"\0\0\0\0\0",
        b"GET\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    ] {
        let mut client = RawClient::connect(house.addr());
        client.send(nonsense);
        client.finish_sending();
        let _ = client.read_response();
    }
    assert_eq!(client::post_json(house.addr(), PATH, chat(false)).status(), 200);
    assert_eq!(client::get(house.addr(), "/livez").status(), 200);
}

#[test]
fn the_default_limit_is_64_mib() {
    let engine = ScriptedEngine::answering(script::json(200, "{}"));
    let ridge = RidgeProcess::serve(["--upstream".to_owned(), engine.url()]);
    let house = House::around(ridge, vec![engine]);
    house.wait_for_endpoints(1);
    let mut client = RawClient::connect(house.addr());
    client.send(format!("POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-length: {}\r\n\r\n", (64 << 20) + 1));
    assert_eq!(client.read_response().status(), 413);
}

#[test]
fn all_bodies_together_are_bounded() {
    let house =
        House::with(vec![ScriptedEngine::answering(script::json(200, "{}"))], &["--limits-bodies", "4MiB"]);
    let body = completion(&"x".repeat(3 << 20));
    // A client that sends most of its body and then nothing holds what it sent.
    let mut slow = RawClient::connect(house.addr());
    let head = format!("POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    slow.send([head.as_bytes(), &body.as_bytes()[..body.len() - 10]].concat());
    wait_until("it is counted", || {
        house.ridge.metrics().sum("ridge_request_body_bytes", &[]).is_some_and(|bytes| bytes > 2e6)
    });
    let refused = client::post_json(house.addr(), "/v1/completions", &body);
    assert_eq!(refused.status(), 503);
    assert!(refused.text().contains("bodies_full"), "{}", refused.text());
    drop(slow);
    wait_until("its place is free", || {
        client::post_json(house.addr(), "/v1/completions", &body).status() == 200
    });
}
