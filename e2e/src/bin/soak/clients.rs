//! The clients, and the account of what they got.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rig::client::post_bytes;
use rig::{End, H2Client, RawClient};

use crate::content;
use crate::engine::Engine;

const PATH: &str = "/v1/completions";

/// First errors that are kept to be shown.
const SHOWN: usize = 20;

/// A kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Small JSON over a kept connection.
    Json,
    /// Server-sent events, a new connection each.
    Stream,
    /// Bodies of a quarter of a megabyte.
    LongBody,
    /// Small JSON over one HTTP/2 connection.
    JsonH2,
    /// Events over one HTTP/2 connection.
    StreamH2,
    /// Events, read slower than they come.
    SlowReader,
    /// Leaves in the middle of a stream.
    Leaver,
}

impl Kind {
    /// One client of each, some more than once.
    pub const ALL: [Self; 12] = [
        Self::Json,
        Self::Json,
        Self::Json,
        Self::Stream,
        Self::Stream,
        Self::LongBody,
        Self::JsonH2,
        Self::JsonH2,
        Self::StreamH2,
        Self::StreamH2,
        Self::SlowReader,
        Self::Leaver,
    ];

    fn shape(self) -> (usize, usize) {
        match self {
            Self::Json | Self::JsonH2 => (600, 0),
            Self::LongBody => (256 << 10, 0),
            Self::Stream | Self::StreamH2 | Self::Leaver => (600, 40),
            Self::SlowReader => (600, 100),
        }
    }
}

/// The account, of all clients together.
#[derive(Default)]
pub struct Account {
    /// To end.
    pub stop: AtomicBool,
    /// Requests that were sent.
    pub sent: AtomicU64,
    /// Answered whole and right.
    pub good: AtomicU64,
    /// A byte differed from what the engine sends.
    pub wrong: AtomicU64,
    /// Failed before the first byte of an answer, while an engine was healthy: a retry would have saved it.
    pub lost: AtomicU64,
    /// Cut in the middle since the engine died.
    pub cut: AtomicU64,
    /// Cut in the middle, and the engine had not died.
    pub cut_without_cause: AtomicU64,
    /// The client left, as planned.
    pub left: AtomicU64,
    /// The first that went wrong.
    pub first: Mutex<Vec<String>>,
}

/// What came of one request.
struct Got {
    status: u16,
    body: Vec<u8>,
    whole: bool,
    endpoint: Option<usize>,
    words: String,
}

impl Account {
    fn note(&self, what: &AtomicU64, words: impl FnOnce() -> String) {
        what.fetch_add(1, Relaxed);
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.len() < SHOWN {
            first.push(words().replace(['\r', '\n'], " "));
        }
    }

    fn judge(&self, kind: Kind, began: Instant, expected: &[u8], got: &Got, engines: &[Engine]) {
        let words = || {
            let shown = String::from_utf8_lossy(&got.body[..got.body.len().min(200)]).into_owned();
            format!("{kind:?} after {:?}: {} {} {shown}", began.elapsed(), got.status, got.words)
        };
        if got.status != 200 {
            self.note(&self.lost, || format!("lost: {}", words()));
        } else if !expected.starts_with(&got.body) || got.whole && got.body.len() != expected.len() {
            self.note(&self.wrong, || format!("wrong bytes: {}", words()));
        } else if got.whole {
            self.good.fetch_add(1, Relaxed);
        } else {
            let died = |engine: &Engine| engine.was_killed(began, Instant::now());
            match got.endpoint.and_then(|endpoint| engines.get(endpoint)) {
                Some(engine) if died(engine) => drop(self.cut.fetch_add(1, Relaxed)),
                _ => self.note(&self.cut_without_cause, || format!("cut without cause: {}", words())),
            }
        }
    }
}

/// `engine-3` is number 2.
fn number(name: &str) -> Option<usize> {
    name.rsplit('-').next()?.parse::<usize>().ok()?.checked_sub(1)
}

/// Runs one client until it is told to stop.
pub fn run(kind: Kind, addr: SocketAddr, seed: u64, account: &Account, engines: &[Engine]) {
    let mut state = seed;
    let mut kept: Option<RawClient> = None;
    let mut http2: Option<H2Client> = None;
    while !account.stop.load(Relaxed) {
        let (length, events) = kind.shape();
        let request = content::request(content::random(&mut state), length, events);
        let expected = content::expected(&request, events);
        let began = Instant::now();
        account.sent.fetch_add(1, Relaxed);
        let got = match kind {
            Kind::Json | Kind::Stream | Kind::LongBody => Some(http1(addr, &mut kept, kind, &request)),
            Kind::JsonH2 | Kind::StreamH2 => match h2(addr, &mut http2, &request) {
                Some(got) => Some(got),
                None => {
                    account.sent.fetch_sub(1, Relaxed);
                    continue;
                }
            },
            Kind::SlowReader => Some(slowly(addr, &request)),
            Kind::Leaver => {
                leave(addr, &request);
                account.left.fetch_add(1, Relaxed);
                None
            }
        };
        if let Some(got) = got {
            account.judge(kind, began, &expected, &got, engines);
        }
        // Load is not the point.
        std::thread::sleep(Duration::from_millis(content::random(&mut state) % 20));
    }
}

fn http1(addr: SocketAddr, kept: &mut Option<RawClient>, kind: Kind, request: &str) -> Got {
    let connected = kept.take().map_or_else(|| RawClient::try_connect(addr), Ok);
    let mut client = match connected {
        Ok(client) => client,
        Err(error) => return failed(error.to_string()),
    };
    let sent = client.try_send(post_bytes(PATH, request));
    let response = client.read_response();
    if !response.has_head() {
        return failed(format!("{sent:?} {:?}", response.end));
    }
    let header = |name: &str| response.header(name).into_iter().next().unwrap_or_default();
    let whole = response.end == End::Complete;
    let got = Got {
        status: response.status(),
        body: response.body().to_vec(),
        whole,
        endpoint: number(&header("x-ridge-endpoint")),
        words: format!("{:?} {}", response.end, String::from_utf8_lossy(response.head())),
    };
    if kind == Kind::Json && whole && !header("connection").eq_ignore_ascii_case("close") {
        *kept = Some(client);
    }
    got
}

fn failed(words: String) -> Got {
    Got { status: 0, body: Vec::new(), whole: false, endpoint: None, words }
}

/// `None` when the connection had been closed in order and nothing was sent.
fn h2(addr: SocketAddr, kept: &mut Option<H2Client>, request: &str) -> Option<Got> {
    let client = kept.get_or_insert_with(|| H2Client::connect(addr));
    let response = client.post_json(PATH, request.to_owned());
    if response.error.is_some() {
        *kept = None;
    }
    if response.status == 0 && response.error.as_ref().is_some_and(|error| error.contains("Canceled")) {
        return None;
    }
    let endpoint =
        response.headers.get("x-ridge-endpoint").and_then(|name| name.to_str().ok()).and_then(number);
    Some(Got {
        status: response.status,
        body: response.body,
        whole: response.error.is_none(),
        endpoint,
        words: format!("{:?}", response.error),
    })
}

/// Reads a little at a time, with pauses: what it has not read waits in the sockets and stops the engine.
fn slowly(addr: SocketAddr, request: &str) -> Got {
    let mut client = match RawClient::try_connect(addr) {
        Ok(client) => client,
        Err(error) => return failed(error.to_string()),
    };
    let sent = client.try_send(post_bytes(PATH, request));
    let mut response = client.read_until(|_| true);
    // A response that has not ended reads as one whose deadline has passed.
    while response.end == End::Deadline {
        std::thread::sleep(Duration::from_millis(30));
        let had = response.body().len();
        client.read_on_until(&mut response, |response| response.body().len() > had);
        if response.body().len() == had {
            break;
        }
    }
    if !response.has_head() {
        return failed(format!("{sent:?} {:?}", response.end));
    }
    let name = response.header("x-ridge-endpoint").into_iter().next().unwrap_or_default();
    Got {
        status: response.status(),
        body: response.body().to_vec(),
        whole: response.end == End::Complete,
        endpoint: number(&name),
        words: format!("{:?}", response.end),
    }
}

fn leave(addr: SocketAddr, request: &str) {
    let Ok(mut stream) = TcpStream::connect(addr) else { return };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    if stream.write_all(&post_bytes(PATH, request)).is_ok() {
        let _ = stream.read(&mut [0; 512]);
    }
}
