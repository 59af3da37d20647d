//! Text of JSON strings.

/// Turns the inside of a checked JSON string into text. Half a surrogate pair is no text: `None`.
pub(crate) fn unescape(inside: &[u8]) -> Option<String> {
    unescape_or(inside, None)
}

/// As [`unescape`], with `half` in the place of half a surrogate pair.
pub(crate) fn unescape_or(inside: &[u8], half: Option<char>) -> Option<String> {
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
                let mut unit = hex4(inside, at)?;
                at += 4;
                if let Some(low) = low_half(inside, at).filter(|_| (0xd800..0xdc00).contains(&unit)) {
                    at += 6;
                    unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                }
                char::from_u32(unit).or(half)?
            }
            plain => char::from(*plain),
        });
    }
    Some(text)
}

/// The second half of a surrogate pair, if its escape is here.
fn low_half(inside: &[u8], at: usize) -> Option<u32> {
    let low = inside.get(at..)?.starts_with(b"\\u").then(|| hex4(inside, at + 2))??;
    (0xdc00..0xe000).contains(&low).then_some(low)
}

fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = std::str::from_utf8(bytes.get(at..at + 4)?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unescapes_pairs_and_refuses_halves() {
        assert_eq!(unescape(br"mod\u0065l").as_deref(), Some("model"));
        assert_eq!(unescape(br"\ud83e\udd80\/\n").as_deref(), Some("🦀/\n"));
        assert_eq!(unescape(br"\ud83e"), None);
        assert_eq!(unescape(br"\ud83e\u0041"), None);
        assert_eq!(unescape(br"\udd80"), None);
        let lossy = |inside| unescape_or(inside, Some('?'));
        assert_eq!(lossy(br"a\ud83eb\udd80").as_deref(), Some("a?b?"));
        assert_eq!(lossy(br"\ud83e\ud83e\udd80").as_deref(), Some("?🦀"));
    }
}
