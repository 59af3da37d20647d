//! The listener from outside: what a scraper, a probe, a browser and a stranger get.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use admin::{
    CoreRow, EndpointRow, Health, Histogram, HistogramKind, RecentRequest, RequestCount, Series, Server,
    Snapshot, SnapshotFuture, Source, write_metrics,
};

struct Fixed {
    snapshot: Snapshot,
    ready: AtomicBool,
}

impl Source for Fixed {
    fn snapshot(&self) -> SnapshotFuture<'_> {
        Box::pin(async { self.snapshot.clone() })
    }

    fn ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

fn started(snapshot: Snapshot) -> (Server, Arc<Fixed>) {
    let source = Arc::new(Fixed { snapshot, ready: AtomicBool::new(true) });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (admin::start(listener, Arc::clone(&source) as Arc<dyn Source>).unwrap(), source)
}

struct Answer {
    status: u16,
    headers: HashMap<String, String>,
    body: String,
}

fn ask(address: SocketAddr, method: &str, path: &str, host: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers =
        lines.map(|line| line.split_once(": ").unwrap()).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    Answer { status, headers, body: body.to_owned() }
}

fn get(server: &Server, path: &str) -> Answer {
    ask(server.address(), "GET", path, "localhost")
}

/// Names as hostile as clients and engines can make them.
const ODD: &str = "a\"b\\c\nd}{,é</script><img src=x onerror=alert(1)>";

fn busy() -> Snapshot {
    let endpoint = |name: &str| EndpointRow {
        name: name.into(),
        engine: "vllm".into(),
        models: vec![ODD.into()],
        labels: BTreeMap::from([("zone".into(), "a".into())]),
        weight: 1.0,
        health: Health::Up,
        in_flight: 3,
        running: Some(2),
        waiting: Some(0),
        kv_usage: Some(0.5),
        signal_age_ms: Some(250),
        requests_total: 10,
        output_tokens_total: 1000,
        prompt_tokens_total: 2000,
        cached_tokens_estimated: 900,
        cached_tokens_reported: 800,
        errors: 1,
        ..EndpointRow::default()
    };
    let histogram = |name, endpoint: &str| Histogram {
        name,
        endpoint: endpoint.into(),
        model: ODD.into(),
        bounds_s: vec![0.1, 1.0],
        counts: vec![4, 5, 1],
        sum_s: 6.5,
    };
    Snapshot {
        version: "0.1.0".into(),
        started_unix_ms: 1_795_953_786_500,
        taken_unix_ms: 1_795_953_796_500,
        ready: true,
        cores: vec![
            CoreRow { core: 0, connections: 5, requests: 10 },
            CoreRow { core: 1, ..CoreRow::default() },
        ],
        endpoints: vec![
            endpoint("one"),
            endpoint(ODD),
            EndpointRow { name: "silent".into(), engine: "ollama".into(), ..EndpointRow::default() },
            EndpointRow { name: "gone".into(), health: Health::Down, ..EndpointRow::default() },
        ],
        requests: ["200", "404", "cancelled"]
            .map(|status| RequestCount {
                endpoint: "one".into(),
                model: ODD.into(),
                status: status.into(),
                count: 7,
            })
            .into(),
        // Kinds interleaved: the page must still put each family together.
        histograms: vec![
            histogram(HistogramKind::Ttft, "one"),
            histogram(HistogramKind::E2e, "one"),
            histogram(HistogramKind::Ttft, ODD),
            histogram(HistogramKind::Itl, "one"),
        ],
        counters: ["x_total", "y_total", "x_total", "not a name"]
            .iter()
            .enumerate()
            .map(|(at, name)| Series {
                name: (*name).into(),
                help: "Help\nwith \\ two lines.".into(),
                labels: vec![("at".into(), at.to_string())],
                value: at as f64,
            })
            .collect(),
        gauges: vec![Series { name: "g".into(), value: 2.5, ..Series::default() }],
        recent: vec![RecentRequest { id: ODD.into(), model: ODD.into(), ..RecentRequest::default() }],
        ..Snapshot::default()
    }
}

type SeriesKey = (String, BTreeMap<String, String>);

/// Reads a page as strictly as the format is written: every family has HELP and TYPE before its series, stands
/// together, repeats no series; counters end in `_total`; buckets rise to `+Inf`, which equals the count.
fn check_exposition(page: &str) -> BTreeMap<SeriesKey, f64> {
    let mut all = BTreeMap::new();
    let mut seen = HashSet::new();
    let (mut family, mut kind) = (String::new(), String::new());
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap().to_owned();
            kind.clear();
            assert!(seen.insert(family.clone()), "family {family} stands twice");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').unwrap();
            assert_eq!(name, family);
            assert!(["counter", "gauge", "histogram"].contains(&of), "{line}");
            assert_eq!(of == "counter", name.ends_with("_total"), "{line}");
            kind = of.to_owned();
            continue;
        }
        let (name, labels, value) = read_series(line);
        let base = match kind.as_str() {
            "histogram" => {
                ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap()
            }
            "" => panic!("{line} has no type"),
            _ => name.as_str(),
        };
        assert_eq!(base, family, "{line}");
        assert!(all.insert((name, labels), value).is_none(), "twice: {line}");
    }
    check_buckets(&all);
    all
}

fn read_series(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let name_end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap();
    let (name, mut rest) = line.split_at(name_end);
    assert!(!name.is_empty() && !name.as_bytes()[0].is_ascii_digit(), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{line}");
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        c => panic!("escape {c:?} in {line}"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "label twice: {line}");
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap();
    }
    let value = rest.strip_prefix(' ').unwrap();
    (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("{value:?} in {line}")))
}

fn check_buckets(all: &BTreeMap<SeriesKey, f64>) {
    let mut histograms: BTreeMap<SeriesKey, Vec<(f64, f64)>> = BTreeMap::new();
    for ((name, labels), value) in all {
        if let Some(name) = name.strip_suffix("_bucket") {
            let mut labels = labels.clone();
            let le = labels.remove("le").unwrap().parse().unwrap();
            histograms.entry((name.to_owned(), labels)).or_default().push((le, *value));
        }
    }
    for ((name, labels), mut buckets) in histograms {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name} {buckets:?}");
        let (le, all_of_them) = *buckets.last().unwrap();
        assert!(le.is_infinite());
        assert_eq!(all[&(format!("{name}_count"), labels.clone())], all_of_them);
        assert!(all.contains_key(&(format!("{name}_sum"), labels)));
    }
}

fn value(page: &BTreeMap<SeriesKey, f64>, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    page.get(&(name.to_owned(), labels)).copied()
}

#[test]
fn metrics_are_valid_whatever_the_names() {
    let page = check_exposition(&write_metrics(&busy()));
    let one = [("endpoint", "one")];
    assert_eq!(value(&page, "ridge_requests_in_flight", &one), Some(3.0));
    assert_eq!(value(&page, "ridge_requests_in_flight", &[("endpoint", ODD)]), Some(3.0));
    assert_eq!(
        value(&page, "ridge_requests_total", &[("endpoint", "one"), ("model", ODD), ("status", "404")]),
        Some(7.0)
    );
    let ttft = [("endpoint", "one"), ("model", ODD), ("le", "1")];
    assert_eq!(value(&page, "ridge_ttft_seconds_bucket", &ttft), Some(9.0));
    for (name, expected) in [
        ("ridge_prompt_tokens_total", 2000.0),
        ("ridge_output_tokens_total", 1000.0),
        ("ridge_cached_tokens_estimated_total", 900.0),
        ("ridge_cached_tokens_reported_total", 800.0),
        ("ridge_endpoint_up", 1.0),
        ("ridge_endpoint_waiting", 0.0),
        ("ridge_endpoint_signal_age_seconds", 0.25),
    ] {
        assert_eq!(value(&page, name, &one), Some(expected), "{name}");
    }
    assert_eq!(value(&page, "ridge_connections", &[("core", "0")]), Some(5.0));
    assert_eq!(value(&page, "x_total", &[("at", "2")]), Some(2.0));
    assert_eq!(value(&page, "ridge_start_time_seconds", &[]), Some(1_795_953_786.5));
    check_exposition(&write_metrics(&Snapshot::default()));
}

#[test]
fn what_is_unknown_has_no_series() {
    let page = check_exposition(&write_metrics(&busy()));
    let silent = [("endpoint", "silent")];
    for name in [
        "ridge_endpoint_up",
        "ridge_endpoint_running",
        "ridge_endpoint_waiting",
        "ridge_endpoint_kv_usage",
        "ridge_endpoint_signal_age_seconds",
    ] {
        assert_eq!(value(&page, name, &silent), None, "{name}");
    }
    assert_eq!(value(&page, "ridge_requests_in_flight", &silent), Some(0.0));
    assert_eq!(value(&page, "ridge_endpoint_up", &[("endpoint", "gone")]), Some(0.0));
}

#[test]
fn every_path_answers() {
    let (server, source) = started(busy());
    let metrics = get(&server, "/metrics");
    assert_eq!(
        (metrics.status, metrics.headers["content-type"].starts_with("text/plain; version=0.0.4")),
        (200, true)
    );
    check_exposition(&metrics.body);

    let snapshot = get(&server, "/api/snapshot");
    assert_eq!(snapshot.headers["content-type"], "application/json");
    let read: Snapshot = serde_json::from_str(&snapshot.body).unwrap();
    assert_eq!(read.endpoints, busy().endpoints);
    assert_eq!(read.recent, busy().recent);

    let live = get(&server, "/livez");
    let body: serde_json::Value = serde_json::from_str(&live.body).unwrap();
    assert_eq!((live.status, &body["status"], body["ridge"].is_string()), (200, &"ok".into(), true));

    assert_eq!(get(&server, "/readyz").status, 200);
    source.ready.store(false, Ordering::Relaxed);
    assert_eq!(get(&server, "/readyz").status, 503);
    assert_eq!(get(&server, "/livez").status, 200, "alive while it is not ready");

    let missing = get(&server, "/nothing/here");
    assert_eq!(missing.status, 404);
    assert!(missing.body.contains("/api/snapshot"), "{}", missing.body);
}

#[test]
fn the_page_carries_a_strict_policy() {
    let (server, _) = started(busy());
    let page = get(&server, "/");
    assert_eq!((page.status, page.headers["content-type"].as_str()), (200, "text/html; charset=utf-8"));
    let policy = &page.headers["content-security-policy"];
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    assert_eq!(page.headers["cache-control"], "no-store");
    assert!(!page.body.contains("onerror"), "values of the snapshot are not in the page's markup");
}

#[test]
fn only_reading_is_allowed() {
    let (server, _) = started(busy());
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        for path in ["/", "/metrics", "/nothing"] {
            let answer = ask(server.address(), method, path, "localhost");
            assert_eq!(
                (answer.status, answer.headers["allow"].as_str()),
                (405, "GET, HEAD"),
                "{method} {path}"
            );
        }
    }
    let head = ask(server.address(), "HEAD", "/metrics", "localhost");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn a_foreign_name_for_loopback_is_refused() {
    let (server, _) = started(busy());
    for path in ["/", "/api/snapshot", "/metrics"] {
        let answer = ask(server.address(), "GET", path, "rebound.example");
        assert_eq!(answer.status, 421);
        assert!(answer.body.contains("--admin"), "names the remedy: {}", answer.body);
        assert!(!answer.body.contains("vllm"));
    }
    assert_eq!(ask(server.address(), "GET", "/livez", &server.address().to_string()).status, 200);
}

#[test]
fn stopping_closes_connections_and_frees_the_port() {
    let (server, _) = started(Snapshot::default());
    let address = server.address();
    let mut idle = TcpStream::connect(address).unwrap();
    idle.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(idle, "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    server.stop();
    let mut rest = Vec::new();
    // Closed, with or without a reset; not open and silent.
    if let Err(error) = idle.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    assert!(TcpStream::connect(address).is_err());
}
