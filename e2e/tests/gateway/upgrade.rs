//! One program replaced by another while clients notice nothing.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;

use e2e::{ConfigFile, House, chat, completion, config_of};
use rig::client::{self, post_bytes, post_json};
use rig::script::{self, Step};
use rig::{End, H2Client, RawClient, Response, RidgeProcess, ScriptedEngine, ridge_binary, wait_until};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const ANSWER: &str = r#"{"choices":[{"text":"whole"}]}"#;
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn stream_text() -> String {
    (0..30).map(|i| format!("data: {i}\n\n")).collect()
}

fn engine() -> ScriptedEngine {
    ScriptedEngine::start(|request| {
        let stream = || script::paced(script::sse((0..30).map(|i| format!("data: {i}\n\n"))), 20);
        (request.method() == "POST").then(|| match request.target() == CHAT {
            true => stream(),
            false => script::json(200, ANSWER),
        })
    })
}

/// What clients have seen.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    good: [AtomicUsize; 6],
    wrong: Mutex<Vec<String>>,
}

impl Seen {
    fn note(&self, client: usize, good: bool, otherwise: impl FnOnce() -> String) {
        match good {
            true => drop(self.good[client].fetch_add(1, SeqCst)),
            false => self.wrong.lock().expect("no client panics").push(otherwise()),
        }
    }

    fn going(&self) -> bool {
        !self.stop.load(SeqCst)
    }

    fn counts(&self) -> Vec<usize> {
        self.good.iter().map(|good| good.load(SeqCst)).collect()
    }
}

fn is_whole(response: &Response, body: &str) -> bool {
    response.end == End::Complete && response.status() == 200 && response.text() == body
}

fn told_to_close(response: &Response) -> bool {
    response.header("connection").iter().any(|value| value.eq_ignore_ascii_case("close"))
}

/// A client that keeps its connection as long as it may.
fn keep_alive(addr: SocketAddr, seen: &Seen) {
    let mut client = RawClient::connect(addr);
    while seen.going() {
        let sent = client.try_send(post_bytes(COMPLETIONS, completion("x")));
        let response = client.read_response();
        seen.note(0, sent.is_ok() && is_whole(&response, ANSWER), || format!("kept: {sent:?} {response:?}"));
        if told_to_close(&response) || response.end != End::Complete {
            client = RawClient::connect(addr);
        }
    }
}

/// A client with a new connection for each request.
fn new_connections(addr: SocketAddr, client: usize, path: &str, body: &str, answer: &str, seen: &Seen) {
    while seen.going() {
        match RawClient::try_connect(addr) {
            Ok(mut connection) => {
                let sent = connection.try_send(post_bytes(path, body));
                let response = connection.read_response();
                let good = sent.is_ok() && is_whole(&response, answer);
                seen.note(client, good, || format!("new, {path}: {sent:?} {response:?}"));
            }
            Err(error) => seen.note(client, false, || format!("new, {path}: {error}")),
        }
    }
}

/// A client that sends all over one HTTP/2 connection until the server says goodbye on it.
fn http2(addr: SocketAddr, client: usize, path: &str, body: &str, answer: &str, seen: &Seen) {
    let mut connection = H2Client::connect(addr);
    while seen.going() {
        let response = connection.start("POST", path, &JSON, body.to_owned()).read_all();
        // Not sent at all: the connection had been closed in order before. The engine's count below would show one
        // that was sent.
        let unsent = response.error.as_ref().is_some_and(|error| error.contains("Canceled"));
        if response.status == 0 && unsent {
            connection = H2Client::connect(addr);
            continue;
        }
        let good = response.error.is_none() && response.status == 200 && response.body == answer.as_bytes();
        seen.note(client, good, || format!("HTTP/2, {path}: {response:?}"));
    }
}

/// Operators ask for metrics.
fn metrics(addr: SocketAddr, seen: &Seen) {
    while seen.going() {
        let response = client::get(addr, "/metrics");
        let good = response.end == End::Complete && response.status() == 200;
        seen.note(5, good, || format!("metrics: {response:?}"));
    }
}

#[test]
fn three_upgrades_under_traffic_and_no_client_notices() {
    let mut house = House::with(vec![engine()], &[]);
    let (addr, admin) = (house.addr(), house.ridge.admin);
    let first = house.ridge.id();
    let seen = Seen::default();
    let (completion, chat, stream) = (completion("x"), chat(true), stream_text());
    let mut ids = vec![first];
    thread::scope(|scope| {
        scope.spawn(|| keep_alive(addr, &seen));
        scope.spawn(|| new_connections(addr, 1, COMPLETIONS, &completion, ANSWER, &seen));
        scope.spawn(|| new_connections(addr, 2, CHAT, &chat, &stream, &seen));
        scope.spawn(|| http2(addr, 3, COMPLETIONS, &completion, ANSWER, &seen));
        scope.spawn(|| http2(addr, 4, CHAT, &chat, &stream, &seen));
        scope.spawn(|| metrics(admin, &seen));
        let progress = |what: &str| {
            let before = seen.counts();
            wait_until(what, || seen.counts().iter().zip(&before).all(|(now, before)| *now > before + 1));
        };
        for upgrade in 1..=3 {
            progress("every client is served");
            ids.push(house.ridge.upgrade());
            progress(&format!("every client is served after upgrade {upgrade}"));
        }
        seen.stop.store(true, SeqCst);
    });
    let wrong = seen.wrong.lock().expect("no client panicked");
    assert!(wrong.is_empty(), "{} of {:?}: {:#?}", wrong.len(), seen.counts(), &wrong[..wrong.len().min(5)]);
    // Each request came to the engine once: none was lost, none sent twice.
    let good: usize = seen.counts()[..5].iter().sum();
    assert_eq!(house.engine().requests().len(), good);
    ids.dedup();
    assert_eq!(ids.len(), 4, "{ids:?}");
    house.ridge.signal("TERM");
    assert!(house.wait_for_end().success());
}

#[test]
fn a_process_that_cannot_take_over_changes_nothing() {
    let engine = ScriptedEngine::answering(script::json(200, ANSWER));
    let good = config_of(&[&engine]);
    let file = ConfigFile::new("upgrade", &good);
    let ridge = RidgeProcess::start(&["serve", "-c", &file.path()], &[]);
    let mut house = House::around(ridge, vec![engine]);
    house.wait_for_endpoints(1);
    let id = house.ridge.id();

    file.write(&good.replace("upstreams", "upstraems"));
    house.ridge.signal("USR2");
    wait_until("it says why", || {
        let said = house.ridge.output();
        said.contains("upstraems") && said.contains("no upgrade, this process goes on: the new process ended")
    });
    assert_eq!(post_json(house.addr(), COMPLETIONS, completion("x")).status(), 200);
    assert_eq!(house.ridge.id(), id);

    file.write(&good);
    assert_ne!(house.ridge.upgrade(), id);
    assert_eq!(post_json(house.addr(), COMPLETIONS, completion("x")).status(), 200);
}

#[test]
fn a_process_that_is_never_ready_is_ended_and_a_second_upgrade_meanwhile_ignored() {
    let mut house = House::with(
        vec![ScriptedEngine::answering(script::json(200, ANSWER))],
        &["--timeouts-upgrade", "1s"],
    );
    // No endpoint answers the new process.
    house.engines[0].set_at_head(|request| (request.method() == "GET").then(|| vec![Step::Hang]));
    house.ridge.signal("USR2");
    wait_until("it is started", || house.ridge.output().contains("was started to take over"));
    house.ridge.signal("USR2");
    wait_until("the second is ignored", || house.ridge.output().contains("is taking over already"));
    assert_eq!(post_json(house.addr(), COMPLETIONS, completion("x")).status(), 200);
    wait_until("it is ended", || house.ridge.output().contains("was not ready within 1s"));
    assert_eq!(post_json(house.addr(), COMPLETIONS, completion("x")).status(), 200);
    house.engines[0].set_at_head(|_| None);
    house.ridge.upgrade();
}

#[test]
fn told_to_end_during_an_upgrade_it_ends_with_the_new_process() {
    let mut house = House::with(vec![ScriptedEngine::answering(script::json(200, ANSWER))], &[]);
    house.engines[0].set_at_head(|request| (request.method() == "GET").then(|| vec![Step::Hang]));
    house.ridge.signal("USR2");
    wait_until("it is started", || house.ridge.output().contains("was started to take over"));
    let addr = house.addr();
    house.ridge.signal("TERM");
    assert!(house.wait_for_end().success());
    // The new one held the listener, too.
    wait_until("nobody listens", || RawClient::try_connect(addr).is_err());
}

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ridge-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for the test");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_program_that_is_in_its_place_by_then_is_started() {
    let folder = Folder::new("program");
    let path = folder.0.join("ridge");
    fs::copy(ridge_binary(), &path).expect("a copy of the program");
    let engine = ScriptedEngine::answering(script::json(200, ANSWER));
    let arguments =
        ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &engine.url()];
    let ridge = RidgeProcess::start_at(&path, &arguments, &[]);
    let mut house = House::around(ridge, vec![engine]);
    house.wait_for_endpoints(1);

    let other = folder.0.join("other");
    fs::write(&other, "#!/bin/sh\necho I am another program\nexit 7\n").expect("a script");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).expect("to make it a program");
    fs::rename(&other, &path).expect("to replace the program");
    house.ridge.signal("USR2");
    wait_until("the other program ran", || {
        let said = house.ridge.output();
        said.contains("I am another program") && said.contains("ended (exit status: 7)")
    });
    fs::remove_file(&path).expect("to remove the program");
    house.ridge.signal("USR2");
    wait_until("it says what is missing", || house.ridge.output().contains("cannot be started"));

    // Through a link, as releases are switched.
    std::os::unix::fs::symlink(ridge_binary(), &path).expect("a link");
    house.ridge.upgrade();
    assert_eq!(post_json(house.addr(), COMPLETIONS, completion("x")).status(), 200);
}
