//! What an engine counts, for its metrics page.

/// A histogram with fixed bounds, in seconds or tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    /// An empty histogram; `bounds` are the upper ends of its buckets, ascending.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0, count: 0 }
    }

    /// Adds one value.
    pub fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
        self.count += 1;
    }

    /// Adds one duration in µs as seconds.
    pub fn observe_us(&mut self, us: u64) {
        self.observe(us as f64 / 1e6);
    }

    /// Each bound with the number of values at or below it. The values above the last bound are in
    /// [`count`](Self::count) only.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut total = 0;
        self.bounds.iter().zip(&self.counts).map(move |(bound, count)| {
            total += count;
            (*bound, total)
        })
    }

    /// Sum of the values.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// Totals since the engine was made. All times are the engine's own (virtual) seconds.
///
/// The bounds of the histograms are those of vLLM 0.32.
#[derive(Debug, Clone, PartialEq)]
pub struct Counters {
    /// Prompt tokens of admitted requests, cached or not.
    pub prompt_tokens: u64,
    /// Prompt tokens looked up in the prefix cache; the same as [`prompt_tokens`](Self::prompt_tokens) here.
    pub prefix_queries: u64,
    /// Prompt tokens found in the prefix cache.
    pub prefix_hits: u64,
    /// Tokens produced.
    pub generation_tokens: u64,
    /// Requests that ended with all their tokens.
    pub finished: u64,
    /// Requests cancelled while running or waiting.
    pub cancelled: u64,
    /// Requests refused because they can never fit.
    pub refused_too_large: u64,
    /// Requests refused because the queue was full.
    pub refused_queue_full: u64,
    /// Blocks whose cached content was given up for another use.
    pub evicted_blocks: u64,
    /// Steps begun.
    pub steps: u64,
    /// Submission to first token.
    pub ttft_s: Histogram,
    /// Between two tokens of one sequence.
    pub itl_s: Histogram,
    /// Submission to last token.
    pub e2e_s: Histogram,
    /// Mean time per output token after the first, for each finished request of at least two tokens.
    pub tpot_s: Histogram,
    /// Submission to admission.
    pub queue_s: Histogram,
    /// Admission to first token.
    pub prefill_s: Histogram,
    /// First to last token.
    pub decode_s: Histogram,
    /// Prompt tokens of finished requests.
    pub request_prompt_tokens: Histogram,
    /// Produced tokens of finished requests.
    pub request_generation_tokens: Histogram,
    /// Tokens computed in a step, prompt and decode together.
    pub step_tokens: Histogram,
}

const TTFT_S: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
const TOKEN_S: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const REQUEST_S: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];
const REQUEST_TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0,
    100000.0,
];
const STEP_TOKENS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

impl Default for Counters {
    fn default() -> Self {
        Self {
            prompt_tokens: 0,
            prefix_queries: 0,
            prefix_hits: 0,
            generation_tokens: 0,
            finished: 0,
            cancelled: 0,
            refused_too_large: 0,
            refused_queue_full: 0,
            evicted_blocks: 0,
            steps: 0,
            ttft_s: Histogram::new(TTFT_S),
            itl_s: Histogram::new(TOKEN_S),
            e2e_s: Histogram::new(REQUEST_S),
            tpot_s: Histogram::new(TOKEN_S),
            queue_s: Histogram::new(REQUEST_S),
            prefill_s: Histogram::new(REQUEST_S),
            decode_s: Histogram::new(REQUEST_S),
            request_prompt_tokens: Histogram::new(REQUEST_TOKENS),
            request_generation_tokens: Histogram::new(REQUEST_TOKENS),
            step_tokens: Histogram::new(STEP_TOKENS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_counts_in_that_bucket() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 9.0] {
            histogram.observe(value);
        }
        assert_eq!(histogram.cumulative().collect::<Vec<_>>(), [(1.0, 2), (2.0, 3)]);
        assert_eq!((histogram.count(), histogram.sum()), (4, 12.0));
    }
}
