//! The admin page with made-up traffic, to look at while changing it.
//!
//! `cargo run -p admin --example admin_demo [ADDRESS]`, then open the address it prints.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use admin::{
    CoreRow, EndpointRow, Health, Histogram, HistogramKind, RecentRequest, RequestCount, Snapshot,
    SnapshotFuture, Source, Why,
};

/// Each look is a second later than the one before, so that a page drawn in a hurry shows the same as a slow one.
struct MadeUp {
    started_unix_ms: u64,
    looks: AtomicU64,
}

fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl Source for MadeUp {
    fn snapshot(&self) -> SnapshotFuture<'_> {
        let ran_ms = 5_000_000 + 1000 * self.looks.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { snapshot_at(self.started_unix_ms, self.started_unix_ms + ran_ms) })
    }

    fn ready(&self) -> bool {
        true
    }
}

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9090".into());
    let listener = std::net::TcpListener::bind(&address)?;
    let started_unix_ms = now_unix_ms() - 5_000_000;
    let server = admin::start(listener, Arc::new(MadeUp { started_unix_ms, looks: AtomicU64::new(0) }))?;
    println!("http://{}/", server.address());
    loop {
        std::thread::park();
    }
}

/// A wave between 0 and 1, another for each seed.
fn wave(at_s: f64, seed: f64) -> f64 {
    0.5 + 0.3 * (at_s / 7.0 + seed).sin() + 0.2 * (at_s / 2.3 + 3.0 * seed).sin()
}

fn snapshot_at(started_unix_ms: u64, taken_unix_ms: u64) -> Snapshot {
    let at_s = (taken_unix_ms - started_unix_ms) as f64 / 1000.0;
    let endpoint = |name: &str, engine: &str, seed: f64| {
        let busy = wave(at_s, seed);
        let requests = (at_s * (2.0 + seed)) as u64;
        EndpointRow {
            name: name.into(),
            engine: engine.into(),
            models: vec!["qwen3-32b".into()],
            labels: BTreeMap::from([("rack".into(), format!("r{}", 1 + seed as u64 % 2))]),
            weight: 1.0,
            health: Health::Up,
            in_flight: (busy * 14.0) as u64,
            running: Some((busy * 13.0) as u32),
            waiting: Some((busy * 3.0 - 1.0).max(0.0) as u32),
            kv_usage: Some((0.2 + 0.75 * busy) as f32),
            signal_age_ms: Some((at_s * 1000.0) as u64 % 900 + 20),
            requests_total: requests,
            output_tokens_total: requests * 212,
            tokens_per_s: 90.0 + 720.0 * busy,
            cached_tokens_estimated: requests * 800,
            cached_tokens_reported: requests * (780 + (60.0 * seed) as u64),
            prompt_tokens_total: requests * 1310,
            ..EndpointRow::default()
        }
    };
    let mut endpoints = vec![
        endpoint("gpu-a1", "vllm", 0.4),
        endpoint("gpu-a2", "vllm", 1.9),
        endpoint("gpu-b1", "sglang", 3.1),
        endpoint("workstation", "ollama", 0.1),
        endpoint("gpu-b2", "vllm", 2.2),
    ];
    endpoints[2].models.push("qwen3-32b-instruct-lora-support".into());
    endpoints[3] = EndpointRow {
        models: vec!["qwen3-32b".into()],
        running: None,
        waiting: None,
        kv_usage: None,
        signal_age_ms: None,
        cached_tokens_reported: 0,
        in_flight: 1,
        tokens_per_s: 21.0,
        weight: 0.25,
        ..endpoints[3].clone()
    };
    endpoints[4] = EndpointRow {
        health: Health::Down,
        in_flight: 0,
        tokens_per_s: 0.0,
        running: None,
        waiting: None,
        kv_usage: None,
        signal_age_ms: Some(48_000),
        errors: 3,
        ..endpoints[4].clone()
    };
    let histogram = |endpoint: &EndpointRow| Histogram {
        name: HistogramKind::Ttft,
        endpoint: endpoint.name.clone(),
        model: "qwen3-32b".into(),
        bounds_s: vec![0.05, 0.1, 0.2, 0.4, 0.8, 1.6],
        counts: [5, 30, 38, 18, 7, 2, 0].map(|part| endpoint.requests_total * part / 100).into(),
        sum_s: endpoint.requests_total as f64 * 0.2,
    };
    Snapshot {
        version: env!("CARGO_PKG_VERSION").into(),
        started_unix_ms,
        taken_unix_ms,
        ready: true,
        cores: (0..4)
            .map(|core| CoreRow { core, connections: 11 + u64::from(core % 2), requests: 9000 })
            .collect(),
        requests: endpoints
            .iter()
            .map(|endpoint| RequestCount {
                endpoint: endpoint.name.clone(),
                model: "qwen3-32b".into(),
                status: "200".into(),
                count: endpoint.requests_total,
            })
            .collect(),
        histograms: endpoints.iter().map(histogram).collect(),
        recent: recent(taken_unix_ms),
        endpoints,
        ..Snapshot::default()
    }
}

fn recent(taken_unix_ms: u64) -> Vec<RecentRequest> {
    let first = taken_unix_ms / 700;
    let names = ["gpu-a1", "gpu-a2", "gpu-b1"];
    (0..24u64)
        .map(|back| {
            let n = first - back;
            let picked = names[(n * n % 3) as usize];
            let blocks = 20 + (n * 37 % 90) as u32;
            let matched = if n.is_multiple_of(3) { 0 } else { blocks * (n % 7) as u32 / 8 };
            let mut request = RecentRequest {
                id: format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                time_unix_ms: n * 700,
                model: "qwen3-32b".into(),
                path: if n.is_multiple_of(5) { "/v1/messages" } else { "/v1/chat/completions" }.into(),
                endpoint: Some(picked.into()),
                attempts: 1,
                status: Some(200),
                ttft_ms: Some(60.0 + (n * 53 % 300) as f64),
                total_ms: Some(900.0 + (n * 331 % 9000) as f64),
                prompt_tokens: Some(u64::from(blocks) * 16 + n % 16),
                output_tokens: Some(40 + n * 17 % 500),
                cached_tokens: Some(u64::from(matched) * 16),
                why: Some(Why {
                    reason: if matched > 4 { "shared prefix" } else { "least load" }.into(),
                    candidates: 4,
                    in_flight_at_pick: Some(n % 9),
                    matched_blocks: Some(matched),
                    prompt_blocks: Some(blocks),
                    runner_up: Some(names[((n * n + 1) % 3) as usize].into()),
                    runner_up_load: Some((n % 9 + 1) as f64),
                    runner_up_matched_blocks: Some(0),
                    left_out: Vec::new(),
                }),
            };
            match n % 11 {
                2 => {
                    request.attempts = 2;
                    if let Some(why) = &mut request.why {
                        why.left_out = vec!["gpu-b2: connection refused".into()];
                        why.candidates = 3;
                    }
                }
                5 => {
                    request.model = "qwen3-35b<b>".into();
                    request.status = Some(404);
                    request.endpoint = None;
                    request.attempts = 0;
                    request.why = None;
                    (request.ttft_ms, request.total_ms) = (None, Some(0.14));
                    (request.prompt_tokens, request.output_tokens, request.cached_tokens) =
                        (None, None, None);
                }
                7 => {
                    request.status = None;
                    request.total_ms = None;
                    (request.output_tokens, request.cached_tokens) = (None, None);
                }
                _ => {}
            }
            request
        })
        .collect()
}
