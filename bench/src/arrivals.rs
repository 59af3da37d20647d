//! When requests are due: at even distances, or at random ones as independent clients would send.

use std::time::Duration;

/// Due times, counted from the beginning of a run.
pub struct Arrivals {
    mean_seconds: f64,
    random: Option<u64>,
    sent: u32,
    at_seconds: f64,
}

impl Arrivals {
    /// So many a second; with a seed at exponentially distributed distances, which is a Poisson process.
    pub fn new(rate: f64, seed: Option<u64>) -> Self {
        // xorshift must not start at zero.
        let random = seed.map(|seed| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { mean_seconds: 1.0 / rate, random, sent: 0, at_seconds: 0.0 }
    }

    /// The next due time.
    pub fn next_after(&mut self) -> Duration {
        self.sent += 1;
        let Some(state) = &mut self.random else {
            return Duration::from_secs_f64(self.mean_seconds * f64::from(self.sent));
        };
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        // 53 random bits in (0, 1]: the logarithm of zero is no time.
        let part = ((*state >> 11) + 1) as f64 / (1u64 << 53) as f64;
        self.at_seconds -= part.ln() * self.mean_seconds;
        Duration::from_secs_f64(self.at_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_distances_do_not_drift() {
        let mut even = Arrivals::new(100.0, None);
        let last = (0..1000).map(|_| even.next_after()).last();
        assert_eq!(last, Some(Duration::from_secs(10)));
    }

    #[test]
    fn random_distances_have_the_rate_and_the_spread_of_independent_clients() {
        let mut random = Arrivals::new(100.0, Some(7));
        let times: Vec<f64> = (0..20_000).map(|_| random.next_after().as_secs_f64()).collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean * 100.0 - 1.0).abs() < 0.05, "{mean}");
        // Exponential distances spread by as much as their mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{variance}");
        let mut again = Arrivals::new(100.0, Some(7));
        assert_eq!(times[0], again.next_after().as_secs_f64());
    }
}
