//! What reading a body or a stream costs, beside a copy of and a search through the same bytes in the same run.
//!
//! `cargo run --release -p api --example scan_speed [milliseconds per row]`

use std::hint::black_box;
use std::time::{Duration, Instant};

use api::{Framing, Operation, StreamScan, scan_json, usage_of_json};

fn main() {
    let budget_ms = std::env::args().nth(1).and_then(|ms| ms.parse().ok()).unwrap_or(200);
    let budget = Duration::from_millis(budget_ms);
    println!("{:<34}{:>9}{:>12}{:>9}{:>9}{:>10}", "", "bytes", "ns", "GB/s", "/ copy", "/ search");

    for (name, operation, body) in bodies() {
        let scan = || _ = black_box(scan_json(operation, black_box(&body)));
        assert!(scan_json(operation, &body).is_ok(), "{name}");
        row(&format!("body: {name}"), &body, 1, budget, scan);
    }

    for (name, texts) in gateway_bodies() {
        let mut turn = 0;
        row(&format!("64 bodies: {name}"), &texts[0], 1, budget, || {
            turn = (turn + 1) % texts.len();
            _ = black_box(scan_json(Operation::ChatCompletions, black_box(&texts[turn])));
        });
        assert!(texts.iter().all(|body| scan_json(Operation::ChatCompletions, body).is_ok()), "{name}");
    }

    let answer = format!(
        r#"{{"id":"x","choices":[{{"message":{{"role":"assistant","content":"{}"}}}}],"usage":{{"prompt_tokens":9,"completion_tokens":900}}}}"#,
        prose(4000, 90)
    );
    row("answer: 4 KB with usage", answer.as_bytes(), 1, budget, || {
        _ = black_box(usage_of_json(black_box(answer.as_bytes())));
    });

    let plain = event("");
    let null = event(r#","usage":null"#);
    let counted = event(r#","usage":{"prompt_tokens":12,"total_tokens":17,"completion_tokens":5}"#);
    for (name, event) in [("plain", &plain), ("usage null", &null), ("usage in each", &counted)] {
        for events in [1, 32] {
            let chunk = event.repeat(events);
            let mut scan = StreamScan::new(Operation::ChatCompletions, Framing::Sse);
            row(&format!("event: {name}, {events} a chunk"), &chunk, events, budget, || {
                _ = black_box(scan.push(black_box(&chunk)));
            });
        }
    }
    let (head, tail) = plain.split_at(plain.len() / 2);
    let mut scan = StreamScan::new(Operation::ChatCompletions, Framing::Sse);
    row("event: plain, in two chunks", &plain, 1, budget, || {
        _ = black_box(scan.push(black_box(head)));
        _ = black_box(scan.push(black_box(tail)));
    });
}

/// Best of many short runs: the machine is shared.
fn row(name: &str, bytes: &[u8], parts: usize, budget: Duration, mut work: impl FnMut()) {
    let ns = best_ns(budget, &mut work);
    let mut copy = vec![0; bytes.len()];
    let copy_ns = best_ns(budget / 4, &mut || black_box(&mut copy).copy_from_slice(black_box(bytes)));
    let search_ns = best_ns(budget / 4, &mut || _ = black_box(memchr::memchr(0, black_box(bytes))));
    println!(
        "{name:<34}{:>9}{:>12.1}{:>9.2}{:>9.1}{:>10.1}",
        bytes.len() / parts,
        ns / parts as f64,
        bytes.len() as f64 / ns,
        ns / copy_ns,
        ns / search_ns
    );
}

fn best_ns(budget: Duration, work: &mut dyn FnMut()) -> f64 {
    let deadline = Instant::now() + budget;
    let mut best = f64::INFINITY;
    while Instant::now() < deadline {
        const ROUNDS: u32 = 200;
        let start = Instant::now();
        for _ in 0..ROUNDS {
            work();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
    }
    best
}

fn bodies() -> Vec<(&'static str, Operation, Vec<u8>)> {
    let chat = Operation::ChatCompletions;
    let ids: Vec<String> = (0..11_000_u64).map(|i| (i * 7919 % 128_000).to_string()).collect();
    let tools: Vec<String> = (0..64).map(tool).collect();
    vec![
        ("2 KB chat", chat, conversation(4, 450, 90)),
        ("64 KB chat", chat, conversation(16, 4000, 90)),
        ("64 KB chat, one long message", chat, conversation(1, 64_000, 100_000)),
        ("64 KB chat, escape every ~30 B", chat, conversation(16, 4000, 30)),
        ("64 KB chat, Korean", chat, conversation_of("안녕하세요 라우터가 요청을 읽습니다 ", 16, 1300)),
        (
            "16 KB tools",
            chat,
            format!(r#"{{"model":"m","tools":[{}],"messages":[]}}"#, tools.join(",")).into(),
        ),
        (
            "64 KB token ids",
            Operation::VllmGenerate,
            format!(r#"{{"token_ids":[{}]}}"#, ids.join(",")).into(),
        ),
        (
            "64 KB token ids, spaced",
            Operation::VllmGenerate,
            format!(r#"{{"token_ids":[{}]}}"#, ids.join(", ")).into(),
        ),
    ]
}

/// As a gateway meets them: each body another one of 64 KB, so that none is in the nearest caches.
fn gateway_bodies() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let chat = |write: &dyn Fn(u64) -> String| -> Vec<Vec<u8>> {
        let body = |n| {
            let user = write(n);
            format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":"{user}"}}],"max_tokens":64,"temperature":0.7,"stream":true,"user":"u-{n}"}}"#
            )
            .into_bytes()
        };
        (0..64).map(body).collect()
    };
    let ascii = |text: String| text.replace('ü', "ue").replace('ï', "i");
    let spelled = |text: String| -> String {
        let spell = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\u{:04x}", c as u32) };
        text.chars().map(spell).collect()
    };
    let korean = |n: u64| "안녕하세요 라우터가 요청을 읽습니다\\n".repeat(600 + n as usize % 8);
    vec![
        ("mixed words", chat(&|n| words(n, 64_000))),
        ("words in ASCII", chat(&|n| ascii(words(n, 64_000)))),
        ("Korean as \\u", chat(&|n| spelled(korean(n)))),
    ]
}

/// Words of which some have a letter outside ASCII, some are in quotes; a sentence ends with a line.
fn words(seed: u64, bytes: usize) -> String {
    const WORDS: [&str; 16] = [
        "the",
        "router",
        "reads",
        "a",
        "body",
        "once",
        "naïve",
        "because",
        "memory",
        "is",
        "slower",
        "than",
        "für",
        "caches",
        "are",
        "\\\"quoted\\\"",
    ];
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::new();
    while text.len() < bytes {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // Every other word is from the plain half.
        let among = if random >> 60 & 1 == 0 { 6 } else { 16 };
        text += WORDS[(random >> 33) as usize % among];
        text += if (random >> 40).is_multiple_of(23) { ".\\n" } else { " " };
    }
    text
}

fn tool(index: usize) -> String {
    format!(
        r#"{{"type":"function","function":{{"name":"get_{index}","description":"Reads one value.","parameters":{{"type":"object","properties":{{"city":{{"type":"string"}},"days":{{"type":"integer","minimum":1}}}},"required":["city"]}}}}}}"#
    )
}

/// Prose as it stands in JSON, with a `\n` or `\"` about every `gap` bytes.
fn prose(bytes: usize, gap: usize) -> String {
    let words =
        ["the ", "router ", "reads ", "a ", "body ", "once, ", "never ", "building ", "trees ", "of it "];
    let mut text = String::new();
    let (mut random, mut next) = (1_u64, gap);
    while text.len() < bytes {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        text += words[(random >> 33) as usize % words.len()];
        if text.len() >= next {
            text += if random >> 40 & 3 == 0 { "\\\"" } else { "\\n" };
            next = text.len() + gap / 2 + (random >> 45) as usize % gap;
        }
    }
    text
}

fn conversation(messages: usize, bytes_each: usize, gap: usize) -> Vec<u8> {
    conversation_of(&prose(bytes_each, gap), messages, 1)
}

fn conversation_of(text: &str, messages: usize, repeat: usize) -> Vec<u8> {
    let text = if repeat > 1 { text.repeat(repeat / 16) } else { text.to_owned() };
    let messages: Vec<String> = (0..messages)
        .map(|index| {
            let role = if index % 2 == 0 { "user" } else { "assistant" };
            format!(r#"{{"role":"{role}","content":"{text}"}}"#)
        })
        .collect();
    format!(
        r#"{{"model":"Qwen/Qwen3-8B","messages":[{}],"stream":true,"stream_options":{{"include_usage":true}},"temperature":0.7,"top_p":0.95,"max_tokens":512,"user":"u-123"}}"#,
        messages.join(",")
    )
    .into_bytes()
}

fn event(more: &str) -> Vec<u8> {
    format!(
        "data: {{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"Qwen/Qwen3-8B\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word\"}},\"finish_reason\":null}}]{more}}}\n\n"
    )
    .into_bytes()
}
