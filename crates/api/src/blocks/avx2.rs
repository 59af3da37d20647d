//! Strings and runs of token ids, 64 bytes at a time on processors with AVX2.
//!
//! What a block has is gathered as one bit per byte and judged as a whole: text with an escape or a letter outside ASCII
//! here and there, where a branch for each would be mispredicted as often as not, costs as much as any other.

// The scan of a common chat takes between a third and a fourth of the time, see `examples/scan_speed.rs`. Unsafe are only
// the calls into functions for processors with AVX2, after that was checked, and one load.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m256i, _mm_set_epi64x, _mm256_alignr_epi8, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_min_epu8, _mm256_movemask_epi8, _mm256_or_si256,
    _mm256_permute2x128_si256, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_srli_epi16, _mm256_sub_epi8, _mm256_subs_epu8, _mm256_testz_si256, _mm256_xor_si256,
};

use super::{Classes, after_space, integers_in};

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

/// Whether blocks that follow each other are UTF-8, by the method of Keiser and Lemire, "Validating UTF-8 in less than
/// one instruction per byte" (2020): what is wrong with UTF-8 shows in two adjacent bytes, told by three of their half
/// bytes, except for how many bytes have to follow.
struct Text {
    errors: __m256i,
    /// The half block before the next one.
    before: __m256i,
    /// One bit for each of the last eight blocks that is not all ASCII. While one is set, blocks are checked: the one after
    /// has to be, as a character may be cut off there, and the others are so that text with a few such letters does not
    /// wait for a branch that is taken now and then.
    recent: u8,
}

/// A fault in two adjacent bytes: bit n of each set stands for half byte n.
struct Pair {
    first_high: u16,
    first_low: u16,
    second_high: u16,
}

const ANY: u16 = 0xffff;
const ASCII: u16 = 0x00ff;
const CONTINUATION: u16 = 0x0f00;
const LEADS: u16 = 0xf000;

/// One bit each in the tables. The last, bit 7, is a fault only where no lead further back asks for it.
const PAIRS: [Pair; 8] = [
    // A lead that nothing follows.
    Pair { first_high: LEADS, first_low: ANY, second_high: ASCII | LEADS },
    // A continuation that follows nothing.
    Pair { first_high: ASCII, first_low: ANY, second_high: CONTINUATION },
    // Longer than needed: two bytes (C0, C1), three (E0 80 to E0 9F).
    Pair { first_high: 1 << 0xc, first_low: 0b11, second_high: CONTINUATION },
    Pair { first_high: 1 << 0xe, first_low: 0b1, second_high: 0b11 << 8 },
    // Half a surrogate pair (ED A0 to ED BF).
    Pair { first_high: 1 << 0xe, first_low: 1 << 0xd, second_high: 0b11 << 0xa },
    // Above U+10FFFF from F4 90.
    Pair { first_high: 1 << 0xf, first_low: ANY << 4, second_high: 0b111 << 9 },
    // Above U+10FFFF from F5, or longer than needed: four bytes (F0 80 to F0 8F).
    Pair { first_high: 1 << 0xf, first_low: ANY << 5 | 1, second_high: 1 << 8 },
    // Two continuations.
    Pair { first_high: CONTINUATION, first_low: ANY, second_high: CONTINUATION },
];

const FIRST_HIGH: [u8; 16] = pair_table(0);
const FIRST_LOW: [u8; 16] = pair_table(1);
const SECOND_HIGH: [u8; 16] = pair_table(2);

const fn pair_table(which: usize) -> [u8; 16] {
    let mut entries = [0; 16];
    let mut pair = 0;
    while pair < 8 {
        let Pair { first_high, first_low, second_high } = PAIRS[pair];
        let set = [first_high, first_low, second_high][which];
        let mut half_byte = 0;
        while half_byte < 16 {
            entries[half_byte] |= ((set >> half_byte & 1) as u8) << pair;
            half_byte += 1;
        }
        pair += 1;
    }
    entries
}

impl Text {
    /// The byte before the first block is ASCII.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Self {
        Text { errors: _mm256_setzero_si256(), before: _mm256_setzero_si256(), recent: 0 }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn check(&mut self, block: Block) {
        let [low, high] = block;
        let is_ascii = _mm256_movemask_epi8(_mm256_or_si256(low, high)) == 0;
        self.recent = self.recent << 1 | u8::from(!is_ascii);
        if self.recent != 0 {
            self.check_half(low, self.before);
            self.check_half(high, low);
        }
        self.before = high;
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn check_half(&mut self, half: __m256i, before: __m256i) {
        // The bytes one, two and three places further back.
        let across = _mm256_permute2x128_si256::<0x21>(before, half);
        let back_1 = _mm256_alignr_epi8::<15>(half, across);
        let back_2 = _mm256_alignr_epi8::<14>(half, across);
        let back_3 = _mm256_alignr_epi8::<13>(half, across);
        let low_bits = |bytes| _mm256_and_si256(bytes, splat(0x0f));
        let high_bits = |bytes| low_bits(_mm256_srli_epi16::<4>(bytes));
        let pairs = _mm256_and_si256(
            _mm256_and_si256(
                _mm256_shuffle_epi8(table(&FIRST_HIGH), high_bits(back_1)),
                _mm256_shuffle_epi8(table(&FIRST_LOW), low_bits(back_1)),
            ),
            _mm256_shuffle_epi8(table(&SECOND_HIGH), high_bits(half)),
        );
        // Bit 7 where a lead two or three places back asks for a second continuation.
        let third = _mm256_subs_epu8(back_2, splat(0xe0 - 0x80));
        let fourth = _mm256_subs_epu8(back_3, splat(0xf0 - 0x80));
        let asked = _mm256_and_si256(_mm256_or_si256(third, fourth), splat(0x80));
        self.errors = _mm256_or_si256(self.errors, _mm256_xor_si256(pairs, asked));
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn is_good(&self) -> bool {
        _mm256_testz_si256(self.errors, self.errors) == 1
    }
}
