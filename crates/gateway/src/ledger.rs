//! What one core counts. Only that core's thread touches it; who wants to see it asks the core for a copy.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use http::HeaderValue;
use scheduling::{Decision, EndpointId};

use crate::handshake::Handshake;
use crate::tenants::Tenants;
use crate::world::ModelLabel;

/// Requests remembered for the admin page, on each core.
const RECENT: usize = 64;

/// Status noted for a request whose client went away before the end, as nginx has it.
pub const CLIENT_GONE: u16 = 499;

/// Upper bounds of the TTFT and E2E buckets, seconds: from a cache hit on a small model to a long queue.
pub const LATENCY_BOUNDS_S: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0,
];

/// Upper bounds of the ITL buckets, seconds.
pub const ITL_BOUNDS_S: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0];

/// Counts by size.
#[derive(Clone, Debug)]
pub struct Histogram<const N: usize> {
    /// Observations at most as large as the bound of the same place; not cumulative.
    pub counts: [u64; N],
    /// Observations above the last bound.
    pub above: u64,
    /// Sum of all, seconds.
    pub sum_s: f64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self { counts: [0; N], above: 0, sum_s: 0.0 }
    }
}

impl<const N: usize> Histogram<N> {
    fn observe(&mut self, bounds: &[f64; N], value: Duration, times: u64) {
        let seconds = value.as_secs_f64();
        match bounds.iter().position(|&bound| seconds <= bound) {
            Some(place) => self.counts[place] += times,
            None => self.above += times,
        }
        self.sum_s += seconds * times as f64;
    }

    /// Adds another core's counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.above += other.above;
        self.sum_s += other.sum_s;
    }
}

/// Counts for one endpoint and model.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Requests by status; few different ones.
    pub by_status: Vec<(u16, u64)>,
    /// Time to the first event of streams.
    pub ttft: Histogram<18>,
    /// Time between events of streams.
    pub itl: Histogram<14>,
    /// Whole requests.
    pub e2e: Histogram<18>,
    /// Prompt tokens, as engines reported.
    pub prompt_tokens: u64,
    /// Generated tokens: as reported, else events of streams.
    pub output_tokens: u64,
    /// Events of streams that are still going on.
    pub streaming_tokens: u64,
    /// Prompt tokens expected to be in the engine's cache.
    pub cached_estimated: u64,
    /// Prompt tokens that engines reported as cached.
    pub cached_reported: u64,
    /// Answers that broke off after they had begun.
    pub broken: u64,
    /// Attempts that failed before an answer.
    pub failed_attempts: u64,
}

impl Series {
    /// Adds another core's counts.
    pub fn add(&mut self, other: &Self) {
        for &(status, count) in &other.by_status {
            self.count_status(status, count);
        }
        self.ttft.add(&other.ttft);
        self.itl.add(&other.itl);
        self.e2e.add(&other.e2e);
        self.prompt_tokens += other.prompt_tokens;
        self.output_tokens += other.output_tokens;
        self.streaming_tokens += other.streaming_tokens;
        self.cached_estimated += other.cached_estimated;
        self.cached_reported += other.cached_reported;
        self.broken += other.broken;
        self.failed_attempts += other.failed_attempts;
    }

    /// Counts requests that ended with this status.
    pub fn count_status(&mut self, status: u16, count: u64) {
        match self.by_status.iter_mut().find(|(known, _)| *known == status) {
            Some((_, total)) => *total += count,
            None => self.by_status.push((status, count)),
        }
    }

    /// A first event came after `wait`.
    pub fn first_event(&mut self, wait: Duration) {
        self.ttft.observe(&LATENCY_BOUNDS_S, wait, 1);
    }

    /// `events` more came `gap` after the last ones: each waited its share.
    pub fn next_events(&mut self, gap: Duration, events: u32) {
        self.itl.observe(&ITL_BOUNDS_S, gap / events.max(1), u64::from(events));
    }

    /// The request ended after `whole`.
    pub fn ended(&mut self, whole: Duration) {
        self.e2e.observe(&LATENCY_BOUNDS_S, whole, 1);
    }
}

/// One request that is over, for people to look at.
#[derive(Clone, Debug)]
pub struct Recent {
    /// Its id.
    pub id: HeaderValue,
    /// When it ended.
    pub at: Instant,
    /// What was called.
    pub call: &'static str,
    /// The model's label.
    pub model: ModelLabel,
    /// Where it went.
    pub endpoint: Option<EndpointId>,
    /// Why there, and the runner-up's identity.
    pub decision: Option<(Decision, Option<EndpointId>)>,
    /// Endpoints tried.
    pub attempts: u32,
    /// Status, or [`CLIENT_GONE`].
    pub status: u16,
    /// The code of a refusal of the gateway's own.
    pub refusal: Option<&'static str>,
    /// Time to the first byte of the answer's body.
    pub ttft: Option<Duration>,
    /// Whole time.
    pub whole: Duration,
    /// Tokens as reported.
    pub usage: Option<api::Usage>,
}

/// All that one core counts.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// By endpoint and model; endpoint 0 stands for requests that went nowhere.
    pub series: HashMap<(EndpointId, ModelLabel), Series>,
    /// By tenant and model, where callers are asked who they are.
    pub tenants: Tenants,
    /// Requests refused by the gateway itself, by code.
    pub refusals: BTreeMap<&'static str, u64>,
    /// The last requests, newest last.
    pub recent: VecDeque<Recent>,
    /// Requests that have ended, whatever became of their endpoints since.
    pub requests_total: u64,
    /// Client connections accepted.
    pub connections_total: u64,
    /// TLS handshakes, by what came of them.
    pub handshakes: [u64; Handshake::ALL.len()],
    /// TLS handshakes under way, filled in when a copy is made.
    pub handshakes_open: usize,
    /// Events of streams too large for their usage to be read.
    pub oversized_events: u64,
    /// Idle upstream connections, filled in when a copy is made.
    pub idle_upstream: usize,
}

/// Stands for "no endpoint" in a ledger.
pub const NOWHERE: EndpointId = EndpointId(0);

impl Ledger {
    /// The counts of an endpoint and model.
    pub fn series(&mut self, endpoint: EndpointId, model: ModelLabel) -> &mut Series {
        self.series.entry((endpoint, model)).or_default()
    }

    /// Remembers a request.
    pub fn remember(&mut self, request: Recent) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(request);
    }

    /// Forgets endpoints and models that are gone: their state goes with them.
    pub fn retain(&mut self, is_current: impl Fn(EndpointId, ModelLabel) -> bool) {
        self.series.retain(|&(endpoint, model), _| is_current(endpoint, model));
        self.tenants.retain(|model| is_current(NOWHERE, model));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_come_together_share_the_wait() {
        let mut series = Series::default();
        series.next_events(Duration::from_millis(40), 4);
        let place = ITL_BOUNDS_S.iter().position(|&bound| bound == 0.01).unwrap();
        assert_eq!(series.itl.counts[place], 4);
        assert!((series.itl.sum_s - 0.04).abs() < 1e-9);
    }

    #[test]
    fn the_last_requests_are_kept_and_no_more() {
        let mut ledger = Ledger::default();
        for whole in 0..100 {
            ledger.remember(Recent {
                id: HeaderValue::from_static("x"),
                at: Instant::now(),
                call: "c",
                model: ModelLabel::OTHER,
                endpoint: None,
                decision: None,
                attempts: 0,
                status: 200,
                refusal: None,
                ttft: None,
                whole: Duration::from_secs(whole),
                usage: None,
            });
        }
        assert_eq!(ledger.recent.len(), RECENT);
        assert_eq!(ledger.recent.back().unwrap().whole.as_secs(), 99);
    }
}
