//! A client that leaves takes its request with it, at every stage.

use std::time::{Duration, Instant};

use e2e::{House, chat};
use rig::client::post_bytes;
use rig::script::{self, Step};
use rig::{H2Client, RawClient, Request, ScriptedEngine, wait_until};

const PATH: &str = "/v1/chat/completions";

/// The bound is 100 ms; the rest is for a busy machine.
const SOON: Duration = Duration::from_millis(300);

fn abort_after(house: &House, left_at: Instant) -> Duration {
    let aborted = || house.engine().requests().last().and_then(|request: &Request| request.aborted_at);
    wait_until("the engine sees the abort", || aborted().is_some());
    aborted().map_or(Duration::MAX, |at| at.saturating_duration_since(left_at))
}

fn leave_and_check(house: &House, client: RawClient, reset: bool) {
    let left_at = Instant::now();
    if reset {
        client.reset();
    } else {
        client.close();
    }
    let after = abort_after(house, left_at);
    assert!(after < SOON, "{after:?}");
    house.wait_until_idle();
}

#[test]
fn while_waiting_for_the_head() {
    for stream in [true, false] {
        for reset in [true, false] {
            let house = House::answering(vec![Step::Hang]);
            let mut client = RawClient::connect(house.addr());
            client.send(post_bytes(PATH, chat(stream)));
            house.engine().wait_for_requests(1);
            leave_and_check(&house, client, reset);
        }
    }
}

#[test]
fn in_the_middle_of_a_stream() {
    for reset in [true, false] {
        let house = House::answering(vec![script::sse_head(), script::chunk("data: 1\n\n"), Step::Hang]);
        let mut client = RawClient::connect(house.addr());
        client.send(post_bytes(PATH, chat(true)));
        client.read_until(|response| !response.body().is_empty());
        leave_and_check(&house, client, reset);
    }
}

#[test]
fn in_the_middle_of_an_answer_with_a_length() {
    let head = script::head(200, &[("content-type", "application/json"), ("content-length", "100")]);
    let house = House::answering(vec![script::bytes(head), script::bytes("{"), Step::Hang]);
    let mut client = RawClient::connect(house.addr());
    client.send(post_bytes(PATH, chat(false)));
    client.read_until(|response| !response.body().is_empty());
    leave_and_check(&house, client, false);
}

#[test]
fn while_the_engine_sends_as_fast_as_it_can() {
    // More than the buffers on the way hold: the gateway is stuck writing when the client leaves.
    let mut steps = vec![script::sse_head()];
    steps.extend((0..64).map(|_| script::chunk(vec![b'x'; 1 << 20])));
    let house = House::answering(steps);
    let mut client = RawClient::connect(house.addr());
    client.send(post_bytes(PATH, chat(true)));
    client.read_until(|response| !response.body().is_empty());
    leave_and_check(&house, client, true);
}

#[test]
fn during_the_upload() {
    let house = House::answering(script::json(200, "{}"));
    let mut client = RawClient::connect(house.addr());
    let request = post_bytes(PATH, chat(false));
    client.send(&request[..request.len() - 10]);
    client.reset();
    house.wait_until_idle();
    // The engine has either not heard of it, or heard that it was given up; it was never given a whole request.
    for request in house.engine().requests() {
        assert!(!request.complete);
        wait_until("the abort is seen", || house.engine().requests()[0].aborted_at.is_some());
    }
    // And the gateway goes on.
    assert_eq!(rig::client::post_json(house.addr(), PATH, chat(false)).status(), 200);
}

#[test]
fn during_the_upload_of_a_large_body() {
    let house = House::answering(script::json(200, "{}"));
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\ncontent-length: 20000000\r\n\r\n"
    );
    for sent in [0, 1, 100_000, 10_000_000] {
        let mut client = RawClient::connect(house.addr());
        client.send(&head);
        client.send(vec![b' '; sent]);
        client.reset();
    }
    house.wait_until_idle();
    wait_until("no engine waits for the rest", || {
        house.engine().requests().iter().all(|request| request.complete || request.aborted_at.is_some())
    });
    assert!(house.engine().requests().iter().all(|request| !request.complete));
}

#[test]
fn between_requests_nothing_is_aborted() {
    // One thread, since each has connections of its own.
    let house = House::with(vec![ScriptedEngine::answering(script::json(200, "{}"))], &["--threads", "1"]);
    for _ in 0..5 {
        let mut client = RawClient::connect(house.addr());
        client.send(post_bytes(PATH, chat(false)));
        assert_eq!(client.read_response().status(), 200);
        client.close();
    }
    house.wait_until_idle();
    assert!(house.engine().requests().iter().all(|request| request.aborted_at.is_none()));
    assert_eq!(house.engine().request_connections().len(), 1);
}

#[test]
fn a_reset_http2_stream_cancels_only_its_own_request() {
    let house = House::answering(script::json(200, "{}"));
    house.engine().set(|request| {
        let steps = if request.body.windows(4).any(|window| window == b"hang") {
            vec![script::sse_head(), script::chunk("data: 1\n\n"), Step::Hang]
        } else {
            script::paced(script::sse(["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"]), 100)
        };
        (request.method() == "POST").then_some(steps)
    });
    let client = H2Client::connect(house.addr());
    let json = [("content-type", "application/json")];
    let hangs = client.start("POST", "/v1/completions", &json, e2e::completion("hang"));
    let other = client.start("POST", "/v1/completions", &json, e2e::completion("go on"));
    house.engine().wait_for_requests(2);
    assert!(matches!(hangs.next(rig::DEADLINE), rig::h2::Event::Head(_)));
    drop(hangs);
    wait_until("the engine sees the abort", || {
        house.engine().requests().iter().any(|request| request.aborted_at.is_some())
    });
    let answer = other.read_all();
    assert_eq!((answer.error, answer.body.as_slice()), (None, &b"data: 1\n\ndata: 2\n\ndata: 3\n\n"[..]));
    assert_eq!(house.engine().requests().iter().filter(|request| request.aborted_at.is_some()).count(), 1);
}

#[test]
fn with_the_next_request_already_sent() {
    // The bytes that wait must not hide that the client has gone.
    let house = House::answering(vec![Step::Hang]);
    let mut client = RawClient::connect(house.addr());
    client.send([post_bytes(PATH, chat(true)), post_bytes(PATH, chat(true))].concat());
    house.engine().wait_for_requests(1);
    leave_and_check(&house, client, false);
}

#[test]
fn a_hundred_clients_that_leave_at_once() {
    let house = House::answering(vec![script::sse_head(), script::chunk("data: 1\n\n"), Step::Hang]);
    let mut clients: Vec<RawClient> = (0..100).map(|_| RawClient::connect(house.addr())).collect();
    for client in &mut clients {
        client.send(post_bytes(PATH, chat(true)));
    }
    house.engine().wait_for_requests(100);
    drop(clients);
    house.wait_until_idle();
    wait_until("all aborts are seen", || {
        house.engine().requests().iter().all(|request| request.aborted_at.is_some())
    });
}
