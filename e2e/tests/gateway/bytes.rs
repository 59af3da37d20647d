//! What passes through is the same on both sides, byte for byte.

use e2e::{House, chat, header};
use proptest::prelude::*;
use rig::client::{self, post_bytes, post_bytes_with};
use rig::script::{self, Step};
use rig::{End, RawClient};

const PATH: &str = "/v1/chat/completions";

/// Streams with everything that has been broken on the way by someone: letters of several bytes, an emoji, null keys,
/// an empty delta, logprobs, usage without choices, comments, CRLF ends, several data lines, U+2028 unescaped, an
/// `event:` field, no blank line at the end.
const STREAMS: [&str; 6] = [
    "data: {\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"안녕 🦀 é\"},\"finish_reason\":null}]}\n\ndata: [DONE]\n\n",
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n\
     data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"logprobs\":{\"content\":[{\"token\":\"Hi\",\"logprob\":-0.10,\"bytes\":[72,105],\"top_logprobs\":[]}]},\"finish_reason\":null}]}\n\n\
     data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null}]}\n\n\
     data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"total_tokens\":11}}\n\ndata: [DONE]\n\n",
    ": ping\n\nevent: message\ndata: {\"a\":1,\ndata: \"b\":2}\n\n: ping\n\ndata: last without blank line",
    "data: {\"choices\":[{\"delta\":{\"content\":\"crlf\"}}]}\r\n\r\n:\r\n\r\ndata: [DONE]\r\n\r\n",
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\u{2028}b\u{2029}c\u{85}d\"}}]}\n\ndata: [DONE]\n\n",
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}\n\nid: 7\nretry: 10\n\n",
];

fn stream_in(pieces: impl IntoIterator<Item = Vec<u8>>) -> script::Script {
    let mut steps = vec![script::sse_head()];
    for piece in pieces {
        steps.push(script::chunk(piece));
    }
    steps.push(script::last_chunk());
    steps
}

#[test]
fn a_stream_cut_at_every_byte_arrives_unchanged() {
    for stream in STREAMS {
        let house = House::answering(stream_in(stream.bytes().map(|byte| vec![byte])));
        let answer = client::post_json(house.addr(), PATH, chat(true));
        assert_eq!((answer.status(), answer.end), (200, End::Complete));
        assert_eq!(answer.text(), stream);
        assert_eq!(header(&answer, "content-type"), "text/event-stream; charset=utf-8");
    }
}

#[test]
fn a_stream_cut_in_two_anywhere_arrives_unchanged() {
    let house = House::answering(script::json(200, "{}"));
    let mut client = RawClient::connect(house.addr());
    for stream in STREAMS {
        for at in 1..stream.len() {
            let (first, second) = stream.as_bytes().split_at(at);
            let mut steps = stream_in([first.to_vec(), second.to_vec()]);
            if !stream.is_char_boundary(at) {
                // Apart in time too, so that the halves of a letter are read one by one.
                steps.insert(2, script::pause(5));
            }
            house.engine().set(move |request| (request.method() == "POST").then(|| steps.clone()));
            client.send(post_bytes(PATH, chat(true)));
            let answer = client.read_response();
            assert_eq!((answer.end, answer.body()), (End::Complete, stream.as_bytes()), "cut at {at}");
        }
    }
}

#[test]
fn tokens_are_counted_however_the_stream_is_cut() {
    let stream = STREAMS[1];
    for size in [1, 7, 57, 4096] {
        let house = House::answering(stream_in(stream.as_bytes().chunks(size).map(<[u8]>::to_vec)));
        let answer = client::post_json(house.addr(), PATH, chat(true));
        assert_eq!(answer.text(), stream);
        house.wait_until_idle();
        house.ridge.wait_for_metric("ridge_output_tokens_total", &[], 2.0);
        house.ridge.wait_for_metric("ridge_prompt_tokens_total", &[], 9.0);
        assert!(!house.ridge.output().to_lowercase().contains("malformed"), "{}", house.ridge.output());
    }
}

#[test]
fn unknown_fields_and_odd_spellings_survive_both_ways() {
    let request = r#" { "vendor_x" : {"a":1.0,"b":1e0,"c":-0},"model":"m", "messages":[{"role":"user","content":"\u0041\/é"}],
        "chat_template_kwargs":{"enable_thinking":null},"seed":12345678901234567890,"stream":false , "stream_options":null,"logit_bias":{}}
    "#;
    let response = r#"{"id":"x","choices":[{"message":{"content":"ok","reasoning":null},"unknown":[1,[2.50]],"finish_reason":"stop"}],"usage":null,"big":99999999999999999999.0,"z":"\u2028"}
"#;
    let house = House::answering(script::json(200, response));
    let answer = client::post_json(house.addr(), PATH, request);
    assert_eq!(answer.text(), response);
    assert_eq!(String::from_utf8_lossy(&house.engine().requests()[0].body), request);
}

#[test]
fn a_compressed_answer_keeps_its_bytes_and_its_label() {
    // Not gzip at all but labelled so: a gateway that looks inside would fail or change it.
    let bodies: [&[u8]; 3] = [b"\x1f\x8b\x08\x00nonsense\xff\xfe", b"", b"\x1f\x8b"];
    for status in [200, 400] {
        for body in bodies {
            let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
            let house = House::answering(script::answer(status, &headers, body));
            let request = post_bytes_with(
                PATH,
                &[("accept-encoding", "gzip"), ("content-type", "application/json")],
                chat(false),
            );
            let answer = client::exchange(house.addr(), &request);
            assert_eq!((answer.status(), answer.body()), (status, body));
            assert_eq!(header(&answer, "content-encoding"), "gzip");
            assert_eq!(house.engine().requests()[0].header("accept-encoding"), ["gzip"]);
        }
    }
}

#[test]
fn a_compressed_stream_arrives_piece_by_piece() {
    let head = [
        ("content-type", "text/event-stream"),
        ("content-encoding", "gzip"),
        ("transfer-encoding", "chunked"),
    ];
    let steps = vec![
        script::bytes(script::head(200, &head)),
        script::chunk(b"\x1f\x8b\x08\x00\x00first"),
        script::pause(50),
        script::chunk(b"\xff\x00second"),
        script::last_chunk(),
    ];
    let house = House::answering(steps);
    let answer = client::post_json(house.addr(), PATH, chat(true));
    assert_eq!(answer.body(), b"\x1f\x8b\x08\x00\x00first\xff\x00second");
    assert!(answer.arrivals.len() >= 2, "{:?}", answer.arrivals);
}

#[test]
fn trailers_reach_a_client_that_asks_for_them() {
    let head =
        [("content-type", "text/event-stream"), ("transfer-encoding", "chunked"), ("trailer", "x-checksum")];
    let steps = vec![
        script::bytes(script::head(200, &head)),
        script::chunk("data: 1\n\n"),
        script::bytes("0\r\nx-checksum: abc\r\n\r\n"),
    ];
    let house = House::answering(steps);
    let request =
        post_bytes_with(PATH, &[("te", "trailers"), ("content-type", "application/json")], chat(true));
    let answer = client::exchange(house.addr(), &request);
    assert_eq!(answer.body(), b"data: 1\n\n");
    assert_eq!(answer.trailers(), "x-checksum: abc\r\n");
}

#[test]
fn an_error_before_a_stream_keeps_its_status_type_and_body() {
    let bodies = [
        (
            400,
            "application/json",
            r#"{"error":{"message":"max_tokens is too large","type":"BadRequestError","param":null,"code":400}}"#,
        ),
        (422, "application/json", r#"{"detail":[{"loc":["body","messages"]}]}"#),
        (401, "text/plain; charset=utf-8", "no"),
        (500, "text/html", "<h1>Internal Server Error</h1>"),
        (429, "application/json", "{}"),
    ];
    for (status, content_type, body) in bodies {
        let house = House::answering(script::answer(
            status,
            &[("content-type", content_type), ("x-from", "u")],
            body,
        ));
        let answer = client::post_json(house.addr(), PATH, chat(true));
        assert_eq!((answer.status(), answer.text().as_str()), (status, body));
        assert_eq!(header(&answer, "content-type"), content_type);
        assert_eq!(header(&answer, "x-from"), "u");
    }
}

#[test]
fn a_stream_whose_first_event_is_an_error_passes_as_it_is() {
    let stream = "data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\ndata: [DONE]\n\n";
    let house = House::answering(script::sse([stream]));
    let answer = client::post_json(house.addr(), PATH, chat(true));
    assert_eq!((answer.status(), answer.text().as_str(), answer.end), (200, stream, End::Complete));
}

#[test]
fn an_answer_without_a_length_ends_with_its_connection() {
    let mut steps = vec![script::bytes(script::head(200, &[("content-type", "text/event-stream")]))];
    steps.push(script::bytes("data: 1\n\ndata: [DONE]\n\n"));
    steps.push(Step::Close);
    let house = House::answering(steps);
    let answer = client::post_json(house.addr(), PATH, chat(true));
    assert_eq!((answer.end, answer.text().as_str()), (End::Complete, "data: 1\n\ndata: [DONE]\n\n"));
}

#[test]
fn a_chunked_upload_in_any_pieces_reaches_the_engine_whole() {
    let house = House::answering(script::json(200, "{}"));
    let body = chat(false);
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    for size in [1, 3, 1000] {
        let mut wire = head.clone().into_bytes();
        for piece in body.as_bytes().chunks(size) {
            let Step::Bytes(chunk) = script::chunk(piece) else { continue };
            wire.extend(chunk);
        }
        wire.extend(b"0\r\n\r\n");
        let mut client = RawClient::connect(house.addr());
        client.send_in_pieces(&wire, 5);
        assert_eq!(client.read_response().status(), 200);
    }
    for request in house.engine().requests() {
        assert_eq!(String::from_utf8_lossy(&request.body), body);
    }
}

#[test]
fn trailers_of_a_request_reach_the_engine() {
    let house = House::answering(script::json(200, "{}"));
    let body = chat(false);
    let wire = format!(
        "POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\
         trailer: x-checksum\r\n\r\n{:x}\r\n{body}\r\n0\r\nx-checksum: abc\r\n\r\n",
        body.len()
    );
    assert_eq!(client::exchange(house.addr(), wire.as_bytes()).status(), 200);
    let seen = &house.engine().requests()[0];
    assert_eq!(seen.body, body.as_bytes());
    assert_eq!(String::from_utf8_lossy(&seen.trailers), "x-checksum: abc\r\n");
}

#[test]
fn requests_sent_together_are_answered_in_order() {
    let house = House::answering(script::json(200, "{}"));
    house.engine().set(|request| (request.method() == "POST").then(|| script::json(200, &request.body)));
    let mut client = RawClient::connect(house.addr());
    let bodies: Vec<String> = (0..5).map(|i| e2e::completion(&format!("number {i}"))).collect();
    client.send(bodies.iter().flat_map(|body| post_bytes("/v1/completions", body)).collect::<Vec<u8>>());
    for body in &bodies {
        assert_eq!(client.read_response().text(), *body);
    }
}

#[test]
fn a_multipart_upload_passes_unchanged() {
    let house = House::answering(script::json(200, r#"{"text":"hi"}"#));
    let mut body =
        b"--XX\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF".to_vec();
    body.extend((0..=255u8).cycle().take(100_000));
    body.extend(b"\r\n--XX\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nm\r\n--XX--\r\n");
    let request = post_bytes_with(
        "/v1/audio/transcriptions",
        &[("content-type", "multipart/form-data; boundary=XX")],
        &body,
    );
    assert_eq!(client::exchange(house.addr(), &request).status(), 200);
    let seen = &house.engine().requests()[0];
    assert_eq!(seen.body, body);
    assert_eq!(seen.header("content-type"), ["multipart/form-data; boundary=XX"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes in any chunks: the engine's answer and the client's are the same, and so is the request.
    #[test]
    fn any_bytes_in_any_chunks(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..30)) {
        thread_local! {
            static HOUSE: House = House::answering(script::json(200, "{}"));
        }
        HOUSE.with(|house| {
            let whole: Vec<u8> = pieces.concat();
            let steps = stream_in(pieces);
            house.engine().set(move |request| (request.method() == "POST").then(|| steps.clone()));
            let answer = client::post_json(house.addr(), PATH, chat(true));
            prop_assert_eq!((answer.status(), answer.end), (200, End::Complete));
            prop_assert_eq!(answer.body(), &whole[..]);
            Ok(())
        })?;
    }
}
