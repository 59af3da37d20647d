//! How much memory request bodies may take, over all cores.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A busy core reserves memory in pieces of this size: the counter that all cores share is then written once for
/// hundreds of usual bodies, instead of twice for each.
const GRAIN: u64 = 1 << 20;

/// One core's share of the memory for bodies.
#[derive(Debug)]
pub struct Bodies {
    /// Reserved by all cores.
    total: Arc<AtomicU64>,
    reserved: Cell<u64>,
    used: Cell<u64>,
}

impl Bodies {
    /// A share that is empty yet.
    pub fn new(total: Arc<AtomicU64>) -> Rc<Self> {
        Rc::new(Self { total, reserved: Cell::new(0), used: Cell::new(0) })
    }

    /// A count for one body.
    pub fn hold(self: &Rc<Self>) -> Held {
        Held { bodies: Rc::clone(self), bytes: 0 }
    }
}

impl Drop for Bodies {
    fn drop(&mut self) {
        self.total.fetch_sub(self.reserved.get(), Relaxed);
    }
}

/// Counts one body's bytes for as long as they are held.
#[derive(Debug)]
pub struct Held {
    bodies: Rc<Bodies>,
    bytes: u64,
}

impl Held {
    /// Counts more bytes, unless all bodies together would then exceed `limit`.
    pub fn add(&mut self, bytes: usize, limit: u64) -> bool {
        let Bodies { total, reserved, used } = &*self.bodies;
        let needed = used.get() + bytes as u64;
        if needed > reserved.get() {
            let more = (needed - reserved.get()).next_multiple_of(GRAIN);
            if total.fetch_add(more, Relaxed) + more > limit {
                total.fetch_sub(more, Relaxed);
                return false;
            }
            reserved.set(reserved.get() + more);
        }
        used.set(needed);
        self.bytes += bytes as u64;
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Bodies { total, reserved, used } = &*self.bodies;
        used.set(used.get() - self.bytes);
        // Nothing is kept for later: what idle cores keep would be missing elsewhere.
        let keep = used.get().next_multiple_of(GRAIN);
        if let Some(spare @ 1..) = reserved.get().checked_sub(keep) {
            total.fetch_sub(spare, Relaxed);
            reserved.set(keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_over_cores_and_all_is_given_back() {
        let total = Arc::new(AtomicU64::new(0));
        let cores = [Bodies::new(Arc::clone(&total)), Bodies::new(Arc::clone(&total))];
        let limit = 4 * GRAIN;
        let mut held: Vec<Held> = Vec::new();
        let mut refused = 0;
        for turn in 0..100 {
            let mut body = cores[turn % 2].hold();
            match body.add(100_000, limit) {
                true => held.push(body),
                false => refused += 1,
            }
        }
        assert!(total.load(Relaxed) <= limit);
        assert!((38..=41).contains(&held.len()), "{} were held", held.len());
        assert!(refused > 0);
        held.clear();
        assert_eq!(total.load(Relaxed), 0);
    }
}
