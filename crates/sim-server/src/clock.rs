//! The replica's virtual time.

use std::time::Duration;

use tokio::time::Instant;

/// Virtual µs since the start, `speed` times as fast as the wall.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    speed: f64,
}

impl Clock {
    pub fn start(speed: f64) -> Self {
        Self { start: Instant::now(), speed }
    }

    pub fn now_us(&self) -> u64 {
        (self.start.elapsed().as_nanos() as f64 * self.speed / 1e3) as u64
    }

    /// Real time from now until the virtual time `at_us`; zero if that is past.
    pub fn until(&self, at_us: u64) -> Duration {
        let real_s = at_us.saturating_sub(self.now_us()) as f64 / 1e6 / self.speed;
        // A day at most: further wake-ups come anyway, and a Duration cannot hold every f64.
        Duration::from_secs_f64(real_s.min(86_400.0))
    }
}
