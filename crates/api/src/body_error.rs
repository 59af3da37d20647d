//! Why a request body is refused.

use std::borrow::Cow;

/// The stable name of a reason to refuse a body; clients may match on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyCode {
    /// No bytes where a body is needed.
    EmptyBody,
    /// Not UTF-8.
    InvalidUtf8,
    /// Not JSON, or JSON followed by something else.
    InvalidJson,
    /// JSON nested deeper than [`MAX_DEPTH`](crate::MAX_DEPTH).
    TooDeep,
    /// A field that is read has a value of the wrong type.
    InvalidType,
    /// A field that is read is there twice: two readers could disagree about which one counts.
    DuplicateKey,
    /// The call needs a model and the body names none.
    MissingModel,
    /// Not `multipart/form-data`, or not in one piece.
    InvalidMultipart,
    /// More parts or longer part headers than are read.
    TooManyParts,
}

impl BodyCode {
    /// The code as it appears in error answers, logs and counters.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BodyCode::EmptyBody => "empty_body",
            BodyCode::InvalidUtf8 => "invalid_utf8",
            BodyCode::InvalidJson => "invalid_json",
            BodyCode::TooDeep => "too_deep",
            BodyCode::InvalidType => "invalid_type",
            BodyCode::DuplicateKey => "duplicate_key",
            BodyCode::MissingModel => "missing_model",
            BodyCode::InvalidMultipart => "invalid_multipart",
            BodyCode::TooManyParts => "too_many_parts",
        }
    }
}

/// A refused body: what is wrong, where, and what to do. Always the client's fault (400).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BodyError {
    /// The stable reason.
    pub code: BodyCode,
    /// Bytes before the fault.
    pub offset: usize,
    /// Line of the fault, from 1.
    pub line: usize,
    /// Column of the fault in bytes, from 1.
    pub column: usize,
    /// The field at fault, where there is one.
    pub param: Option<&'static str>,
    /// Names the thing, the value, the rule and the remedy. Safe to send to the client.
    pub message: Cow<'static, str>,
}

impl BodyError {
    /// Fault at `offset` of `body`; the place is written into the message.
    pub(crate) fn at(body: &[u8], offset: usize, code: BodyCode, what: impl std::fmt::Display) -> Self {
        let before = &body[..offset.min(body.len())];
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        let column = before.len() - memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1) + 1;
        let message = format!("{what} (line {line}, column {column}, byte {offset})").into();
        BodyError { code, offset, line, column, param: None, message }
    }

    /// Names the field at fault.
    pub(crate) fn of(mut self, param: &'static str) -> Self {
        self.param = Some(param);
        self
    }

    /// Fault of the body as a whole.
    pub(crate) fn whole(code: BodyCode, message: impl Into<Cow<'static, str>>) -> Self {
        BodyError { code, offset: 0, line: 1, column: 1, param: None, message: message.into() }
    }
}
