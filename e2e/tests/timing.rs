//! Each chunk at once. These tests measure, so they have a program of their own and run one after the other.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use e2e::{House, chat};
use rig::client::{self, post_bytes};
use rig::script::{self, Script};
use rig::{H2Client, RawClient};

const PATH: &str = "/v1/chat/completions";

/// What a chunk may take from the engine's write to the client's read.
const AT_ONCE: Duration = Duration::from_millis(20);

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How late each event of `size` bytes came, for arrivals as (time, body length so far).
fn delays(written: &[Instant], arrivals: &[(Instant, usize)], size: usize, count: usize) -> Vec<Duration> {
    (0..count)
        .map(|event| {
            let last_byte = (event + 1) * size;
            let came = arrivals.iter().find(|(_, length)| *length >= last_byte).map(|(at, _)| *at);
            // The first write is the head.
            came.map_or(Duration::MAX, |at| at.saturating_duration_since(written[event + 1]))
        })
        .collect()
}

/// Tries a few times, since another program may have the cores for a moment; a gateway that holds chunks back is late
/// every time.
fn at_once(mut measure: impl FnMut() -> Vec<Duration>) {
    let mut worst = Vec::new();
    for _ in 0..4 {
        let delays = measure();
        if delays.iter().all(|delay| *delay <= AT_ONCE) {
            return;
        }
        worst.push(delays);
    }
    panic!("chunks came late in every try: {worst:?}");
}

const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"12345678\"}}]}\n\n";

fn paced_events(count: usize, ms: u64) -> Script {
    script::paced(script::sse(std::iter::repeat_n(EVENT, count)), ms)
}

#[test]
fn each_small_event_comes_at_once() {
    let _alone = alone();
    for (count, pause_ms) in [(10, 200), (30, 30), (50, 5)] {
        let house = House::answering(paced_events(count, pause_ms));
        at_once(|| {
            house.engine().clear();
            let answer = client::post_json(house.addr(), PATH, chat(true));
            assert_eq!(answer.body().len(), count * EVENT.len());
            delays(&house.engine().requests()[0].written_at, &answer.arrivals, EVENT.len(), count)
        });
    }
}

#[test]
fn each_small_event_comes_at_once_over_http2() {
    let _alone = alone();
    let house = House::answering(paced_events(20, 30));
    let connection = H2Client::connect(house.addr());
    at_once(|| {
        house.engine().clear();
        let answer = connection.post_json(PATH, chat(true));
        delays(&house.engine().requests()[0].written_at, &answer.arrivals, EVENT.len(), 20)
    });
}

#[test]
fn each_piece_of_a_compressed_stream_comes_at_once() {
    let _alone = alone();
    let head = [
        ("content-type", "text/event-stream"),
        ("content-encoding", "gzip"),
        ("transfer-encoding", "chunked"),
    ];
    let mut steps = vec![script::bytes(script::head(200, &head))];
    steps.extend((0..20).map(|_| script::chunk(EVENT)));
    steps.push(script::last_chunk());
    let house = House::answering(script::paced(steps, 30));
    at_once(|| {
        house.engine().clear();
        let answer = client::post_json(house.addr(), PATH, chat(true));
        delays(&house.engine().requests()[0].written_at, &answer.arrivals, EVENT.len(), 20)
    });
}

#[test]
fn the_head_comes_before_the_first_event() {
    let _alone = alone();
    let steps = vec![script::sse_head(), script::pause(300), script::chunk(EVENT), script::last_chunk()];
    let house = House::answering(steps);
    at_once(|| {
        house.engine().clear();
        let mut client = RawClient::connect(house.addr());
        client.send(post_bytes(PATH, chat(true)));
        let mut response = client.read_until(|_| true);
        let came = Instant::now();
        client.read_on(&mut response);
        vec![came.saturating_duration_since(house.engine().requests()[0].written_at[0])]
    });
}

#[test]
fn a_request_reaches_the_engine_at_once() {
    let _alone = alone();
    let house = House::answering(script::json(200, "{}"));
    let mut client = warm_client(&house);
    // Larger than a segment too: its last piece must not wait for the others to be acknowledged.
    for padding in [0, 100_000] {
        let body = e2e::completion(&"x".repeat(padding));
        at_once(|| {
            (0..10)
                .map(|_| {
                    house.engine().clear();
                    let sent = Instant::now();
                    client.send(post_bytes("/v1/completions", &body));
                    assert_eq!(client.read_response().status(), 200);
                    let came = house.engine().requests()[0].complete_at;
                    came.map_or(Duration::MAX, |at| at.saturating_duration_since(sent))
                })
                .collect()
        });
    }
}

#[test]
fn each_small_event_comes_at_once_on_a_connection_in_use() {
    // A fresh connection acknowledges each segment at once; one that has gone back and forth for a while waits for
    // 40 ms, and a sender that waits for that holds small events back.
    let _alone = alone();
    let house = House::answering(script::json(200, "{}"));
    let mut client = warm_client(&house);
    let steps = paced_events(40, 7);
    house.engine().set(move |request| (request.method() == "POST").then(|| steps.clone()));
    at_once(|| {
        house.engine().clear();
        client.send(post_bytes(PATH, chat(true)));
        let answer = client.read_response();
        delays(&house.engine().requests()[0].written_at, &answer.arrivals, EVENT.len(), 40)
    });
}

fn warm_client(house: &House) -> RawClient {
    let mut client = RawClient::connect(house.addr());
    for _ in 0..30 {
        client.send(post_bytes(PATH, chat(false)));
        assert_eq!(client.read_response().status(), 200);
    }
    client
}
