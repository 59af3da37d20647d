//! One round: load on one proxy, with the proxy's CPU time read before and after.

use std::io;
use std::net::SocketAddr;

use crate::children::OwnChild;
use crate::load::{Line, Report};
use crate::mock::Seen;
use crate::peers::Running;
use crate::process::CpuReading;
use crate::traffic::Kind;

/// What load to put on a proxy.
#[derive(Clone, Debug)]
pub struct Load {
    /// Kinds of requests, in turn.
    pub kinds: Vec<Kind>,
    /// Connections kept open.
    pub connections: usize,
    /// How long to send, unless `requests` is given.
    pub seconds: f64,
    /// How many requests to send.
    pub requests: Option<u64>,
    /// Requests per second; without it each connection sends again as soon as it has its answer.
    pub rate: Option<f64>,
    /// How requests at a rate are spread and judged, when not evenly and patiently.
    pub open: Option<Open>,
}

/// Independent clients that give up.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Seed of the random distances between requests.
    pub seed: u64,
    /// When a client gives up, in seconds.
    pub patience_seconds: f64,
    /// Requests due earlier, in seconds from the beginning, are not counted.
    pub count_after_seconds: f64,
}

/// What a round showed.
pub struct Round {
    /// The load generator's report.
    pub report: Report,
    /// CPU time of the proxy's processes per request sent, in microseconds.
    pub cpu_us: f64,
    /// Connections that the engines accepted during the round.
    pub upstream_connections: u64,
    /// Request bodies that reached the engines changed.
    pub altered: u64,
    /// Requests of the proxy's own to the engines.
    pub own_requests: u64,
}

/// Runs one round; `progress` hears of the number of requests answered, about once a second.
pub fn round(
    running: &mut Running,
    engines: SocketAddr,
    load: &Load,
    mut progress: impl FnMut(u64, &Running),
) -> io::Result<Round> {
    let mut arguments: Vec<String> = vec!["load".into()];
    let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    flag("target", running.address.to_string());
    flag("kinds", load.kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(","));
    flag("connections", load.connections.to_string());
    flag("seconds", load.seconds.to_string());
    if let Some(requests) = load.requests {
        flag("requests", requests.to_string());
    }
    if let Some(rate) = load.rate {
        flag("rate", format!("{rate:.1}"));
    }
    if let Some(open) = load.open {
        flag("seed", open.seed.to_string());
        flag("patience", open.patience_seconds.to_string());
        flag("count-after", open.count_after_seconds.to_string());
    }
    let name = running.peer.name();
    let mut child = OwnChild::start(arguments)?;
    match read_line(&mut child)? {
        Line::Ready => {}
        other => return Err(io::Error::other(format!("{name}: the load could not begin: {other:?}"))),
    }
    let pids = running.pids();
    let seen_before = seen(engines)?;
    let before = CpuReading::of(&pids);
    child.go()?;
    let report = loop {
        match read_line(&mut child)? {
            Line::Report(report) => break *report,
            Line::Progress(answered) => progress(answered, running),
            other => return Err(io::Error::other(format!("{name}: unexpected {other:?}"))),
        }
    };
    let cpu_ns = CpuReading::of(&pids).ns_since(&before);
    let seen_after = seen(engines)?;
    running.check()?;
    Ok(Round {
        cpu_us: cpu_ns as f64 / 1e3 / report.sent.max(1) as f64,
        upstream_connections: seen_after.connections.saturating_sub(seen_before.connections + 1),
        altered: seen_after.altered - seen_before.altered,
        own_requests: seen_after.other - seen_before.other,
        report,
    })
}

fn read_line(child: &mut OwnChild) -> io::Result<Line> {
    let line = child.line()?;
    serde_json::from_str(&line).map_err(|error| io::Error::other(format!("{error} in {line:?}")))
}

/// What the engines have seen so far. The question itself takes one connection.
pub fn seen(engines: SocketAddr) -> io::Result<Seen> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(engines)?;
    stream.write_all(b"GET /bench/seen HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body)
        .map_err(|error| io::Error::other(format!("the engines said {text:?}: {error}")))
}
