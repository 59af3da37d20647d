//! Clients that speak HTTP/2 with prior knowledge.

use e2e::{House, chat, completion};
use rig::{H2Client, ScriptedEngine, script};

const PATH: &str = "/v1/chat/completions";

#[test]
fn a_chunked_answer_has_neither_length_nor_chunking() {
    let events: Vec<String> = (0..20).map(|i| format!("data: {i}\n\n")).collect();
    let house = House::answering(script::sse(&events));
    let answer = H2Client::connect(house.addr()).post_json(PATH, chat(true));
    assert_eq!(answer.status, 200);
    assert!(answer.error.is_none(), "{answer:?}");
    for name in ["transfer-encoding", "content-length", "connection", "keep-alive"] {
        assert!(!answer.headers.contains_key(name), "{:?}", answer.headers);
    }
    assert_eq!(answer.body, events.concat().as_bytes());
}

#[test]
fn many_streams_share_a_connection() {
    let house = House::answering(script::json(200, "{}"));
    house.engine().set(|request| {
        let body = request.body.clone();
        (request.method() == "POST").then(|| script::paced(script::sse([body, b"\n\n".to_vec()]), 20))
    });
    let client = H2Client::connect(house.addr());
    let json = [("content-type", "application/json")];
    let bodies: Vec<String> = (0..50).map(|i| completion(&format!("stream {i}"))).collect();
    let streams: Vec<_> =
        bodies.iter().map(|body| client.start("POST", "/v1/completions", &json, body.clone())).collect();
    for (stream, body) in streams.into_iter().zip(&bodies) {
        let answer = stream.read_all();
        assert!(answer.error.is_none(), "{answer:?}");
        assert_eq!(String::from_utf8_lossy(&answer.body), format!("{body}\n\n"));
    }
}

#[test]
fn trailers_pass() {
    let head =
        [("content-type", "text/event-stream"), ("transfer-encoding", "chunked"), ("trailer", "x-sum")];
    let steps = vec![
        script::bytes(script::head(200, &head)),
        script::chunk("data: 1\n\n"),
        script::bytes("0\r\nx-sum: 7\r\n\r\n"),
    ];
    let house = House::answering(steps);
    let headers = [("content-type", "application/json"), ("te", "trailers")];
    let answer = H2Client::connect(house.addr()).start("POST", PATH, &headers, chat(true)).read_all();
    assert_eq!(answer.trailers.get("x-sum").map(|value| value.as_bytes()), Some(&b"7"[..]), "{answer:?}");
}

#[test]
fn bodies_of_any_size_pass() {
    let house = House::answering(script::json(200, "{}"));
    house.engine().set(|request| (request.method() == "POST").then(|| script::json(200, &request.body)));
    let client = H2Client::connect(house.addr());
    for size in [0, 1, 16_383, 16_384, 65_535, 65_536, 3_000_000] {
        let body = completion(&"x".repeat(size));
        let answer = client.post_json("/v1/completions", body.clone());
        assert_eq!((answer.status, answer.body.len()), (200, body.len()), "{:?}", answer.error);
        assert!(answer.body == body.as_bytes());
    }
}

#[test]
fn an_error_has_the_same_shape() {
    let house = House::answering(script::json(200, "{}"));
    let client = H2Client::connect(house.addr());
    let answer = client.post_json("/nowhere", "{}");
    assert_eq!(answer.status, 404);
    let body: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert!(body["error"]["code"].is_string(), "{body}");
}

#[test]
fn a_body_too_large_is_refused_on_its_own_stream() {
    let house =
        House::with(vec![ScriptedEngine::answering(script::json(200, "{}"))], &["--limits-body", "10KB"]);
    let client = H2Client::connect(house.addr());
    for size in [20_000, 3_000_000] {
        let answer = client.post_json("/v1/completions", completion(&"x".repeat(size)));
        assert_eq!(answer.status, 413, "{:?}", answer.error);
        assert_eq!(client.post_json("/v1/completions", completion("small")).status, 200);
    }
    assert_eq!(house.engine().requests().len(), 2);
}

#[test]
fn the_engine_sees_an_ordinary_http1_request() {
    let house = House::answering(script::json(200, "{}"));
    let headers =
        [("content-type", "application/json"), ("x-kept", "1"), ("cookie", "a=1"), ("te", "trailers")];
    let client = H2Client::connect(house.addr());
    assert_eq!(client.start("POST", PATH, &headers, chat(false)).read_all().status, 200);
    let seen = &house.engine().requests()[0];
    assert_eq!(seen.header("host"), [house.engine().addr().to_string()]);
    assert_eq!(seen.header("content-length"), [chat(false).len().to_string()]);
    assert_eq!(
        (seen.header("x-kept"), seen.header("cookie")),
        (vec!["1".to_owned()], vec!["a=1".to_owned()])
    );
    assert!(seen.headers().iter().all(|(name, _)| !name.starts_with(':')), "{:?}", seen.headers());
}
