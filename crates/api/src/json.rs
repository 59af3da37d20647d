//! A strict walk over JSON (RFC 8259) that builds nothing.

use crate::blocks::{integers, next_special, special_mask_64};

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

/// A place in `body`, moved forward value by value.
pub(crate) struct Cursor<'b> {
    pub body: &'b [u8],
    pub at: usize,
}

type Step<T = ()> = Result<T, Fault>;

impl<'b> Cursor<'b> {
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
        let (after, has_escapes) = after_string(self.body, self.at)?;
        self.at = after;
        Ok(RawString { start, end: after - 1, has_escapes })
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
        self.at = after_value(self.body, self.at, depth)?;
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

// The hot part. Each function takes the place where something starts and gives the place after it, so that the
// place stays in a register.

#[cold]
#[inline(never)]
fn fault<T>(body: &[u8], at: usize, kind: FaultKind) -> Step<T> {
    let kind = if at >= body.len() { FaultKind::EndsEarly } else { kind };
    Err(Fault { at, kind })
}

#[inline(always)]
fn after_space(body: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = body.get(at) {
        at += 1;
    }
    at
}

/// The place after the string, and whether it has escapes.
#[inline(always)]
fn after_string(body: &[u8], quote: usize) -> Step<(usize, bool)> {
    let at = next_special(body, quote + 1);
    if body.get(at) == Some(&b'"') {
        return Ok((at + 1, false));
    }
    let at = after_long_string(body, at)?;
    Ok((at, true))
}

/// The rest of a string from its first escape.
fn after_long_string(body: &[u8], mut at: usize) -> Step<usize> {
    // Where there is one escape there are more: their places are found for a block at once.
    'blocks: while let Some(block) = body.get(at..).and_then(<[u8]>::first_chunk::<64>) {
        let mut specials = special_mask_64(block);
        while specials != 0 {
            let place = at + specials.trailing_zeros() as usize;
            let next = match body[place] {
                b'"' => return Ok(place + 1),
                b'\\' => after_escape(body, place)?,
                _ => return fault(body, place, FaultKind::ControlInString),
            };
            if next - at >= 64 {
                at = next;
                continue 'blocks;
            }
            specials &= u64::MAX << (next - at);
        }
        at += 64;
    }
    loop {
        at = next_special(body, at);
        match body.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at = after_escape(body, at)?,
            _ => return fault(body, at, FaultKind::ControlInString),
        }
    }
}

#[inline]
fn after_escape(body: &[u8], at: usize) -> Step<usize> {
    match body.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') if body.get(at + 2..at + 6).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) => {
            Ok(at + 6)
        }
        _ => fault(body, at, FaultKind::Escape),
    }
}

#[inline(always)]
fn after_key(body: &[u8], at: usize) -> Step<usize> {
    if body.get(at) != Some(&b'"') {
        return fault(body, at, FaultKind::KeyExpected);
    }
    let (at, _) = after_string(body, at)?;
    after_colon(body, at)
}

#[inline(always)]
fn after_colon(body: &[u8], at: usize) -> Step<usize> {
    let at = after_space(body, at);
    if body.get(at) != Some(&b':') {
        return fault(body, at, FaultKind::ColonExpected);
    }
    Ok(after_space(body, at + 1))
}

#[inline(always)]
fn after_literal(body: &[u8], at: usize, word: &[u8]) -> Step<usize> {
    if body[at..].starts_with(word) { Ok(at + word.len()) } else { fault(body, at, FaultKind::Literal) }
}

#[inline(always)]
fn after_digits(body: &[u8], start: usize) -> Step<usize> {
    let mut at = start;
    while body.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    if at == start { fault(body, at, FaultKind::Number) } else { Ok(at) }
}

#[inline]
fn after_number(body: &[u8], mut at: usize) -> Step<usize> {
    if body.get(at) == Some(&b'-') {
        at += 1;
    }
    if body.get(at) == Some(&b'0') {
        at += 1;
        if body.get(at).is_some_and(u8::is_ascii_digit) {
            return fault(body, at, FaultKind::Number);
        }
    } else {
        at = after_digits(body, at)?;
    }
    if body.get(at) == Some(&b'.') {
        at = after_digits(body, at + 1)?;
    }
    if let Some(b'e' | b'E') = body.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = body.get(at) {
            at += 1;
        }
        at = after_digits(body, at)?;
    }
    Ok(at)
}

/// The place after the value at `at`, which is inside `depth` objects and arrays.
///
/// Iterative: whether each open bracket is an object is one bit of `open`, the innermost lowest.
fn after_value(body: &[u8], mut at: usize, depth: u32) -> Step<usize> {
    let (mut open, mut level) = (0_u128, depth);
    loop {
        match body.get(at) {
            Some(b'"') => at = after_string(body, at)?.0,
            Some(bracket @ (b'{' | b'[')) => {
                if level >= MAX_DEPTH {
                    return fault(body, at, FaultKind::TooDeep);
                }
                let is_object = *bracket == b'{';
                at = after_space(body, at + 1);
                // '}' is '{' + 2 and ']' is '[' + 2.
                if body.get(at) == Some(&(bracket + 2)) {
                    at += 1;
                } else {
                    open = open << 1 | u128::from(is_object);
                    level += 1;
                    at = if is_object { after_key(body, at)? } else { after_integers(body, at) };
                    continue;
                }
            }
            Some(b'-' | b'0'..=b'9') => at = after_number(body, at)?,
            Some(b't') => at = after_literal(body, at, b"true")?,
            Some(b'f') => at = after_literal(body, at, b"false")?,
            Some(b'n') => at = after_literal(body, at, b"null")?,
            _ => return fault(body, at, FaultKind::Value),
        }
        loop {
            if level == depth {
                return Ok(at);
            }
            at = after_space(body, at);
            let in_object = open & 1 == 1;
            match body.get(at) {
                Some(b',') => {
                    at = after_space(body, at + 1);
                    if in_object {
                        at = after_key(body, at)?;
                    }
                    break;
                }
                Some(b'}') if in_object => {}
                Some(b']') if !in_object => {}
                _ if in_object => return fault(body, at, FaultKind::CommaOrBraceExpected),
                _ => return fault(body, at, FaultKind::CommaOrBracketExpected),
            }
            at += 1;
            open >>= 1;
            level -= 1;
        }
    }
}

/// Steps over elements of an array of token ids, whole ones with their commas, as many as it can take in blocks.
/// Gives the place where an element has to start; what it cannot judge it leaves to the slow way.
#[inline]
fn after_integers(body: &[u8], at: usize) -> usize {
    if body.get(at).is_some_and(u8::is_ascii_digit) { after_integer_blocks(body, at) } else { at }
}

#[inline(never)]
fn after_integer_blocks(body: &[u8], mut at: usize) -> usize {
    while let Some(block) = body.get(at..).and_then(<[u8]>::first_chunk::<64>) {
        let Some(len) = integers(block) else { break };
        at = after_space(body, at + len);
    }
    at
}

/// Turns the inside of a checked JSON string into text. A lone surrogate has no text: `None`.
pub(crate) fn unescape(inside: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(inside.len());
    let mut at = 0;
    while at < inside.len() {
        let plain = memchr::memchr(b'\\', &inside[at..]).unwrap_or(inside.len() - at);
        text.push_str(std::str::from_utf8(&inside[at..at + plain]).ok()?);
        at += plain;
        let Some(letter) = inside.get(at + 1) else { break };
        at += 2;
        text.push(match letter {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = hex4(inside, at)?;
                at += 4;
                if (0xd800..0xdc00).contains(&high) {
                    let low = inside[at..].starts_with(b"\\u").then(|| hex4(inside, at + 2))??;
                    at += 6;
                    let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                    char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)?
                } else {
                    char::from_u32(high)?
                }
            }
            plain => char::from(*plain),
        });
    }
    Some(text)
}

fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = std::str::from_utf8(bytes.get(at..at + 4)?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), FaultKind> {
        let mut cursor = Cursor::new(text.as_bytes());
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

    #[test]
    fn unescapes_pairs_and_refuses_halves() {
        assert_eq!(unescape(br"mod\u0065l").as_deref(), Some("model"));
        assert_eq!(unescape(br"\ud83e\udd80\/\n").as_deref(), Some("🦀/\n"));
        assert_eq!(unescape(br"\ud83e"), None);
        assert_eq!(unescape(br"\ud83e\u0041"), None);
        assert_eq!(unescape(br"\udd80"), None);
    }
}
