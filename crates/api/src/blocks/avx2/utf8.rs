//! UTF-8, 64 bytes at a time.

use std::arch::x86_64::{
    __m256i, _mm256_alignr_epi8, _mm256_and_si256, _mm256_movemask_epi8, _mm256_or_si256,
    _mm256_permute2x128_si256, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16,
    _mm256_subs_epu8, _mm256_testz_si256, _mm256_xor_si256,
};

use super::{Block, splat, table};

/// Whether blocks that follow each other are UTF-8, by the method of Keiser and Lemire, "Validating UTF-8 in less than
/// one instruction per byte" (2020): what is wrong with UTF-8 shows in two adjacent bytes, told by three of their half
/// bytes, except for how many bytes have to follow.
pub(super) struct Text {
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
    pub(super) fn new() -> Self {
        Text { errors: _mm256_setzero_si256(), before: _mm256_setzero_si256(), recent: 0 }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn check(&mut self, block: Block) {
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
    pub(super) fn is_good(&self) -> bool {
        _mm256_testz_si256(self.errors, self.errors) == 1
    }
}
