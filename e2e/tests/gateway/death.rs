//! An engine that dies in the middle of an answer: the client learns of it and never takes it for the end.

use e2e::{House, chat, completion, header};
use rig::client::{self, post_bytes};
use rig::script::{self, Script, Step};
use rig::{End, H2Client, RawClient, ScriptedEngine};

const PATH: &str = "/v1/chat/completions";

/// Answers that break off, each with the bytes of body that were sent.
fn broken_answers() -> Vec<(&'static str, Script, usize)> {
    let mut all = Vec::new();
    for end in [Step::Close, Step::Reset] {
        let half = || script::chunk("data: 1\n\n");
        all.push(("a stream", vec![script::sse_head(), half(), script::pause(50), end.clone()], 9));
        all.push((
            "a stream whose last event came",
            vec![script::sse_head(), script::chunk("data: [DONE]\n\n"), script::pause(50), end.clone()],
            14,
        ));
        all.push((
            "a stream inside a chunk",
            vec![script::sse_head(), script::bytes("10\r\ndata: 1"), script::pause(50), end.clone()],
            7,
        ));
        let length = [("content-type", "application/json"), ("content-length", "20")];
        all.push((
            "an answer with a length",
            vec![script::bytes(script::head(200, &length)), script::bytes("{\"a\":"), script::pause(50), end],
            5,
        ));
    }
    all
}

#[test]
fn is_an_error_to_an_http1_client() {
    for (what, steps, sent) in broken_answers() {
        let house = House::answering(steps);
        let answer = client::post_json(house.addr(), PATH, chat(true));
        assert_eq!(answer.status(), 200);
        assert!(matches!(answer.end, End::Cut | End::Reset), "{what}: {:?} {:?}", answer.end, answer.text());
        assert_eq!(answer.body().len(), sent, "{what}: {:?}", answer.text());
        house.wait_until_idle();
    }
}

#[test]
fn is_an_error_to_an_http2_client() {
    for (what, steps, sent) in broken_answers() {
        let house = House::answering(steps);
        let connection = H2Client::connect(house.addr());
        let answer = connection.post_json(PATH, chat(true));
        assert_eq!(answer.status, 200);
        assert!(answer.error.is_some(), "{what}: {answer:?}");
        assert_eq!(answer.body.len(), sent, "{what}");
        // Only the stream failed: the connection carries on.
        assert_eq!(connection.post_json(PATH, chat(true)).status, 200);
    }
}

#[test]
fn is_not_tried_again_once_a_byte_has_come() {
    let steps = || vec![script::sse_head(), script::chunk("data: 1\n\n"), script::pause(50), Step::Reset];
    let engines = vec![ScriptedEngine::answering(steps()), ScriptedEngine::answering(steps())];
    let house = House::with(engines, &[]);
    let answer = client::post_json(house.addr(), PATH, chat(true));
    assert_ne!(answer.end, End::Complete);
    assert_eq!(house.engines.iter().map(|engine| engine.requests().len()).sum::<usize>(), 1);
}

#[test]
fn a_head_that_is_no_http_is_an_error_of_the_gateway() {
    for nonsense in ["HTTP/1.1 abc\r\n\r\n", "\0\0\0\0", "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"] {
        let house = House::answering(vec![script::bytes(nonsense), Step::Close]);
        let answer = client::post_json(house.addr(), PATH, chat(false));
        assert!(matches!(answer.status(), 502 | 503), "{nonsense:?}: {}", answer.status());
        assert!(answer.json()["error"]["code"].is_string());
    }
}

#[test]
fn a_cut_head_is_tried_elsewhere_or_reported() {
    let house = House::answering(vec![script::bytes("HTTP/1.1 200 OK\r\ncontent-ty"), Step::Close]);
    let answer = client::post_json(house.addr(), PATH, chat(false));
    assert!(matches!(answer.status(), 502 | 503), "{}", answer.status());
}

#[test]
fn an_engine_killed_under_load_breaks_only_what_it_had_begun() {
    let stream = || script::paced(script::sse((0..10).map(|i| format!("data: {i}\n\n"))), 10);
    let engines = vec![ScriptedEngine::answering(stream()), ScriptedEngine::answering(stream())];
    let mut house = House::with(engines, &[]);
    let addr = house.addr();
    let loaders: Vec<_> = (0..8)
        .map(|at| {
            std::thread::spawn(move || {
                let mut results = Vec::new();
                for i in 0..30 {
                    let mut client = RawClient::connect(addr);
                    client.send(post_bytes("/v1/completions", completion(&format!("{at} {i}"))));
                    results.push(client.read_response());
                }
                results
            })
        })
        .collect();
    house.engines[0].wait_for_requests(20);
    house.engines[0].kill();
    let mut broken = 0;
    for loader in loaders {
        for answer in loader.join().expect("the loader does not panic") {
            assert_eq!(answer.status(), 200, "{}", answer.text());
            let endpoint = header(&answer, "x-ridge-endpoint");
            if answer.end == End::Complete {
                assert!(answer.text().ends_with("data: 9\n\n"), "{}", answer.text());
            } else {
                assert_eq!(endpoint, "engine-1");
                broken += 1;
            }
        }
    }
    assert!(broken <= 8, "{broken} broken answers of at most one a client");
}
