//! Strings and runs of token ids, 64 bytes at a time on processors with AVX2.
//!
//! What a block has is gathered as one bit per byte and judged as a whole: text with an escape or a letter outside ASCII
//! here and there, where a branch for each would be mispredicted as often as not, costs as much as any other.

// The scan of a common chat takes between a third and a fourth of the time, see `examples/scan_speed.rs`. Unsafe are only
// the calls into functions for processors with AVX2, after that was checked, and one load.
#![allow(unsafe_code)]

mod utf8;

use std::arch::x86_64::{
    __m256i, _mm_set_epi64x, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8, _mm256_loadu_si256,
    _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256, _mm256_set1_epi8, _mm256_shuffle_epi8,
    _mm256_sub_epi8,
};

use super::{Classes, after_space, integers_in};
use utf8::Text;

/// Where a string ends, if nothing in it is wrong: the place after its closing quote.
/// `start` is its first byte. `None` if something is wrong or the processor cannot: then the exact way has to tell.
///
/// The processor's features are looked up at each call, which is a load and a test: what would be carried from string to
/// string to avoid it costs the same.
#[inline]
pub(crate) fn after_text<const UTF8: bool>(body: &[u8], start: usize) -> Option<usize> {
    if !is_here() {
        return None;
    }
    // SAFETY: the processor has what the function is compiled for; nothing else about it is unsafe.
    unsafe { end_of_text::<UTF8>(body, start) }
}

/// As [`super::after_integers`]; `None` where the processor cannot.
#[inline]
pub(crate) fn after_integers(body: &[u8], at: usize) -> Option<usize> {
    // SAFETY: as above.
    is_here().then(|| unsafe { end_of_integers(body, at) })
}

#[inline]
fn is_here() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi1")
}

/// 64 bytes in two halves.
type Block = [__m256i; 2];

#[target_feature(enable = "avx2,bmi1")]
fn end_of_text<const UTF8: bool>(body: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    // Bit 0 is set if the first byte of the block is the letter of an escape.
    let mut carry = 0;
    let mut text = Text::new();
    loop {
        let block = match body.get(at..).and_then(<[u8]>::first_chunk::<64>) {
            Some(whole) => load(whole),
            // Zeros are control characters: what has no end before them is wrong.
            None => load(&padded(body.get(at..)?)),
        };
        let quotes = equal(block, b'"');
        let backslashes = equal(block, b'\\');
        let follows = backslashes << 1 | carry;
        let escapes =
            if backslashes & follows == 0 { backslashes } else { every_other(backslashes & !carry) };
        let escaped = escapes << 1 | carry;
        carry = escapes >> 63;
        let end = quotes & !escaped;
        let inside = end.wrapping_sub(1) & !end;
        if has_controls(block) && mask(block, |half| is_below(half, 0x20)) & inside != 0 {
            return None;
        }
        let odd = escaped & !(quotes | backslashes | escape_letters(block)) & inside;
        if odd != 0 && !are_code_points(block, body, at, odd) {
            return None;
        }
        if UTF8 {
            text.check(block);
        }
        if end != 0 {
            let is_good = !UTF8 || text.is_good();
            return is_good.then_some(at + end.trailing_zeros() as usize + 1);
        }
        at += 64;
    }
}

#[cold]
fn padded(rest: &[u8]) -> [u8; 64] {
    let mut block = [0; 64];
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// The first, third, ... of adjacent bits: those of a row of backslashes that are no letters of escapes.
fn every_other(mut bits: u64) -> u64 {
    let mut kept = 0;
    while bits != 0 {
        let lowest = bits & bits.wrapping_neg();
        kept |= lowest;
        bits &= !(lowest | lowest << 1);
    }
    kept
}

/// Whether each byte of `odd`, which begins with the block at `at`, is the `u` of a whole `\uXXXX`.
#[inline]
#[target_feature(enable = "avx2,bmi1")]
fn are_code_points(block: Block, body: &[u8], at: usize, odd: u64) -> bool {
    if odd & !equal(block, b'u') != 0 {
        return false;
    }
    let hex = hex_digits(block);
    let mut doubtful = odd & !(hex >> 1 & hex >> 2 & hex >> 3 & hex >> 4);
    while doubtful != 0 {
        // Its digits are in the next block, or are none.
        let digits = at + doubtful.trailing_zeros() as usize + 1;
        if !body.get(digits..digits + 4).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return false;
        }
        doubtful &= doubtful - 1;
    }
    true
}

#[target_feature(enable = "avx2,bmi1")]
fn end_of_integers(body: &[u8], mut at: usize) -> usize {
    while let Some(block) = body.get(at..).and_then(<[u8]>::first_chunk::<64>) {
        let block = load(block);
        let classes = Classes {
            digits: mask(block, |half| is_below(_mm256_sub_epi8(half, splat(b'0')), 10)),
            zeros: equal(block, b'0'),
            commas: equal(block, b','),
            spaces: equal(block, b' '),
        };
        let Some(len) = integers_in(&classes) else { break };
        at = after_space(body, at + len);
    }
    at
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(block: &[u8; 64]) -> Block {
    let half = |half: &[u8; 32]| {
        // SAFETY: the 32 bytes are there by their type, and this load needs no alignment. Put together from words in safe
        // code, the compiler makes four loads and shuffles of it.
        unsafe { _mm256_loadu_si256(half.as_ptr().cast()) }
    };
    let (halves, _) = block.as_chunks::<32>();
    [half(&halves[0]), half(&halves[1])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn splat(byte: u8) -> __m256i {
    _mm256_set1_epi8(byte as i8)
}

/// One bit per byte of the block for which `find` sets the lane, lowest first.
#[inline]
#[target_feature(enable = "avx2")]
fn mask(block: Block, find: impl Fn(__m256i) -> __m256i) -> u64 {
    let bits = |half| u64::from(_mm256_movemask_epi8(half) as u32);
    bits(find(block[0])) | bits(find(block[1])) << 32
}

#[inline]
#[target_feature(enable = "avx2")]
fn equal(block: Block, byte: u8) -> u64 {
    mask(block, |half| _mm256_cmpeq_epi8(half, splat(byte)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn is_below(half: __m256i, limit: u8) -> __m256i {
    _mm256_cmpeq_epi8(_mm256_min_epu8(half, splat(limit - 1)), half)
}

/// Whether there may be a control character in the block.
#[inline]
#[target_feature(enable = "avx2")]
fn has_controls([low, high]: Block) -> bool {
    _mm256_movemask_epi8(is_below(_mm256_min_epu8(low, high), 0x20)) != 0
}

/// What may follow a backslash besides a quote, a backslash, and `u` with its digits.
#[inline]
#[target_feature(enable = "avx2")]
fn escape_letters(block: Block) -> u64 {
    // By the low four bits of a byte, the one byte that it may be; `b` shares them with `r`.
    const LETTERS: [u8; 16] = {
        let mut letters = [0x80; 16];
        let mut index = 0;
        while index < 5 {
            let letter = b"/fnrt"[index];
            letters[letter as usize & 15] = letter;
            index += 1;
        }
        letters
    };
    let letters = table(&LETTERS);
    mask(block, |half| {
        let among = _mm256_cmpeq_epi8(_mm256_shuffle_epi8(letters, half), half);
        _mm256_or_si256(among, _mm256_cmpeq_epi8(half, splat(b'b')))
    })
}

#[inline]
#[target_feature(enable = "avx2")]
fn hex_digits(block: Block) -> u64 {
    mask(block, |half| {
        let digit = is_below(_mm256_sub_epi8(half, splat(b'0')), 10);
        let lower_case = _mm256_or_si256(half, splat(0x20));
        _mm256_or_si256(digit, is_below(_mm256_sub_epi8(lower_case, splat(b'a')), 6))
    })
}

/// Sixteen entries for `_mm256_shuffle_epi8`.
#[inline]
#[target_feature(enable = "avx2")]
fn table(entries: &[u8; 16]) -> __m256i {
    let word = |index: usize| i64::from_le_bytes(entries.as_chunks().0[index]);
    _mm256_broadcastsi128_si256(_mm_set_epi64x(word(1), word(0)))
}
