//! Clients that are slow on purpose are ended, and honest ones are not.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use e2e::{House, chat};
use rig::client::{self, post_bytes};
use rig::script::{self, Step};
use rig::{DEADLINE, End, H2Client, RawClient, Response, ScriptedEngine};

const PATH: &str = "/v1/chat/completions";

fn house(arguments: &[&str]) -> House {
    House::with(vec![ScriptedEngine::answering(script::json(200, "{}"))], arguments)
}

fn wait_for_closed(house: &House, reason: &str, count: f64) {
    house.ridge.wait_for_metric("ridge_client_closed_total", &[("reason", reason)], count);
}

/// Sends a byte about every 50 ms until something comes back, or the connection ends.
fn trickle(client: &mut RawClient, bytes: &[u8]) -> Response {
    for byte in bytes {
        if client.try_send([*byte]).is_err() {
            break;
        }
        let answer = client.read_response_within(Duration::from_millis(50));
        if answer.end != End::Deadline || answer.has_head() {
            return answer;
        }
    }
    client.read_response()
}

#[test]
fn a_head_that_trickles_in_is_ended() {
    let house = house(&["--timeouts-header", "500ms"]);
    let began = Instant::now();
    let mut client = RawClient::connect(house.addr());
    let answer = trickle(&mut client, &post_bytes(PATH, chat(false)));
    assert_eq!((answer.status(), answer.end), (408, End::Complete));
    assert_eq!(answer.json()["error"]["code"], "head_too_slow");
    assert!(client.is_closed_within(DEADLINE));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    wait_for_closed(&house, "head_too_slow", 1.0);
    assert!(house.engine().requests().is_empty());
}

#[test]
fn so_is_the_second_head_of_a_connection() {
    let house = house(&["--timeouts-header", "500ms"]);
    let mut client = RawClient::connect(house.addr());
    client.send(post_bytes(PATH, chat(false)));
    assert_eq!(client.read_response().status(), 200);
    let answer = trickle(&mut client, &post_bytes(PATH, chat(false)));
    assert_eq!(answer.status(), 408);
    assert!(client.is_closed_within(DEADLINE));
    assert_eq!(house.engine().requests().len(), 1);
}

#[test]
fn who_says_nothing_is_told_nothing() {
    let house = house(&["--timeouts-header", "500ms"]);
    // To one that has sent nothing a 408 could look like the answer to a request on its way.
    assert!(RawClient::connect(house.addr()).is_closed_within(DEADLINE));
    // Half of what HTTP/2 begins with is the same.
    let mut client = RawClient::connect(house.addr());
    client.send("PRI * HTTP/2.0\r\n");
    assert!(client.is_closed_within(DEADLINE));
    wait_for_closed(&house, "head_too_slow", 2.0);
}

#[test]
fn idle_connections_are_closed_in_order() {
    let house = house(&["--timeouts-idle", "1s", "--timeouts-header", "500ms"]);
    let mut client = RawClient::connect(house.addr());
    for _ in 0..2 {
        client.send(post_bytes(PATH, chat(false)));
        assert_eq!(client.read_response().status(), 200);
    }
    assert!(client.is_closed_within(DEADLINE));
    let client = H2Client::connect(house.addr());
    assert_eq!(client.post_json(PATH, chat(false)).status, 200);
    wait_for_closed(&house, "idle", 2.0);
    house.ridge.wait_for_metric("ridge_connections", &[], 0.0);
}

/// A request whose head is right, and of whose body only the beginning is there.
fn begun(addr: SocketAddr, body: &[u8]) -> RawClient {
    let mut client = RawClient::connect(addr);
    client.send(format!("POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-length: 100000\r\n\r\n"));
    client.send(body);
    client
}

fn assert_body_too_slow(house: &House, client: &mut RawClient, answer: &Response) {
    assert_eq!((answer.status(), answer.end), (408, End::Complete));
    assert_eq!(answer.json()["error"]["code"], "body_too_slow");
    assert!(client.is_closed_within(DEADLINE));
    wait_for_closed(house, "body_too_slow", 1.0);
    house.ridge.wait_for_metric("ridge_refusals_total", &[("code", "body_too_slow")], 1.0);
    assert!(house.engine().requests().is_empty());
    house.ridge.wait_for_metric("ridge_request_body_bytes", &[], 0.0);
}

#[test]
fn a_body_that_stops_is_refused() {
    let house = house(&["--timeouts-body", "500ms"]);
    let mut client = begun(house.addr(), &[b' '; 10_000]);
    let answer = client.read_response();
    assert_body_too_slow(&house, &mut client, &answer);
}

#[test]
fn a_body_that_trickles_in_is_refused() {
    let house = house(&["--timeouts-body", "1s"]);
    let mut client = begun(house.addr(), b"{");
    let began = Instant::now();
    let answer = trickle(&mut client, &[b' '; 1_000]);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_body_too_slow(&house, &mut client, &answer);
}

#[test]
fn a_body_that_comes_slowly_but_at_the_rate_is_served() {
    let house = house(&["--timeouts-body", "500ms", "--limits-body-rate", "5B"]);
    let body = chat(false);
    let request = post_bytes(PATH, &body);
    let mut client = RawClient::connect(house.addr());
    let (beginning, rest) = request.split_at(request.len() - 40);
    client.send(beginning);
    let began = Instant::now();
    let answer = trickle(&mut client, rest);
    assert!(began.elapsed() > Duration::from_millis(1_500), "{:?}", began.elapsed());
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

#[test]
fn a_long_answer_is_not_a_slow_client() {
    let pieces = script::paced(script::sse((0..6).map(|number| format!("data: {number}\n\n"))), 600);
    let house = House::with(
        vec![ScriptedEngine::answering(pieces)],
        &[
            "--timeouts-header",
            "300ms",
            "--timeouts-idle",
            "1s",
            "--timeouts-body",
            "300ms",
            "--timeouts-send",
            "1s",
        ],
    );
    let http2 = H2Client::connect(house.addr());
    let stream = http2.start("POST", PATH, &[("content-type", "application/json")], chat(true));
    let mut client = RawClient::connect(house.addr());
    client.send(post_bytes(PATH, chat(true)));
    assert_eq!(client.read_response().end, End::Complete);
    let answer = stream.read_all();
    assert_eq!((answer.status, answer.error), (200, None));
}

#[test]
fn a_client_that_takes_nothing_gives_its_engine_back() {
    let mut steps = vec![script::sse_head()];
    steps.extend((0..64).map(|_| script::chunk(vec![b'x'; 1 << 20])));
    steps.push(Step::Hang);
    let house = House::with(vec![ScriptedEngine::answering(steps)], &["--timeouts-send", "1s"]);
    let mut client = RawClient::connect(house.addr());
    client.send(post_bytes(PATH, chat(true)));
    client.read_until(|response| !response.body().is_empty());
    rig::wait_until("the engine sees the abort", || {
        house.engine().requests().iter().any(|request| request.aborted_at.is_some())
    });
    wait_for_closed(&house, "client_too_slow", 1.0);
    rig::wait_until("the log says why", || house.ridge.output().contains(r#""error":"client_too_slow""#));
    house.ridge.wait_for_metric("ridge_connections", &[], 0.0);
    assert_eq!(client::get(house.addr(), "/livez").status(), 200);
}
