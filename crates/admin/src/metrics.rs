//! A snapshot as Prometheus text.

use crate::exposition::{Exposition, Kind};
use crate::{EndpointRow, Health, HistogramKind, Series, Snapshot};

/// Writes the page of `GET /metrics`.
///
/// What is unknown has no series: a scraper sees a gap, not a zero.
pub fn write_metrics(snapshot: &Snapshot) -> String {
    let mut page = Exposition::default();
    process(&mut page, snapshot);
    requests(&mut page, snapshot);
    endpoints(&mut page, &snapshot.endpoints);
    for (series, kind) in [(&snapshot.counters, Kind::Counter), (&snapshot.gauges, Kind::Gauge)] {
        for Series { name, help, labels, value } in series {
            let labels: Vec<_> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            if let Some(mut family) = page.family(name, kind, help) {
                family.series(&labels, *value);
            }
        }
    }
    page.finish()
}

fn process(page: &mut Exposition, snapshot: &Snapshot) {
    let flag = |on: bool| f64::from(u8::from(on));
    if let Some(mut family) = page.family("ridge_info", Kind::Gauge, "The running binary; always 1.") {
        family.series(&[("version", &snapshot.version)], 1.0);
    }
    let started_s = snapshot.started_unix_ms as f64 / 1000.0;
    for (name, help, value) in [
        ("ridge_start_time_seconds", "When the process started, seconds since 1970.", started_s),
        ("ridge_ready", "1 while the gateway wants traffic.", flag(snapshot.ready)),
        (
            "ridge_draining",
            "1 while the gateway finishes its streams before it ends.",
            flag(snapshot.draining),
        ),
    ] {
        if let Some(mut family) = page.family(name, Kind::Gauge, help) {
            family.series(&[], value);
        }
    }
    for row in &snapshot.cores {
        let core = row.core.to_string();
        let labels = [("core", core.as_str())];
        if let Some(mut family) =
            page.family("ridge_connections", Kind::Gauge, "Open client connections by core.")
        {
            family.series(&labels, row.connections as f64);
        }
        if let Some(mut family) =
            page.family("ridge_core_requests_total", Kind::Counter, "Requests that ended on the core.")
        {
            family.series(&labels, row.requests as f64);
        }
    }
}

fn requests(page: &mut Exposition, snapshot: &Snapshot) {
    let help = "Finished requests by endpoint, model and the status sent to the client.";
    if let Some(mut family) = page.family("ridge_requests_total", Kind::Counter, help) {
        for row in &snapshot.requests {
            family.series(
                &[("endpoint", &row.endpoint), ("model", &row.model), ("status", &row.status)],
                row.count as f64,
            );
        }
    }
    for (kind, name, help) in [
        (HistogramKind::Ttft, "ridge_ttft_seconds", "Time to the first token."),
        (HistogramKind::Itl, "ridge_itl_seconds", "Time between tokens."),
        (HistogramKind::E2e, "ridge_e2e_seconds", "Time to the end of the response."),
    ] {
        if let Some(mut family) = page.family(name, Kind::Histogram, help) {
            for histogram in snapshot.histograms.iter().filter(|histogram| histogram.name == kind) {
                let labels = [("endpoint", histogram.endpoint.as_str()), ("model", &histogram.model)];
                family.histogram(&labels, &histogram.bounds_s, &histogram.counts, histogram.sum_s);
            }
        }
    }
}

/// One family with a series for each endpoint of which the number is known.
type Column = (&'static str, Kind, &'static str, fn(&EndpointRow) -> Option<f64>);

const COLUMNS: &[Column] = &[
    ("ridge_requests_in_flight", Kind::Gauge, "Requests that the endpoint is working on.", |row| {
        Some(row.in_flight as f64)
    }),
    ("ridge_endpoint_up", Kind::Gauge, "1 if the endpoint answers, 0 if not.", |row| match row.health {
        Health::Up => Some(1.0),
        Health::Down => Some(0.0),
        Health::Unknown => None,
    }),
    ("ridge_endpoint_running", Kind::Gauge, "Requests in the engine's batch, by its own account.", |row| {
        row.running.map(f64::from)
    }),
    ("ridge_endpoint_waiting", Kind::Gauge, "Requests in the engine's queue, by its own account.", |row| {
        row.waiting.map(f64::from)
    }),
    ("ridge_endpoint_kv_usage", Kind::Gauge, "Share of the engine's KV cache in use, 0 to 1.", |row| {
        row.kv_usage.map(f64::from)
    }),
    ("ridge_endpoint_signal_age_seconds", Kind::Gauge, "Age of the engine's own account.", |row| {
        row.signal_age_ms.map(|age_ms| age_ms as f64 / 1000.0)
    }),
    (
        "ridge_endpoint_requests_total",
        Kind::Counter,
        "Requests that ended with the endpoint as their last.",
        |row| Some(row.requests_total as f64),
    ),
    ("ridge_endpoint_errors_total", Kind::Counter, "Attempts that failed at the endpoint.", |row| {
        Some(row.errors as f64)
    }),
    ("ridge_prompt_tokens_total", Kind::Counter, "Prompt tokens sent to the endpoint.", |row| {
        Some(row.prompt_tokens_total as f64)
    }),
    ("ridge_output_tokens_total", Kind::Counter, "Tokens produced by the endpoint.", |row| {
        Some(row.output_tokens_total as f64)
    }),
    (
        "ridge_cached_tokens_estimated_total",
        Kind::Counter,
        "Prompt tokens that the gateway expected to be cached at the endpoint it picked.",
        |row| Some(row.cached_tokens_estimated as f64),
    ),
    (
        "ridge_cached_tokens_reported_total",
        Kind::Counter,
        "Prompt tokens that the engine reported as cached.",
        |row| Some(row.cached_tokens_reported as f64),
    ),
];

fn endpoints(page: &mut Exposition, rows: &[EndpointRow]) {
    if let Some(mut family) =
        page.family("ridge_endpoint_info", Kind::Gauge, "What an endpoint is; always 1.")
    {
        for row in rows {
            family.series(
                &[
                    ("endpoint", &row.name),
                    ("engine", &row.engine),
                    ("role", row.role.as_deref().unwrap_or_default()),
                    ("revision", row.revision.as_deref().unwrap_or_default()),
                ],
                1.0,
            );
        }
    }
    for (name, kind, help, value) in COLUMNS {
        if let Some(mut family) = page.family(name, *kind, help) {
            for row in rows {
                if let Some(value) = value(row) {
                    family.series(&[("endpoint", &row.name)], value);
                }
            }
        }
    }
}
