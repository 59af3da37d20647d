//! One sequence in an engine, seen from the request that waits for it.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::replica::Replica;

/// How far a sequence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Tokens produced.
    pub produced: u32,
    /// Prompt tokens that came from the cache; known once it is finished.
    pub cached_tokens: u32,
    /// It has all its tokens.
    pub finished: bool,
}

/// Where the engine's driver leaves the progress of a sequence.
#[derive(Debug, Default)]
pub struct Slot {
    state: Mutex<SlotState>,
}

#[derive(Debug, Default)]
struct SlotState {
    progress: Progress,
    /// Progress of this many tokens is worth a wake-up; a request that does not stream needs only the end.
    wake_at: u32,
    waker: Option<Waker>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that so many tokens are there.
    pub fn produced(&self, produced: u32) {
        let mut state = self.lock();
        state.progress.produced = produced;
        if produced >= state.wake_at
            && let Some(waker) = state.waker.take()
        {
            waker.wake();
        }
    }

    /// Says that the last token is there.
    pub fn finished(&self, cached_tokens: u32) {
        let mut state = self.lock();
        state.progress.cached_tokens = cached_tokens;
        state.progress.finished = true;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

/// A sequence in a replica's engine. Dropping it before its end cancels it there: that is how a client that
/// leaves frees its place.
pub struct Sequence {
    replica: Arc<Replica>,
    id: u64,
    slot: Arc<Slot>,
}

impl Sequence {
    pub fn new(replica: Arc<Replica>, id: u64, slot: Arc<Slot>) -> Self {
        Self { replica, id, slot }
    }

    pub fn progress(&self) -> Progress {
        self.slot.lock().progress
    }

    /// Ready when there are at least `tokens` tokens, or all of them.
    pub fn poll_tokens(&self, tokens: u32, cx: &mut Context<'_>) -> Poll<Progress> {
        let mut state = self.slot.lock();
        if state.progress.finished || state.progress.produced >= tokens {
            return Poll::Ready(state.progress);
        }
        state.wake_at = tokens;
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Waits until there are at least `tokens` tokens, or all of them.
    pub async fn tokens(&self, tokens: u32) -> Progress {
        poll_fn(|cx| self.poll_tokens(tokens, cx)).await
    }

    /// Waits for the end.
    pub async fn end(&self) -> Progress {
        self.tokens(u32::MAX).await
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        if !self.progress().finished {
            self.replica.cancel(self.id);
        }
    }
}
