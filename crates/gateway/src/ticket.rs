//! One request's record, from its head to the last byte of its answer. Whatever happens, dropping it counts the
//! request, writes its log line and gives back its place at the endpoint.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use access::{Access, Caller};
use api::{Framing as EventFraming, Operation, StreamScan, Usage};
use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{HeaderValue, Method, Uri};
use scheduling::{BLOCK_BYTES, Decision, EndpointId, InFlight};

use crate::access_log::Line;
use crate::client::Peer;
use crate::core::Core;
use crate::ledger::{CLIENT_GONE, NOWHERE, Recent};
use crate::tenants::Tokens;
use crate::vitals::End;
use crate::world::{LocalWorld, ModelLabel};

/// Bytes of a token of text, about, where only text is known.
const BYTES_PER_TOKEN: u64 = 4;

/// A whole JSON answer up to this size is looked through for its usage. Larger ones are embeddings, images and
/// sound.
const MAX_JSON_BYTES: usize = 256 * 1024;

/// What passes by in an answer's body.
enum Watch {
    Nothing,
    Stream(Box<StreamScan>),
    /// The beginning of a JSON answer whose rest has not come.
    Json(Vec<u8>),
}

/// Where the request is, or was.
struct Place {
    decision: Decision,
    endpoint: EndpointId,
    /// Given back when the attempt there has failed, so that it does not stand in its own way.
    in_flight: Option<InFlight>,
}

/// One request's record.
pub struct Ticket {
    core: Rc<Core>,
    world: LocalWorld,
    peer: Rc<Peer>,
    started: Instant,
    id: HeaderValue,
    method: Method,
    uri: Uri,
    /// Who it is from, once that is known.
    caller: Option<Caller>,
    operation: Option<Operation>,
    model: ModelLabel,
    bytes_in: u64,
    bytes_out: u64,
    place: Option<Place>,
    attempts: u32,
    /// Status sent to the client; none yet: the client did not wait for one.
    status: Option<u16>,
    refusal: Option<&'static str>,
    detail: Option<String>,
    complete: bool,
    broken: bool,
    watch: Watch,
    usage: Option<Usage>,
    events: u64,
    first_byte: Option<Instant>,
    last_event: Option<Instant>,
}

impl Ticket {
    /// Opens the record.
    pub fn new(
        core: &Rc<Core>,
        peer: Rc<Peer>,
        started: Instant,
        id: HeaderValue,
        method: Method,
        uri: Uri,
    ) -> Self {
        core.gauge().requests.fetch_add(1, Relaxed);
        peer.vitals.request_began();
        Self {
            core: Rc::clone(core),
            world: core.world(),
            peer,
            started,
            id,
            method,
            uri,
            caller: None,
            operation: None,
            model: ModelLabel::OTHER,
            bytes_in: 0,
            bytes_out: 0,
            place: None,
            attempts: 0,
            status: None,
            refusal: None,
            detail: None,
            complete: false,
            broken: false,
            watch: Watch::Nothing,
            usage: None,
            events: 0,
            first_byte: None,
            last_event: None,
        }
    }

    /// The core it runs on.
    pub fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// The endpoints and rules that apply to it: those at its beginning.
    pub fn world(&self) -> &LocalWorld {
        &self.world
    }

    /// When it began.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Its id.
    pub fn id(&self) -> &HeaderValue {
        &self.id
    }

    /// The client's method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The client's URI.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Path and query as the client sent them.
    pub fn path_and_query(&self) -> &str {
        self.uri.path_and_query().map_or("/", |path| path.as_str())
    }

    /// Notes who it is from.
    pub fn set_caller(&mut self, caller: Caller) {
        self.caller = Some(caller);
    }

    /// Who it is from, and the rules that say what that means.
    pub fn caller(&self) -> Option<(&Access, &Caller)> {
        Some((self.world.policy.access.as_deref()?, self.caller.as_ref()?))
    }

    /// Notes what is called.
    pub fn set_operation(&mut self, operation: Operation) {
        self.operation = Some(operation);
    }

    /// Notes the model.
    pub fn set_model(&mut self, model: ModelLabel) {
        self.model = model;
    }

    /// Notes the size of the request's body.
    pub fn received(&mut self, bytes: usize) {
        self.bytes_in = bytes as u64;
    }

    /// It is now with this endpoint. A former place is given back.
    pub fn placed(&mut self, decision: Decision, in_flight: InFlight) {
        self.attempts += 1;
        let endpoint = in_flight.endpoint().id();
        self.place = Some(Place { decision, endpoint, in_flight: Some(in_flight) });
    }

    /// The attempt at the present place failed.
    pub fn attempt_failed(&mut self) {
        if let Some(place) = &mut self.place {
            place.in_flight = None;
            self.core.ledger.borrow_mut().series(place.endpoint, self.model).failed_attempts += 1;
        }
    }

    /// Endpoints tried.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The picked endpoint's place in the fleet.
    pub fn member(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.decision.member)
    }

    /// The gateway itself answers, and this is why.
    pub fn refused(&mut self, status: u16, code: &'static str, detail: Option<String>) {
        self.status = Some(status);
        self.refusal = Some(code);
        self.detail = detail;
    }

    /// The gateway itself answers with what was asked for.
    pub fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// An endpoint's answer has begun.
    pub fn answer_began(&mut self, status: u16, headers: &HeaderMap) {
        self.status = Some(status);
        let plain = headers.get(header::CONTENT_ENCODING).is_none_or(|coding| coding == "identity");
        let Some(operation) = self.operation.filter(|operation| operation.is_inference() && plain) else {
            return;
        };
        let Some(kind) = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()) else {
            return;
        };
        self.watch = match EventFraming::of_content_type(kind) {
            Some(framing) => Watch::Stream(Box::new(StreamScan::new(operation, framing))),
            None if kind.starts_with("application/json") => Watch::Json(Vec::new()),
            None => Watch::Nothing,
        };
    }

    /// A piece of the answer passes; `last`: the body is complete with it.
    pub fn passed(&mut self, data: &Bytes, last: bool) {
        self.bytes_out += data.len() as u64;
        match &mut self.watch {
            Watch::Nothing => {}
            Watch::Stream(scan) => {
                let mut events = scan.push(data).events;
                if last {
                    events += scan.finish().events;
                    self.usage = scan.usage();
                }
                if events > 0 {
                    self.saw_events(events);
                }
            }
            Watch::Json(beginning) => {
                if last && beginning.is_empty() {
                    self.usage = (data.len() <= MAX_JSON_BYTES).then(|| api::usage_of_json(data)).flatten();
                } else if beginning.len() + data.len() > MAX_JSON_BYTES {
                    self.watch = Watch::Nothing;
                } else {
                    beginning.extend_from_slice(data);
                    if last {
                        self.usage = api::usage_of_json(beginning);
                    }
                }
            }
        }
        if self.first_byte.is_none() && !data.is_empty() {
            self.first_byte = Some(self.last_event.unwrap_or_else(Instant::now));
        }
    }

    fn saw_events(&mut self, events: u32) {
        let now = Instant::now();
        let Some(place) = &self.place else { return };
        let mut ledger = self.core.ledger.borrow_mut();
        let series = ledger.series(place.endpoint, self.model);
        match self.last_event {
            None => {
                series.first_event(now.saturating_duration_since(self.started));
                if events > 1 {
                    series.next_events(std::time::Duration::ZERO, events - 1);
                }
            }
            Some(before) => series.next_events(now.saturating_duration_since(before), events),
        }
        series.streaming_tokens += u64::from(events);
        self.last_event = Some(now);
        self.events += u64::from(events);
    }

    /// The answer is complete: the endpoint has nothing more to do for it.
    pub fn complete(&mut self) {
        self.complete = true;
    }

    /// The answer broke off on the endpoint's side.
    pub fn broke(&mut self, why: String) {
        self.broken = true;
        self.detail = Some(why);
    }
}

/// Token counts beyond this are no counts: no context is that long, and sums must not run over.
const MAX_TOKENS: u64 = 1 << 32;

fn is_plausible(usage: &Usage) -> bool {
    let counts = [usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens.unwrap_or(0)];
    counts.iter().all(|&count| count <= MAX_TOKENS)
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let core = &self.core;
        core.gauge().requests.fetch_sub(1, Relaxed);
        self.peer.vitals.request_ended();
        let now = Instant::now();
        let whole = now.saturating_duration_since(self.started);
        let gone = !self.complete && !self.broken && self.refusal.is_none();
        let status = if gone { CLIENT_GONE } else { self.status.unwrap_or(CLIENT_GONE) };
        if let (Watch::Stream(scan), None) = (&self.watch, &self.usage) {
            self.usage = scan.usage(); // what was reported before the end, if it ended early
        }
        self.usage = self.usage.filter(is_plausible);
        let endpoint = self.place.as_ref().map(|place| place.endpoint);
        self.meter(status, now);
        {
            let mut ledger = core.ledger.borrow_mut();
            if let Watch::Stream(scan) = &self.watch {
                ledger.oversized_events += u64::from(scan.oversized_events());
            }
            if let Some(code) = self.refusal {
                *ledger.refusals.entry(code).or_default() += 1;
            }
            ledger.requests_total += 1;
            let series = ledger.series(endpoint.unwrap_or(NOWHERE), self.model);
            series.count_status(status, 1);
            series.ended(whole);
            series.broken += u64::from(self.broken);
            series.streaming_tokens = series.streaming_tokens.saturating_sub(self.events);
            match self.usage {
                Some(usage) => {
                    series.prompt_tokens += usage.prompt_tokens;
                    series.output_tokens += usage.completion_tokens;
                    series.cached_reported += usage.cached_tokens.unwrap_or(0);
                }
                None => series.output_tokens += self.events,
            }
            if let (Some(place), None) = (&self.place, self.refusal) {
                series.cached_estimated +=
                    u64::from(place.decision.matched_blocks) * BLOCK_BYTES as u64 / BYTES_PER_TOKEN;
            }
        }
        self.write_line(status, whole);
        let runner_up = |decision: &Decision| {
            let place = decision.runner_up?.member;
            Some(self.world.fleet.members().get(place)?.endpoint.id())
        };
        let recent = Recent {
            id: self.id.clone(),
            at: now,
            call: self.operation.map_or("other", Operation::name),
            model: self.model,
            endpoint,
            decision: self.place.as_ref().map(|place| (place.decision, runner_up(&place.decision))),
            attempts: self.attempts,
            status,
            refusal: self.refusal,
            ttft: self.first_byte.map(|at| at.saturating_duration_since(self.started)),
            whole,
            usage: self.usage,
        };
        core.ledger.borrow_mut().remember(recent);
    }
}

impl Ticket {
    /// Counts the request and its tokens for its tenant. What the engine did not report is estimated: the prompt from
    /// its bytes, the output from the stream's events.
    fn meter(&self, status: u16, now: Instant) {
        let Some((access, caller)) = self.caller() else { return };
        let tokens = match (self.usage, self.refusal, self.operation) {
            (Some(usage), _, _) => Tokens::Exact(usage.prompt_tokens, usage.completion_tokens),
            (None, None, Some(operation)) if operation.is_inference() && (200..300).contains(&status) => {
                Tokens::Estimated(self.bytes_in / BYTES_PER_TOKEN, self.events)
            }
            (None, None, Some(_)) if self.events > 0 => {
                Tokens::Estimated(self.bytes_in / BYTES_PER_TOKEN, self.events)
            }
            _ => Tokens::Exact(0, 0),
        };
        let tenant = access.tenant(caller);
        self.core.ledger.borrow_mut().tenants.series(tenant, self.model).count(status, tokens);
        access.charge(caller, tokens.sum(), self.core.shared.ns(now));
    }

    fn write_line(&self, status: u16, whole: std::time::Duration) {
        let mut log = self.core.log.borrow_mut();
        if !log.is_on() {
            return;
        }
        let member = self.member().and_then(|place| self.world.fleet.members().get(place));
        let error = match (self.refusal, self.broken, status) {
            (Some(code), _, _) => Some(code),
            (None, true, _) => Some("upstream_broke_off"),
            (None, false, CLIENT_GONE) if self.core.shared.cutting.load(Relaxed) => Some("shutdown"),
            (None, false, CLIENT_GONE) => match self.peer.vitals.end() {
                Some((End::Cut, why)) => Some(why.as_str()),
                _ => Some("client_gone"),
            },
            _ => None,
        };
        log.push(&Line {
            id: self.id.to_str().unwrap_or(""),
            client: self.peer.address.ip().to_canonical(),
            method: self.method.as_str(),
            path: self.uri.path(),
            model: self.world.label_text(self.model),
            endpoint: member.map_or("", |member| &member.name),
            status,
            attempts: self.attempts,
            picked: self.place.as_ref().map_or("", |place| place.decision.reason.as_str()),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            ttft_ms: self.first_byte.map(|at| at.saturating_duration_since(self.started).as_secs_f64() * 1e3),
            duration_ms: whole.as_secs_f64() * 1e3,
            usage: self.usage,
            error,
            tenant: self.caller().map(|(access, caller)| access.tenant(caller)),
            key: self.caller().and_then(|(access, caller)| access.key_name(caller)),
            detail: self.detail.as_deref(),
        });
    }
}
