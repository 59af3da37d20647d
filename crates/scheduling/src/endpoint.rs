//! One endpoint's state: what we sent there and what it last said of itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Names one life of one endpoint. Never used again in the process: an endpoint that was removed and added
/// under the same address is another one, and nothing that was known of the first applies to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(pub u32);

/// How long an endpoint that turned a request away is passed over while another can take it. One that refuses at
/// once always has the least load, and would draw nearly all requests to itself.
pub const TURNED_AWAY_MS: u64 = 1_000;

/// Whether the endpoint takes connections, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Nothing has been tried yet.
    Unknown,
    /// The last attempt to reach it worked.
    Up,
    /// The last attempt to connect to it failed.
    Down,
}

/// What an engine says of itself. `None` is "not said": unknown, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// Sequences being worked on.
    pub running: Option<u32>,
    /// Requests in the engine's own queue.
    pub waiting: Option<u32>,
    /// Share of the KV blocks in use, 0 to 1.
    pub kv_usage: Option<f32>,
}

/// [`Signals`] with the time of the reading.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// What was read.
    pub signals: Signals,
    /// When, on the clock that the caller of [`Endpoint::observe`] uses.
    pub at_ms: u64,
}

const UNKNOWN: u32 = u32::MAX;

/// One endpoint's live state, shared by all cores. Every field is an atomic of its own: a reader may see one
/// field of a reading and another of the next, which is harmless since each is only a load figure.
#[derive(Debug)]
#[repr(align(128))] // its own cache lines: neighbours in memory must not slow each other down
pub struct Endpoint {
    id: EndpointId,
    /// [`UNKNOWN`]: no bound.
    max_in_flight: AtomicU32,
    in_flight: AtomicU32,
    health: AtomicU8,
    running: AtomicU32,
    waiting: AtomicU32,
    kv_usage_bits: AtomicU32,
    /// Running and waiting requests that are not ours, at the last reading.
    foreign: AtomicU32,
    observed_at_ms: AtomicU64,
    turned_away_at_ms: AtomicU64,
}

impl Endpoint {
    /// A new life of an endpoint. `max_in_flight` bounds what we send there at one time.
    pub fn new(id: EndpointId, max_in_flight: Option<u32>) -> Arc<Self> {
        Arc::new(Self {
            id,
            max_in_flight: AtomicU32::new(max_in_flight.unwrap_or(UNKNOWN)),
            in_flight: AtomicU32::new(0),
            health: AtomicU8::new(0),
            running: AtomicU32::new(UNKNOWN),
            waiting: AtomicU32::new(UNKNOWN),
            kv_usage_bits: AtomicU32::new(f32::NAN.to_bits()),
            foreign: AtomicU32::new(UNKNOWN),
            observed_at_ms: AtomicU64::new(u64::MAX),
            turned_away_at_ms: AtomicU64::new(u64::MAX),
        })
    }

    /// Its identity.
    pub fn id(&self) -> EndpointId {
        self.id
    }

    /// Requests of ours that are there now.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Counts one more request there until the guard is dropped; `None` at the configured bound.
    pub fn enter(self: &Arc<Self>) -> Option<InFlight> {
        let before = self.in_flight.fetch_add(1, Relaxed);
        let guard = InFlight { endpoint: Arc::clone(self) };
        // Dropping the guard takes the count back.
        (before < self.max_in_flight.load(Relaxed)).then_some(guard)
    }

    /// Changes the bound. Requests that are there already stay.
    pub fn set_max_in_flight(&self, bound: Option<u32>) {
        self.max_in_flight.store(bound.unwrap_or(UNKNOWN), Relaxed);
    }

    /// Whether another request would exceed the bound.
    pub fn is_full(&self) -> bool {
        self.in_flight() >= self.max_in_flight.load(Relaxed)
    }

    /// Whether it could be reached.
    pub fn health(&self) -> Health {
        match self.health.load(Relaxed) {
            1 => Health::Up,
            2 => Health::Down,
            _ => Health::Unknown,
        }
    }

    /// Records that it was reached, or that it was not; answers whether that is news.
    pub fn set_health(&self, health: Health) -> bool {
        let code = match health {
            Health::Unknown => 0,
            Health::Up => 1,
            Health::Down => 2,
        };
        // The plain load first: this is called for every answer, and a store would pull the line to this core.
        self.health.load(Relaxed) != code && self.health.swap(code, Relaxed) != code
    }

    /// Records that it turned a request away or dropped it (502, 503, 504, no answer).
    pub fn turned_away(&self, now_ms: u64) {
        self.turned_away_at_ms.store(now_ms, Relaxed);
    }

    /// Whether it did so within [`TURNED_AWAY_MS`].
    pub fn is_turning_away(&self, now_ms: u64) -> bool {
        let at = self.turned_away_at_ms.load(Relaxed);
        at != u64::MAX && now_ms.saturating_sub(at) < TURNED_AWAY_MS
    }

    /// Takes a reading of the engine's own signals.
    pub fn observe(&self, signals: Signals, now_ms: u64) {
        self.running.store(signals.running.unwrap_or(UNKNOWN), Relaxed);
        self.waiting.store(signals.waiting.unwrap_or(UNKNOWN), Relaxed);
        self.kv_usage_bits.store(signals.kv_usage.unwrap_or(f32::NAN).to_bits(), Relaxed);
        let foreign = match (signals.running, signals.waiting) {
            (None, None) => UNKNOWN,
            (running, waiting) => running
                .unwrap_or(0)
                .saturating_add(waiting.unwrap_or(0))
                .saturating_sub(self.in_flight())
                .min(UNKNOWN - 1),
        };
        self.foreign.store(foreign, Relaxed);
        self.observed_at_ms.store(now_ms, Relaxed);
    }

    /// The last reading, if there was one, however old.
    pub fn observation(&self) -> Option<Observation> {
        let known = |value: u32| (value != UNKNOWN).then_some(value);
        let at_ms = self.observed_at_ms.load(Relaxed);
        let kv_usage = f32::from_bits(self.kv_usage_bits.load(Relaxed));
        (at_ms != u64::MAX).then(|| Observation {
            signals: Signals {
                running: known(self.running.load(Relaxed)),
                waiting: known(self.waiting.load(Relaxed)),
                kv_usage: (!kv_usage.is_nan()).then_some(kv_usage),
            },
            at_ms,
        })
    }

    /// Requests there: ours, counted the moment they are sent, plus those of others as last read. A stale or
    /// missing reading (older than `fresh_ms`) adds nothing: ours are then all that is known.
    pub fn load(&self, now_ms: u64, fresh_ms: u64) -> u32 {
        let foreign = self.foreign.load(Relaxed);
        let fresh = now_ms.saturating_sub(self.observed_at_ms.load(Relaxed)) <= fresh_ms;
        let foreign = if fresh && foreign != UNKNOWN { foreign } else { 0 };
        self.in_flight().saturating_add(foreign)
    }
}

/// Counts a request at its endpoint for as long as it lives.
#[derive(Debug)]
pub struct InFlight {
    endpoint: Arc<Endpoint>,
}

impl InFlight {
    /// Where the request is.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.endpoint.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_and_guards_give_back() {
        let endpoint = Endpoint::new(EndpointId(1), Some(2));
        let first = endpoint.enter().unwrap();
        let _second = endpoint.enter().unwrap();
        assert!(endpoint.enter().is_none());
        assert_eq!(endpoint.in_flight(), 2);
        drop(first);
        assert!(endpoint.enter().is_some());
        assert_eq!(endpoint.in_flight(), 1);
    }

    #[test]
    fn others_requests_count_and_ours_are_not_counted_twice() {
        let endpoint = Endpoint::new(EndpointId(1), None);
        let _ours = endpoint.enter().unwrap();
        endpoint.observe(Signals { running: Some(3), waiting: Some(2), kv_usage: None }, 1_000);
        assert_eq!(endpoint.load(1_500, 500), 5);
        assert_eq!(endpoint.load(1_501, 500), 1);
    }

    #[test]
    fn turning_away_passes() {
        let endpoint = Endpoint::new(EndpointId(1), None);
        assert!(!endpoint.is_turning_away(0));
        endpoint.turned_away(10);
        assert!(endpoint.is_turning_away(500));
        assert!(!endpoint.is_turning_away(10 + TURNED_AWAY_MS));
    }

    #[test]
    fn what_was_not_said_stays_unknown() {
        let endpoint = Endpoint::new(EndpointId(1), None);
        assert_eq!(endpoint.observation(), None);
        endpoint.observe(Signals { running: None, waiting: Some(0), kv_usage: None }, 5);
        let seen = endpoint.observation().unwrap();
        assert_eq!(seen.signals, Signals { running: None, waiting: Some(0), kv_usage: None });
    }
}
