//! A client that reads slowly, or not at all, costs a bounded amount of memory.

use e2e::{House, chat};
use rig::client::post_bytes;
use rig::script::{self, Step};
use rig::{End, H2Client, RawClient, wait_until};

const PATH: &str = "/v1/chat/completions";

const MIB: usize = 1 << 20;

/// Resident memory of the gateway in bytes.
fn resident(house: &House) -> usize {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", house.ridge.id())).expect("Linux tells it");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line with the resident size");
    let kib: usize =
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number of KiB");
    kib * 1024
}

fn flood(mib: usize) -> script::Script {
    let mut steps = vec![script::sse_head()];
    let piece = script::chunk(vec![b'x'; MIB]);
    steps.extend(std::iter::repeat_n(piece, mib));
    steps.push(script::last_chunk());
    steps
}

#[test]
fn an_engine_is_not_read_faster_than_its_client_reads() {
    let house = House::answering(flood(100));
    let before = resident(&house);
    let mut clients: Vec<RawClient> = (0..4).map(|_| RawClient::connect(house.addr())).collect();
    for client in &mut clients {
        client.send(post_bytes(PATH, chat(true)));
    }
    // The engine is stuck when it has written nothing more for a while.
    let written = || house.engine().requests().iter().map(|request| request.written_at.len()).sum::<usize>();
    let mut last = (0, std::time::Instant::now());
    wait_until("the engine is stuck", || {
        let now = written();
        if now != last.0 {
            last = (now, std::time::Instant::now());
        }
        now > 4 && last.1.elapsed().as_millis() > 500
    });
    assert!(written() < 4 * 60, "{} MiB of 400 were taken in", written());
    let grown = resident(&house).saturating_sub(before);
    assert!(grown < 16 * MIB, "{} MiB more", grown / MIB);
    // What was held back arrives in full.
    let answer = clients[0].read_response();
    assert_eq!((answer.end, answer.body().len()), (End::Complete, 100 * MIB));
}

#[test]
fn large_answers_leave_nothing_behind() {
    let house = House::answering(flood(50));
    let mut client = RawClient::connect(house.addr());
    let mut after_first = 0;
    for round in 0..6 {
        client.send(post_bytes(PATH, chat(true)));
        assert_eq!(client.read_response().body().len(), 50 * MIB);
        if round == 1 {
            after_first = resident(&house);
        }
    }
    let grown = resident(&house).saturating_sub(after_first);
    assert!(grown < 8 * MIB, "{} MiB more", grown / MIB);
}

#[test]
fn one_slow_http2_stream_does_not_stop_the_others() {
    let house = House::answering(script::json(200, "{}"));
    house.engine().set(|request| {
        let is_flood = request.target().contains("flood");
        (request.method() == "POST").then(|| if is_flood { flood(50) } else { script::json(200, "{}") })
    });
    let client = H2Client::connect(house.addr());
    let json = [("content-type", "application/json")];
    let slow = client.start("POST", &format!("{PATH}?flood=1"), &json, chat(true));
    assert!(matches!(slow.next(rig::DEADLINE), rig::h2::Event::Head(_)));
    for _ in 0..20 {
        assert_eq!(client.post_json(PATH, chat(false)).status, 200);
    }
    assert_eq!(slow.read_all().body.len(), 50 * MIB);
}

#[test]
fn many_idle_streams_cost_little_each() {
    let house = House::answering(vec![script::sse_head(), script::chunk("data: 1\n\n"), Step::Hang]);
    let before = resident(&house);
    let mut clients: Vec<RawClient> = (0..300).map(|_| RawClient::connect(house.addr())).collect();
    for client in &mut clients {
        client.send(post_bytes(PATH, chat(true)));
    }
    for client in &mut clients {
        client.read_until(|response| !response.body().is_empty());
    }
    let each = resident(&house).saturating_sub(before) / clients.len();
    assert!(each < 64 * 1024, "{} KiB each", each / 1024);
}
