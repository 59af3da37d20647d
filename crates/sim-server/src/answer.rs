//! What the simulated model says: a text that follows from the prompt alone.

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// Bytes in one token. Every word below has exactly this many, so that an answer sent back as part of the next
/// prompt is cut into the same tokens.
pub const TOKEN_BYTES: usize = 4;

const FIRST: [&str; 8] = ["Once", "When", "Here", "This", "Many", "Some", "Then", "What"];

const WORDS: [&str; 64] = [
    " the", " sea", " was", " old", " and", " one", " man", " set", " out", " for", " far", " new", " air",
    " sky", " red", " sun", " low", " ice", " ran", " off", " two", " dry", " hot", " day", " bay", " map",
    " ink", " pen", " cat", " dog", " owl", " fox", " had", " not", " yet", " way", " all", " who", " saw",
    " why", " how", " can", " may", " our", " own", " few", " oak", " elm", " ash", " fir", " it.", " so,",
    " no;", " né", " dé", " où", " 光", " 海", " 山", "🌊", "🙂", " ß:", " ¿a", " œu",
];

/// Shortest and longest answer when nothing cuts it short or keeps it going, in tokens.
const NATURAL_TOKENS: std::ops::RangeInclusive<u32> = 16..=127;

/// An answer, settled from the start; the engine only decides when each token comes. Its text is made when it is
/// asked for, so that a long answer takes no memory while it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    seed: u64,
    tokens: u32,
    /// Whether it ends by itself; else it was cut at the length asked for.
    pub ends_naturally: bool,
}

/// How long an answer may or must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// Most tokens: what the request asked for or what the context leaves.
    pub max_tokens: u32,
    /// Goes on to `max_tokens` whatever the model would say.
    pub ignore_eos: bool,
}

impl Answer {
    /// The answer to a prompt. `choice` tells apart several answers to the same one.
    pub fn to(prompt: &[u8], choice: u32, length: Length) -> Self {
        let seed = xxh3_64_with_seed(prompt, u64::from(choice));
        let span = u64::from(NATURAL_TOKENS.end() - NATURAL_TOKENS.start() + 1);
        let natural = NATURAL_TOKENS.start() + (mixed(seed) % span) as u32;
        let ends_naturally = !length.ignore_eos && natural <= length.max_tokens;
        let tokens = if ends_naturally { natural } else { length.max_tokens };
        Self { seed, tokens, ends_naturally }
    }

    /// All of it.
    pub fn text(&self) -> String {
        (0..self.tokens).map(|index| self.token(index)).collect()
    }

    /// Number of tokens.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Text of the token with this index.
    pub fn token(&self, index: u32) -> &'static str {
        let words: &[&str] = if index == 0 { &FIRST } else { &WORDS };
        words[mixed(self.seed.wrapping_add((u64::from(index) + 1).wrapping_mul(STRIDE))) as usize
            % words.len()]
    }

    /// Why it ended, as OpenAI says it.
    pub fn finish_reason(&self) -> &'static str {
        if self.ends_naturally { "stop" } else { "length" }
    }
}

/// 128 bits that stand for a prompt, for ids.
pub fn fingerprint(prompt: &[u8]) -> u128 {
    xxh3_128(prompt)
}

/// The odd number by which SplitMix64 (Steele, Lea and Flood, 2014) moves its state.
const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// One step of SplitMix64.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(STRIDE);
    mixed(*state)
}

/// SplitMix64's output for a state; since the state moves by a fixed stride, any output can be had directly.
fn mixed(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_one_token() {
        for word in FIRST.iter().chain(&WORDS) {
            assert_eq!(word.len(), TOKEN_BYTES, "{word:?}");
        }
    }

    #[test]
    fn the_answer_follows_from_prompt_and_length() {
        let free = Length { max_tokens: 10_000, ignore_eos: false };
        let answer = Answer::to(b"hello", 0, free);
        assert_eq!(answer, Answer::to(b"hello", 0, free));
        assert_ne!(answer, Answer::to(b"hello!", 0, free));
        assert_ne!(answer, Answer::to(b"hello", 1, free));
        assert!(NATURAL_TOKENS.contains(&answer.tokens()) && answer.finish_reason() == "stop");

        let cut = Answer::to(b"hello", 0, Length { max_tokens: 5, ignore_eos: false });
        assert_eq!((cut.tokens(), cut.finish_reason()), (5, "length"));
        assert!(answer.text().starts_with(&cut.text()));
        assert_eq!((0..5).map(|index| cut.token(index)).collect::<String>(), cut.text());

        let forced = Answer::to(b"hello", 0, Length { max_tokens: 500, ignore_eos: true });
        assert_eq!((forced.tokens(), forced.finish_reason()), (500, "length"));
    }
}
