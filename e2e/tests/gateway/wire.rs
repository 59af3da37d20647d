//! The wire itself: heads and framing cut anywhere, and answers that are not quite as they should be.

use std::time::Duration;

use e2e::{House, chat, completion, header};
use rig::client::{self, post_bytes, post_bytes_with};
use rig::script::{self, Script, Step};
use rig::{End, RawClient, ScriptedEngine, wait_until};

const PATH: &str = "/v1/chat/completions";

/// Whole answers as they stand on the wire, with the body that a client must get.
fn answers() -> Vec<(Vec<u8>, &'static [u8])> {
    let chunked = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
        9\r\ndata: 1\n\n\r\n00A;name=\"v\"\r\ndata: 22\n\n\r\n0\r\nx-sum: 1\r\n\r\n";
    let plain = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"a\":\"\xeb\x85\x95\"}";
    let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    vec![
        (chunked.to_vec(), b"data: 1\n\ndata: 22\n\n"),
        (plain.to_vec(), "{\"a\":\"\u{b155}\"}".as_bytes()),
        (interim.to_vec(), b"{}"),
    ]
}

#[test]
fn an_answer_cut_in_two_anywhere_on_the_wire_is_the_same_answer() {
    let house = House::answering(script::json(200, "{}"));
    let mut client = RawClient::connect(house.addr());
    for (wire, body) in answers() {
        for at in 1..wire.len() {
            let steps = vec![script::bytes(&wire[..at]), script::pause(1), script::bytes(&wire[at..])];
            house.engine().set(move |request| (request.method() == "POST").then(|| steps.clone()));
            client.send(post_bytes(PATH, chat(true)));
            let answer = client.read_response();
            assert_eq!(
                (answer.status(), answer.end, answer.body()),
                (200, End::Complete, body),
                "cut at {at}"
            );
        }
    }
    // No cut cost a connection.
    assert!(house.engine().request_connections().len() <= 2, "{:?}", house.engine().request_connections());
}

#[test]
fn an_answer_that_comes_byte_by_byte_is_the_same_answer() {
    for (wire, body) in answers() {
        let house = House::answering(wire.iter().map(|byte| Step::Bytes(vec![*byte])).collect());
        let answer = client::post_json(house.addr(), PATH, chat(true));
        assert_eq!((answer.status(), answer.end, answer.body()), (200, End::Complete, body));
    }
}

#[test]
fn a_request_cut_in_two_anywhere_is_the_same_request() {
    let house = House::answering(script::json(200, "{}"));
    let wire = post_bytes(PATH, chat(false));
    for at in 1..wire.len() {
        let mut client = RawClient::connect(house.addr());
        client.send(&wire[..at]);
        client.send(&wire[at..]);
        assert_eq!(client.read_response().status(), 200, "cut at {at}");
    }
    assert!(house.engine().requests().iter().all(|request| request.body == chat(false).as_bytes()));
}

#[test]
fn what_follows_an_answer_is_nobodys() {
    // A second answer that nobody asked for: given to the next client it would be someone else's.
    let mut wire = answers().remove(0).0;
    wire.extend(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged");
    let surplus_later = vec![
        script::json(200, "{}").remove(0),
        script::pause(5),
        script::bytes("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"),
    ];
    for steps in [vec![Step::Bytes(wire)], surplus_later] {
        let house = House::with(vec![ScriptedEngine::answering(steps)], &["--threads", "1"]);
        let mut client = RawClient::connect(house.addr());
        for _ in 0..20 {
            client.send(post_bytes(PATH, chat(true)));
            let answer = client.read_response();
            assert_eq!(answer.status(), 200);
            assert_ne!(answer.body(), b"forged");
            // All of it has come before the next request; what comes after that nobody could tell apart.
            wait_until("the engine is done", || {
                house.engine().requests().iter().all(|request| request.answered_at.is_some())
            });
        }
    }
}

fn refused_or_cut(steps: Script, why: &str) {
    let house = House::answering(steps);
    let answer = client::post_json(house.addr(), PATH, chat(true));
    let told = matches!(answer.status(), 502 | 503) || answer.end != End::Complete;
    assert!(told, "{why}: {} {:?} {:?}", answer.status(), answer.end, answer.text());
}

#[test]
fn answers_that_no_one_can_be_sure_of_are_errors() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for (why, wire) in [
        ("two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{} ".to_owned()),
        ("a length with a sign", "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\n{}".to_owned()),
        ("a chunk size that is no number", format!("{head}xyz\r\n{{}}\r\n0\r\n\r\n")),
        ("a chunk size that overflows", format!("{head}fffffffffffffffff\r\n{{}}")),
        ("a chunk longer than its size", format!("{head}1\r\n{{}}\r\n0\r\n\r\n")),
        (
            "a switch of protocol",
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nraw".to_owned(),
        ),
        ("an endless head", format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(200_000))),
        (
            "too many fields",
            format!("HTTP/1.1 200 OK\r\n{}content-length: 2\r\n\r\n{{}}", "x: y\r\n".repeat(500)),
        ),
    ] {
        refused_or_cut(vec![script::bytes(wire), Step::Close], why);
    }
}

#[test]
fn an_answer_without_a_body_needs_none() {
    for status in [204, 304] {
        // Such an answer ends with its head, whatever length it tells.
        let house = House::answering(vec![script::bytes(script::head(status, &[("content-length", "5")]))]);
        let mut client = RawClient::connect(house.addr());
        for _ in 0..3 {
            client.send(post_bytes(PATH, chat(false)));
            let answer = client.read_response();
            assert_eq!((answer.status(), answer.end), (status, End::Complete));
        }
    }
    let house = House::answering(script::answer(200, &[], ""));
    let answer = client::post_json(house.addr(), PATH, chat(false));
    assert_eq!((answer.status(), answer.end, answer.body().len()), (200, End::Complete, 0));
}

#[test]
fn an_early_answer_reaches_the_client_and_costs_the_connection() {
    // The engine refuses by the head alone and never reads the body, which is more than the buffers on the way hold.
    let engine = ScriptedEngine::answering(script::json(200, "{}"));
    engine.set_at_head(|request| {
        let mut steps = script::json(400, r#"{"error":{"message":"too long for me"}}"#);
        steps.push(Step::Hang);
        (request.header("x-large").len() == 1).then_some(steps)
    });
    let house = House::with(vec![engine], &["--threads", "1"]);
    let large = post_bytes_with("/v1/completions", &[("x-large", "1")], completion(&"x".repeat(40 << 20)));
    let mut client = RawClient::connect(house.addr());
    client.send(large);
    let answer = client.read_response();
    assert_eq!(answer.status(), 400, "{}", answer.text());
    assert!(answer.text().contains("too long for me"));
    // On the connection whose request was never finished a next one would be taken for its body.
    client.send(post_bytes("/v1/completions", completion("short")));
    assert_eq!(client.read_response_within(Duration::from_secs(3)).status(), 200);
    assert_eq!(house.engine().request_connections().len(), 2);
}

#[test]
fn header_bytes_that_are_no_ascii_pass() {
    let mut wire = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-name: caf\xc3\xa9 \xff\r\n\r\n{}".to_vec();
    let house = House::answering(vec![Step::Bytes(std::mem::take(&mut wire))]);
    let body = chat(false);
    let mut request =
        format!("POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-length: {}\r\nx-mine: ", body.len()).into_bytes();
    request.extend(b"na\xc3\xafve \xfe\r\n\r\n");
    request.extend(body.as_bytes());
    let answer = client::exchange(house.addr(), &request);
    assert_eq!(answer.status(), 200);
    assert!(answer.head().windows(7).any(|window| window == b"caf\xc3\xa9 \xff"), "{:?}", answer.head());
    assert!(house.engine().requests()[0].head.windows(8).any(|window| window == b"na\xc3\xafve \xfe"));
}

#[test]
fn other_forms_of_a_target_do_not_lead_elsewhere() {
    let house = House::answering(script::json(200, "{}"));
    let body = chat(false);
    let length = body.len();
    for target in ["http://evil.example/sleep", "*", "evil.example:443", "/sleep#/v1/chat/completions"] {
        for method in ["POST", "CONNECT", "OPTIONS", "TRACE", "DELETE"] {
            let request =
                format!("{method} {target} HTTP/1.1\r\nhost: g\r\ncontent-length: {length}\r\n\r\n{body}");
            let answer = client::exchange(house.addr(), request.as_bytes());
            assert!((400..500).contains(&answer.status()), "{method} {target}: {}", answer.status());
        }
    }
    assert!(house.engine().requests().is_empty());
    // The absolute form of a good one is the good one.
    let request =
        format!("POST http://g{PATH} HTTP/1.1\r\nhost: g\r\ncontent-length: {length}\r\n\r\n{body}");
    assert_eq!(client::exchange(house.addr(), request.as_bytes()).status(), 200);
    assert_eq!(house.engine().requests()[0].target(), PATH);
}

#[test]
fn a_head_request_for_the_models_has_no_body() {
    let house = House::answering(script::json(200, "{}"));
    let mut client = RawClient::connect(house.addr());
    for _ in 0..3 {
        client.send("HEAD /v1/models HTTP/1.1\r\nhost: g\r\n\r\n");
        let answer = client.read_head_response();
        assert_eq!((answer.status(), answer.end), (200, End::Complete));
        assert!(header(&answer, "content-length").parse::<usize>().is_ok_and(|length| length > 10));
    }
    // The next answer begins where it should.
    client.send(post_bytes(PATH, chat(false)));
    assert_eq!(client.read_response().text(), "{}");
}

#[test]
fn an_engine_that_speaks_http2_is_spoken_to_in_it() {
    // Another gateway is an engine that speaks HTTP/2.
    let inner = House::answering(script::sse(["data: 1\n\n", "data: 2\n\n"]));
    let upstream = format!("http://{},protocol=h2c,model=m", inner.addr());
    let outer = rig::RidgeProcess::serve(["--upstream", upstream.as_str()]);
    let mut client = RawClient::connect(outer.gateway);
    for _ in 0..20 {
        client.send(post_bytes(PATH, chat(true)));
        let answer = client.read_response();
        assert_eq!((answer.status(), answer.end), (200, End::Complete), "{}", answer.text());
        assert_eq!(answer.text(), "data: 1\n\ndata: 2\n\n");
    }
    // Death in the middle is told through both.
    inner.engine().set(|request| {
        (request.method() == "POST")
            .then(|| vec![script::sse_head(), script::chunk("data: 1\n\n"), script::pause(30), Step::Reset])
    });
    client.send(post_bytes(PATH, chat(true)));
    let answer = client.read_response();
    assert_eq!((answer.status(), answer.body()), (200, &b"data: 1\n\n"[..]));
    assert_ne!(answer.end, End::Complete);
}

#[test]
fn leaving_is_noticed_through_http2_upstreams_too() {
    let inner = House::answering(vec![Step::Hang]);
    let upstream = format!("http://{},protocol=h2c,model=m", inner.addr());
    let outer = rig::RidgeProcess::serve(["--upstream", upstream.as_str()]);
    let mut client = RawClient::connect(outer.gateway);
    client.send(post_bytes(PATH, chat(true)));
    inner.engine().wait_for_requests(1);
    client.close();
    wait_until("the engine sees the abort", || inner.engine().requests()[0].aborted_at.is_some());
    outer.wait_for_metric("ridge_requests_in_flight", &[], 0.0);
}
