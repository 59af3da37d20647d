//! Durations in logarithmic buckets: at most 1.6 % wide, a fixed 30 KB whatever is recorded.

use serde::{Deserialize, Serialize};

const STEPS_PER_OCTAVE_LOG2: u32 = 6;
const STEPS: usize = 1 << STEPS_PER_OCTAVE_LOG2;
const BUCKETS: usize = STEPS * (64 - STEPS_PER_OCTAVE_LOG2 as usize + 1);

/// Counts of durations in nanoseconds.
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
    sum_ns: u128,
}

/// The quantiles of a histogram in microseconds; all zero when nothing was recorded.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Quantiles {
    /// How many durations were recorded.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max_ns: 0, sum_ns: 0 }
    }

    /// Adds one duration.
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
    }

    fn quantile_us(&self, q: f64) -> f64 {
        let rank = ((q * self.total as f64).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle_ns(index).min(self.max_ns as f64) / 1e3;
            }
        }
        0.0
    }

    /// The usual quantiles.
    pub fn quantiles(&self) -> Quantiles {
        if self.total == 0 {
            return Quantiles::default();
        }
        Quantiles {
            count: self.total,
            mean_us: self.sum_ns as f64 / self.total as f64 / 1e3,
            p50_us: self.quantile_us(0.5),
            p90_us: self.quantile_us(0.9),
            p99_us: self.quantile_us(0.99),
            p999_us: self.quantile_us(0.999),
            max_us: self.max_ns as f64 / 1e3,
        }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let octave = 63 - ns.leading_zeros() - STEPS_PER_OCTAVE_LOG2;
    (octave as usize + 1) * STEPS + ((ns >> octave) as usize - STEPS)
}

fn middle_ns(index: usize) -> f64 {
    if index < STEPS {
        return index as f64;
    }
    let octave = (index / STEPS - 1) as i32;
    ((index % STEPS + STEPS) as f64 + 0.5) * f64::from(2).powi(octave)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        let mut last = 0;
        for exponent in 0..63 {
            for part in 0..7 {
                let ns = (1u64 << exponent) + (1u64 << exponent) / 7 * part;
                let index = bucket(ns);
                assert!(index >= last);
                last = index;
                assert!((middle_ns(index) - ns as f64).abs() <= ns as f64 * 0.016 + 0.5, "{ns}");
            }
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn quantiles_of_known_durations() {
        let mut histogram = Histogram::new();
        for us in 1..=1000u64 {
            histogram.record(us * 1000);
        }
        let quantiles = histogram.quantiles();
        assert!((quantiles.p50_us - 500.0).abs() < 9.0, "{quantiles:?}");
        assert!((quantiles.p99_us - 990.0).abs() < 16.0, "{quantiles:?}");
        assert_eq!(quantiles.max_us, 1000.0);
        assert_eq!(Histogram::new().quantiles(), Quantiles::default());
    }
}
