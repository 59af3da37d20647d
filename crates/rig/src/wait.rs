//! Waiting on a condition with a deadline, in place of sleeping.

use std::time::{Duration, Instant};

/// How long a wait lasts before the test fails: generous, since a machine may be busy with other tests, and never
/// reached when all is well.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Looks at `condition` until it is true; false when `deadline` passes first.
pub fn eventually(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Like [`eventually`] with [`DEADLINE`], and fails the test naming `what` did not come about.
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    assert!(eventually(DEADLINE, condition), "waited {DEADLINE:?} in vain: {what}");
}
