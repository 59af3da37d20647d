//! `bench idle`: what a proxy costs that stands before 100 engines and reads their metrics, without requests.

use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::figures::{show, table};
use crate::measure::seen;
use crate::peers::Peer;
use crate::process::{self, CpuReading};
use crate::session::{Common, Session, place};

/// CPU and memory with many engines and no requests.
#[derive(clap::Args, Debug)]
pub struct IdleArgs {
    #[command(flatten)]
    common: Common,
    /// Engines.
    #[arg(long, default_value_t = 100)]
    engines: u16,
    /// Size of each engine's /metrics page, in bytes.
    #[arg(long, default_value_t = 50_000)]
    metrics_bytes: usize,
    /// How long to watch each proxy, in seconds.
    #[arg(long)]
    seconds: Option<f64>,
}

#[derive(Serialize)]
struct Row {
    case: &'static str,
    peer_name: String,
    cpu_percent_of_a_core: f64,
    rss_mib: f64,
    pss_mib: f64,
    scrapes_per_second: f64,
}

/// Runs `bench idle`. Proxies run one after another: what one reads from the engines must not count for another.
pub fn run(args: &IdleArgs) -> io::Result<()> {
    let all = [Peer::VllmRouter, Peer::Smg, Peer::Ridge];
    let peers = if args.common.peers.is_empty() { all.to_vec() } else { args.common.peers.clone() };
    let seconds = args.seconds.unwrap_or(if args.common.quick { 5.0 } else { 20.0 });
    Session::check(&args.common, &peers)?;
    let mut rows = Vec::new();
    let mut versions = Vec::new();
    for peer in peers.into_iter().filter(|peer| *peer != Peer::Direct) {
        let session = Session::start(&args.common, &[peer], &[], args.engines, args.metrics_bytes)?;
        versions.push(session.versions());
        // What a proxy does on its first seconds (detection, first reads, thread start) is not idling.
        std::thread::sleep(Duration::from_secs(5));
        rows.push(watch(peer, &session, seconds)?);
    }
    if args.common.json {
        for row in &rows {
            println!("{}", serde_json::to_string(row)?);
        }
        return Ok(());
    }
    let head =
        ["", "CPU, % of a core", "RSS, MiB", "PSS, MiB", "/metrics reads per second"].map(str::to_owned);
    let cells = |row: &Row| {
        let numbers = [row.cpu_percent_of_a_core, row.rss_mib, row.pss_mib, row.scrapes_per_second];
        [vec![row.peer_name.clone()], numbers.map(show).to_vec()].concat()
    };
    println!(
        "{}. {}. {} engines, /metrics pages of {} bytes, no requests, {seconds} s each.\n\n{}",
        place(),
        versions.join(", "),
        args.engines,
        args.metrics_bytes,
        table(&head, &rows.iter().map(cells).collect::<Vec<_>>())
    );
    Ok(())
}

fn watch(peer: Peer, session: &Session, seconds: f64) -> io::Result<Row> {
    let Some(running) = session.running.iter().find(|running| running.peer == peer) else {
        return Err(io::Error::other(format!("{} was not started", peer.name())));
    };
    let pids = running.pids();
    let scrapes = seen(session.engines)?.scrapes;
    let before = CpuReading::of(&pids);
    let begin = Instant::now();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let elapsed = begin.elapsed().as_secs_f64();
    let cpu_ns = CpuReading::of(&pids).ns_since(&before);
    let scrapes = seen(session.engines)?.scrapes - scrapes;
    let memory = process::memory(&pids);
    let row = Row {
        case: "idle",
        peer_name: peer.name(),
        cpu_percent_of_a_core: cpu_ns as f64 / 1e9 / elapsed * 100.0,
        rss_mib: memory.rss as f64 / f64::from(1 << 20),
        pss_mib: memory.pss as f64 / f64::from(1 << 20),
        scrapes_per_second: scrapes as f64 / elapsed,
    };
    eprintln!(
        "{:12} {:.2} % of a core, {:.1} MiB PSS, {:.1} metrics reads per second",
        row.peer_name, row.cpu_percent_of_a_core, row.pss_mib, row.scrapes_per_second
    );
    Ok(row)
}
