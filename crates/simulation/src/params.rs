//! What an engine can do: its rates and its limits.

use thiserror::Error;

/// How fast one engine is and how much it holds.
///
/// A step takes `step_us + per_seq_us × decoding + prefilled / prefill_tokens_per_s`, and `decode_us` more if
/// anything decodes; `slow_factor` multiplies all of it. The defaults are those of the routing study: one
/// mid-size model on one accelerator.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineParams {
    /// Length of a step that does nothing, in µs.
    pub step_us: f64,
    /// What each decoding sequence adds to a step, in µs.
    pub per_seq_us: f64,
    /// What a step costs once if anything decodes in it (reading the weights for few tokens), in µs.
    pub decode_us: f64,
    /// Prompt tokens computed in a second.
    pub prefill_tokens_per_s: f64,
    /// Most prompt tokens computed in one step; a longer prompt is computed in chunks.
    pub max_step_prefill_tokens: u32,
    /// Most sequences that run at once; the rest wait.
    pub max_num_seqs: usize,
    /// Most requests that wait; one more is refused.
    pub max_queued: usize,
    /// Tokens that the KV pool holds. Rounded down to whole blocks.
    pub kv_tokens: u64,
    /// Tokens in one KV block.
    pub block_size: u32,
    /// Multiplies the length of each step: 5 is an engine five times slower. Steps already begun keep theirs.
    pub slow_factor: f64,
}

impl Default for EngineParams {
    fn default() -> Self {
        Self {
            step_us: 10_800.0,
            per_seq_us: 150.0,
            decode_us: 7_200.0,
            prefill_tokens_per_s: 8_000.0,
            max_step_prefill_tokens: 2_048,
            max_num_seqs: 64,
            max_queued: 65_536,
            kv_tokens: 600_000,
            block_size: 512,
            slow_factor: 1.0,
        }
    }
}

/// A parameter that no engine can have.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ParamsError {
    /// A duration, rate or factor that is negative, not finite, or zero where that makes no sense.
    #[error("{name} is {value}, which must be a finite number {rule}")]
    Number {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        rule: &'static str,
    },
    /// A size of zero, or one beyond what the engine can count.
    #[error("{name} is {value}, which must be from {min} to {max}")]
    Size {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: u64,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
}

/// Largest pool: 2^26 blocks keep a pool's own bookkeeping under 2 GiB.
const MAX_BLOCKS: u64 = 1 << 26;
/// Longest step part, µs: an hour. Keeps sums far from overflow.
const MAX_US: f64 = 3.6e9;

impl EngineParams {
    /// Number of blocks in the pool.
    pub fn blocks(&self) -> u64 {
        self.kv_tokens / u64::from(self.block_size.max(1))
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first value that no engine can have.
    pub fn check(&self) -> Result<(), ParamsError> {
        for (name, value) in
            [("step_us", self.step_us), ("per_seq_us", self.per_seq_us), ("decode_us", self.decode_us)]
        {
            if !(0.0..=MAX_US).contains(&value) {
                return Err(ParamsError::Number { name, value, rule: "of µs from 0 to an hour" });
            }
        }
        if !(1e-3..=1e12).contains(&self.prefill_tokens_per_s) {
            let (name, value) = ("prefill_tokens_per_s", self.prefill_tokens_per_s);
            return Err(ParamsError::Number { name, value, rule: "from 0.001 to 1e12" });
        }
        if !(1e-6..=1e6).contains(&self.slow_factor) {
            let (name, value) = ("slow_factor", self.slow_factor);
            return Err(ParamsError::Number { name, value, rule: "from 0.000001 to 1000000" });
        }
        let sizes = [
            ("max_step_prefill_tokens", u64::from(self.max_step_prefill_tokens), u64::from(u32::MAX)),
            ("max_num_seqs", self.max_num_seqs as u64, 1 << 20),
            ("max_queued", self.max_queued as u64, 1 << 24),
            ("block_size", u64::from(self.block_size), 1 << 20),
            ("kv_tokens / block_size", self.blocks(), MAX_BLOCKS),
        ];
        for (name, value, max) in sizes {
            if value == 0 || value > max {
                return Err(ParamsError::Size { name, value, min: 1, max });
            }
        }
        Ok(())
    }

    /// Length of a step in µs, at least 1, so that time always moves.
    pub fn step_length_us(&self, decoding: usize, prefilled_tokens: u64) -> u64 {
        let mut length = self.step_us + prefilled_tokens as f64 * 1e6 / self.prefill_tokens_per_s;
        if decoding > 0 {
            length += self.decode_us + self.per_seq_us * decoding as f64;
        }
        ((length * self.slow_factor).round() as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_costs_what_the_formula_says() {
        let params = EngineParams::default();
        assert_eq!(params.step_length_us(0, 0), 10_800);
        assert_eq!(params.step_length_us(1, 0), 10_800 + 7_200 + 150);
        assert_eq!(params.step_length_us(64, 2_048), 10_800 + 7_200 + 64 * 150 + 256_000);
        assert_eq!(EngineParams { slow_factor: 5.0, ..params }.step_length_us(0, 8), 5 * (10_800 + 1_000));
    }

    #[test]
    fn impossible_values_are_named() {
        let bad = EngineParams { step_us: f64::NAN, ..Default::default() };
        assert!(bad.check().unwrap_err().to_string().starts_with("step_us is NaN"));
        let bad = EngineParams { kv_tokens: 511, ..Default::default() };
        assert_eq!(
            bad.check().unwrap_err().to_string(),
            "kv_tokens / block_size is 0, which must be from 1 to 67108864"
        );
        let bad = EngineParams { block_size: 0, ..Default::default() };
        assert!(bad.check().unwrap_err().to_string().starts_with("block_size is 0"));
        assert_eq!(EngineParams::default().check(), Ok(()));
    }
}
