//! What needs no look at single bytes: where a string ends, and runs of token ids.

#[cfg(target_arch = "x86_64")]
mod avx2;

#[inline(always)]
pub(crate) fn after_space(body: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = body.get(at) {
        at += 1;
    }
    at
}

/// The place after a string of at most 31 bytes that has no escapes, and in which, if `ASCII`, every byte is ASCII.
/// `start` is its first byte. `None` for any other, and for some at the end of the body.
#[inline(always)]
pub(crate) fn after_short_text<const ASCII: bool>(body: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    for _ in 0..2 {
        let block = body.get(at..)?.first_chunk::<16>()?;
        let specials = if ASCII { special_or_high_mask(block) } else { special_mask(block) };
        if specials != 0 {
            let end = at + specials.trailing_zeros() as usize;
            return (body[end] == b'"').then_some(end + 1);
        }
        at += 16;
    }
    None
}

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::after_text;

/// No fast way here: the exact way tells.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn after_text<const UTF8: bool>(_body: &[u8], _start: usize) -> Option<usize> {
    None
}

/// First byte at or after `from` that is a quote, a backslash or a control character; `body.len()` if none is.
#[inline]
pub(crate) fn next_special(body: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(block) = body.get(at..).and_then(<[u8]>::first_chunk::<16>) {
        let mask = special_mask(block);
        if mask != 0 {
            return at + mask.trailing_zeros() as usize;
        }
        at += 16;
    }
    while at < body.len() && !is_special(body[at]) {
        at += 1;
    }
    at
}

/// One bit per byte that is a quote, a backslash or a control character, lowest first.
#[inline]
pub(crate) fn special_mask_64(block: &[u8; 64]) -> u64 {
    let mut mask = 0;
    for (index, quarter) in block.as_chunks::<16>().0.iter().enumerate() {
        mask |= u64::from(special_mask(quarter)) << (16 * index);
    }
    mask
}

#[inline]
fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// Steps over elements of an array of token ids, whole ones with their commas, as many as it can take in blocks. Gives
/// the place where an element has to start; what it cannot judge it leaves to the slow way.
#[inline]
pub(crate) fn after_integers(body: &[u8], at: usize) -> usize {
    if body.get(at).is_some_and(u8::is_ascii_digit) { after_integer_blocks(body, at) } else { at }
}

#[inline(never)]
fn after_integer_blocks(body: &[u8], at: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if let Some(at) = avx2::after_integers(body, at) {
        return at;
    }
    after_quarters_of_integers(body, at)
}

fn after_quarters_of_integers(body: &[u8], mut at: usize) -> usize {
    while let Some(block) = body.get(at..).and_then(<[u8]>::first_chunk::<64>) {
        let Some(len) = integers_in(&classes_64(block)) else { break };
        at = after_space(body, at + len);
    }
    at
}

/// Length of the whole elements, with their commas, that a block starts with if they are plain integers separated by
/// `,` or `, `. `None` if it does not start with one, or anything is not to be judged here.
#[inline(always)]
fn integers_in(block: &Classes) -> Option<usize> {
    let Classes { digits, zeros, commas, spaces } = *block;
    // Up to the last comma before the first byte of another kind.
    let other = !(digits | commas | spaces);
    let run = other.wrapping_sub(1) & !other;
    let last = 63_u32.checked_sub((commas & run).leading_zeros())?;
    let run = u64::MAX >> (63 - last);
    let starts = digits & !(digits << 1);
    let bare_commas = commas & !(digits << 1);
    let stray_spaces = spaces & !(commas << 1);
    let leading_zeros = zeros & starts & digits >> 1;
    let is_plain = (bare_commas | stray_spaces | leading_zeros) & run == 0;
    is_plain.then_some(last as usize + 1)
}

#[inline]
fn classes_64(block: &[u8; 64]) -> Classes {
    let mut all = Classes::default();
    for (index, quarter) in block.as_chunks::<16>().0.iter().enumerate() {
        let Classes { digits, zeros, commas, spaces } = classes(quarter);
        all.digits |= digits << (16 * index);
        all.zeros |= zeros << (16 * index);
        all.commas |= commas << (16 * index);
        all.spaces |= spaces << (16 * index);
    }
    all
}

/// One bit per byte, lowest first.
#[derive(Debug, Default, PartialEq, Eq)]
struct Classes {
    digits: u64,
    zeros: u64,
    commas: u64,
    spaces: u64,
}

#[cfg(target_arch = "x86_64")]
use sse2::{classes, special_mask, special_or_high_mask};

#[cfg(not(target_arch = "x86_64"))]
use portable::{classes, special_mask, special_or_high_mask};

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // Half the time of a whole scan, see `examples/scan_speed.rs`; no pointers are involved.
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_max_epu8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x,
        _mm_set1_epi8, _mm_sub_epi8,
    };

    use super::Classes;

    /// One bit per byte that is a quote, a backslash or a control character, lowest first.
    #[inline]
    pub(super) fn special_mask(block: &[u8; 16]) -> u32 {
        // SAFETY: SSE2 is part of x86_64, so every machine that runs this has it.
        unsafe { lane_mask(special(load(block))) }
    }

    /// As [`special_mask`], with bytes outside ASCII.
    #[inline]
    pub(super) fn special_or_high_mask(block: &[u8; 16]) -> u32 {
        // SAFETY: as above.
        unsafe { lane_mask(_mm_or_si128(special(load(block)), load(block))) }
    }

    #[inline]
    pub(super) fn classes(block: &[u8; 16]) -> Classes {
        // SAFETY: as above.
        unsafe { number_classes(block) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn load(block: &[u8; 16]) -> __m128i {
        // Two halves in safe code; the compiler makes one load of them.
        let word = u128::from_le_bytes(*block);
        _mm_set_epi64x((word >> 64) as i64, word as i64)
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn equal(bytes: __m128i, byte: u8) -> __m128i {
        _mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8))
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn special(bytes: __m128i) -> __m128i {
        let last_control = _mm_set1_epi8(0x1f);
        let control = _mm_cmpeq_epi8(_mm_max_epu8(bytes, last_control), last_control);
        let quoting = _mm_or_si128(equal(bytes, b'"'), equal(bytes, b'\\'));
        _mm_or_si128(control, quoting)
    }

    /// The highest bit of each byte.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn lane_mask(lanes: __m128i) -> u32 {
        _mm_movemask_epi8(lanes) as u32
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn number_classes(block: &[u8; 16]) -> Classes {
        let bytes = load(block);
        let value = _mm_sub_epi8(bytes, _mm_set1_epi8(b'0' as i8));
        let is_digit = _mm_cmpeq_epi8(_mm_min_epu8(value, _mm_set1_epi8(9)), value);
        let mask = |lanes| lane_mask(lanes).into();
        Classes {
            digits: mask(is_digit),
            zeros: mask(equal(bytes, b'0')),
            commas: mask(equal(bytes, b',')),
            spaces: mask(equal(bytes, b' ')),
        }
    }
}

/// The same on any machine: eight bytes of a word at once.
#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable {
    use super::Classes;

    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;

    /// The high bit of each byte below `limit`, which is at most 0x80. No borrow crosses a byte.
    fn below(word: u64, limit: u8) -> u64 {
        !((word | HIGH) - ONES * u64::from(limit)) & !word & HIGH
    }

    fn equal(word: u64, byte: u8) -> u64 {
        below(word ^ (ONES * u64::from(byte)), 1)
    }

    /// Runs `find` over both halves and gathers the high bits that it leaves.
    fn mask(block: &[u8; 16], find: impl Fn(u64) -> u64) -> u16 {
        let word = u128::from_le_bytes(*block);
        let gather = |half: u64| ((find(half) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u16;
        gather(word as u64) | gather((word >> 64) as u64) << 8
    }

    pub(super) fn special_mask(block: &[u8; 16]) -> u32 {
        mask(block, |word| below(word, 0x20) | equal(word, b'"') | equal(word, b'\\')).into()
    }

    pub(super) fn special_or_high_mask(block: &[u8; 16]) -> u32 {
        special_mask(block) | u32::from(mask(block, |word| word & HIGH))
    }

    pub(super) fn classes(block: &[u8; 16]) -> Classes {
        let mask = |find: fn(u64) -> u64| u64::from(mask(block, find));
        Classes {
            digits: mask(|word| below(word, b'9' + 1) & !below(word, b'0')),
            zeros: mask(|word| equal(word, b'0')),
            commas: mask(|word| equal(word, b',')),
            spaces: mask(|word| equal(word, b' ')),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_byte_at_every_lane() {
        for byte in 0..=255_u8 {
            for lane in 0..16 {
                for filler in [b'a', 0x80, 0xff, b'!', b'#', b' '] {
                    let mut block = [filler; 16];
                    block[lane] = byte;
                    let expected = u32::from(is_special(byte)) << lane;
                    assert_eq!(special_mask(&block), expected, "{byte:#x} in {filler:#x}");
                    assert_eq!(portable::special_mask(&block), expected, "{byte:#x} in {filler:#x}");
                    assert_eq!(
                        special_or_high_mask(&block),
                        portable::special_or_high_mask(&block),
                        "{byte:#x} in {filler:#x}"
                    );
                    assert_eq!(classes(&block), portable::classes(&block), "{byte:#x} in {filler:#x}");
                }
            }
        }
    }

    #[test]
    fn all_lengths() {
        for len in 0..50 {
            let mut body = vec![b'x'; len];
            assert_eq!(next_special(&body, 0), len);
            for at in 0..len {
                body[at] = b'"';
                assert_eq!(next_special(&body, 0), at);
                assert_eq!(next_special(&body, at), at);
                assert_eq!(next_special(&body, at + 1), len);
                body[at] = b'x';
            }
        }
    }

    #[test]
    fn integer_runs_end_at_their_last_comma() {
        let run = |text: &str| {
            let mut block = [b']'; 64];
            block[..text.len()].copy_from_slice(text.as_bytes());
            integers_in(&classes_64(&block))
        };
        assert_eq!(run("1,23,456"), Some(5));
        assert_eq!(run("0, 10, 7"), Some(6));
        assert_eq!(run("1,2,-3,4"), Some(4));
        assert_eq!(run("1,2.5,3"), Some(2));
        assert_eq!(run(&"7,".repeat(32)), Some(64));
        for slow in ["1", "", ",1,", " 1,", "01,2,", "1,00,2,", "1,,2,", "1 ,2,", "1,  2,3,", "x,1,"] {
            assert_eq!(run(slow), None, "{slow}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn integers_end_in_the_same_place(
            numbers in proptest::collection::vec("0|[1-9][0-9]{0,6}|[1-9]|[1-9][0-9]{60,70}|-1|0[0-9]| ?", 0..60),
            separator in proptest::sample::select(&[",", ", ", " ,", ",  ", ",\n"][..]),
        ) {
            let body = numbers.join(separator);
            prop_assert_eq!(after_integers(body.as_bytes(), 0), match body.as_bytes() {
                [b'0'..=b'9', ..] => after_quarters_of_integers(body.as_bytes(), 0),
                _ => 0,
            });
        }
    }
}
