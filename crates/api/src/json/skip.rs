//! The hot part: stepping over values. Each function takes the place where something starts and gives the place after
//! it, so that the place stays in a register.

use super::{Fault, FaultKind, MAX_DEPTH, Step};
use crate::blocks::{
    after_integers, after_short_text, after_space, after_text, next_special, special_mask_64,
};

#[cold]
#[inline(never)]
pub(super) fn fault<T>(body: &[u8], at: usize, kind: FaultKind) -> Step<T> {
    let kind = if at >= body.len() { FaultKind::EndsEarly } else { kind };
    Err(Fault { at, kind })
}

/// The place after the string. Checks that it is UTF-8 if `UTF8`.
#[inline(always)]
pub(super) fn after_string<const UTF8: bool>(body: &[u8], quote: usize) -> Step<usize> {
    match after_short_text::<UTF8>(body, quote + 1) {
        Some(after) => Ok(after),
        None => after_long_string::<UTF8>(body, quote + 1),
    }
}

#[inline(never)]
pub(super) fn after_long_string<const UTF8: bool>(body: &[u8], start: usize) -> Step<usize> {
    if body.len() - start < 64 {
        // Too few bytes for a block.
        let end = next_special(body, start);
        if body.get(end) == Some(&b'"') && (!UTF8 || body[start..end].is_ascii()) {
            return Ok(end + 1);
        }
    }
    match after_text::<UTF8>(body, start) {
        Some(after) => Ok(after),
        None => after_any_string::<UTF8>(body, start),
    }
}

/// The exact way: finds what is wrong and where.
#[inline(never)]
fn after_any_string<const UTF8: bool>(body: &[u8], start: usize) -> Step<usize> {
    let after = after_specials(body, next_special(body, start))?;
    if UTF8 && simdutf8::basic::from_utf8(&body[start..after - 1]).is_err() {
        return fault(body, start, FaultKind::NotUtf8);
    }
    Ok(after)
}

/// The rest of a string from its first escape, or from its end.
fn after_specials(body: &[u8], mut at: usize) -> Step<usize> {
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
fn after_key<const UTF8: bool>(body: &[u8], at: usize) -> Step<usize> {
    if body.get(at) != Some(&b'"') {
        return fault(body, at, FaultKind::KeyExpected);
    }
    let at = after_string::<UTF8>(body, at)?;
    after_colon(body, at)
}

#[inline(always)]
pub(super) fn after_colon(body: &[u8], at: usize) -> Step<usize> {
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
pub(super) fn after_value<const UTF8: bool>(body: &[u8], mut at: usize, depth: u32) -> Step<usize> {
    let (mut open, mut level) = (0_u128, depth);
    loop {
        match body.get(at) {
            Some(b'"') => at = after_string::<UTF8>(body, at)?,
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
                    at = if is_object { after_key::<UTF8>(body, at)? } else { after_integers(body, at) };
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
                        at = after_key::<UTF8>(body, at)?;
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

#[cfg(test)]
mod tests;
