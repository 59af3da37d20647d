//! What a gateway holds now beyond what it held before: connections, requests, descriptors, threads, memory.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use crate::client;
use crate::metrics_text::MetricsText;
use crate::process::RidgeProcess;
use crate::wait::{DEADLINE, eventually};

/// Counts on the metrics page that traffic raises and its end must lower again.
const GAUGES: [(&str, &str); 4] = [
    ("ridge_connections", "open client connections"),
    ("ridge_open_requests", "open requests"),
    ("ridge_requests_in_flight", "requests in flight at engines"),
    ("ridge_request_body_bytes", "bytes reserved for bodies"),
];

/// Connections to engines that are kept on purpose.
const KEPT: &str = "ridge_idle_upstream_connections";

/// Equal looks in a row that make a baseline: a probe of an engine that happens to be under way ends in between.
const EQUAL_LOOKS: usize = 5;

/// What the allocator and the cores' buffers may have taken for good after traffic.
const GROWTH_KIB: u64 = 16 << 10;

/// The state of a gateway before traffic, to compare with what is left after it.
///
/// ```no_run
/// let ridge = rig::RidgeProcess::serve(["--upstream", "http://127.0.0.1:8000"]);
/// let leaks = rig::Leaks::baseline(&ridge);
/// // ... traffic, of the worst kind ...
/// leaks.assert_back();
/// ```
pub struct Leaks {
    id: u32,
    admin: SocketAddr,
    before: Holding,
}

/// What a process holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holding {
    /// By name.
    gauges: BTreeMap<&'static str, u64>,
    /// By kind; sockets without those that are kept for later.
    descriptors: BTreeMap<String, u64>,
    /// By name.
    threads: BTreeMap<String, u64>,
}

impl Leaks {
    /// Waits until the gateway is at rest, and remembers what it holds.
    ///
    /// # Panics
    /// If it does not come to rest.
    #[track_caller]
    pub fn baseline(ridge: &RidgeProcess) -> Self {
        let (id, admin) = (ridge.id(), ridge.admin);
        let (mut before, mut equal) = (Holding::default(), 0);
        let came = eventually(DEADLINE, || {
            let now = Holding::of(id, admin);
            equal = if now == before { equal + 1 } else { 0 };
            before = now;
            equal >= EQUAL_LOOKS
        });
        assert!(came, "the gateway does not come to rest: {before:?}");
        Self { id, admin, before }
    }

    /// What the gateway holds now beyond the baseline, in words; empty when it is back.
    pub fn left(&self) -> Vec<String> {
        let now = Holding::of(self.id, self.admin);
        let mut left = Vec::new();
        for (name, words) in GAUGES {
            above(&mut left, words, now.gauges.get(name), self.before.gauges.get(name));
        }
        for (kind, count) in &now.descriptors {
            above(
                &mut left,
                &format!("descriptors ({kind})"),
                Some(count),
                self.before.descriptors.get(kind),
            );
        }
        for (name, count) in &now.threads {
            above(&mut left, &format!("threads ({name})"), Some(count), self.before.threads.get(name));
        }
        left
    }

    /// Waits until nothing is left beyond the baseline.
    ///
    /// # Panics
    /// If something stays; names it, with the gateway's sockets.
    #[track_caller]
    pub fn assert_back(&self) {
        let mut left = Vec::new();
        let came = eventually(DEADLINE, || {
            left = self.left();
            left.is_empty()
        });
        assert!(came, "left behind: {}\nsockets:\n{}", left.join("; "), sockets(self.id).join("\n"));
    }

    /// Resident memory now, in KiB. Take it after the first round of traffic: until then buffers are made that stay.
    pub fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
    }

    /// Fails when resident memory has grown by more than buffers explain since it was `before_kib`.
    #[track_caller]
    pub fn assert_flat(&self, before_kib: u64) {
        let now = self.resident_kib();
        assert!(now <= before_kib + GROWTH_KIB, "memory grew from {before_kib} KiB to {now} KiB");
    }
}

fn above(left: &mut Vec<String>, what: &str, now: Option<&u64>, before: Option<&u64>) {
    let (now, before) = (now.copied().unwrap_or_default(), before.copied().unwrap_or_default());
    if now > before {
        left.push(format!("{} {what} more than the {before} before", now - before));
    }
}

impl Holding {
    fn of(id: u32, admin: SocketAddr) -> Self {
        let page = MetricsText::parse(&client::get(admin, "/metrics").text());
        let gauge = |name: &str| page.sum(name, &[]).unwrap_or_default() as u64;
        let mut descriptors = count(&format!("/proc/{id}/fd"), |path| {
            fs::read_link(path).ok().map(|link| kind(&link.to_string_lossy()))
        });
        // What the page counts is told apart by the page; what it does not count is what is looked for.
        let counted = gauge(KEPT) + gauge("ridge_connections");
        if let Some(sockets) = descriptors.get_mut("socket") {
            *sockets = sockets.saturating_sub(counted);
        }
        Self {
            gauges: GAUGES.iter().map(|(name, _)| (*name, gauge(name))).collect(),
            descriptors,
            threads: count(&format!("/proc/{id}/task"), |path| {
                Some(fs::read_to_string(path.join("comm")).ok()?.trim().to_owned())
            }),
        }
    }
}

/// Entries of a folder by what `name` says of each.
fn count(folder: &str, name: impl Fn(&std::path::Path) -> Option<String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // One that has gone in between is not there.
        if let Some(name) = name(&entry.path()) {
            *counts.entry(name).or_insert(0) += 1;
        }
    }
    counts
}

/// `socket:[123]` is a `socket`, `anon_inode:[eventpoll]` an `eventpoll`, and a file is its path.
fn kind(link: &str) -> String {
    match link.split_once(":[") {
        Some(("anon_inode", inside)) => inside.trim_end_matches(']').to_owned(),
        Some((kind, _)) => kind.to_owned(),
        None => link.to_owned(),
    }
}

/// The process's TCP sockets over IPv4: local address, peer, state as in the kernel's table (01 established, 0A
/// listening, 08 the peer has closed).
fn sockets(id: u32) -> Vec<String> {
    let inodes = count(&format!("/proc/{id}/fd"), |path| {
        let link = fs::read_link(path).ok()?.to_string_lossy().into_owned();
        Some(link.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
    });
    let table = fs::read_to_string(format!("/proc/{id}/net/tcp")).unwrap_or_default();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, peer, state, inode) = (fields.get(1)?, fields.get(2)?, fields.get(3)?, fields.get(9)?);
        inodes.contains_key(*inode).then(|| format!("{} - {} {state}", address(local), address(peer)))
    };
    table.lines().filter_map(row).collect()
}

/// `0100007F:1F90` is 127.0.0.1:8080: the kernel prints the address as the machine's own number.
fn address(hex: &str) -> String {
    let parsed = hex.split_once(':').and_then(|(address, port)| {
        let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
        Some(SocketAddr::from((address, u16::from_str_radix(port, 16).ok()?)))
    });
    parsed.map_or_else(|| hex.to_owned(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_have_kinds() {
        assert_eq!(kind("socket:[4711]"), "socket");
        assert_eq!(kind("anon_inode:[eventpoll]"), "eventpoll");
        assert_eq!(kind("/dev/null"), "/dev/null");
    }

    #[test]
    fn the_kernels_addresses_are_read() {
        let hex = format!("{:08X}:1F90", u32::from_ne_bytes([127, 0, 0, 1]));
        assert_eq!(address(&hex), "127.0.0.1:8080");
        assert_eq!(address("x"), "x");
    }

    #[test]
    fn own_sockets_are_listed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address").to_string();
        let listed = sockets(std::process::id());
        assert!(
            listed.iter().any(|row| row.starts_with(&format!("{address} - ")) && row.ends_with("0A")),
            "{listed:?}"
        );
    }
}
