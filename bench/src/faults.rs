//! `bench faults`: errors and time to the first byte while one of eight engines is in trouble.

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::figures::{show, table};
use crate::load::Report;
use crate::measure::{self, Load, Open};
use crate::peers::Peer;
use crate::session::{Common, Session, place};
use crate::traffic::Kind;
use crate::trouble::Trouble;

const ENGINES: u16 = 8;
/// Requests a second: six are under way at a time, which no proxy nor engine notices; what shows is the trouble.
const RATE: f64 = 100.0;
/// When clients give up. Far beyond what any proxy here needs to notice a trouble and try elsewhere.
const PATIENCE_SECONDS: f64 = 10.0;
/// Enough that none is missing even when one request in eight waits for the clients' patience.
const CONNECTIONS: usize = 160;
const SEED: u64 = 1;
/// Requests are counted from so long before the trouble, to have those that it meets under way.
const COUNT_BEFORE_SECONDS: f64 = 1.0;

/// What a proxy may have above the best of its peers and still be called best: errors in percent of the requests, and
/// time to the first byte as a factor.
const NEAR_ERRORS_PERCENT: f64 = 0.1;
const NEAR_FIRST_BYTE: f64 = 1.1;

/// Errors and time to the first byte while one of eight engines is in trouble.
#[derive(clap::Args, Debug)]
pub struct FaultsArgs {
    #[command(flatten)]
    common: Common,
    /// Troubles, by comma [default: all].
    #[arg(long, value_delimiter = ',')]
    troubles: Vec<Trouble>,
    /// How long each proxy is under load for each trouble, in seconds; the trouble begins at a quarter of it.
    #[arg(long)]
    seconds: Option<f64>,
}

#[derive(Clone, Serialize)]
struct Row {
    trouble: &'static str,
    peer_name: String,
    requests: u64,
    errors: u64,
    errors_percent: f64,
    status_errors: u64,
    cut_errors: u64,
    timed_out: u64,
    first_byte_p50_ms: f64,
    first_byte_p99_ms: f64,
    first_error: Option<String>,
}

/// Runs `bench faults`; an error if ridge is not the best, or as good as the best, under each trouble.
pub fn run(args: &FaultsArgs) -> io::Result<()> {
    let peers = match args.common.peers.as_slice() {
        [] => vec![Peer::Nginx, Peer::Envoy, Peer::Smg, Peer::Ridge],
        named => named.to_vec(),
    };
    Session::check(&args.common, &peers)?;
    let troubles = if args.troubles.is_empty() { Trouble::ALL.to_vec() } else { args.troubles.clone() };
    let seconds = args.seconds.unwrap_or(if args.common.quick { 8.0 } else { 20.0 });
    let mut rows = Vec::new();
    let mut versions: Vec<String> = Vec::new();
    for &trouble in &troubles {
        for &peer in &peers {
            let mut session = Session::start_recovering(&args.common, peer, ENGINES)?;
            if !versions.contains(&session.versions()) {
                versions.push(session.versions());
            }
            let row = row(trouble, peer, &one(&mut session, trouble, seconds)?);
            eprintln!(
                "{:8} {:8} {:3} errors of {}, first byte p50 {:.1} ms, p99 {:.1} ms {}",
                row.trouble,
                row.peer_name,
                row.errors,
                row.requests,
                row.first_byte_p50_ms,
                row.first_byte_p99_ms,
                row.first_error.as_deref().unwrap_or_default()
            );
            rows.push(row);
        }
    }
    if args.common.json {
        for row in &rows {
            println!("{}", serde_json::to_string(row)?);
        }
    } else {
        println!("{}. {}. {seconds} s each.\n", place(), versions.join(", "));
        for trouble in &troubles {
            println!("{}", section(trouble.name(), &rows));
        }
    }
    let behind: Vec<String> = troubles.iter().filter_map(|trouble| behind(trouble.name(), &rows)).collect();
    if behind.is_empty() { Ok(()) } else { Err(io::Error::other(behind.join("\n"))) }
}

/// One proxy under load; its last engine gets into trouble.
fn one(session: &mut Session, trouble: Trouble, seconds: f64) -> io::Result<Report> {
    let trouble_after = seconds / 4.0;
    let load = Load {
        kinds: vec![Kind::Tokens],
        connections: CONNECTIONS,
        seconds,
        requests: None,
        rate: Some(RATE),
        open: Some(Open {
            seed: SEED,
            patience_seconds: PATIENCE_SECONDS,
            count_after_seconds: trouble_after - COUNT_BEFORE_SECONDS,
        }),
    };
    let engines = session.engines;
    let (running, mock) = session.only();
    let mut begun = None;
    let mut told = Ok(());
    let mut is_told = false;
    let round = measure::round(running, engines, &load, |_, _| {
        let begun = *begun.get_or_insert_with(Instant::now);
        if !is_told && begun.elapsed() >= Duration::from_secs_f64(trouble_after - 0.2) {
            is_told = true;
            told = mock.tell(trouble.name());
        }
    })?;
    told?;
    if is_told { Ok(round.report) } else { Err(io::Error::other("--seconds is too short: 4 at least")) }
}

fn row(trouble: Trouble, peer: Peer, report: &Report) -> Row {
    Row {
        trouble: trouble.name(),
        peer_name: peer.name(),
        requests: report.sent,
        errors: report.errors(),
        errors_percent: report.errors() as f64 / report.sent.max(1) as f64 * 100.0,
        status_errors: report.status_errors,
        cut_errors: report.cut_errors + report.connect_errors + report.wrong_bytes,
        timed_out: report.timed_out + report.hung,
        first_byte_p50_ms: report.first_byte.p50_us / 1e3,
        first_byte_p99_ms: report.first_byte.p99_us / 1e3,
        first_error: report.first_error.clone(),
    }
}

fn section(trouble: &str, rows: &[Row]) -> String {
    let of_trouble: Vec<&Row> = rows.iter().filter(|row| row.trouble == trouble).collect();
    let ridge = of_trouble.iter().find(|row| row.peer_name == Peer::Ridge.name());
    let ratio = |row: &Row, of: fn(&Row) -> f64| match ridge {
        Some(ridge) if of(ridge) > 0.0 => format!(" ({}×)", show(of(row) / of(ridge))),
        _ => String::new(),
    };
    let cells = |row: &&Row| {
        vec![
            row.peer_name.clone(),
            format!("{} of {} ({} %)", row.errors, row.requests, show(row.errors_percent)),
            format!("{} / {} / {}", row.status_errors, row.cut_errors, row.timed_out),
            format!("{}{}", show(row.first_byte_p50_ms), ratio(row, |row| row.first_byte_p50_ms)),
            format!("{}{}", show(row.first_byte_p99_ms), ratio(row, |row| row.first_byte_p99_ms)),
        ]
    };
    let head = [
        "",
        "errors",
        "wrong status / broken / timed out",
        "first byte p50, ms (× ridge)",
        "first byte p99, ms (× ridge)",
    ];
    format!(
        "## One of {ENGINES} engines is {trouble}\n\n{}",
        table(&head.map(str::to_owned), &of_trouble.iter().map(cells).collect::<Vec<_>>())
    )
}

/// In what ridge is behind the best of its peers, in words.
fn behind(trouble: &str, rows: &[Row]) -> Option<String> {
    let name = Peer::Ridge.name();
    let (ridge, peers): (Vec<&Row>, Vec<&Row>) =
        rows.iter().filter(|row| row.trouble == trouble).partition(|row| row.peer_name == name);
    let ridge = ridge.first()?;
    let least = |of: fn(&Row) -> f64| peers.iter().map(|row| of(row)).min_by(f64::total_cmp);
    let errors = least(|row| row.errors_percent)?;
    let first_byte = least(|row| row.first_byte_p99_ms)?;
    if ridge.errors_percent > errors + NEAR_ERRORS_PERCENT {
        let percent = ridge.errors_percent;
        return Some(format!("{trouble}: ridge has {percent:.2} % errors, the best peer {errors:.2} %"));
    }
    if ridge.first_byte_p99_ms > first_byte * NEAR_FIRST_BYTE {
        let own = ridge.first_byte_p99_ms;
        return Some(format!("{trouble}: ridge's p99 is {own:.1} ms, the best peer's {first_byte:.1} ms"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(answered: u64, status_errors: u64, p99_us: f64) -> Report {
        let mut report =
            Report { answered, sent: answered + status_errors, status_errors, ..Report::default() };
        report.first_byte.p99_us = p99_us;
        report
    }

    #[test]
    fn more_errors_or_a_longer_tail_than_the_best_peer_is_behind() {
        let judge = |ridge: Report| {
            let peer = report(1000, 5, 30_000.0);
            behind("slow", &[row(Trouble::Slow, Peer::Nginx, &peer), row(Trouble::Slow, Peer::Ridge, &ridge)])
        };
        assert_eq!(judge(report(1000, 5, 32_000.0)), None);
        assert!(judge(report(1000, 9, 20_000.0)).is_some_and(|text| text.contains("errors")));
        assert!(judge(report(1000, 0, 34_000.0)).is_some_and(|text| text.contains("p99")));
    }

    #[test]
    fn a_table_has_a_line_for_each_proxy_of_the_trouble() {
        let rows = [
            row(Trouble::Slow, Peer::Nginx, &report(1000, 5, 60_000.0)),
            row(Trouble::Slow, Peer::Ridge, &report(1000, 0, 30_000.0)),
            row(Trouble::Stuck, Peer::Ridge, &report(1000, 0, 30_000.0)),
        ];
        let text = section("slow", &rows);
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(text.contains("| nginx | 5 of 1005 (0.50 %) | 5 / 0 / 0 | 0.00 | 60.0 (2.00×) |"), "{text}");
    }
}
