//! `bench router`: CPU, throughput and latency of the proxies under the same load, rounds in turn.

use std::io;

use crate::figures::{Figures, show, table};
use crate::measure::{self, Load, Round};
use crate::peers::Peer;
use crate::session::{Common, Session, place};
use crate::traffic::Kind;

const ENGINES: u16 = 4;
const CLOSED_CONNECTIONS: usize = 32;
const LATENCY_CONNECTIONS: usize = 64;
/// Streams per second of the paced case. Each lasts 0.31 s, so 62 are open at a time.
const PACED_RATE: f64 = 200.0;
const PACED_CONNECTIONS: usize = 128;

/// Tail latency varies most between rounds, and a busy moment of the machine spoils whole rounds: more of them, each
/// shorter.
const HALF_LOAD_ROUNDS: usize = 3;
const HALF_LOAD_SECONDS: f64 = 1.0;

/// What the gateway may cost at most, as a multiple of nginx.
const LIMITS: [(Case, &str, f64); 5] = [
    (Case::Json2k, "cpu_us_per_request", 1.25),
    (Case::Json64k, "cpu_us_per_request", 1.25),
    (Case::Paced, "cpu_us_per_request", 1.25),
    (Case::Burst, "cpu_us_per_request", 1.5),
    (Case::HalfLoad, "added_latency_p99_us", 1.3),
];

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// 2 KB bodies, small JSON answers, as fast as it goes.
    Json2k,
    /// 64 KB bodies, small JSON answers, as fast as it goes.
    Json64k,
    /// 32 events at once, as fast as it goes.
    Burst,
    /// 32 events 10 ms apart, 200 streams a second.
    Paced,
    /// 2 KB bodies at half of nginx's throughput, 64 connections.
    HalfLoad,
    /// One client, one stream at a time, 32 events 10 ms apart: how late each event comes.
    OneStream,
    /// One client, one stream at a time, 32 events without pauses, each written on its own: how late
    /// the last one comes.
    OneFlushed,
}

const ALL: [Case; 7] = [
    Case::Json2k,
    Case::Json64k,
    Case::Burst,
    Case::Paced,
    Case::HalfLoad,
    Case::OneStream,
    Case::OneFlushed,
];

impl Case {
    fn name(self) -> &'static str {
        ["json2k", "json64k", "burst", "paced", "half-load", "one-stream", "one-flushed"][self as usize]
    }

    fn load(self, seconds: f64) -> Load {
        let (kind, connections, rate) = match self {
            Case::Json2k => (Kind::Json2k, CLOSED_CONNECTIONS, None),
            Case::Json64k => (Kind::Json64k, CLOSED_CONNECTIONS, None),
            Case::Burst => (Kind::Burst, CLOSED_CONNECTIONS, None),
            Case::Paced => (Kind::Paced, PACED_CONNECTIONS, Some(PACED_RATE)),
            Case::HalfLoad => (Kind::Json2k, LATENCY_CONNECTIONS, None),
            Case::OneStream => (Kind::Stamped, 1, None),
            Case::OneFlushed => (Kind::Flushed, 1, None),
        };
        let seconds = if self == Case::HalfLoad { seconds.min(HALF_LOAD_SECONDS) } else { seconds };
        Load { kinds: vec![kind], connections, seconds, requests: None, rate, open: None }
    }
}

/// Side by side: CPU per request, throughput, latency, errors.
#[derive(clap::Args, Debug)]
pub struct RouterArgs {
    #[command(flatten)]
    common: Common,
    /// Cases, by comma [default: all].
    #[arg(long, value_delimiter = ',')]
    cases: Vec<Case>,
    /// Rounds of each case; every round visits every proxy.
    #[arg(long)]
    rounds: Option<usize>,
    /// Length of a round, in seconds.
    #[arg(long)]
    seconds: Option<f64>,
}

/// Runs `bench router`.
pub fn run(args: &RouterArgs) -> io::Result<()> {
    let default_peers =
        [Peer::Direct, Peer::Nginx, Peer::Haproxy, Peer::Envoy, Peer::VllmRouter, Peer::Smg, Peer::Ridge];
    let mut session = Session::start(&args.common, &default_peers, &[Peer::Haproxy], ENGINES, 4096)?;
    let cases = match (args.cases.as_slice(), args.common.quick) {
        ([], true) => &[Case::Json2k, Case::Burst, Case::Paced],
        ([], false) => ALL.as_slice(),
        (cases, _) => cases,
    };
    let rounds = args.rounds.unwrap_or(if args.common.quick { 3 } else { 9 });
    let seconds = args.seconds.unwrap_or(if args.common.quick { 1.0 } else { 2.0 });
    let mut figures = Figures::default();
    for &case in cases {
        run_case(case, rounds, seconds, &mut session, &mut figures)?;
    }
    if args.common.json {
        for row in figures.rows() {
            println!("{}", serde_json::to_string(&row)?);
        }
    } else {
        println!("{}", report(cases, &session, &figures, rounds, seconds));
    }
    Ok(())
}

fn run_case(
    case: Case,
    rounds: usize,
    seconds: f64,
    session: &mut Session,
    figures: &mut Figures,
) -> io::Result<()> {
    let engines = session.engines;
    let mut loads = vec![case.load(seconds); session.running.len()];
    // Rounds that do not count: connections, caches and prefix trees fill.
    let probes = if case == Case::HalfLoad { 3 } else { 1 };
    let mut probed = Figures::default();
    for _ in 0..probes {
        for (running, load) in session.running.iter_mut().zip(&loads) {
            let warm_up = Load { seconds: seconds.min(1.0), ..load.clone() };
            let round = measure::round(running, engines, &warm_up, |_, _| ())?;
            probed.add("", "rate", running.peer, round.report.answered as f64 / round.report.seconds);
        }
    }
    if case == Case::HalfLoad {
        let limit = |peer| probed.spread("", "rate", peer).map(|spread| spread.median);
        let standard =
            [Peer::Nginx, Peer::Ridge].into_iter().find_map(limit).or_else(|| limit(session.running[0].peer));
        for (running, load) in session.running.iter().zip(&mut loads) {
            load.rate = limit(running.peer).zip(standard).map(|(own, standard)| half_load(own, standard));
            eprintln!(
                "{:10} {:12} {:.0} requests/s",
                case.name(),
                running.peer.name(),
                load.rate.unwrap_or_default()
            );
        }
    }
    let rounds = if case == Case::HalfLoad { rounds * HALF_LOAD_ROUNDS } else { rounds };
    let count = session.running.len();
    for number in 0..rounds {
        let mut results: Vec<(Peer, Round)> = Vec::new();
        for step in 0..count {
            // Every proxy comes first, second, … equally often.
            let index = (number + step) % count;
            let running = &mut session.running[index];
            let round = measure::round(running, engines, &loads[index], |_, _| ())?;
            eprintln!("{}", progress(case, number + 1, rounds, running.peer, &round));
            results.push((running.peer, round));
        }
        let direct =
            results.iter().find(|(peer, _)| *peer == Peer::Direct).map(|(_, round)| round.report.clone());
        for (peer, round) in &results {
            record(case, *peer, round, direct.as_ref(), figures);
        }
    }
    Ok(())
}

/// Half of nginx's throughput for every proxy that carries it at three quarters of its own or less, so that latencies
/// are compared under the same load; half of its own for a slower one.
fn half_load(own: f64, standard: f64) -> f64 {
    if own * 0.75 >= standard * 0.5 { standard * 0.5 } else { own * 0.5 }
}

fn progress(case: Case, number: usize, rounds: usize, peer: Peer, round: &Round) -> String {
    let report = &round.report;
    let mut text = format!(
        "{:10} {number}/{rounds} {:12} {:7.1} µs CPU/request {:8.0} requests/s  p50 {:8.0} µs  p99 {:8.0} µs",
        case.name(),
        peer.name(),
        round.cpu_us,
        report.answered as f64 / report.seconds,
        report.latency.p50_us,
        report.latency.p99_us,
    );
    if report.errors() > 0 {
        text += &format!("  {} ERRORS: {}", report.errors(), report.first_error.as_deref().unwrap_or("hung"));
    }
    text
}

fn record(
    case: Case,
    peer: Peer,
    round: &Round,
    direct: Option<&crate::load::Report>,
    figures: &mut Figures,
) {
    let report = &round.report;
    let mut add = |metric: &str, value: f64| figures.add(case.name(), metric, peer, value);
    if peer != Peer::Direct && !matches!(case, Case::OneStream | Case::OneFlushed) {
        add("cpu_us_per_request", round.cpu_us);
    }
    match case {
        Case::Json2k | Case::Json64k | Case::Burst => {
            add("requests_per_second", report.answered as f64 / report.seconds);
            add("latency_p50_us", report.latency.p50_us);
            add("latency_p99_us", report.latency.p99_us);
        }
        Case::Paced => {
            add("first_byte_p50_us", report.first_byte.p50_us);
            add("first_byte_p99_us", report.first_byte.p99_us);
        }
        Case::HalfLoad => {
            add("latency_p50_us", report.latency.p50_us);
            add("latency_p99_us", report.latency.p99_us);
            if let Some(direct) = direct.filter(|_| peer != Peer::Direct) {
                add("added_latency_p50_us", report.latency.p50_us - direct.latency.p50_us);
                // Less the usual answer without a proxy, not less its p99: that one is the machine's noise alone, and
                // the difference of two tails would be more noise than figure.
                add("added_latency_p99_us", report.latency.p99_us - direct.latency.p50_us);
            }
        }
        Case::OneFlushed => {
            add("latency_p50_us", report.latency.p50_us);
            add("latency_p99_us", report.latency.p99_us);
        }
        Case::OneStream => {
            add("event_delay_p50_us", report.event_delay.p50_us);
            add("event_delay_worst_us", report.worst_event_delay.p50_us);
        }
    }
    add("sent", report.sent as f64);
    add("errors", report.errors() as f64);
    add("altered_requests", round.altered as f64);
    add("extra_engine_requests", round.own_requests as f64);
    add("upstream_connections", round.upstream_connections as f64);
}

fn report(cases: &[Case], session: &Session, figures: &Figures, rounds: usize, seconds: f64) -> String {
    let mut text = format!(
        "{}. {}. Medians over {rounds} rounds of {seconds} s, all proxies in turn; × is the ratio to nginx of the same \
         round.\n",
        place(),
        session.versions()
    );
    let closed: Vec<Case> = cases
        .iter()
        .copied()
        .filter(|case| matches!(case, Case::Json2k | Case::Json64k | Case::Burst))
        .collect();
    let burdened: Vec<Case> =
        cases.iter().copied().filter(|case| !matches!(case, Case::OneStream | Case::OneFlushed)).collect();
    let columns = |cases: &[Case], metric: &'static str| -> Vec<(Case, &'static str)> {
        cases.iter().map(|case| (*case, metric)).collect()
    };
    let mut section = |title: &str, columns: &[(Case, &str)]| {
        if !columns.is_empty() {
            text += &format!("\n{title}\n\n{}", section_table(session, figures, columns));
        }
    };
    section(
        "CPU of the proxy, µs per request (least–greatest round)",
        &columns(&burdened, "cpu_us_per_request"),
    );
    section("Throughput, requests/s", &columns(&closed, "requests_per_second"));
    section("Latency under full load, p99 in µs", &columns(&closed, "latency_p99_us"));
    if cases.contains(&Case::Paced) {
        section(
            "First byte of a paced stream, µs from the due time",
            &[(Case::Paced, "first_byte_p50_us"), (Case::Paced, "first_byte_p99_us")],
        );
    }
    if cases.contains(&Case::HalfLoad) {
        section(
            "Latency at half load, 64 connections, µs from the due time",
            &["latency_p50_us", "latency_p99_us", "added_latency_p50_us", "added_latency_p99_us"]
                .map(|metric| (Case::HalfLoad, metric)),
        );
    }
    if cases.contains(&Case::OneStream) {
        section(
            "One streaming client, events 10 ms apart, µs from the engine's write to the client's read",
            &[(Case::OneStream, "event_delay_p50_us"), (Case::OneStream, "event_delay_worst_us")],
        );
    }
    if cases.contains(&Case::OneFlushed) {
        text += "\nOne streaming client, 32 events without pauses, µs for the whole answer\n\n";
        let columns = [(Case::OneFlushed, "latency_p50_us"), (Case::OneFlushed, "latency_p99_us")];
        text += &section_table(session, figures, &columns);
    }
    text += &limits_table(cases, figures);
    text + "\nCorrectness\n\n" + &correctness_table(cases, session, figures)
}

fn limits_table(cases: &[Case], figures: &Figures) -> String {
    let mut rows = Vec::new();
    for (case, metric, limit) in LIMITS.into_iter().filter(|(case, ..)| cases.contains(case)) {
        let Some(ratio) = figures.ratio(case.name(), metric, Peer::Ridge, Peer::Nginx) else { continue };
        let verdict = if ratio.median <= limit { "kept" } else { "missed" };
        let what = format!("{} {}", case.name(), metric.trim_end_matches("_us").replace('_', " "));
        rows.push(vec![what, format!("≤ {limit}×"), format!("{}×", show(ratio.median)), verdict.to_owned()]);
    }
    if rows.is_empty() {
        return String::new();
    }
    let head = ["ridge beside nginx", "limit", "measured", ""].map(str::to_owned);
    format!("\nLimits\n\n{}", table(&head, &rows))
}

fn section_table(session: &Session, figures: &Figures, columns: &[(Case, &str)]) -> String {
    let mut head = vec![String::new()];
    let one_metric = columns.iter().all(|(_, metric)| *metric == columns[0].1);
    head.extend(columns.iter().map(|(case, metric)| {
        if one_metric { case.name().to_owned() } else { metric.trim_end_matches("_us").replace('_', " ") }
    }));
    let mut rows = Vec::new();
    for running in &session.running {
        let peer = running.peer;
        let mut row = vec![peer.name()];
        for (case, metric) in columns {
            row.push(cell(figures, case.name(), metric, peer));
        }
        if row[1..].iter().any(|cell| cell != "–") {
            rows.push(row);
        }
    }
    table(&head, &rows)
}

fn cell(figures: &Figures, case: &str, metric: &str, peer: Peer) -> String {
    let Some(spread) = figures.spread(case, metric, peer) else { return "–".to_owned() };
    let mut text = format!("{} ({}–{})", show(spread.median), show(spread.min), show(spread.max));
    if figures.sum(case, "errors", peer) > 0.0 {
        // An answer that is wrong costs less than one that is right.
        return text + " with errors";
    }
    if let Some(ratio) = figures.ratio(case, metric, peer, Peer::Nginx).filter(|_| peer != Peer::Direct) {
        text += &format!(" {}×", show(ratio.median));
    }
    text
}

fn correctness_table(cases: &[Case], session: &Session, figures: &Figures) -> String {
    let head = [
        "",
        "requests",
        "errors",
        "request bodies altered",
        "requests of its own to engines",
        "upstream connections opened",
    ];
    let rows: Vec<Vec<String>> = session
        .running
        .iter()
        .map(|running| {
            let total = |metric: &str| {
                let sum: f64 = cases.iter().map(|case| figures.sum(case.name(), metric, running.peer)).sum();
                format!("{sum:.0}")
            };
            vec![
                running.peer.name(),
                total("sent"),
                total("errors"),
                total("altered_requests"),
                total("extra_engine_requests"),
                total("upstream_connections"),
            ]
        })
        .collect();
    table(&head.map(str::to_owned), &rows)
}

#[cfg(test)]
mod tests {
    use super::half_load;

    #[test]
    fn fast_proxies_share_one_rate() {
        assert_eq!(half_load(30_000.0, 20_000.0), 10_000.0);
        assert_eq!(half_load(14_000.0, 20_000.0), 10_000.0);
        assert_eq!(half_load(4_000.0, 20_000.0), 2_000.0);
    }
}
