//! The stream scan sees what a client that follows the rules sees, however the bytes are cut.

use api::{Framing, MAX_EVENT_BYTES, Operation, StreamScan, Usage};
use proptest::prelude::*;

fn scan(operation: Operation, framing: Framing, chunks: &[&[u8]]) -> (u32, Option<Usage>, u32) {
    let mut scan = StreamScan::new(operation, framing);
    let mut events: u32 = chunks.iter().map(|chunk| scan.push(chunk).events).sum();
    events += scan.finish().events;
    (events, scan.usage(), scan.oversized_events())
}

/// In one piece, and byte by byte.
fn both(operation: Operation, framing: Framing, bytes: &[u8]) -> (u32, Option<Usage>) {
    let whole = scan(operation, framing, &[bytes]);
    let split: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(scan(operation, framing, &split), whole, "{}", String::from_utf8_lossy(bytes));
    (whole.0, whole.1)
}

fn chat(text: &str) -> (u32, Option<Usage>) {
    both(Operation::ChatCompletions, Framing::Sse, text.as_bytes())
}

fn usage(prompt_tokens: u64, completion_tokens: u64, cached_tokens: Option<u64>) -> Option<Usage> {
    Some(Usage { prompt_tokens, completion_tokens, cached_tokens })
}

#[test]
fn counts_events_as_the_standard_cuts_them() {
    for (text, events) in [
        ("", 0),
        ("\n\n\n", 0),
        ("data: a\n\n", 1),
        ("data: a\r\n\r\n", 1),
        ("data: a\r\rdata: b\r\r", 2),
        ("data: a\n\r\n", 1),
        ("data:a\n\ndata:b\n\n", 2),
        ("data: a\ndata: b\n\n", 1),
        ("data\n\n", 1),
        ("data:\n\n", 1),
        (": ping\n\n", 0),
        (":\n\nevent: x\n\nid: 1\n\n", 0),
        ("event: x\ndata: a\n\n", 1),
        ("database: a\n\n data: b\n\n", 0),
        ("\u{feff}data: a\n\n", 1),
        ("\u{feff}\u{feff}data: a\n\n", 0),
        ("data: {\"a\":\"\u{2028}\u{2029}\u{85}\"}\n\n", 1),
        // The blank line after the last event was left out, or even its line end.
        ("data: a\n\ndata: b\n", 2),
        ("data: a\n\ndata: b", 2),
        ("data: a\n\ndata: [DONE]\n\n", 1),
        ("data:[DONE]", 0),
        ("data: [DONE]\ndata: x\n\n", 1),
    ] {
        assert_eq!(chat(text).0, events, "{text:?}");
    }
}

#[test]
fn finds_usage_in_each_api() {
    let sse = |operation, text: &str| both(operation, Framing::Sse, text.as_bytes()).1;
    assert_eq!(
        chat(
            "data: {\"choices\":[{}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\" : {\"prompt_tokens\":7,\
             \"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n"
        ),
        (2, usage(7, 2, Some(4)))
    );
    assert_eq!(
        sse(
            Operation::Responses,
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[],\"usage\":\
             {\"input_tokens\":5,\"input_tokens_details\":{\"cached_tokens\":1},\"output_tokens\":6}}}\n\n"
        ),
        usage(5, 6, Some(1))
    );
    assert_eq!(
        sse(
            Operation::Messages,
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\
             \"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"type\":\
             \"message_delta\",\"delta\":{},\"usage\":{\"input_tokens\":0,\"output_tokens\":15}}\n\n"
        ),
        usage(28, 15, Some(3))
    );
    assert_eq!(
        sse(
            Operation::SglangGenerate,
            "data: {\"text\":\"a\",\"meta_info\":{\"prompt_tokens\":2,\"completion_tokens\":1,\"cached_tokens\":0}}\n\n\
             data: {\"text\":\"ab\",\"meta_info\":{\"prompt_tokens\":2,\"completion_tokens\":2,\"cached_tokens\":0}}\n\n"
        ),
        usage(2, 2, Some(0))
    );
    assert_eq!(
        both(
            Operation::OllamaChat,
            Framing::Lines,
            b"{\"message\":{\"content\":\"eval_count\"},\"done\":false}\n\r\n{\"done\":true,\"prompt_eval_count\":3,\"eval_count\":4}"
        ),
        (2, usage(3, 4, None))
    );
}

#[test]
fn usage_in_two_data_lines_is_one_object() {
    let text = "data: {\"usage\":\ndata: {\"prompt_tokens\":7,\ndata:\ndata: \"completion_tokens\":2}}\n\n";
    assert_eq!(chat(text), (1, usage(7, 2, None)));
}

#[test]
fn text_of_the_model_is_not_usage() {
    for text in [
        r#"data: {"choices":[{"delta":{"content":"\"usage\":{\"prompt_tokens\":9}"}}]}"#,
        r#"data: {"choices":[{"delta":{"content":"usage"}}]}"#,
        r#"data: {"choices":[{"delta":{"usage":{"prompt_tokens":9}}}]}"#,
        r#"data: ["usage",{"prompt_tokens":9}]"#,
        r#"data: "usage":{"prompt_tokens":9}"#,
        r#": {"usage":{"prompt_tokens":9}}"#,
        r#"data: {"usage":{"prompt_tokens":9}"#,
    ] {
        assert_eq!(chat(&format!("{text}\n\n")).1, None, "{text}");
    }
}

#[test]
fn long_events_are_counted_and_given_up_however_they_come() {
    let long = "x".repeat(MAX_EVENT_BYTES);
    let usage_after = "data: {\"usage\":{\"prompt_tokens\":1}}\n\n";
    for (event, counted, oversized) in [
        (format!("data: {{\"usage\":{{\"prompt_tokens\":9}},\"x\":\"{long}\"}}\n\n"), 1, 1),
        (format!("data: {long}\ndata: y\n\n"), 1, 1),
        (format!("data: {0}\ndata: {0}\n\n", &long[..MAX_EVENT_BYTES - 10]), 1, 1),
        (format!(": {long}\n\n"), 0, 0),
        (format!(": {long}\ndata: y\n\n"), 1, 0),
    ] {
        let bytes = format!("{event}{usage_after}");
        for size in [1, 7, 4096, bytes.len()] {
            let chunks: Vec<&[u8]> = bytes.as_bytes().chunks(size).collect();
            let (events, found, given_up) = scan(Operation::ChatCompletions, Framing::Sse, &chunks);
            assert_eq!((events, given_up), (counted + 1, oversized), "{} in {size}", &event[..20]);
            assert_eq!(found, usage(1, 0, None));
        }
    }
    // Longer than usual but within the bound: read.
    let event = format!(
        "data: {{\"x\":\"{}\",\"usage\":{{\"prompt_tokens\":9}}}}\n\n",
        &long[..MAX_EVENT_BYTES - 99]
    );
    let chunks: Vec<&[u8]> = event.as_bytes().chunks(1000).collect();
    assert_eq!(scan(Operation::ChatCompletions, Framing::Sse, &chunks).1, usage(9, 0, None));
}

#[test]
fn a_broken_off_stream_leaves_its_last_event_uncounted() {
    let mut scan = StreamScan::new(Operation::ChatCompletions, Framing::Sse);
    assert_eq!(scan.push(b"data: a\n\ndata: b").events, 1);
    assert_eq!(scan.usage(), None);
}

#[test]
fn framing_is_read_from_the_content_type() {
    assert_eq!(Framing::of_content_type("text/event-stream; charset=utf-8"), Some(Framing::Sse));
    assert_eq!(Framing::of_content_type("Application/X-NDJSON"), Some(Framing::Lines));
    assert_eq!(Framing::of_content_type("application/json"), None);
    assert_eq!(Framing::of_content_type(""), None);
}

/// Events counted by the standard's own words, slowly: lines first, then fields, then blank lines.
fn reference_events(text: &str) -> u32 {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut data) = (0, None::<String>);
    for line in text.split('\n').chain(["", ""]) {
        if line.is_empty() {
            events += u32::from(data.take().is_some_and(|data| data != "[DONE]"));
        } else if let Some(value) = line.strip_prefix("data:").or((line == "data").then_some("")) {
            let value = value.strip_prefix(' ').unwrap_or(value);
            data = Some(data.map_or(value.to_owned(), |data| format!("{data}\n{value}")));
        }
    }
    events
}

fn stream() -> impl Strategy<Value = String> {
    const PIECES: [&str; 18] = [
        "data: ",
        "data:",
        "data",
        "event: message_start",
        ": ping",
        "\n",
        "\n\n",
        "\r\n",
        "\r\n\r\n",
        "\r",
        "{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}",
        "{\"usage\":null,\"choices\":[]}",
        "{\"x\":\"안녕\u{2028}🦀\\\"usage\\\":{}\"}",
        "{\"message\":{\"usage\":{\"input_tokens\":5}}}",
        "[DONE]",
        "\u{feff}",
        "data: {\"usage\":{\"prompt_tokens\":",
        "17}}\n\n",
    ];
    proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_gives_the_same(text in stream(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let bytes = text.as_bytes();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let chunks: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        for framing in [Framing::Sse, Framing::Lines] {
            let whole = scan(Operation::Messages, framing, &[bytes]);
            prop_assert_eq!(scan(Operation::Messages, framing, &chunks), whole);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(scan(Operation::Messages, framing, &single), whole);
        }
        prop_assert_eq!(scan(Operation::Messages, Framing::Sse, &[bytes]).0, reference_events(&text));
    }
}
