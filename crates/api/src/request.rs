//! The fields of a JSON request that routing reads.

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;

use crate::body_error::{BodyCode, BodyError};
use crate::json::{Cursor, Fault, FaultKind, MAX_DEPTH, RawString, unescape, unescape_or};
use crate::multipart::{is_multipart, scan_multipart};
use crate::operation::{BodyKind, Operation};

/// A string value as it stands in the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StringField {
    /// Its bytes in the body, without the quotes.
    pub inside: Range<usize>,
    /// Whether a backslash is among them.
    pub has_escapes: bool,
}

impl StringField {
    /// The text, borrowed from `body` (the one that was scanned) unless it has escapes.
    ///
    /// Half a surrogate pair becomes U+FFFD; only fields that do not choose a model can have one.
    #[must_use]
    pub fn text<'b>(&self, body: &'b [u8]) -> Cow<'b, str> {
        let inside = body.get(self.inside.clone()).unwrap_or_default();
        if self.has_escapes {
            return Cow::Owned(unescape_or(inside, Some('\u{fffd}')).unwrap_or_default());
        }
        String::from_utf8_lossy(inside)
    }
}

/// What routing reads of a request; everything is a place in the body, nothing is copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestFields {
    /// The model asked for. `None` when absent or null.
    pub model: Option<StringField>,
    /// `stream`. `None` when absent or null; see [`RequestFields::streams`].
    pub stream: Option<bool>,
    /// `stream_options.include_usage`.
    pub include_usage: Option<bool>,
    /// `store`: the answer is kept under an id.
    pub store: Option<bool>,
    /// `background`: the answer is made after the reply.
    pub background: Option<bool>,
    /// Most tokens to generate: the first present of `max_completion_tokens`, `max_output_tokens`,
    /// `max_tokens`, `sampling_params.{max_new_tokens, max_tokens}`, `options.num_predict`. Absent when it is
    /// not a whole number that fits: what to do about that is the engine's to say.
    pub max_tokens: Option<u64>,
    /// `n`: answers asked for.
    pub n: Option<u64>,
    /// `priority`, as vLLM and SGLang read it.
    pub priority: Option<i64>,
    /// `session_id`.
    pub session_id: Option<StringField>,
    /// `prompt_cache_key`.
    pub prompt_cache_key: Option<StringField>,
    /// `previous_response_id`.
    pub previous_response_id: Option<StringField>,
    /// `user`.
    pub user: Option<StringField>,
    /// The prompt's values as they stand in the body, in the order in which a chat template prints them
    /// (tools, system, then the conversation).
    pub prompt: SmallVec<[Range<usize>; 4]>,
}

impl RequestFields {
    /// Whether the answer is to be streamed.
    #[must_use]
    pub fn streams(&self, operation: Operation) -> bool {
        self.stream.unwrap_or_else(|| operation.streams_by_default())
    }

    /// Whether the request may be sent again to another endpoint as long as no byte of an answer came.
    #[must_use]
    pub fn is_replayable(&self, operation: Operation) -> bool {
        operation.is_inference() && self.store != Some(true) && self.background != Some(true)
    }

    /// Bytes of the prompt as it stands in the body.
    #[must_use]
    pub fn prompt_bytes(&self) -> usize {
        self.prompt.iter().map(ExactSizeIterator::len).sum()
    }

    /// The client's own word for its conversation: the first of `session_id`, `prompt_cache_key`,
    /// `previous_response_id` and `user`, from the narrowest to the widest.
    #[must_use]
    pub fn session<'b>(&self, body: &'b [u8]) -> Option<Cow<'b, str>> {
        let hints = [&self.session_id, &self.prompt_cache_key, &self.previous_response_id, &self.user];
        hints.into_iter().flatten().map(|hint| hint.text(body)).find(|text| !text.is_empty())
    }

    /// Refuses a request that names no model where the call needs one.
    ///
    /// # Errors
    /// [`BodyCode::MissingModel`].
    pub fn require_model(&self, operation: Operation) -> Result<(), BodyError> {
        if !operation.model_required() || self.model.as_ref().is_some_and(|model| !model.inside.is_empty()) {
            return Ok(());
        }
        let message = "the body has no `model`: this call needs one; name a model from GET /v1/models";
        Err(BodyError::whole(BodyCode::MissingModel, message).of("model"))
    }
}

/// The top-level keys that are read besides the prompt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Model,
    Stream,
    StreamOptions,
    Store,
    Background,
    MaxCompletionTokens,
    MaxOutputTokens,
    MaxTokens,
    SamplingParams,
    Options,
    N,
    Priority,
    SessionId,
    PromptCache,
    PreviousResponseId,
    User,
}

impl Key {
    fn of(name: &[u8]) -> Option<(Self, &'static str)> {
        Some(match name {
            b"model" => (Key::Model, "model"),
            b"stream" => (Key::Stream, "stream"),
            b"stream_options" => (Key::StreamOptions, "stream_options"),
            b"store" => (Key::Store, "store"),
            b"background" => (Key::Background, "background"),
            b"max_completion_tokens" => (Key::MaxCompletionTokens, "max_completion_tokens"),
            b"max_output_tokens" => (Key::MaxOutputTokens, "max_output_tokens"),
            b"max_tokens" => (Key::MaxTokens, "max_tokens"),
            b"sampling_params" => (Key::SamplingParams, "sampling_params"),
            b"options" => (Key::Options, "options"),
            b"n" => (Key::N, "n"),
            b"priority" => (Key::Priority, "priority"),
            b"session_id" => (Key::SessionId, "session_id"),
            b"prompt_cache_key" => (Key::PromptCache, "prompt_cache_key"),
            b"previous_response_id" => (Key::PreviousResponseId, "previous_response_id"),
            b"user" => (Key::User, "user"),
            _ => return None,
        })
    }
}

/// Why a scan stopped; turned into a [`BodyError`] outside the hot path.
enum Stop {
    Json(Fault),
    Type { key: &'static str, wanted: &'static str, at: usize },
    Duplicate { key: &'static str, at: usize },
    HalfSurrogate { key: &'static str, at: usize },
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Json(fault)
    }
}

/// Checks that `body` is one JSON object and finds the fields that routing needs, in one pass.
///
/// Strict where two readers could disagree (RFC 8259 to the letter, no repeated key among those that are read,
/// keys compared after their escapes), silent about everything that only an engine can judge. Bodies of Ollama's
/// calls match keys without regard to ASCII case, as Ollama itself does.
///
/// # Errors
/// A [`BodyError`] that names the fault and its place. A missing model is not one:
/// see [`RequestFields::require_model`].
///
/// ```
/// use api::{Operation, scan_json};
///
/// let body = br#"{"mod\u0065l":"qwen","stream":true,"messages":[{"role":"user","content":"Hi"}]}"#;
/// let fields = scan_json(Operation::ChatCompletions, body)?;
/// assert_eq!(fields.model.unwrap().text(body), "qwen");
/// assert_eq!(fields.stream, Some(true));
/// assert_eq!(&body[fields.prompt[0].clone()], br#"[{"role":"user","content":"Hi"}]"#);
/// # Ok::<(), api::BodyError>(())
/// ```
pub fn scan_json(operation: Operation, body: &[u8]) -> Result<RequestFields, BodyError> {
    if body.is_empty() {
        let message =
            "the body is empty: this call needs a JSON object; send one with content-length or chunked";
        return Err(BodyError::whole(BodyCode::EmptyBody, message));
    }
    scan(operation, body).map_err(|stop| refuse(body, stop))
}

/// Scans a body as what the call and its `content-type` say it is: a form where the call takes one and the header
/// says so, else JSON. Calls without a body have no fields.
///
/// # Errors
/// As [`scan_json`] and [`scan_multipart`].
pub fn scan_body(
    operation: Operation,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<RequestFields, BodyError> {
    match (operation.body_kind(), content_type) {
        (BodyKind::None, _) => Ok(RequestFields::default()),
        (BodyKind::MultipartOrJson, Some(content_type)) if is_multipart(content_type) => {
            scan_multipart(content_type, body)
        }
        _ => scan_json(operation, body),
    }
}

fn scan(operation: Operation, body: &[u8]) -> Result<RequestFields, Stop> {
    let prompt_keys = operation.prompt_keys();
    let folds_case = operation.dialect() == crate::Dialect::Ollama;
    let mut fields = RequestFields::default();
    let mut seen = 0_u32;
    let mut prompt: [Range<usize>; 6] = Default::default();
    // By rank: the first that is present counts.
    let mut max_tokens = [None; 5];

    let mut cursor = Cursor::<true>::new(body);
    cursor.skip_space();
    if cursor.peek() != Some(b'{') {
        return Err(top_level_stop(&cursor));
    }
    cursor.members::<Stop>(1, |cursor, raw| {
        let name = key_bytes(cursor.body, raw, folds_case);
        let start = cursor.at;
        let once = |seen: &mut u32, bit: u32, key| {
            let duplicate = *seen & 1 << bit != 0;
            *seen |= 1 << bit;
            if duplicate { Err(Stop::Duplicate { key, at: raw.start - 1 }) } else { Ok(()) }
        };
        if let Some((key, label)) = Key::of(&name) {
            once(&mut seen, key as u32, label)?;
            match key {
                Key::Model => fields.model = cursor.string_field(label, true)?,
                Key::Stream => fields.stream = cursor.bool_field(label)?,
                Key::Store => fields.store = cursor.bool_field(label)?,
                Key::Background => fields.background = cursor.bool_field(label)?,
                Key::StreamOptions => cursor.stream_options(&mut fields.include_usage)?,
                Key::MaxCompletionTokens => max_tokens[0] = cursor.whole_number(1)?,
                Key::MaxOutputTokens => max_tokens[1] = cursor.whole_number(1)?,
                Key::MaxTokens => max_tokens[2] = cursor.whole_number(1)?,
                Key::SamplingParams => {
                    max_tokens[3] = cursor.nested_number([b"max_new_tokens", b"max_tokens"])?;
                }
                Key::Options => max_tokens[4] = cursor.nested_number([b"num_predict", b"num_predict"])?,
                Key::N => fields.n = cursor.whole_number(1)?,
                Key::Priority => fields.priority = cursor.whole_number(1)?,
                Key::SessionId => fields.session_id = cursor.string_field(label, false)?,
                Key::PromptCache => fields.prompt_cache_key = cursor.string_field(label, false)?,
                Key::PreviousResponseId => fields.previous_response_id = cursor.string_field(label, false)?,
                Key::User => fields.user = cursor.string_field(label, false)?,
            }
        } else if let Some(rank) = prompt_keys.iter().position(|key| key.as_bytes() == &name[..]) {
            once(&mut seen, 16 + rank as u32, prompt_keys[rank])?;
            let is_null = cursor.peek() == Some(b'n');
            cursor.skip_value(1)?;
            if !is_null {
                prompt[rank] = start..cursor.at;
            }
        } else {
            cursor.skip_value(1)?;
        }
        Ok(())
    })?;
    cursor.end()?;
    fields.max_tokens = max_tokens.into_iter().flatten().next();
    fields.prompt = prompt.into_iter().filter(|part| !part.is_empty()).collect();
    Ok(fields)
}

/// The key without its escapes. A key with half a surrogate pair is none that is read.
fn key_bytes(body: &[u8], raw: RawString, folds_case: bool) -> Cow<'_, [u8]> {
    let inside = &body[raw.start..raw.end];
    let mut name = Cow::Borrowed(inside);
    if raw.has_escapes {
        name = Cow::Owned(unescape(inside).unwrap_or_default().into_bytes());
    }
    if folds_case && name.iter().any(u8::is_ascii_uppercase) {
        name.to_mut().make_ascii_lowercase();
    }
    name
}

fn top_level_stop(cursor: &Cursor<'_>) -> Stop {
    let mut rest = Cursor::<true> { body: cursor.body, at: cursor.at };
    match rest.skip_value(0).and_then(|()| rest.end()) {
        Err(fault) => Stop::Json(fault),
        Ok(()) => Stop::Type { key: "", wanted: "an object", at: cursor.at },
    }
}

impl Cursor<'_> {
    fn string_field(&mut self, key: &'static str, routes: bool) -> Result<Option<StringField>, Stop> {
        let at = self.at;
        if self.peek() != Some(b'"') {
            let is_null = self.peek() == Some(b'n');
            self.skip_value(1)?;
            if is_null || !routes {
                return Ok(None);
            }
            return Err(Stop::Type { key, wanted: "a string", at });
        }
        let RawString { start, end, has_escapes } = self.string()?;
        if routes && has_escapes && unescape(&self.body[start..end]).is_none() {
            return Err(Stop::HalfSurrogate { key, at });
        }
        Ok(Some(StringField { inside: start..end, has_escapes }))
    }

    fn bool_field(&mut self, key: &'static str) -> Result<Option<bool>, Stop> {
        let at = self.at;
        let first = self.peek();
        self.skip_value(1)?;
        match first {
            Some(b't') => Ok(Some(true)),
            Some(b'f') => Ok(Some(false)),
            Some(b'n') => Ok(None),
            _ => Err(Stop::Type { key, wanted: "true or false", at }),
        }
    }

    fn stream_options(&mut self, include_usage: &mut Option<bool>) -> Result<(), Stop> {
        if self.peek() != Some(b'{') {
            return Ok(self.skip_value(1)?);
        }
        let mut seen = false;
        self.members::<Stop>(2, |cursor, raw| {
            let first = cursor.peek();
            cursor.skip_value(2)?;
            if &*key_bytes(cursor.body, raw, false) == b"include_usage" {
                if std::mem::replace(&mut seen, true) {
                    return Err(Stop::Duplicate { key: "stream_options.include_usage", at: raw.start - 1 });
                }
                *include_usage = match first {
                    Some(b't') => Some(true),
                    Some(b'f') => Some(false),
                    _ => None,
                };
            }
            Ok(())
        })
    }

    /// The first of `names` that is a whole number in the object here.
    fn nested_number(&mut self, names: [&[u8]; 2]) -> Result<Option<u64>, Fault> {
        if self.peek() != Some(b'{') {
            self.skip_value(1)?;
            return Ok(None);
        }
        let mut found = [None; 2];
        self.members::<Fault>(2, |cursor, raw| {
            let name = key_bytes(cursor.body, raw, false);
            match names.iter().position(|wanted| *wanted == &name[..]) {
                Some(rank) => found[rank] = cursor.whole_number(2)?,
                None => cursor.skip_value(2)?,
            }
            Ok(())
        })?;
        Ok(found[0].or(found[1]))
    }
}

/// A body that is not UTF-8 is told so, whatever else is wrong with it: bytes in another encoding look like many a fault.
#[cold]
fn refuse(body: &[u8], stop: Stop) -> BodyError {
    let Err(fault) = std::str::from_utf8(body) else { return explain(body, stop) };
    let at = fault.valid_up_to();
    let byte = body.get(at).copied().unwrap_or_default();
    let what = format!("the body has byte 0x{byte:02x} where UTF-8 does not allow it; send JSON as UTF-8");
    BodyError::at(body, at, BodyCode::InvalidUtf8, what)
}

fn explain(body: &[u8], stop: Stop) -> BodyError {
    match stop {
        Stop::Json(Fault { at, kind: FaultKind::TooDeep }) => {
            let what = format!(
                "the body is nested deeper than {MAX_DEPTH} objects and arrays, the most that is read; flatten it"
            );
            BodyError::at(body, at, BodyCode::TooDeep, what)
        }
        Stop::Json(Fault { at, .. }) if at == 0 && body.starts_with(b"\xef\xbb\xbf") => {
            let what = "the body starts with a byte order mark, which JSON does not allow; send it without";
            BodyError::at(body, 0, BodyCode::InvalidJson, what)
        }
        Stop::Json(Fault { at, kind }) => {
            let what = format!("the body {} ({}); send valid JSON", kind.text(), shown(body, at));
            BodyError::at(body, at, BodyCode::InvalidJson, what)
        }
        Stop::Type { key: "", wanted, at } => {
            let what = format!("the body is {}, it must be {wanted}", type_at(body, at));
            BodyError::at(body, at, BodyCode::InvalidType, what)
        }
        Stop::Type { key, wanted, at } => {
            let what = format!("`{key}` is {} ({}), it must be {wanted}", type_at(body, at), shown(body, at));
            BodyError::at(body, at, BodyCode::InvalidType, what).of(key)
        }
        Stop::Duplicate { key, at } => {
            let what =
                format!("`{key}` is there twice, and readers differ in which one counts; send it once");
            BodyError::at(body, at, BodyCode::DuplicateKey, what).of(key)
        }
        Stop::HalfSurrogate { key, at } => {
            let what = format!("`{key}` has half a surrogate pair ({}), which is no text", shown(body, at));
            BodyError::at(body, at, BodyCode::InvalidJson, what).of(key)
        }
    }
}

fn type_at(body: &[u8], at: usize) -> &'static str {
    match body.get(at) {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(_) => "a number",
        None => "nothing",
    }
}

/// A few characters of the body at the fault, so that the client finds it, and no more than that.
fn shown(body: &[u8], at: usize) -> String {
    let rest = String::from_utf8_lossy(&body[at.min(body.len())..body.len().min(at + 64)]);
    if rest.is_empty() {
        return "at its end".to_owned();
    }
    let short: String = rest.chars().take(16).collect();
    format!("at {short:?}")
}

#[cfg(test)]
mod tests;
