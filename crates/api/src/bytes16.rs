//! Finding the bytes that matter in a JSON string, sixteen at a time.

/// First byte at or after `from` that is a quote, a backslash or a control character; `body.len()` if none is.
#[inline]
pub(crate) fn next_special(body: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(block) = body.get(at..).and_then(<[u8]>::first_chunk::<16>) {
        let mask = mask(block);
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

#[inline]
fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// One bit per byte of `block`, lowest first.
#[cfg(target_arch = "x86_64")]
#[inline]
#[allow(unsafe_code)] // Half the time of a whole scan, see `examples/scan_speed.rs`; no pointers are involved.
fn mask(block: &[u8; 16]) -> u32 {
    // SAFETY: SSE2 is part of x86_64, so every machine that runs this has it.
    unsafe { sse2_mask(block) }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn sse2_mask(block: &[u8; 16]) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_max_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };
    // Two halves in safe code; the compiler makes one load of them.
    let half = |from: usize| {
        let mut half = [0; 8];
        half.copy_from_slice(&block[from..from + 8]);
        i64::from_le_bytes(half)
    };
    let bytes = _mm_set_epi64x(half(8), half(0));
    let last_control = _mm_set1_epi8(0x1f);
    let control = _mm_cmpeq_epi8(_mm_max_epu8(bytes, last_control), last_control);
    let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
    let backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
    _mm_movemask_epi8(_mm_or_si128(control, _mm_or_si128(quote, backslash))) as u32
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn mask(block: &[u8; 16]) -> u32 {
    portable_mask(block)
}

/// The same on any machine: eight bytes of a word at once.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn portable_mask(block: &[u8; 16]) -> u32 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // Exact per byte (no borrow crosses a byte): high bit set where the byte is below `limit` <= 0x80.
    let below = |word: u64, limit: u64| !((word | HIGH) - ONES * limit) & !word & HIGH;
    let gather = |high_bits: u64| ((high_bits >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32;
    let half = |from: usize| {
        let mut half = [0; 8];
        half.copy_from_slice(&block[from..from + 8]);
        let word = u64::from_le_bytes(half);
        let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        gather(below(word, 0x20) | equal(b'"') | equal(b'\\'))
    };
    half(0) | half(8) << 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_lane() {
        for byte in 0..=255_u8 {
            for lane in 0..16 {
                for filler in [b'a', 0x80, 0xff, b'!', b'#', b' '] {
                    let mut block = [filler; 16];
                    block[lane] = byte;
                    let expected = u32::from(is_special(byte)) << lane;
                    assert_eq!(mask(&block), expected, "{byte:#x} in {filler:#x}");
                    assert_eq!(portable_mask(&block), expected, "{byte:#x} in {filler:#x}");
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
}
