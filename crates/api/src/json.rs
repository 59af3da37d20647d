//! A strict walk over JSON (RFC 8259) that builds nothing.

mod skip;
mod unescape;

use skip::{after_colon, after_long_string, after_value, fault};
pub(crate) use unescape::{unescape, unescape_or};

use crate::blocks::{after_short_text, after_space};

/// Deepest nesting of objects and arrays that is read, the outermost one included.
///
/// Engines parse recursively (Python's own limit is near a thousand); no client nests a chat this deep.
pub const MAX_DEPTH: u32 = 128;

/// What is wrong with the JSON. The place is kept apart, so that the hot path passes two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    pub at: usize,
    pub kind: FaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    EndsEarly,
    Value,
    Literal,
    Number,
    ControlInString,
    NotUtf8,
    Escape,
    KeyExpected,
    ColonExpected,
    CommaOrBraceExpected,
    CommaOrBracketExpected,
    Trailing,
    TooDeep,
}

impl FaultKind {
    pub(crate) fn text(self) -> &'static str {
        match self {
            FaultKind::EndsEarly => "ends in the middle of a value",
            FaultKind::Value => "has something that starts no JSON value",
            FaultKind::Literal => "has a word that is not true, false or null",
            FaultKind::Number => "has a number that JSON does not allow",
            FaultKind::ControlInString => "has a raw control character in a string; write it as \\u00XX",
            FaultKind::NotUtf8 => "has a string that is not UTF-8",
            FaultKind::Escape => "has a backslash escape that JSON does not know",
            FaultKind::KeyExpected => "needs a key in double quotes here",
            FaultKind::ColonExpected => "needs a colon after the key",
            FaultKind::CommaOrBraceExpected => "needs a comma or a closing brace here",
            FaultKind::CommaOrBracketExpected => "needs a comma or a closing bracket here",
            FaultKind::Trailing => "goes on after its closing brace",
            FaultKind::TooDeep => "is nested too deep",
        }
    }
}

/// A string as it stands in the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawString {
    /// First byte after the opening quote.
    pub start: usize,
    /// The closing quote.
    pub end: usize,
    pub has_escapes: bool,
}

/// A place in `body`, moved forward value by value. If `UTF8`, strings have to be UTF-8; what is not in strings is ASCII
/// by the grammar.
pub(crate) struct Cursor<'b, const UTF8: bool = true> {
    pub body: &'b [u8],
    pub at: usize,
}

type Step<T = ()> = Result<T, Fault>;

impl<'b, const UTF8: bool> Cursor<'b, UTF8> {
    pub(crate) fn new(body: &'b [u8]) -> Self {
        Cursor { body, at: 0 }
    }

    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    #[inline]
    pub(crate) fn skip_space(&mut self) {
        self.at = after_space(self.body, self.at);
    }

    #[cold]
    pub(crate) fn fault<T>(&self, kind: FaultKind) -> Step<T> {
        fault(self.body, self.at, kind)
    }

    /// From an opening quote to after the closing one.
    #[inline]
    pub(crate) fn string(&mut self) -> Step<RawString> {
        let start = self.at + 1;
        let short = after_short_text::<UTF8>(self.body, start);
        self.at = match short {
            Some(after) => after,
            None => after_long_string::<UTF8>(self.body, start)?,
        };
        let end = self.at - 1;
        let has_escapes = short.is_none() && memchr::memchr(b'\\', &self.body[start..end]).is_some();
        Ok(RawString { start, end, has_escapes })
    }

    /// A key and its colon, up to where the value starts.
    #[inline]
    pub(crate) fn key(&mut self) -> Step<RawString> {
        if self.peek() != Some(b'"') {
            return self.fault(FaultKind::KeyExpected);
        }
        let key = self.string()?;
        self.at = after_colon(self.body, self.at)?;
        Ok(key)
    }

    /// Steps over a value that is inside `depth` objects and arrays.
    #[inline]
    pub(crate) fn skip_value(&mut self, depth: u32) -> Step {
        self.at = after_value::<UTF8>(self.body, self.at, depth)?;
        Ok(())
    }

    /// Walks the members of the object that starts here and is the `depth`th one, counted from 1. `visit` gets
    /// the key with the cursor on the value, and leaves it after the value.
    #[inline]
    pub(crate) fn members<E: From<Fault>>(
        &mut self,
        depth: u32,
        mut visit: impl FnMut(&mut Self, RawString) -> Result<(), E>,
    ) -> Result<(), E> {
        if depth > MAX_DEPTH {
            return Ok(self.fault(FaultKind::TooDeep)?);
        }
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.key()?;
            visit(self, key)?;
            self.skip_space();
            match self.peek() {
                Some(b',') => {
                    self.at += 1;
                    self.skip_space();
                }
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Ok(self.fault(FaultKind::CommaOrBraceExpected)?),
            }
        }
    }

    /// Nothing but white space may follow.
    pub(crate) fn end(&mut self) -> Step {
        self.skip_space();
        if self.at == self.body.len() { Ok(()) } else { self.fault(FaultKind::Trailing) }
    }

    /// The value here if it is a whole number that fits, stepping over it whatever it is.
    pub(crate) fn whole_number<N: std::str::FromStr>(&mut self, depth: u32) -> Step<Option<N>> {
        let start = self.at;
        self.skip_value(depth)?;
        Ok(std::str::from_utf8(&self.body[start..self.at]).ok().and_then(|digits| digits.parse().ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), FaultKind> {
        let mut cursor = Cursor::<true>::new(text.as_bytes());
        cursor.skip_space();
        cursor.skip_value(0).and_then(|()| cursor.end()).map_err(|fault| fault.kind)
    }

    #[test]
    fn accepts_what_the_grammar_allows() {
        for good in [
            "0",
            "-0",
            "-0.0e-1",
            "10",
            "1E+2",
            "1e9999",
            "[]",
            "{}",
            "[[],{}]",
            "\"\"",
            " null ",
            "true",
            "[1,2 , 3]",
            r#"{"a":{"b":[{"c":null}]},"a":1}"#,
            r#""\"\\\/\b\f\n\r\t\u00eF""#,
            r#""\ud800""#,
            "\"\u{7f}\u{2028}\"",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn refuses_what_it_does_not() {
        use FaultKind::*;
        for (bad, kind) in [
            ("", EndsEarly),
            ("[", EndsEarly),
            ("[1", EndsEarly),
            ("\"a", EndsEarly),
            ("{\"a\"", EndsEarly),
            ("-", EndsEarly),
            ("1.", EndsEarly),
            ("01", Number),
            ("-a", Number),
            ("1.e1", Number),
            ("1e+ ", Number),
            (".5", Value),
            ("+1", Value),
            ("NaN", Value),
            ("nul", Literal),
            ("nulL", Literal),
            ("truex", Trailing),
            ("[1,]", Value),
            ("[1 2]", CommaOrBracketExpected),
            ("[1}", CommaOrBracketExpected),
            ("{\"a\":1,}", KeyExpected),
            ("{\"a\":1]", CommaOrBraceExpected),
            ("{a:1}", KeyExpected),
            ("{\"a\" 1}", ColonExpected),
            ("\"\n\"", ControlInString),
            ("\"\0\"", ControlInString),
            (r#""\x""#, Escape),
            (r#""\u12g4""#, Escape),
            (r#""\u+123""#, Escape),
            ("1 2", Trailing),
            ("\u{feff}1", Value),
            ("\u{a0}1", Value),
        ] {
            assert_eq!(check(bad), Err(kind), "{bad}");
        }
    }

    #[test]
    fn depth_is_bounded_exactly() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(check(&nested(MAX_DEPTH as usize)), Ok(()));
        assert_eq!(check(&nested(MAX_DEPTH as usize + 1)), Err(FaultKind::TooDeep));
        assert_eq!(check(&"[".repeat(1_000_000)), Err(FaultKind::TooDeep));
        assert_eq!(check(&"{\"a\":".repeat(1_000_000)), Err(FaultKind::TooDeep));
        // Objects and arrays in turn, all the way down and up.
        let mixed = format!("{}1{}", "[{\"a\":".repeat(64), "}]".repeat(64));
        assert_eq!(check(&mixed), Ok(()));
    }
}
