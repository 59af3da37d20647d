//! Bodies of requests that are on their way, and those that are too slow.
//!
//! Most bodies come with their heads and are never seen here: one is noted when it has to be waited for.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

use crate::settings::Patience;

/// The bodies that a core waits for.
#[derive(Debug, Default)]
pub struct Arrivals(RefCell<Slab<Rc<State>>>);

#[derive(Debug, Default)]
struct State {
    /// When the present window began, and what came in it.
    window_ms: Cell<Option<u64>>,
    bytes: Cell<u64>,
    moved_ms: Cell<Option<u64>>,
    overdue: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// One body on its way.
#[derive(Debug)]
pub struct Arrival {
    arrivals: Rc<Arrivals>,
    noted: Option<(usize, Rc<State>)>,
}

impl Arrivals {
    /// A body that may have to be waited for.
    pub fn expect(self: &Rc<Self>) -> Arrival {
        Arrival { arrivals: Rc::clone(self), noted: None }
    }

    /// Wakes those who wait for bodies that are too slow.
    pub fn look(&self, now_ms: u64, patience: &Patience) {
        for (_, state) in &*self.0.borrow() {
            if state.is_overdue(now_ms, patience) {
                state.overdue.set(true);
                if let Some(waker) = &*state.waker.borrow() {
                    waker.wake_by_ref();
                }
            }
        }
    }
}

impl State {
    /// A pause counts from the last piece, the rate over windows as long as a pause may be: a fast beginning buys no
    /// slow end.
    fn is_overdue(&self, now_ms: u64, patience: &Patience) -> bool {
        let since_ms = |at: &Cell<Option<u64>>| {
            let since = at.get().unwrap_or(now_ms);
            at.set(Some(since));
            now_ms.saturating_sub(since)
        };
        let (window_ms, pause_ms) = (since_ms(&self.window_ms), since_ms(&self.moved_ms));
        if pause_ms >= patience.body_ms {
            return true;
        }
        if window_ms < patience.body_ms {
            return false;
        }
        self.window_ms.set(Some(now_ms));
        self.bytes.replace(0).saturating_mul(1_000) / window_ms.max(1) < patience.body_rate
    }
}

impl Arrival {
    /// More of it came.
    pub fn moved(&self, bytes: usize) {
        if let Some((_, state)) = &self.noted {
            state.bytes.set(state.bytes.get() + bytes as u64);
            state.moved_ms.set(None);
        }
    }

    /// Waits; ready when it is too slow.
    pub fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (_, state) = self.noted.get_or_insert_with(|| {
            let state = Rc::<State>::default();
            (self.arrivals.0.borrow_mut().insert(Rc::clone(&state)), state)
        });
        if state.overdue.get() {
            return Poll::Ready(());
        }
        let mut waker = state.waker.borrow_mut();
        match &mut *waker {
            Some(known) => known.clone_from(cx.waker()),
            unknown => *unknown = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some((key, _)) = self.noted.take() {
            self.arrivals.0.borrow_mut().remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience =
        Patience { header_ms: 1, idle_ms: 1, body_ms: 2_000, body_rate: 1_000, send_ms: 1 };

    /// When a body that comes in pieces of this size every 250 ms is given up.
    fn given_up_ms(piece: usize) -> Option<u64> {
        let arrivals = Rc::<Arrivals>::default();
        let mut arrival = arrivals.expect();
        let mut cx = Context::from_waker(Waker::noop());
        (0..1_000).map(|look| look * 250).find(|&now_ms| {
            if piece > 0 {
                arrival.moved(piece);
            }
            arrivals.look(now_ms, &PATIENCE);
            arrival.poll_overdue(&mut cx).is_ready()
        })
    }

    #[test]
    fn a_pause_and_a_trickle_are_ended_and_the_least_rate_is_not() {
        assert_eq!(given_up_ms(0), Some(2_250));
        let trickle = given_up_ms(25);
        assert!(trickle.is_some_and(|at_ms| (2_250..=2_500).contains(&at_ms)), "{trickle:?}");
        assert_eq!(given_up_ms(250), None);
    }

    #[test]
    fn one_that_ends_is_forgotten() {
        let arrivals = Rc::<Arrivals>::default();
        let mut arrival = arrivals.expect();
        let _ = arrival.poll_overdue(&mut Context::from_waker(Waker::noop()));
        assert_eq!(arrivals.0.borrow().len(), 1);
        drop(arrival);
        assert!(arrivals.0.borrow().is_empty());
    }
}
