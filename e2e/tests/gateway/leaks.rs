//! After traffic the gateway holds what it held before: no connection, request, descriptor or thread more.

use e2e::{House, chat};
use rig::client::post_bytes;
use rig::script::{self, Step};
use rig::{H2Client, Leaks, RawClient, ScriptedEngine};

const PATH: &str = "/v1/chat/completions";

#[test]
fn clients_that_leave_at_any_point_leave_nothing_behind() {
    let stream = || vec![script::sse_head(), script::chunk("data: 1\n\n"), Step::Hang];
    let house =
        House::with(vec![ScriptedEngine::answering(stream()), ScriptedEngine::answering(stream())], &[]);
    let leaks = Leaks::baseline(&house.ridge);
    let wire = post_bytes(PATH, chat(true));
    let mut resident = 0;
    for round in 0..10 {
        for cut in [0, 10, wire.len() - 5, wire.len()] {
            let mut client = RawClient::connect(house.addr());
            client.send(&wire[..cut]);
            if cut == wire.len() {
                client.read_until(|response| !response.body().is_empty());
            }
            if round % 2 == 0 { client.reset() } else { client.close() }
        }
        let http2 = H2Client::connect(house.addr());
        let streaming = http2.start("POST", PATH, &[("content-type", "application/json")], chat(true));
        assert!(matches!(streaming.next(rig::DEADLINE), rig::h2::Event::Head(_)));
        if round == 0 {
            resident = leaks.resident_kib();
        }
    }
    leaks.assert_back();
    leaks.assert_flat(resident);
}

#[test]
fn what_is_held_is_named() {
    let house = House::answering(vec![script::sse_head(), script::chunk("data: 1\n\n"), Step::Hang]);
    let leaks = Leaks::baseline(&house.ridge);
    assert_eq!(leaks.left(), Vec::<String>::new());
    let mut client = RawClient::connect(house.addr());
    client.send(post_bytes(PATH, chat(true)));
    client.read_until(|response| !response.body().is_empty());
    let left = leaks.left().join("; ");
    for due in ["1 open client connections more", "1 open requests more", "1 requests in flight", "(socket)"]
    {
        assert!(left.contains(due), "{due} is not in: {left}");
    }
    drop(client);
    leaks.assert_back();
}
