//! `bench soak-count`: errors, wrong bytes and memory over millions of requests.

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::figures::{show, table};
use crate::measure::{self, Load, Round};
use crate::peers::Peer;
use crate::process;
use crate::session::{Common, Session, place};
use crate::traffic::Kind;

/// Memory samples kept, evenly over the run; the first and the last are always among them.
const SAMPLES: u64 = 20;

/// Errors and memory over millions of requests.
#[derive(clap::Args, Debug)]
pub struct SoakArgs {
    #[command(flatten)]
    common: Common,
    /// Requests to send through each proxy.
    #[arg(long)]
    requests: Option<u64>,
    /// Kinds of requests, in turn.
    #[arg(long, value_delimiter = ',', default_value = "json2k")]
    kinds: Vec<Kind>,
    /// Connections kept open.
    #[arg(long, default_value_t = 32)]
    connections: usize,
}

#[derive(Clone, Copy, Serialize)]
struct Sample {
    requests: u64,
    rss_mib: f64,
    pss_mib: f64,
}

#[derive(Serialize)]
struct Row {
    case: &'static str,
    peer_name: String,
    requests: u64,
    answered: u64,
    seconds: f64,
    cpu_us_per_request: f64,
    connect_errors: u64,
    cut_errors: u64,
    status_errors: u64,
    wrong_bytes: u64,
    hung: u64,
    first_error: Option<String>,
    altered_requests: u64,
    upstream_connections: u64,
    rss_mib_start: f64,
    rss_mib_end: f64,
    samples: Vec<Sample>,
}

/// Runs `bench soak-count`; an error if any request of ridge went wrong.
pub fn run(args: &SoakArgs) -> io::Result<()> {
    let requests = args.requests.unwrap_or(if args.common.quick { 100_000 } else { 5_000_000 });
    let mut session = Session::start(&args.common, &[Peer::Ridge], &[], 4, 4096)?;
    let load = Load {
        kinds: args.kinds.clone(),
        connections: args.connections,
        seconds: 0.0,
        requests: Some(requests),
        rate: None,
        open: None,
    };
    let mut rows = Vec::new();
    let engines = session.engines;
    for running in &mut session.running {
        let peer = running.peer;
        let mut samples: Vec<Sample> = Vec::new();
        let begin = Instant::now();
        let mut told = Duration::ZERO;
        let mut sample = |answered: u64, running: &crate::peers::Running| {
            let step = requests / SAMPLES;
            if samples.last().is_some_and(|last| answered < last.requests + step) {
                return;
            }
            let memory = process::memory(&running.pids());
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            samples.push(Sample { requests: answered, rss_mib: mib(memory.rss), pss_mib: mib(memory.pss) });
            if begin.elapsed() >= told {
                told = begin.elapsed() + Duration::from_secs(2);
                eprintln!("{:12} {answered:9} of {requests}  RSS {:.1} MiB", peer.name(), mib(memory.rss));
            }
        };
        let round = measure::round(running, engines, &load, &mut sample)?;
        let memory = process::memory(&running.pids());
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        samples.push(Sample {
            requests: round.report.answered,
            rss_mib: mib(memory.rss),
            pss_mib: mib(memory.pss),
        });
        rows.push(row(peer, &round, samples));
    }
    if args.common.json {
        for row in &rows {
            println!("{}", serde_json::to_string(row)?);
        }
    } else {
        println!("{}", report(&session, &rows));
    }
    let bad = rows.iter().find(|row| row.peer_name == Peer::Ridge.name() && row.answered != row.requests);
    bad.map_or(Ok(()), |row| {
        let wrong = row.requests - row.answered;
        Err(io::Error::other(format!(
            "ridge: {wrong} of {} requests went wrong: {:?}",
            row.requests, row.first_error
        )))
    })
}

fn row(peer: Peer, round: &Round, samples: Vec<Sample>) -> Row {
    let report = &round.report;
    Row {
        case: "soak",
        peer_name: peer.name(),
        requests: report.sent,
        answered: report.answered,
        seconds: report.seconds,
        cpu_us_per_request: round.cpu_us,
        connect_errors: report.connect_errors,
        cut_errors: report.cut_errors,
        status_errors: report.status_errors,
        wrong_bytes: report.wrong_bytes,
        hung: report.hung,
        first_error: report.first_error.clone(),
        altered_requests: round.altered,
        upstream_connections: round.upstream_connections,
        rss_mib_start: samples.first().map_or(0.0, |sample| sample.rss_mib),
        rss_mib_end: samples.last().map_or(0.0, |sample| sample.rss_mib),
        samples,
    }
}

fn report(session: &Session, rows: &[Row]) -> String {
    let head = [
        "",
        "requests",
        "errors",
        "wrong answers",
        "request bodies altered",
        "upstream connections opened",
        "CPU, µs per request",
        "RSS, MiB: start → end",
    ];
    let cells = |row: &Row| {
        let errors = row.connect_errors + row.cut_errors + row.status_errors + row.hung;
        vec![
            row.peer_name.clone(),
            row.requests.to_string(),
            errors.to_string(),
            row.wrong_bytes.to_string(),
            row.altered_requests.to_string(),
            row.upstream_connections.to_string(),
            show(row.cpu_us_per_request),
            format!("{} → {}", show(row.rss_mib_start), show(row.rss_mib_end)),
        ]
    };
    let mut text = format!("{}. {}.\n\n", place(), session.versions());
    text += &table(&head.map(str::to_owned), &rows.iter().map(cells).collect::<Vec<_>>());
    for row in rows {
        let points: Vec<String> = row
            .samples
            .iter()
            .map(|sample| format!("{:.2} M: {}", sample.requests as f64 / 1e6, show(sample.rss_mib)))
            .collect();
        text += &format!("\nRSS of {} in MiB after requests: {}.\n", row.peer_name, points.join(", "));
    }
    text
}
