//! Connections to engines: kept, reused, and given up without the client noticing.

use e2e::{House, chat, completion, header};
use rig::client::{self, post_bytes};
use rig::script::{self, Script, Step};
use rig::{H2Client, RawClient, ScriptedEngine};

const PATH: &str = "/v1/chat/completions";

fn with_length() -> Script {
    script::json(200, r#"{"ok":true}"#)
}

fn chunked() -> Script {
    script::sse(["data: 1\n\n", "data: [DONE]\n\n"])
}

#[test]
fn one_client_in_turn_needs_one_connection() {
    for answer in [with_length(), chunked()] {
        let house = House::answering(answer);
        let mut client = RawClient::connect(house.addr());
        for _ in 0..50 {
            client.send(post_bytes(PATH, chat(true)));
            assert_eq!(client.read_response().status(), 200);
        }
        assert_eq!(house.engine().requests().len(), 50);
        assert_eq!(house.engine().request_connections().len(), 1);
    }
}

#[test]
fn an_error_answer_does_not_cost_the_connection() {
    let house = House::answering(script::json(400, r#"{"error":{}}"#));
    let mut client = RawClient::connect(house.addr());
    for _ in 0..10 {
        client.send(post_bytes(PATH, chat(false)));
        assert_eq!(client.read_response().status(), 400);
    }
    assert_eq!(house.engine().request_connections().len(), 1);
}

#[test]
fn new_clients_use_the_kept_connections() {
    let house = House::with(vec![ScriptedEngine::answering(with_length())], &["--threads", "1"]);
    for _ in 0..20 {
        assert_eq!(client::post_json(house.addr(), PATH, chat(false)).status(), 200);
    }
    assert_eq!(house.engine().request_connections().len(), 1);
}

#[test]
fn an_engine_that_asks_to_close_is_obeyed() {
    let headers = [("content-type", "application/json"), ("connection", "close")];
    let mut steps = script::answer(200, &headers, "{}");
    steps.push(Step::Close);
    let house = House::answering(steps);
    let mut client = RawClient::connect(house.addr());
    for _ in 0..10 {
        client.send(post_bytes(PATH, chat(false)));
        let answer = client.read_response();
        assert_eq!(answer.status(), 200);
        // What the engine does with its connection is no business of the client's.
        assert!(answer.header("connection").is_empty(), "{:?}", answer.headers());
    }
}

/// Closes its connection in one of several ways when it is used a second time, before any byte of an answer.
fn closes_on_reuse(end: Step) -> ScriptedEngine {
    ScriptedEngine::start(move |request| {
        let first = request.index_on_connection == 0;
        (request.method() == "POST").then(|| if first { with_length() } else { vec![end.clone()] })
    })
}

#[test]
fn a_kept_connection_that_turns_out_closed_is_not_the_clients_problem() {
    for end in [Step::Close, Step::Reset] {
        let house = House::with(vec![closes_on_reuse(end)], &[]);
        let mut client = RawClient::connect(house.addr());
        for _ in 0..20 {
            client.send(post_bytes(PATH, chat(true)));
            let answer = client.read_response();
            assert_eq!((answer.status(), answer.text().as_str()), (200, r#"{"ok":true}"#));
        }
        house.wait_until_idle();
    }
}

#[test]
fn an_engine_that_closes_idle_connections_costs_no_request() {
    // The close races with the next request; whichever comes first, the client gets its answer.
    let mut steps = with_length();
    steps.push(script::pause(3));
    steps.push(Step::Close);
    let house = House::answering(steps);
    let mut client = RawClient::connect(house.addr());
    for _ in 0..200 {
        client.send(post_bytes(PATH, chat(false)));
        assert_eq!(client.read_response().status(), 200);
    }
}

#[test]
fn a_stored_request_is_not_sent_twice() {
    for field in [r#""store":true"#, r#""background":true"#] {
        let house = House::with(vec![closes_on_reuse(Step::Close)], &[]);
        let body = format!(r#"{{"model":"m",{field},"input":"x"}}"#);
        let mut client = RawClient::connect(house.addr());
        client.send(post_bytes("/v1/responses", r#"{"model":"m","input":"x"}"#));
        assert_eq!(client.read_response().status(), 200);
        client.send(post_bytes("/v1/responses", &body));
        let answer = client.read_response();
        assert!(matches!(answer.status(), 502 | 503), "{} {}", answer.status(), answer.text());
        assert!(answer.json()["error"]["code"].is_string(), "{}", answer.text());
        let sent = house.engine().requests().iter().filter(|request| request.body == body.as_bytes()).count();
        assert_eq!(sent, 1, "{field}");
    }
}

#[test]
fn a_request_that_gave_no_byte_goes_to_another_engine() {
    for end in [Step::Close, Step::Reset] {
        let broken = ScriptedEngine::answering(vec![end]);
        let good = ScriptedEngine::answering(with_length());
        let house = House::with(vec![broken, good], &[]);
        for i in 0..20 {
            let answer =
                client::post_json(house.addr(), "/v1/completions", completion(&format!("{i} other")));
            assert_eq!(answer.status(), 200, "{}", answer.text());
            assert_eq!(header(&answer, "x-ridge-endpoint"), "engine-2");
        }
        assert!(house.engines[1].requests().iter().all(|request| request.complete));
    }
}

#[test]
fn a_dead_engine_costs_no_request() {
    let engines = vec![ScriptedEngine::answering(with_length()), ScriptedEngine::answering(with_length())];
    let mut house = House::with(engines, &[]);
    house.engines[0].kill();
    for i in 0..50 {
        let answer = client::post_json(house.addr(), "/v1/completions", completion(&format!("{i} other")));
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert_eq!(header(&answer, "x-ridge-endpoint"), "engine-2");
    }
    house.engines[0].restart();
    house.wait_for_endpoints(2);
}

#[test]
fn the_number_of_attempts_is_told_and_bounded() {
    let engines = (0..5).map(|_| ScriptedEngine::answering(vec![Step::Close])).collect();
    let house = House::with(engines, &["--attempts", "3"]);
    let answer = client::post_json(house.addr(), PATH, chat(false));
    assert!(matches!(answer.status(), 502 | 503), "{}", answer.status());
    assert_eq!(header(&answer, "x-ridge-attempts"), "3");
    let tried: usize = house.engines.iter().map(|engine| engine.requests().len()).sum();
    assert_eq!(tried, 3);
}

#[test]
fn a_large_body_is_sent_again_whole() {
    let house = House::with(vec![closes_on_reuse(Step::Reset)], &[]);
    let body = completion(&"word ".repeat(200_000));
    let mut client = RawClient::connect(house.addr());
    for _ in 0..5 {
        client.send(post_bytes("/v1/completions", &body));
        let answer = client.read_response();
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    for request in house.engine().requests() {
        assert!(!request.complete || request.body == body.as_bytes());
    }
}

#[test]
fn few_connections_are_spread_over_all_threads() {
    let house = House::with(vec![ScriptedEngine::answering(with_length())], &["--threads", "2"]);
    let mut clients: Vec<RawClient> = (0..8).map(|_| RawClient::connect(house.addr())).collect();
    for client in &mut clients {
        client.send(post_bytes(PATH, chat(false)));
        assert_eq!(client.read_response().status(), 200);
    }
    let page = house.ridge.metrics();
    let cores = page.series("ridge_connections");
    assert_eq!(cores.len(), 2, "{cores:?}");
    for (labels, count) in cores {
        assert!((3.0..=5.0).contains(&count), "{labels:?} has {count} of 8");
    }
}

#[test]
fn both_protocols_are_served_on_one_port() {
    let house = House::answering(with_length());
    assert_eq!(client::post_json(house.addr(), PATH, chat(false)).status(), 200);
    let answer = H2Client::connect(house.addr()).post_json(PATH, chat(false));
    assert_eq!((answer.status, answer.body.as_slice()), (200, &br#"{"ok":true}"#[..]));
}

#[test]
fn a_client_that_wants_its_connection_closed_gets_that() {
    let house = House::answering(with_length());
    let mut client = RawClient::connect(house.addr());
    client.send(client::post_bytes_with(PATH, &[("connection", "close")], chat(false)));
    assert_eq!(client.read_response().status(), 200);
    assert!(client.is_closed_within(rig::DEADLINE));
    // To the engine the gateway's own connection stays.
    assert_eq!(client::post_json(house.addr(), PATH, chat(false)).status(), 200);
}

#[test]
fn an_old_client_gets_an_answer_it_can_read() {
    let house = House::answering(chunked());
    let body = chat(true);
    let request = format!(
        "POST {PATH} HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = client::exchange(house.addr(), request.as_bytes());
    assert_eq!(answer.status(), 200);
    assert!(answer.header("transfer-encoding").is_empty(), "{:?}", answer.headers());
    assert_eq!(answer.text(), "data: 1\n\ndata: [DONE]\n\n");
}
