//! Clients that speak TLS.

use std::time::{Duration, Instant};

use e2e::{House, chat};
use rig::certificates::{Folder, Issued};
use rig::client::{get, post_bytes};
use rig::script::{self, Step};
use rig::{Authority, DEADLINE, H2Client, RawClient, Response, ScriptedEngine, Secure, wait_until};

const PATH: &str = "/v1/chat/completions";

/// A gateway that serves `gw.example` with TLS.
struct Served {
    house: House,
    authority: Authority,
    folder: Folder,
}

impl Served {
    fn answering(script: rig::Script) -> Self {
        Self::with(script, |_| Vec::new())
    }

    /// With more arguments, which may be about files in the folder.
    fn with(script: rig::Script, more: impl Fn(&Folder) -> Vec<String>) -> Self {
        let (authority, folder) = (Authority::new(), Folder::new());
        let (certificate, key) = folder.write_pair("gw", &authority.issue(&["gw.example"]));
        let mut arguments: Vec<String> =
            ["--listen-tls", "127.0.0.1:0", "--tls-certificate", &certificate, "--tls-key", &key]
                .map(str::to_owned)
                .into();
        arguments.extend(more(&folder));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let house = House::with(vec![ScriptedEngine::answering(script)], &arguments);
        Self { house, authority, folder }
    }

    fn addr(&self) -> std::net::SocketAddr {
        self.house.ridge.tls.expect("a TLS address in the ready line")
    }

    fn secure(&self) -> Secure {
        Secure::new(&self.authority, "gw.example", &["h2", "http/1.1"])
    }

    fn connect(&self, secure: &Secure) -> RawClient {
        RawClient::connect_tls(self.addr(), secure).expect("a handshake")
    }

    fn wait_for_handshakes(&self, outcome: &str, count: f64) {
        let labels = [("outcome", outcome)];
        self.house.ridge.wait_for_metric("ridge_tls_handshakes_total", &labels, count);
    }
}

fn ask(client: &mut RawClient) -> Response {
    client.send(post_bytes(PATH, chat(true)));
    client.read_response()
}

#[test]
fn a_stream_passes_in_both_versions_as_it_comes() {
    let events: Vec<String> = (0..5).map(|i| format!("data: {i}\n\n")).collect();
    let served = Served::answering(script::paced(script::sse(&events), 30));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let secure = Secure::version(&served.authority, "gw.example", version);
        let mut client = served.connect(&secure);
        assert_eq!(client.session().protocol_version(), Some(version.version));
        assert_eq!(client.session().alpn_protocol(), Some(&b"http/1.1"[..]));
        for _ in 0..2 {
            client.send(post_bytes(PATH, chat(true)));
            let mut answer = client.read_until(|answer| answer.body().windows(2).any(|two| two == b"\n\n"));
            assert!(answer.end != rig::End::Complete, "the first event waited for the last one");
            client.read_on(&mut answer);
            assert_eq!((answer.status(), answer.body()), (200, events.concat().as_bytes()));
        }
    }
    served.wait_for_handshakes("full", 2.0);
}

#[test]
fn http2_is_agreed_on() {
    let served = Served::answering(script::json(200, r#"{"ok":1}"#));
    let client = H2Client::connect_tls(served.addr(), &served.secure());
    for _ in 0..3 {
        let answer = client.post_json(PATH, chat(false));
        assert_eq!((answer.status, answer.body.as_slice()), (200, &br#"{"ok":1}"#[..]), "{answer:?}");
    }
    assert_eq!(served.connect(&served.secure()).session().alpn_protocol(), Some(&b"h2"[..]));
    // A protocol that the gateway does not speak is refused in the handshake.
    let secure = Secure::new(&served.authority, "gw.example", &["imap"]);
    assert!(RawClient::connect_tls(served.addr(), &secure).is_err());
    served.wait_for_handshakes("incompatible", 1.0);
}

#[test]
fn large_bodies_pass_both_ways() {
    let served = Served::answering(script::json(200, "{}"));
    let answer = format!("{{\"text\":\"{}\"}}", "y".repeat(3 << 20));
    let body = e2e::completion(&"x".repeat(3 << 20));
    let wanted = answer.clone();
    served
        .house
        .engine()
        .set(move |request| (request.method() == "POST").then(|| script::json(200, &answer)));
    let mut client = served.connect(&Secure::new(&served.authority, "gw.example", &[]));
    client.send(post_bytes("/v1/completions", &body));
    let answer = client.read_response();
    assert!(answer.body() == wanted.as_bytes());
    assert!(served.house.engine().requests().iter().any(|request| request.body == body.as_bytes()));
}

#[test]
fn sessions_are_resumed() {
    let served = Served::answering(script::json(200, "{}"));
    let secure = Secure::new(&served.authority, "gw.example", &["http/1.1"]);
    assert_eq!(ask(&mut served.connect(&secure)).status(), 200);
    let mut again = served.connect(&secure);
    assert_eq!(again.session().handshake_kind(), Some(rustls::HandshakeKind::Resumed));
    assert_eq!(ask(&mut again).status(), 200);
    served.wait_for_handshakes("resumed", 1.0);
}

#[test]
fn http_without_tls_is_told_so() {
    let served = Served::answering(script::json(200, "{}"));
    let answer = get(served.addr(), "/v1/models");
    assert_eq!(answer.status(), 400);
    assert_eq!(answer.json()["error"]["code"], "tls_required");
    let mut client = RawClient::connect(served.addr());
    client.send(post_bytes(PATH, chat(true)));
    assert_eq!(client.read_response().status(), 400);
    served.wait_for_handshakes("plain_http", 2.0);
    // What is neither.
    let mut client = RawClient::connect(served.addr());
    client.send([0u8; 64]);
    client.read_until(|_| false);
    served.wait_for_handshakes("malformed", 1.0);
    // One line tells of all of them.
    let told = served.house.ridge.output().matches("TLS handshakes with clients fail").count();
    assert_eq!(told, 1, "{}", served.house.ridge.output());
}

#[test]
fn a_client_that_leaves_ends_its_request_at_once() {
    for orderly in [true, false] {
        for body_began in [true, false] {
            let hang = vec![script::sse_head(), script::chunk("data: 1\n\n"), Step::Hang];
            let served = Served::answering(if body_began { hang } else { vec![Step::Hang] });
            let mut client = served.connect(&Secure::new(&served.authority, "gw.example", &[]));
            // A second request that waits unread must not hide the end.
            client.send([post_bytes(PATH, chat(true)), post_bytes(PATH, chat(true))].concat());
            served.house.engine().wait_for_requests(1);
            if body_began {
                client.read_until(|answer| !answer.body().is_empty());
            }
            let left = Instant::now();
            if orderly {
                client.close_notify();
                client.close();
            } else {
                client.reset();
            }
            let aborted = || served.house.engine().requests()[0].aborted_at;
            wait_until("the engine sees the abort", || aborted().is_some());
            let after = aborted().map_or(Duration::MAX, |at| at.saturating_duration_since(left));
            assert!(after < Duration::from_millis(300), "{after:?}");
        }
    }
}

#[test]
fn a_client_that_never_begins_is_let_go() {
    let served = Served::with(script::json(200, "{}"), |_| {
        vec!["--tls-handshake-timeout=200ms".into(), "--tls-max-handshakes=1".into(), "--threads=1".into()]
    });
    let mut silent = RawClient::connect(served.addr());
    served.house.ridge.wait_for_metric("ridge_tls_handshakes_open", &[], 1.0);
    assert!(RawClient::connect_tls(served.addr(), &served.secure()).is_err());
    served.wait_for_handshakes("too_many", 1.0);
    assert!(silent.is_closed_within(DEADLINE));
    served.wait_for_handshakes("timeout", 1.0);
    served.house.ridge.wait_for_metric("ridge_tls_handshakes_open", &[], 0.0);
    served.connect(&served.secure());
}

/// What a client with this certificate gets: a status, or nothing.
fn status_with(served: &Served, pair: Option<&Issued>) -> Option<u16> {
    let secure = match pair {
        Some(pair) => Secure::showing(&served.authority, "gw.example", &["http/1.1"], pair),
        None => Secure::new(&served.authority, "gw.example", &["http/1.1"]),
    };
    let mut client = RawClient::connect_tls(served.addr(), &secure).ok()?;
    client.try_send(post_bytes(PATH, chat(false))).ok()?;
    let answer = client.read_response();
    (answer.end == rig::End::Complete).then(|| answer.status())
}

#[test]
fn clients_must_show_a_certificate_with_an_accepted_name() {
    let clients = Authority::new();
    let authority = clients.pem().to_owned();
    let served = Served::with(script::json(200, "{}"), |folder| {
        let bundle = folder.write("clients.crt", &authority);
        [
            "--tls-client-ca",
            &bundle,
            "--tls-client-names",
            "dns:*.batch.example",
            "--tls-client-names",
            "uri:spiffe://prod/web",
        ]
        .map(str::to_owned)
        .into()
    });
    assert_eq!(status_with(&served, Some(&clients.issue(&["a.batch.example"]))), Some(200));
    assert_eq!(status_with(&served, Some(&clients.issue(&["spiffe://prod/web"]))), Some(200));
    let refused = [
        None,
        Some(clients.issue(&["batch.example"])),
        Some(clients.issue(&["spiffe://prod/other"])),
        Some(clients.issue_until(&["a.batch.example"], 2021)),
        Some(Authority::new().issue(&["a.batch.example"])),
    ];
    for pair in &refused {
        assert_eq!(status_with(&served, pair.as_ref()), None);
    }
    served.wait_for_handshakes("no_client_certificate", 1.0);
    served.wait_for_handshakes("client_certificate_refused", 4.0);
    served.wait_for_handshakes("full", 2.0);
}

#[test]
fn new_certificates_are_taken_in_and_halves_are_not() {
    let served = Served::answering(vec![
        script::sse_head(),
        script::chunk("data: 1\n\n"),
        Step::Pause(Duration::from_millis(300)),
        script::chunk("data: 2\n\n"),
        script::bytes("0\r\n\r\n"),
    ]);
    let next = Authority::new();
    let renewed = next.issue_until(&["gw.example"], 2040);
    let trusts = |authority: &Authority| {
        RawClient::connect_tls(served.addr(), &Secure::new(authority, "gw.example", &["http/1.1"])).is_ok()
    };
    let output = || served.house.ridge.output();
    let mut open = served.connect(&Secure::new(&served.authority, "gw.example", &["http/1.1"]));
    open.send(post_bytes(PATH, chat(true)));
    let mut answer = open.read_until(|answer| !answer.body().is_empty());

    // Its key is still the old one.
    served.folder.write("gw.crt", &renewed.chain);
    wait_until("the half is refused", || output().contains("does not belong to the first certificate"));
    assert!(trusts(&served.authority) && !trusts(&next));
    served.folder.write("gw.crt", &renewed.chain[..200]);
    wait_until("the torn file is refused", || output().matches("stay as they were").count() >= 2);
    assert!(trusts(&served.authority) && !trusts(&next));

    served.folder.write_pair("gw", &renewed);
    wait_until("both are taken in", || trusts(&next));
    assert!(!trusts(&served.authority));
    let ends = served.house.ridge.metrics().sum("ridge_tls_certificate_not_after_seconds", &[]);
    assert_eq!(ends, Some(2_208_988_800.0));
    // Who was connected before goes on.
    open.read_on(&mut answer);
    assert!(answer.end == rig::End::Complete && answer.body() == b"data: 1\n\ndata: 2\n\n");
    assert_eq!(ask(&mut open).status(), 200);
}

#[test]
fn another_host_has_another_certificate() {
    let other = Authority::new();
    let pair = other.issue(&["*.other.example"]);
    let served = Served::with(script::json(200, "{}"), |folder| {
        let (certificate, key) = folder.write_pair("other", &pair);
        vec![format!("--tls-more-certificates={certificate},key={key}")]
    });
    let mut client = served.connect(&Secure::new(&other, "a.other.example", &["http/1.1"]));
    assert_eq!(ask(&mut client).status(), 200);
    assert_eq!(ask(&mut served.connect(&Secure::new(&served.authority, "gw.example", &[]))).status(), 200);
}
