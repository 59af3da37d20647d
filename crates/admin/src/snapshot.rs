//! What the admin listener shows, as plain data.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

/// A snapshot in the making.
pub type SnapshotFuture<'a> = Pin<Box<dyn Future<Output = Snapshot> + Send + 'a>>;

/// Whoever can say how the gateway is doing.
pub trait Source: Send + Sync {
    /// Gathers a snapshot. Called for each `/metrics` and `/api/snapshot`, from the admin thread; it may wait for the
    /// cores but must not stop them.
    fn snapshot(&self) -> SnapshotFuture<'_>;

    /// Whether the gateway wants traffic now. Cheap: it is asked for each `/readyz`.
    fn ready(&self) -> bool;
}

/// One moment of a gateway.
///
/// Unknown is `None`, never zero. The source bounds every list: endpoints and labels come from configuration, model
/// names from the configuration or the engines' own lists (never from a request as sent), `recent` is a ring.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Version of the running binary.
    pub version: String,
    /// When the process started, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When this snapshot was taken, milliseconds since 1970.
    pub taken_unix_ms: u64,
    /// Whether it wants traffic.
    pub ready: bool,
    /// Whether it is finishing its streams before it ends.
    pub draining: bool,
    /// One row a core, in order.
    pub cores: Vec<CoreRow>,
    /// One row an endpoint, in the order of the configuration.
    pub endpoints: Vec<EndpointRow>,
    /// Finished requests by endpoint, model and status.
    pub requests: Vec<RequestCount>,
    /// Latency histograms.
    pub histograms: Vec<Histogram>,
    /// Further counters; names end in `_total`.
    pub counters: Vec<Series>,
    /// Further gauges.
    pub gauges: Vec<Series>,
    /// The last requests, newest first.
    pub recent: Vec<RecentRequest>,
}

/// What one core carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CoreRow {
    /// The core's number, from 0.
    pub core: u32,
    /// Open client connections.
    pub connections: u64,
    /// Requests that ended since the start.
    pub requests: u64,
}

/// Whether an endpoint answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// It answered last time.
    Up,
    /// It did not answer last time.
    Down,
    /// Not asked yet.
    #[default]
    Unknown,
}

impl Health {
    /// The word shown to people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Health::Up => "up",
            Health::Down => "down",
            Health::Unknown => "unknown",
        }
    }
}

/// One endpoint: who it is, what it says of itself, what was sent to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointRow {
    /// Its name in the configuration.
    pub name: String,
    /// The engine's name, `unknown` when not recognised.
    pub engine: String,
    /// The models it serves.
    pub models: Vec<String>,
    /// Its role (`prefill`, `decode`, …), if it has a special one.
    pub role: Option<String>,
    /// Labels from the configuration.
    pub labels: BTreeMap<String, String>,
    /// Revision from the configuration.
    pub revision: Option<String>,
    /// Share of traffic relative to the others.
    pub weight: f64,
    /// Whether it answers.
    pub health: Health,
    /// Requests of this gateway that it is working on.
    pub in_flight: u64,
    /// Requests in its batch, by its own account.
    pub running: Option<u32>,
    /// Requests in its queue, by its own account.
    pub waiting: Option<u32>,
    /// Share of its KV cache in use, 0 to 1, by its own account.
    pub kv_usage: Option<f32>,
    /// How old that account is, in milliseconds.
    pub signal_age_ms: Option<u64>,
    /// Requests that ended with it as their last endpoint, since the start.
    pub requests_total: u64,
    /// Tokens it produced since the start.
    pub output_tokens_total: u64,
    /// Tokens it produces in a second, now.
    pub tokens_per_s: f64,
    /// Prompt tokens that the gateway expected to be cached there when it picked it.
    pub cached_tokens_estimated: u64,
    /// Prompt tokens that it reported as cached.
    pub cached_tokens_reported: u64,
    /// Prompt tokens it was sent since the start.
    pub prompt_tokens_total: u64,
    /// Attempts that failed there since the start.
    pub errors: u64,
}

impl EndpointRow {
    /// Share of prompt tokens that were cached, 0 to 1: as reported, else as estimated; unknown before any prompt.
    pub fn cache_hit_share(&self) -> Option<f64> {
        if self.prompt_tokens_total == 0 {
            return None;
        }
        let cached = match self.cached_tokens_reported {
            0 => self.cached_tokens_estimated,
            reported => reported,
        };
        Some((cached as f64 / self.prompt_tokens_total as f64).min(1.0))
    }
}

/// How many requests ended so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestCount {
    /// The endpoint that answered, empty when none was reached.
    pub endpoint: String,
    /// The model, empty when there was none.
    pub model: String,
    /// The status sent to the client, or a word such as `cancelled`.
    pub status: String,
    /// How many.
    pub count: u64,
}

/// Which latency a histogram holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HistogramKind {
    /// Time to the first token.
    Ttft,
    /// Time between tokens.
    Itl,
    /// Time to the end of the response.
    E2e,
}

/// A latency histogram of one endpoint and model, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Which latency.
    pub name: HistogramKind,
    /// The endpoint.
    pub endpoint: String,
    /// The model.
    pub model: String,
    /// Upper bounds in seconds, ascending, without infinity.
    pub bounds_s: Vec<f64>,
    /// Observations per bucket, *not* cumulative: one for each bound, and one more for those above the last.
    pub counts: Vec<u64>,
    /// Sum of all observations in seconds.
    pub sum_s: f64,
}

/// One more number with its labels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Family name; series of one family may stand anywhere in the list.
    pub name: String,
    /// One sentence for people.
    pub help: String,
    /// Label names and values.
    pub labels: Vec<(String, String)>,
    /// The number.
    pub value: f64,
}

/// One finished (or running) request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecentRequest {
    /// The value of `x-request-id`. Clients may choose it.
    pub id: String,
    /// When it came, milliseconds since 1970.
    pub time_unix_ms: u64,
    /// The model asked for, as the client wrote it.
    pub model: String,
    /// The path asked for.
    pub path: String,
    /// The endpoint that answered, if one did.
    pub endpoint: Option<String>,
    /// Endpoints tried.
    pub attempts: u32,
    /// The status sent to the client; `None` while it runs or when the client left before one was sent.
    pub status: Option<u16>,
    /// Milliseconds to the first token.
    pub ttft_ms: Option<f64>,
    /// Milliseconds to the end.
    pub total_ms: Option<f64>,
    /// Tokens of the prompt, as reported.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer, as reported.
    pub output_tokens: Option<u64>,
    /// Prompt tokens that were cached, as reported.
    pub cached_tokens: Option<u64>,
    /// Why this endpoint; `None` when none was picked.
    pub why: Option<Why>,
}

/// Why an endpoint was picked over the others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Why {
    /// The deciding reason in a few words, such as `least load` or `shared prefix`.
    pub reason: String,
    /// Endpoints that could have taken it.
    pub candidates: u32,
    /// Load of the picked one at that moment, its own in-flight requests.
    pub in_flight_at_pick: Option<u64>,
    /// Blocks at the head of the prompt that it was believed to hold.
    pub matched_blocks: Option<u32>,
    /// Blocks of the prompt.
    pub prompt_blocks: Option<u32>,
    /// The next best.
    pub runner_up: Option<String>,
    /// Its load.
    pub runner_up_load: Option<f64>,
    /// Its matched blocks.
    pub runner_up_matched_blocks: Option<u32>,
    /// Endpoints that were left out and why, such as `sim-3: down`.
    pub left_out: Vec<String>,
}
