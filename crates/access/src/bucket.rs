//! A token bucket in one atomic number.
//!
//! The generic cell rate algorithm of ATM (ITU-T I.371): the number is the time at which the bucket will be full
//! again. Cores share it without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bucket that is overdrawn is open again after this long at the latest.
const MAX_DEBT_NS: u64 = 3600 * 1_000_000_000;

/// A bucket that fills at a steady rate.
#[derive(Debug)]
pub struct Bucket {
    full_at_ns: AtomicU64,
    /// Time for one unit.
    each_ns: f64,
    /// Time from empty to full.
    depth_ns: u64,
}

impl Bucket {
    /// A full bucket that fills at `per_s` units a second and holds `burst` units.
    pub fn new(per_s: f64, burst: f64) -> Self {
        let each_ns = 1e9 / per_s;
        Self { full_at_ns: AtomicU64::new(0), each_ns, depth_ns: (each_ns * burst) as u64 }
    }

    /// Whether both fill alike, so that one can go on for the other.
    pub fn is_like(&self, other: &Self) -> bool {
        self.each_ns == other.each_ns && self.depth_ns == other.depth_ns
    }

    /// Takes one unit, or says in how many nanoseconds there will be one.
    pub fn take(&self, now_ns: u64) -> Result<(), u64> {
        let each = self.each_ns as u64;
        self.full_at_ns
            .fetch_update(Relaxed, Relaxed, |full_at| {
                let next = full_at.max(now_ns).saturating_add(each);
                (next - now_ns <= self.depth_ns).then_some(next)
            })
            .map(|_| ())
            .map_err(|full_at| {
                full_at.max(now_ns).saturating_add(each).saturating_sub(now_ns).saturating_sub(self.depth_ns)
            })
    }

    /// Whether anything is in it; else in how many nanoseconds something will be.
    pub fn look(&self, now_ns: u64) -> Result<(), u64> {
        let empty_for = self.full_at_ns.load(Relaxed).saturating_sub(now_ns);
        if empty_for < self.depth_ns { Ok(()) } else { Err(empty_for - self.depth_ns + 1) }
    }

    /// Takes units that are used already, also more than there are.
    pub fn charge(&self, now_ns: u64, units: u64) {
        let took = (self.each_ns * units as f64) as u64; // saturates
        let bound = now_ns.saturating_add(self.depth_ns).saturating_add(MAX_DEBT_NS);
        let _ = self.full_at_ns.fetch_update(Relaxed, Relaxed, |full_at| {
            Some(full_at.max(now_ns).saturating_add(took).min(bound.max(full_at)))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let bucket = Bucket::new(2.0, 3.0);
        for _ in 0..3 {
            bucket.take(S).expect("the burst");
        }
        assert_eq!(bucket.take(S), Err(S / 2));
        assert_eq!(bucket.take(S + S / 2), Ok(()));
        assert!(bucket.take(S + S / 2).is_err());
    }

    #[test]
    fn what_was_used_is_paid_back_in_time() {
        let bucket = Bucket::new(10.0, 100.0);
        bucket.charge(S, 99);
        assert_eq!(bucket.look(S), Ok(()));
        bucket.charge(S, 21);
        assert_eq!(bucket.look(S), Err(2 * S + 1), "20 units too many, at 10 a second");
        assert_eq!(bucket.look(3 * S + 1), Ok(()));
        bucket.charge(S, u64::MAX);
        assert!(bucket.look(S).unwrap_err() <= MAX_DEBT_NS + 1);
    }

    #[test]
    fn no_more_than_the_rate_whatever_the_moments() {
        use proptest::prelude::*;
        proptest!(|(gaps in proptest::collection::vec(0u64..S, 1..200), rate in 1u32..50, burst in 1u32..20)| {
            let bucket = Bucket::new(f64::from(rate), f64::from(burst));
            let (mut now, mut taken) = (S, 0u64);
            for gap in gaps {
                now += gap;
                taken += u64::from(bucket.take(now).is_ok());
            }
            let bound = u64::from(burst) + (now - S) * u64::from(rate) / S + 1;
            prop_assert!(taken <= bound, "{taken} of {bound}");
        });
    }
}
