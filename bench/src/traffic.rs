//! The requests that are sent and the answers that are due: the same bytes in the load generator and in the mock
//! engines, made from nothing but the kind and the variant, so that each side can check the other.

use std::fmt::Write as _;

/// How many different prompts there are of each kind. They share 8 system prompts, so that prefix affinity and
/// prefix caches of the proxies have something to find.
pub const VARIANTS: usize = 64;
/// Chunks of a streamed answer.
pub const CHUNKS: usize = 32;
/// Pause between the chunks of a paced stream, in milliseconds.
pub const CHUNK_PAUSE_MS: u64 = 10;
/// Chunks of a `Kind::Tokens` answer.
pub const TOKENS: usize = 20;
/// Time to the first chunk of a `Kind::Tokens` answer, in milliseconds.
pub const TOKENS_FIRST_MS: u64 = 20;
/// Pause between the chunks of a `Kind::Tokens` answer, in milliseconds.
pub const TOKENS_PAUSE_MS: u64 = 2;
const SYSTEM_PROMPTS: usize = 8;

/// What is asked for and how the engine answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A chat body of about 2 KB, a small JSON answer.
    Json2k,
    /// A chat body of about 64 KB, a small JSON answer.
    Json64k,
    /// 32 server-sent events, written by the engine at once.
    Burst,
    /// 32 server-sent events, each written on its own, without pauses.
    Flushed,
    /// 32 server-sent events, 10 ms apart.
    Paced,
    /// Like `Paced`, each event telling when it was written.
    Stamped,
    /// 20 server-sent events, the first after 20 ms, then 2 ms apart: a small engine's stream.
    Tokens,
}

impl Kind {
    /// All kinds, in the order of their marks.
    pub const ALL: [Kind; 7] =
        [Kind::Json2k, Kind::Json64k, Kind::Burst, Kind::Flushed, Kind::Paced, Kind::Stamped, Kind::Tokens];

    fn mark(self) -> char {
        ['s', 'l', 'b', 'f', 'p', 't', 'k'][self as usize]
    }

    /// The kind's place in `ALL`.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The name used on the command line and in tables.
    pub fn name(self) -> &'static str {
        ["json2k", "json64k", "burst", "flushed", "paced", "stamped", "tokens"][self as usize]
    }

    fn streams(self) -> bool {
        !matches!(self, Kind::Json2k | Kind::Json64k)
    }

    fn chunks(self) -> usize {
        if self == Kind::Tokens { TOKENS } else { CHUNKS }
    }

    fn body_bytes(self) -> usize {
        if self == Kind::Json64k { 64 * 1024 } else { 2 * 1024 }
    }
}

/// The body of a chat completion request.
///
/// The user's message begins with a mark such as `[[s017]]`. A proxy may print the body anew, but it has to keep the
/// prompt, so the mark tells the engine what to answer.
pub fn request_body(kind: Kind, variant: usize) -> Vec<u8> {
    let mut text = String::with_capacity(kind.body_bytes() + 256);
    let system = variant % SYSTEM_PROMPTS;
    text.push_str(r#"{"model":"mock","messages":[{"role":"system","content":""#);
    prose(&mut text, 1000 + system as u64, 700);
    let _ = write!(text, r#""}},{{"role":"user","content":"[[{}{variant:03}]] "#, kind.mark());
    let tail = format!(
        r#""}}],"max_tokens":64,"temperature":0.7,"top_p":0.95,"stream":{},"user":"bench-{variant}"}}"#,
        kind.streams()
    );
    let room = kind.body_bytes().saturating_sub(text.len() + tail.len());
    prose(&mut text, variant as u64, room);
    text.push_str(&tail);
    text.into_bytes()
}

/// The kind and variant that a request body asks for; `None` when it carries no mark.
pub fn read_mark(body: &[u8]) -> Option<(Kind, usize)> {
    let at = memchr::memmem::find(body, b"[[")?;
    let mark = body.get(at + 2..at + 8)?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.mark() as u8 == mark[0])?;
    let variant: usize = std::str::from_utf8(&mark[1..4]).ok()?.parse().ok()?;
    (variant < VARIANTS && &mark[4..] == b"]]").then_some((kind, variant))
}

/// The JSON answer to an unstreamed request.
pub fn json_answer(kind: Kind, variant: usize) -> Vec<u8> {
    let mut text = format!(
        concat!(
            r#"{{"id":"chatcmpl-{}{:03}","object":"chat.completion","created":1767225600,"model":"mock","#,
            r#""choices":[{{"index":0,"message":{{"role":"assistant","content":""#
        ),
        kind.mark(),
        variant
    );
    prose(&mut text, 5000 + variant as u64, 160);
    text.push_str(concat!(
        r#""},"logprobs":null,"finish_reason":"stop"}],"#,
        r#""usage":{"prompt_tokens":512,"total_tokens":544,"completion_tokens":32}}"#
    ));
    text.into_bytes()
}

/// The events of a streamed answer, each as it travels in one chunk. The last one carries `[DONE]`.
pub fn events(kind: Kind, variant: usize) -> Vec<Vec<u8>> {
    let chunks = kind.chunks();
    (0..chunks)
        .map(|n| {
            let mut text = format!(
                concat!(
                    r#"data: {{"id":"chatcmpl-{}{:03}7f3a9c0b84e1d62f5ac17e409b2","object":"chat.completion.chunk","created":1767225600,"#,
                    r#""model":"mock","choices":[{{"index":0,"delta":{{"content":" "#
                ),
                kind.mark(),
                variant
            );
            prose(&mut text, (variant * CHUNKS + n) as u64, 12);
            text.push_str("\"},\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}\n\n");
            if n + 1 == chunks {
                text.push_str("data: [DONE]\n\n");
            }
            text.into_bytes()
        })
        .collect()
}

/// The answer to `/tokenize`: one number for every four bytes of the body, the same ones for the same system prompt.
pub fn token_answer(kind: Kind, variant: usize) -> Vec<u8> {
    let count = kind.body_bytes() / 4;
    let numbers = (0..count).map(|n| {
        let seed = if n < 180 { variant % SYSTEM_PROMPTS } else { SYSTEM_PROMPTS + variant };
        ((seed * 7919 + n * 104_729) % 50_000).to_string()
    });
    let numbers = numbers.collect::<Vec<_>>().join(",");
    format!(r#"{{"count":{count},"max_model_len":32768,"tokens":[{numbers}],"token_strs":null}}"#)
        .into_bytes()
}

/// An event that tells when it was written, in nanoseconds of the system's clock; see `read_stamp`.
pub fn stamped_event(written_ns: u64) -> Vec<u8> {
    format!("data: {{\"written_ns\":{written_ns:020}}}\n\n").into_bytes()
}

/// Length of every `stamped_event`.
pub const STAMPED_EVENT_BYTES: usize = "data: {\"written_ns\":".len() + 20 + "}\n\n".len();

/// The time in one whole `stamped_event`.
pub fn read_stamp(event: &[u8]) -> Option<u64> {
    let digits = event.strip_prefix(b"data: {\"written_ns\":")?.strip_suffix(b"}\n\n")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// About `bytes` of words, sentences and escaped line breaks; ASCII except for a few letters.
fn prose(into: &mut String, seed: u64, bytes: usize) {
    const WORDS: [&str; 32] = [
        "the",
        "model",
        "answers",
        "with",
        "cache",
        "a",
        "token",
        "of",
        "memory",
        "request",
        "and",
        "prefill",
        "is",
        "slower",
        "than",
        "decode",
        "because",
        "queue",
        "stream",
        "für",
        "each",
        "block",
        "holds",
        "sixteen",
        "keys",
        "when",
        "batch",
        "grows",
        "latency",
        "rises",
        "\\\"quoted\\\"",
        "naïve",
    ];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    let end = into.len() + bytes;
    loop {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = WORDS[(state >> 32) as usize % WORDS.len()];
        let space = if (state >> 8).is_multiple_of(23) { ".\\n" } else { " " };
        if into.len() + word.len() + space.len() > end {
            break;
        }
        into.push_str(word);
        into.push_str(space);
    }
    while into.len() < end {
        into.push('.');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_is_json_of_the_named_size_and_says_its_kind_and_variant() {
        for kind in Kind::ALL {
            for variant in 0..VARIANTS {
                let body = request_body(kind, variant);
                assert_eq!(body.len(), kind.body_bytes());
                assert_eq!(read_mark(&body), Some((kind, variant)));
                let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(value["stream"], kind.streams());
            }
        }
        assert_ne!(request_body(Kind::Json2k, 1), request_body(Kind::Json2k, 2));
    }

    #[test]
    fn answers_are_json() {
        serde_json::from_slice::<serde_json::Value>(&json_answer(Kind::Json2k, 3)).unwrap();
        let tokens: serde_json::Value = serde_json::from_slice(&token_answer(Kind::Json2k, 3)).unwrap();
        assert_eq!(tokens["tokens"].as_array().unwrap().len(), 512);
        for event in events(Kind::Burst, 5) {
            let text = String::from_utf8(event).unwrap();
            let line = text.lines().next().unwrap().strip_prefix("data: ").unwrap();
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }

    #[test]
    fn a_stamp_comes_back() {
        let event = stamped_event(1_767_225_600_123_456_789);
        assert_eq!(event.len(), STAMPED_EVENT_BYTES);
        assert_eq!(read_stamp(&event), Some(1_767_225_600_123_456_789));
        assert_eq!(read_stamp(&event[1..]), None);
    }
}
