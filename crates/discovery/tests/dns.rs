//! Names behind a name server that says what the test wants, byte by byte.

mod rig;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use discovery::{Nameservers, Options};
use rig::{DEADLINE, Run, config, quick};

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const SRV: u16 = 33;

#[derive(Clone)]
enum Say {
    Records(Vec<(String, u16, Vec<u8>)>),
    NoSuchName,
    Failure,
    /// Bytes that are no answer, then nothing.
    Garbage,
    /// Forged answers before the right one.
    ForgedThen(Vec<(String, u16, Vec<u8>)>),
    /// Does not fit: over TCP there are records.
    Truncated(Vec<(String, u16, Vec<u8>)>),
    Nothing,
}

type Zone = Arc<Mutex<HashMap<(String, u16), Say>>>;

struct Server {
    zone: Zone,
    addr: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        // The same port for both, so that a cut answer leads to the TCP side.
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let zone = Zone::default();
        let addr = udp.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let (udp_zone, count) = (zone.clone(), asked.clone());
        std::thread::spawn(move || serve_udp(&udp, &udp_zone, &count));
        let tcp_zone = zone.clone();
        std::thread::spawn(move || serve_tcp(&tcp, &tcp_zone));
        Self { zone, addr, asked }
    }

    fn say(&self, name: &str, kind: u16, say: Say) {
        self.zone.lock().unwrap().insert((name.to_owned(), kind), say);
    }

    fn addresses(&self, name: &str, ips: &[&str]) {
        let ips: Vec<IpAddr> = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        for (kind, v6) in [(A, false), (AAAA, true)] {
            let records = ips.iter().filter(|ip| ip.is_ipv6() == v6);
            let records = records.map(|ip| record(name, *ip)).collect();
            self.say(name, kind, Say::Records(records));
        }
    }

    /// Waits until that many more questions have come.
    async fn asked(&self, more: usize) {
        let wanted = self.asked.load(Ordering::SeqCst) + more;
        let deadline = std::time::Instant::now() + DEADLINE;
        while self.asked.load(Ordering::SeqCst) < wanted {
            assert!(std::time::Instant::now() < deadline, "nobody asks");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn options(&self) -> Options {
        Options {
            nameservers: Nameservers::Fixed { servers: vec![self.addr], timeout: Duration::from_millis(200) },
            ..quick()
        }
    }
}

fn record(name: &str, ip: IpAddr) -> (String, u16, Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => (name.to_owned(), A, ip.octets().to_vec()),
        IpAddr::V6(ip) => (name.to_owned(), AAAA, ip.octets().to_vec()),
    }
}

fn srv(name: &str, priority: u16, weight: u16, port: u16, target: &str) -> (String, u16, Vec<u8>) {
    let mut data = Vec::new();
    for number in [priority, weight, port] {
        data.extend(number.to_be_bytes());
    }
    data.extend(wire_name(target));
    (name.to_owned(), SRV, data)
}

fn wire_name(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(u8::try_from(label.len()).unwrap());
        out.extend(label.as_bytes());
    }
    out.push(0);
    out
}

/// Name and type of a question, and where it ends.
fn read_question(message: &[u8]) -> (String, u16, usize) {
    let mut at = 12;
    let mut labels = Vec::new();
    while message[at] != 0 {
        let len = usize::from(message[at]);
        labels.push(String::from_utf8(message[at + 1..at + 1 + len].to_vec()).unwrap());
        at += 1 + len;
    }
    let kind = u16::from_be_bytes([message[at + 1], message[at + 2]]);
    (labels.join("."), kind, at + 5)
}

fn answer(question: &[u8], flags: [u8; 2], records: &[(String, u16, Vec<u8>)]) -> Vec<u8> {
    let (_, _, end) = read_question(question);
    let mut out = question[..2].to_vec();
    out.extend(flags);
    out.extend([0, 1]);
    out.extend(u16::try_from(records.len()).unwrap().to_be_bytes());
    out.extend([0, 0, 0, 0]);
    out.extend(&question[12..end]);
    for (name, kind, data) in records {
        out.extend(wire_name(name));
        out.extend(kind.to_be_bytes());
        out.extend([0, 1, 0, 0, 0, 30]);
        out.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        out.extend(data);
    }
    out
}

const GOOD: [u8; 2] = [0x81, 0x80];

fn said(zone: &Zone, question: &[u8]) -> Say {
    let (name, kind, _) = read_question(question);
    let zone = zone.lock().unwrap();
    zone.get(&(name, kind)).cloned().unwrap_or(Say::NoSuchName)
}

fn serve_udp(socket: &UdpSocket, zone: &Zone, asked: &AtomicUsize) {
    let mut buffer = [0; 1500];
    while let Ok((len, from)) = socket.recv_from(&mut buffer) {
        asked.fetch_add(1, Ordering::SeqCst);
        let question = &buffer[..len];
        let send = |bytes: &[u8]| {
            let _ = socket.send_to(bytes, from);
        };
        match said(zone, question) {
            Say::Records(records) => send(&answer(question, GOOD, &records)),
            Say::NoSuchName => send(&answer(question, [0x81, 0x83], &[])),
            Say::Failure => send(&answer(question, [0x81, 0x82], &[])),
            Say::Truncated(_) => send(&answer(question, [0x83, 0x80], &[])),
            Say::Garbage => {
                send(b"");
                send(&[0xff; 600]);
                send(&question[..2]);
            }
            Say::ForgedThen(records) => {
                let forged = [record("evil", "6.6.6.6".parse().unwrap())];
                let mut other_id = answer(question, GOOD, &forged);
                other_id[0] ^= 1;
                send(&other_id);
                let mut other_name = answer(question, GOOD, &forged);
                other_name[13] ^= 0x01;
                send(&other_name);
                let question_back = answer(question, [0x01, 0x00], &forged);
                send(&question_back);
                send(&answer(question, GOOD, &records));
            }
            Say::Nothing => {}
        }
    }
}

fn serve_tcp(listener: &TcpListener, zone: &Zone) {
    while let Ok((mut stream, _)) = listener.accept() {
        let mut len = [0; 2];
        if stream.read_exact(&mut len).is_err() {
            continue;
        }
        let mut question = vec![0; usize::from(u16::from_be_bytes(len))];
        if stream.read_exact(&mut question).is_err() {
            continue;
        }
        if let Say::Truncated(records) = said(zone, &question) {
            let answer = answer(&question, GOOD, &records);
            let mut framed = u16::try_from(answer.len()).unwrap().to_be_bytes().to_vec();
            framed.extend(answer);
            let _ = stream.write_all(&framed);
        }
    }
}

fn named(attributes: &str) -> String {
    format!("upstream_dns: [{{host: vllm.svc, refresh: 100ms, {attributes}}}]")
}

#[tokio::test]
async fn addresses_of_both_families_come_and_go() {
    let server = Server::start();
    server.addresses("vllm.svc", &["10.0.0.2", "10.0.0.1", "fd00::1"]);
    let mut run = Run::start(&named("port: 8000, name: vllm, models: [m]"), server.options()).await;
    assert_eq!(run.now(), ["vllm-1=10.0.0.1:8000", "vllm-2=10.0.0.2:8000", "vllm-3=[fd00::1]:8000"]);
    assert_eq!(run.endpoints.borrow()[2].upstream.attributes.models[0].as_str(), "m");
    server.addresses("vllm.svc", &["10.0.0.2", "10.0.0.3", "fd00::1"]);
    run.until(&["vllm-2=10.0.0.2:8000", "vllm-1=10.0.0.3:8000", "vllm-3=[fd00::1]:8000"]).await;
}

#[tokio::test]
async fn one_family_alone_can_be_wanted() {
    let server = Server::start();
    server.addresses("vllm.svc", &["10.0.0.1", "fd00::1"]);
    let run = Run::start(&named("port: 1, family: ipv6"), server.options()).await;
    assert_eq!(run.now(), ["engine-1=[fd00::1]:1"]);
    let run = Run::start(&named("port: 1, family: ipv4"), server.options()).await;
    assert_eq!(run.now(), ["engine-1=10.0.0.1:1"]);
}

#[tokio::test]
async fn a_failing_lookup_keeps_the_last_answer_and_is_told_once() {
    for say in [Say::Failure, Say::Garbage, Say::Nothing] {
        let server = Server::start();
        server.addresses("vllm.svc", &["10.0.0.1"]);
        let mut run = Run::start(&named("port: 1"), server.options()).await;
        server.say("vllm.svc", A, say.clone());
        server.say("vllm.svc", AAAA, say);
        run.until_told("vllm.svc cannot be looked up").await;
        // Two families, two tries each: more than two further lookups.
        server.asked(12).await;
        assert_eq!(run.now(), ["engine-1=10.0.0.1:1"]);
        server.addresses("vllm.svc", &["10.0.0.2"]);
        run.until(&["engine-1=10.0.0.2:1"]).await;
        assert_eq!(run.told_count("cannot be looked up"), 1, "{}", run.told());
        assert_eq!(run.told_count("vllm.svc: 1 addresses"), 2, "{}", run.told());
    }
}

#[tokio::test]
async fn one_family_failing_keeps_its_own_addresses_only() {
    let server = Server::start();
    server.addresses("vllm.svc", &["10.0.0.1", "fd00::1"]);
    let mut run = Run::start(&named("port: 1"), server.options()).await;
    server.addresses("vllm.svc", &["10.0.0.2"]);
    server.say("vllm.svc", AAAA, Say::Failure);
    run.until(&["engine-1=10.0.0.2:1", "engine-2=[fd00::1]:1"]).await;
}

#[tokio::test]
async fn a_name_that_is_gone_is_believed_after_a_while() {
    let server = Server::start();
    server.addresses("vllm.svc", &["10.0.0.1"]);
    let mut run = Run::start(&named("port: 1"), server.options()).await;
    assert_eq!(run.now(), ["engine-1=10.0.0.1:1"]);
    server.say("vllm.svc", A, Say::NoSuchName);
    server.say("vllm.svc", AAAA, Say::NoSuchName);
    run.until(&[]).await;
    run.until_told("vllm.svc has no addresses").await;
}

#[tokio::test]
async fn forged_answers_are_passed_over() {
    let server = Server::start();
    let right = vec![record("vllm.svc", "10.0.0.1".parse().unwrap())];
    server.say("vllm.svc", A, Say::ForgedThen(right));
    let run = Run::start(&named("port: 1, family: ipv4"), server.options()).await;
    assert_eq!(run.now(), ["engine-1=10.0.0.1:1"]);
}

#[tokio::test]
async fn aliases_are_followed_and_other_names_are_not_taken() {
    let server = Server::start();
    let records = vec![
        record("end.example", "10.0.0.1".parse().unwrap()),
        record("stranger.example", "10.6.6.6".parse().unwrap()),
        ("VLLM.svc".to_owned(), CNAME, wire_name("middle.example")),
        ("middle.example".to_owned(), CNAME, wire_name("end.example")),
    ];
    server.say("vllm.svc", A, Say::Records(records));
    let run = Run::start(&named("port: 1, family: ipv4"), server.options()).await;
    assert_eq!(run.now(), ["engine-1=10.0.0.1:1"]);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_comes_over_tcp() {
    let server = Server::start();
    let ip = |n: u16| IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
    let records = (0..1500).map(|n| record("vllm.svc", ip(n))).collect();
    server.say("vllm.svc", A, Say::Truncated(records));
    let mut run = Run::start(&named("port: 1, family: ipv4"), server.options()).await;
    assert_eq!(run.now().len(), 1024);
    run.until_told("more addresses than the 1024").await;
}

#[tokio::test]
async fn services_bring_port_weight_and_priority() {
    let server = Server::start();
    let name = "_http._tcp.vllm.svc";
    let records = vec![
        srv(name, 10, 1, 8001, "a.svc"),
        srv(name, 10, 3, 8002, "b.svc"),
        srv(name, 20, 1, 8003, "c.svc"),
    ];
    server.say(name, SRV, Say::Records(records.clone()));
    server.addresses("a.svc", &["10.0.0.1", "fd00::1"]);
    server.addresses("b.svc", &["fd00::2"]);
    server.addresses("c.svc", &["10.0.0.3"]);
    let text = format!("upstream_dns: [{{host: {name}, records: srv, refresh: 100ms, weight: 2}}]");
    let mut run = Run::start(&text, server.options()).await;
    assert_eq!(run.now(), ["engine-1=10.0.0.1:8001", "engine-2=[fd00::2]:8002"]);
    let weights: Vec<f64> = run.endpoints.borrow().iter().map(|e| e.upstream.attributes.weight).collect();
    assert_eq!(weights, [1.0, 3.0]);
    // A target whose lookup fails keeps its address.
    server.say("a.svc", A, Say::Failure);
    server.say("a.svc", AAAA, Say::Failure);
    run.until_told("cannot be looked up").await;
    assert_eq!(run.now(), ["engine-1=10.0.0.1:8001", "engine-2=[fd00::2]:8002"]);
    // Without the best ones the next priority serves.
    server.say(name, SRV, Say::Records(records[2..].to_vec()));
    run.until(&["engine-1=10.0.0.3:8003"]).await;
}

#[tokio::test]
async fn a_dead_server_does_not_hold_the_start_up() {
    let server = Server::start();
    server.say("vllm.svc", A, Say::Nothing);
    let options = Options {
        nameservers: Nameservers::Fixed { servers: vec![server.addr], timeout: Duration::from_secs(600) },
        first_wait: Duration::from_millis(50),
        ..quick()
    };
    let text = format!("upstreams: [{{url: http://a}}]\n{}", named("port: 1"));
    let run = Run::start(&text, options).await;
    assert_eq!(run.now(), ["engine-1=a:80"]);
}

#[tokio::test]
async fn the_next_server_is_asked_when_one_is_silent() {
    let (silent, server) = (Server::start(), Server::start());
    silent.say("vllm.svc", A, Say::Nothing);
    server.addresses("vllm.svc", &["10.0.0.1"]);
    let options = Options {
        nameservers: Nameservers::Fixed {
            servers: vec![silent.addr, server.addr],
            timeout: Duration::from_millis(50),
        },
        ..quick()
    };
    let run = Run::start(&named("port: 1, family: ipv4"), options).await;
    assert_eq!(run.now(), ["engine-1=10.0.0.1:1"]);
}

#[tokio::test]
async fn changed_attributes_restart_no_lookup() {
    let server = Server::start();
    server.addresses("vllm.svc", &["10.0.0.1"]);
    let run = Run::start(&named("port: 1"), server.options()).await;
    // From here on a new lookup would find nothing.
    server.say("vllm.svc", A, Say::Nothing);
    server.say("vllm.svc", AAAA, Say::Nothing);
    run.sources.reload(&config(&named("port: 1, weight: 5"))).await;
    assert_eq!(run.now(), ["engine-1=10.0.0.1:1"]);
    assert_eq!(run.endpoints.borrow()[0].upstream.attributes.weight, 5.0);
}

#[tokio::test]
async fn localhost_is_in_the_hosts_file() {
    let text = "upstream_dns: [{host: localhost, port: 1, family: ipv4}]";
    let run = Run::start(text, quick()).await;
    assert_eq!(run.now(), ["engine-1=127.0.0.1:1"]);
}
