//! Token counts that an engine reports with its answer.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::json::{Cursor, Fault, FaultKind};
use crate::operation::{Dialect, Operation};

/// Tokens of one request, as its engine counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt_tokens: u64,
    /// Tokens generated; 0 for calls that generate none.
    pub completion_tokens: u64,
    /// Tokens of the prompt that came from a prefix cache; `None` when the engine does not say.
    pub cached_tokens: Option<u64>,
}

/// The usage in a whole JSON answer: `usage` (OpenAI's calls, Anthropic), `response.usage` and `message.usage`
/// (their stream events), `meta_info` (SGLang, one or a list), `prompt_eval_count` and `eval_count` (Ollama).
///
/// Looks only where these keys are structure, so text that a model wrote cannot pass for them. `None` when there is
/// none, or when `body` is not JSON.
#[must_use]
pub fn usage_of_json(body: &[u8]) -> Option<Usage> {
    let mut counts = Counts::default();
    counts.read(body);
    counts.usage()
}

/// Counts gathered so far; later events of a stream add to or replace earlier ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    prompt: Option<u64>,
    completion: Option<u64>,
    cached: Option<u64>,
    /// Anthropic counts cached and newly cached tokens apart from `input_tokens`.
    cache_read: Option<u64>,
    cache_creation: Option<u64>,
}

impl Counts {
    /// Takes over what `json` reports; nothing if it is not whole.
    pub(crate) fn read(&mut self, json: &[u8]) {
        // That text is UTF-8 is the client's to check: it is passed on as it is.
        let mut cursor = Cursor::<false>::new(json);
        let mut news = Counts::default();
        cursor.skip_space();
        let whole = match cursor.peek() {
            Some(b'{') => cursor.answer(1, &mut news),
            Some(b'[') => cursor.answers(&mut news),
            _ => return,
        };
        if whole.and_then(|()| cursor.end()).is_ok() {
            self.merge(news);
        }
    }

    fn merge(&mut self, news: Counts) {
        // An end event that repeats the prompt as 0 takes nothing back.
        let keep = |old: &mut Option<u64>, new: Option<u64>| {
            if new.is_some_and(|new| new > 0) || old.is_none() {
                *old = new.or(*old);
            }
        };
        keep(&mut self.prompt, news.prompt);
        keep(&mut self.cached, news.cached);
        keep(&mut self.cache_read, news.cache_read);
        keep(&mut self.cache_creation, news.cache_creation);
        self.completion = news.completion.or(self.completion);
    }

    fn add(&mut self, other: Counts) {
        let plus = |sum: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more));
            }
        };
        plus(&mut self.prompt, other.prompt);
        plus(&mut self.completion, other.completion);
        plus(&mut self.cached, other.cached);
        plus(&mut self.cache_read, other.cache_read);
        plus(&mut self.cache_creation, other.cache_creation);
    }

    pub(crate) fn usage(&self) -> Option<Usage> {
        if self.prompt.is_none() && self.completion.is_none() {
            return None;
        }
        let apart = self.cache_read.unwrap_or(0).saturating_add(self.cache_creation.unwrap_or(0));
        Some(Usage {
            prompt_tokens: self.prompt.unwrap_or(0).saturating_add(apart),
            completion_tokens: self.completion.unwrap_or(0),
            cached_tokens: self.cached.or(self.cache_read),
        })
    }
}

impl Cursor<'_, false> {
    fn answers(&mut self, counts: &mut Counts) -> Result<(), Fault> {
        loop {
            self.at += 1;
            self.skip_space();
            if self.peek() == Some(b'{') {
                let mut one = Counts::default();
                self.answer(2, &mut one)?;
                counts.add(one);
            } else {
                self.skip_value(1)?;
            }
            self.skip_space();
            match self.peek() {
                Some(b',') => {}
                Some(b']') => break,
                _ => return self.fault(FaultKind::CommaOrBracketExpected),
            }
        }
        self.at += 1;
        Ok(())
    }

    /// The object here, as an answer or an event.
    fn answer(&mut self, depth: u32, counts: &mut Counts) -> Result<(), Fault> {
        self.members(depth, |cursor, key| match &cursor.body[key.start..key.end] {
            b"usage" | b"meta_info" if cursor.peek() == Some(b'{') => cursor.counts(depth + 1, counts),
            b"response" | b"message" if cursor.peek() == Some(b'{') => {
                cursor.members(depth + 1, |cursor, key| match &cursor.body[key.start..key.end] {
                    b"usage" if cursor.peek() == Some(b'{') => cursor.counts(depth + 2, counts),
                    _ => cursor.skip_value(depth + 1),
                })
            }
            b"prompt_eval_count" => cursor.count(depth, &mut counts.prompt),
            b"eval_count" => cursor.count(depth, &mut counts.completion),
            _ => cursor.skip_value(depth),
        })
    }

    /// The object here, as the one with the counts.
    fn counts(&mut self, depth: u32, counts: &mut Counts) -> Result<(), Fault> {
        self.members(depth, |cursor, key| match &cursor.body[key.start..key.end] {
            b"prompt_tokens" | b"input_tokens" => cursor.count(depth, &mut counts.prompt),
            b"completion_tokens" | b"output_tokens" => cursor.count(depth, &mut counts.completion),
            b"cached_tokens" => cursor.count(depth, &mut counts.cached),
            b"cache_read_input_tokens" => cursor.count(depth, &mut counts.cache_read),
            b"cache_creation_input_tokens" => cursor.count(depth, &mut counts.cache_creation),
            b"prompt_tokens_details" | b"input_tokens_details" if cursor.peek() == Some(b'{') => cursor
                .members(depth + 1, |cursor, key| match &cursor.body[key.start..key.end] {
                    b"cached_tokens" => cursor.count(depth + 1, &mut counts.cached),
                    _ => cursor.skip_value(depth + 1),
                }),
            _ => cursor.skip_value(depth),
        })
    }

    fn count(&mut self, depth: u32, into: &mut Option<u64>) -> Result<(), Fault> {
        if let Some(count) = self.whole_number(depth)? {
            *into = Some(count);
        }
        Ok(())
    }
}

/// The key without which an event of a stream has no usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    Usage,
    MetaInfo,
    EvalCount,
}

static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\""));
static META_INFO: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"meta_info\""));
static EVAL_COUNT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"eval_count\""));

impl Marker {
    pub(crate) fn of(operation: Operation) -> Self {
        match operation {
            Operation::SglangGenerate => Marker::MetaInfo,
            _ if operation.dialect() == Dialect::Ollama => Marker::EvalCount,
            _ => Marker::Usage,
        }
    }

    /// Whether `data` may report usage and is worth a walk. A marker with null after it reports nothing; engines
    /// send that with every event.
    #[inline]
    pub(crate) fn is_in(self, data: &[u8]) -> bool {
        let finder: &Finder<'static> = match self {
            Marker::Usage => &USAGE,
            Marker::MetaInfo => &META_INFO,
            Marker::EvalCount => &EVAL_COUNT,
        };
        let mut rest = data;
        while let Some(at) = finder.find(rest) {
            rest = &rest[at + finder.needle().len()..];
            let value = rest.trim_ascii_start();
            if value.strip_prefix(b":").is_some_and(|value| !value.trim_ascii_start().starts_with(b"n")) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(prompt_tokens: u64, completion_tokens: u64, cached_tokens: Option<u64>) -> Option<Usage> {
        Some(Usage { prompt_tokens, completion_tokens, cached_tokens })
    }

    #[test]
    fn every_shape() {
        let of = |text: &str| usage_of_json(text.as_bytes());
        assert_eq!(
            of(r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,
                "prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0}}}"#),
            usage(7, 2, Some(4))
        );
        assert_eq!(of(r#"{"usage":{"prompt_tokens":7,"prompt_tokens_details":null}}"#), usage(7, 0, None));
        assert_eq!(
            of(r#"{"type":"response.completed","response":{"usage":{"input_tokens":5,"output_tokens":6,
                "input_tokens_details":{"cached_tokens":0},"output_tokens_details":{"reasoning_tokens":3}}}}"#),
            usage(5, 6, Some(0))
        );
        assert_eq!(
            of(r#"{"type":"message","usage":{"input_tokens":5,"cache_read_input_tokens":10,
                "cache_creation_input_tokens":1,"output_tokens":6}}"#),
            usage(16, 6, Some(10))
        );
        assert_eq!(of(r#"{"done":true,"prompt_eval_count":3,"eval_count":4}"#), usage(3, 4, None));
        assert_eq!(
            of(r#"{"text":"x","meta_info":{"prompt_tokens":1,"completion_tokens":2,"cached_tokens":0}}"#),
            usage(1, 2, Some(0))
        );
        assert_eq!(
            of(
                r#"[{"meta_info":{"prompt_tokens":1,"completion_tokens":2}}, {"meta_info":{"prompt_tokens":3}}]"#
            ),
            usage(4, 2, None)
        );
    }

    #[test]
    fn nothing_where_there_is_nothing() {
        for text in [
            "",
            "{}",
            "[]",
            "x",
            r#"{"usage":null}"#,
            r#"{"usage":{}}"#,
            r#"{"usage":{"prompt_tokens":-1}}"#,
            r#"{"usage":{"prompt_tokens":3}"#,
            r#"{"usage":{"prompt_tokens":3}} x"#,
            r#"[{"usage":{"prompt_tokens":3}}"#,
        ] {
            assert_eq!(usage_of_json(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn text_that_a_model_wrote_is_not_usage() {
        let text = r#"{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":9}","usage":{"prompt_tokens":9}}}],
            "metadata":{"usage":{"prompt_tokens":9}},"x":"usage"}"#;
        assert_eq!(usage_of_json(text.as_bytes()), None);
    }
}
