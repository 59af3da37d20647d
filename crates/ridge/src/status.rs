//! From the gateway's counts to what the admin listener and the live view show.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use admin::{
    CoreRow, EndpointRow, Histogram, HistogramKind, RecentRequest, RequestCount, Snapshot, SnapshotFuture,
    Source, Why,
};
use gateway::{ITL_BOUNDS_S, LATENCY_BOUNDS_S, Ledger, ModelLabel, NOWHERE, Observer, Recent, Role, World};
use scheduling::EndpointId;

/// Requests shown.
const RECENT: usize = 50;

/// Time over which tokens a second are measured.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// Shows a gateway.
pub struct Status {
    observer: Observer,
    started_unix_ms: u64,
    rates: Mutex<Rates>,
}

/// Token counts of a moment ago, from which the rate is made.
#[derive(Default)]
struct Rates {
    last: Option<(Instant, HashMap<EndpointId, u64>)>,
    per_s: HashMap<EndpointId, f64>,
}

impl Status {
    /// Shows the gateway behind this observer.
    pub fn new(observer: Observer) -> Self {
        Self { observer, started_unix_ms: unix_ms(SystemTime::now()), rates: Mutex::default() }
    }
}

impl Source for Status {
    fn snapshot(&self) -> SnapshotFuture<'_> {
        Box::pin(async {
            let seen = self.observer.snapshot().await;
            self.show(&seen)
        })
    }

    fn ready(&self) -> bool {
        self.observer.is_ready()
    }
}

impl Status {
    fn show(&self, seen: &gateway::Snapshot) -> Snapshot {
        let mut all = Ledger::default();
        for ledger in &seen.ledgers {
            for (&key, series) in &ledger.series {
                all.series.entry(key).or_default().add(series);
            }
            for (&code, &count) in &ledger.refusals {
                *all.refusals.entry(code).or_default() += count;
            }
            all.tenants.add(&ledger.tenants);
            all.oversized_events += ledger.oversized_events;
            for (all, one) in all.handshakes.iter_mut().zip(&ledger.handshakes) {
                *all += one;
            }
            all.handshakes_open += ledger.handshakes_open;
            all.idle_upstream += ledger.idle_upstream;
        }
        let world = &*seen.world;
        let per_s = self.rates(&all);
        let endpoints = endpoints(seen, &all, &per_s);
        let (requests, histograms) = by_model(world, &all);
        let mut recent: Vec<&Recent> = seen.ledgers.iter().flat_map(|ledger| &ledger.recent).collect();
        recent.sort_unstable_by_key(|request| std::cmp::Reverse(request.at));
        recent.truncate(RECENT);
        let cores = seen.open.iter().zip(0..).map(|(&(connections, _), core)| CoreRow {
            core,
            connections: connections as u64,
            requests: seen.ledgers.get(core as usize).map_or(0, |ledger| ledger.requests_total),
        });
        Snapshot {
            version: env!("CARGO_PKG_VERSION").into(),
            started_unix_ms: self.started_unix_ms,
            taken_unix_ms: unix_ms(SystemTime::now()),
            ready: seen.ready,
            draining: seen.draining,
            cores: cores.collect(),
            endpoints,
            requests,
            histograms,
            counters: counters(&all, seen),
            gauges: gauges(seen, &all),
            recent: recent.into_iter().map(|request| recent_request(seen, request)).collect(),
        }
    }

    fn rates(&self, all: &Ledger) -> HashMap<EndpointId, f64> {
        let mut tokens: HashMap<EndpointId, u64> = HashMap::new();
        for (&(endpoint, _), series) in &all.series {
            *tokens.entry(endpoint).or_default() += series.output_tokens + series.streaming_tokens;
        }
        let mut rates = self.rates.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = Instant::now();
        match &rates.last {
            Some((at, before)) if now.duration_since(*at) >= RATE_WINDOW => {
                let seconds = now.duration_since(*at).as_secs_f64();
                let rate = |(&endpoint, &count): (&EndpointId, &u64)| {
                    let more = count.saturating_sub(before.get(&endpoint).copied().unwrap_or(0));
                    (endpoint, more as f64 / seconds)
                };
                rates.per_s = tokens.iter().map(rate).collect();
                rates.last = Some((now, tokens));
            }
            Some(_) => {}
            None => rates.last = Some((now, tokens)),
        }
        rates.per_s.clone()
    }
}

fn endpoints(seen: &gateway::Snapshot, all: &Ledger, per_s: &HashMap<EndpointId, f64>) -> Vec<EndpointRow> {
    let world = &*seen.world;
    let row = |(place, member): (usize, &scheduling::Member)| {
        let id = member.endpoint.id();
        let upstream = world.upstreams.get(place);
        let mut total = gateway::Series::default();
        all.series
            .iter()
            .filter(|((endpoint, _), _)| *endpoint == id)
            .for_each(|(_, series)| total.add(series));
        let observation = member.endpoint.observation();
        // What the choice does not believe any more is not shown as if it were so.
        let fresh_ms = world.policy.signals_fresh_ms();
        let is_fresh = |at_ms| seen.now_ms.saturating_sub(at_ms) <= fresh_ms;
        let signals = observation.filter(|observation| is_fresh(observation.at_ms));
        let signals = signals.map(|observation| observation.signals).unwrap_or_default();
        EndpointRow {
            name: member.name.to_string(),
            engine: world.engines.get(place).map_or("unknown", |engine| engine.as_str()).into(),
            models: match &member.models {
                scheduling::Models::Known(names) => names.iter().map(|name| name.to_string()).collect(),
                scheduling::Models::Unknown => Vec::new(),
            },
            role: match member.role {
                Role::Both => None,
                Role::Prefill => Some("prefill".into()),
                Role::Decode => Some("decode".into()),
            },
            labels: upstream.map(|upstream| upstream.labels.clone()).unwrap_or_default(),
            revision: upstream.and_then(|upstream| upstream.revision.clone()),
            weight: f64::from(member.weight),
            health: match member.endpoint.health() {
                gateway::Health::Up => admin::Health::Up,
                gateway::Health::Down => admin::Health::Down,
                gateway::Health::Unknown => admin::Health::Unknown,
            },
            in_flight: u64::from(member.endpoint.in_flight()),
            running: signals.running,
            waiting: signals.waiting,
            kv_usage: signals.kv_usage,
            signal_age_ms: observation.map(|observation| seen.now_ms.saturating_sub(observation.at_ms)),
            requests_total: total.by_status.iter().map(|(_, count)| count).sum(),
            output_tokens_total: total.output_tokens,
            tokens_per_s: per_s.get(&id).copied().unwrap_or(0.0),
            cached_tokens_estimated: total.cached_estimated,
            cached_tokens_reported: total.cached_reported,
            prompt_tokens_total: total.prompt_tokens,
            errors: total.failed_attempts + total.broken,
        }
    };
    world.fleet.members().iter().enumerate().map(row).collect()
}

fn by_model(world: &World, all: &Ledger) -> (Vec<RequestCount>, Vec<Histogram>) {
    let (mut requests, mut histograms) = (Vec::new(), Vec::new());
    let mut keys: Vec<_> = all.series.keys().copied().collect();
    keys.sort_unstable();
    // What is gone has no name any more: its counts go with it.
    keys.retain(|&(endpoint, model)| world.counts(endpoint, model));
    for key @ (endpoint, model) in keys {
        let Some(series) = all.series.get(&key) else { continue };
        let (endpoint, model) = (endpoint_name(world, endpoint), model_name(world, model));
        for &(status, count) in &series.by_status {
            let (endpoint, model) = (endpoint.clone(), model.clone());
            requests.push(RequestCount { endpoint, model, status: status.to_string(), count });
        }
        let mut add = |name, bounds_s: &[f64], counts: &[u64], above, sum_s| {
            let counts: Vec<u64> = counts.iter().copied().chain([above]).collect();
            if counts.iter().all(|&count| count == 0) {
                return; // calls that do not stream have no TTFT
            }
            let (endpoint, model) = (endpoint.clone(), model.clone());
            histograms.push(Histogram { name, endpoint, model, bounds_s: bounds_s.to_vec(), counts, sum_s });
        };
        add(
            HistogramKind::Ttft,
            &LATENCY_BOUNDS_S,
            &series.ttft.counts,
            series.ttft.above,
            series.ttft.sum_s,
        );
        add(HistogramKind::Itl, &ITL_BOUNDS_S, &series.itl.counts, series.itl.above, series.itl.sum_s);
        add(HistogramKind::E2e, &LATENCY_BOUNDS_S, &series.e2e.counts, series.e2e.above, series.e2e.sum_s);
    }
    (requests, histograms)
}

fn counters(all: &Ledger, seen: &gateway::Snapshot) -> Vec<admin::Series> {
    let refusals = all.refusals.iter().map(|(code, &count)| admin::Series {
        labels: vec![("code".into(), (*code).into())],
        ..series("ridge_refusals_total", "Requests refused by the gateway itself, by reason.", count)
    });
    let closed = seen.closures.iter().map(|&(why, count)| admin::Series {
        labels: vec![("reason".into(), why.as_str().into())],
        ..series("ridge_client_closed_total", "Client connections and streams ended by the gateway.", count)
    });
    let accepted = seen.ledgers.iter().map(|ledger| ledger.connections_total).sum();
    let lost = "Access log lines that could not be written.";
    let oversized = "Stream events too large for their usage to be read.";
    let handshakes =
        gateway::Handshake::ALL.iter().zip(&all.handshakes).map(|(what, &count)| admin::Series {
            labels: vec![("outcome".into(), what.as_str().into())],
            ..series(
                "ridge_tls_handshakes_total",
                "TLS handshakes with clients, by what came of them.",
                count,
            )
        });
    let handshakes = handshakes.filter(|_| seen.tls.is_some());
    refusals
        .chain(closed)
        .chain(tenants(all, &seen.world))
        .chain(handshakes)
        .chain([
            series("ridge_client_connections_total", "Client connections accepted.", accepted),
            series("ridge_access_log_lines_lost_total", lost, seen.log_lines_lost),
            series("ridge_oversized_events_total", oversized, all.oversized_events),
        ])
        .collect()
}

/// What each tenant used. With estimates apart: nobody is billed for a guess unawares.
fn tenants(all: &Ledger, world: &World) -> Vec<admin::Series> {
    let mut rows: Vec<_> = all.tenants.iter().filter(|(_, model, _)| world.counts(NOWHERE, *model)).collect();
    rows.sort_unstable_by_key(|&(tenant, model, _)| (tenant, model));
    let (mut requests, mut prompt, mut output) = (Vec::new(), Vec::new(), Vec::new());
    for (tenant, model, counts) in rows {
        let labels = |key: &str, value: String| {
            let model = model_name(world, model);
            [("tenant", tenant.to_owned()), ("model", model), (key, value)]
                .map(|(key, value)| (key.into(), value))
                .into()
        };
        for &(status, count) in &counts.by_status {
            let help = "Requests, by tenant.";
            let labels = labels("status", status.to_string());
            requests.push(admin::Series { labels, ..series("ridge_tenant_requests_total", help, count) });
        }
        for (kind, tokens) in [("exact", counts.exact), ("estimated", counts.estimated)] {
            let add = |list: &mut Vec<admin::Series>, name, help, count| {
                list.push(admin::Series { labels: labels("kind", kind.into()), ..series(name, help, count) });
            };
            let help = "Prompt tokens, by tenant.";
            add(&mut prompt, "ridge_tenant_prompt_tokens_total", help, tokens.prompt);
            let help = "Output tokens, by tenant.";
            add(&mut output, "ridge_tenant_output_tokens_total", help, tokens.output);
        }
    }
    [requests, prompt, output].concat()
}

fn gauges(seen: &gateway::Snapshot, all: &Ledger) -> Vec<admin::Series> {
    let open: usize = seen.open.iter().map(|(_, requests)| requests).sum();
    let (open, idle) = (open as u64, all.idle_upstream as u64);
    let mut gauges = vec![
        series("ridge_open_requests", "Requests whose response is not complete.", open),
        series("ridge_request_body_bytes", "Bytes reserved for request bodies.", seen.body_bytes),
        series("ridge_idle_upstream_connections", "Upstream connections kept for later.", idle),
    ];
    if let Some(tls) = &seen.tls {
        let under_way = all.handshakes_open as u64;
        gauges.push(series("ridge_tls_handshakes_open", "TLS handshakes under way.", under_way));
        let help = "When a certificate ends, seconds since 1970.";
        gauges.extend(tls.serving.not_after_s.iter().map(|(name, end)| admin::Series {
            labels: vec![("certificate".into(), name.clone())],
            ..series("ridge_tls_certificate_not_after_seconds", help, *end)
        }));
    }
    gauges
}

/// One number without labels.
fn series(name: &str, help: &str, value: u64) -> admin::Series {
    admin::Series { name: name.into(), help: help.into(), labels: Vec::new(), value: value as f64 }
}

fn recent_request(seen: &gateway::Snapshot, request: &Recent) -> RecentRequest {
    let world = &*seen.world;
    let ended = SystemTime::now() - seen.at.saturating_duration_since(request.at);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    RecentRequest {
        id: request.id.to_str().unwrap_or("").into(),
        time_unix_ms: unix_ms(ended - request.whole),
        model: model_name(world, request.model),
        path: request.call.into(),
        endpoint: request.endpoint.map(|endpoint| endpoint_name(world, endpoint)),
        attempts: request.attempts,
        status: Some(request.status),
        ttft_ms: request.ttft.map(ms),
        total_ms: Some(ms(request.whole)),
        prompt_tokens: request.usage.map(|usage| usage.prompt_tokens),
        output_tokens: request.usage.map(|usage| usage.completion_tokens),
        cached_tokens: request.usage.and_then(|usage| usage.cached_tokens),
        why: match (&request.decision, request.refusal) {
            (Some((decision, runner_up)), None) => Some(Why {
                reason: decision.reason.as_str().into(),
                candidates: decision.candidates,
                in_flight_at_pick: Some(u64::from(decision.load)),
                matched_blocks: Some(decision.matched_blocks),
                prompt_blocks: Some(decision.prompt_blocks),
                runner_up: runner_up.map(|id| endpoint_name(world, id)),
                runner_up_load: decision.runner_up.map(|second| f64::from(second.load)),
                runner_up_matched_blocks: None,
                left_out: Vec::new(),
            }),
            (_, Some(code)) => Some(Why { reason: format!("refused: {code}"), ..Why::default() }),
            (None, None) => None,
        },
    }
}

fn endpoint_name(world: &World, id: EndpointId) -> String {
    if id == NOWHERE {
        return String::new();
    }
    let member = world.places.get(&id).and_then(|&place| world.fleet.members().get(place));
    member.map_or_else(|| "removed".into(), |member| member.name.to_string())
}

fn model_name(world: &World, model: ModelLabel) -> String {
    world.label_text(model).to_owned()
}

fn unix_ms(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
