//! Mock engines: many ports, one thread, answers prepared beforehand, so that they are not what is measured.

use std::io::{self, BufRead as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::http1::{Chunked, Head, push_chunk, request_head};
use crate::metrics_page::MetricsPage;
use crate::traffic::{self, CHUNK_PAUSE_MS, CHUNKS, Kind, TOKENS_FIRST_MS, TOKENS_PAUSE_MS, VARIANTS};
use crate::trouble::Trouble;

/// Heads and bodies beyond this close the connection.
const REQUEST_LIMIT_BYTES: usize = 4 * 1024 * 1024;
const BUFFER_BYTES: usize = 32 * 1024;

/// Runs the mock engines until standard input ends. A line on it that names a trouble is what the last engine has from
/// then on.
#[derive(clap::Args, Debug)]
pub struct MockArgs {
    /// First port; engine i listens on it plus i, on 127.0.0.1.
    #[arg(long)]
    first_port: u16,
    /// How many engines.
    #[arg(long, default_value_t = 4)]
    engines: u16,
    /// Size of the /metrics page at least, in bytes.
    #[arg(long, default_value_t = 4096)]
    metrics_bytes: usize,
}

/// What the engines saw, as `GET /bench/seen` tells it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Seen {
    /// Connections accepted.
    pub connections: u64,
    /// POST requests answered.
    pub requests: u64,
    /// POST requests whose body is not, byte for byte, what the load generator sends.
    pub altered: u64,
    /// POST requests for anything but chat completions.
    pub other: u64,
    /// Reads of the metrics page.
    pub scrapes: u64,
}

#[derive(Default)]
struct Counters {
    connections: AtomicU64,
    requests: AtomicU64,
    altered: AtomicU64,
    other: AtomicU64,
    scrapes: AtomicU64,
}

struct Engines {
    counters: Counters,
    metrics: MetricsPage,
    /// By kind, then variant.
    due_bodies: Vec<Vec<u8>>,
    answers: Vec<Vec<Vec<u8>>>,
    tokens: Vec<Vec<u8>>,
}

impl Engines {
    fn new(metrics_bytes: usize) -> Self {
        let each =
            || Kind::ALL.into_iter().flat_map(|kind| (0..VARIANTS).map(move |variant| (kind, variant)));
        Self {
            counters: Counters::default(),
            metrics: MetricsPage::new(metrics_bytes),
            due_bodies: each().map(|(kind, variant)| traffic::request_body(kind, variant)).collect(),
            answers: each().map(|(kind, variant)| answer_writes(kind, variant)).collect(),
            tokens: each()
                .map(|(kind, variant)| {
                    whole("200 OK", "application/json", &traffic::token_answer(kind, variant))
                })
                .collect(),
        }
    }
}

/// The answer as the writes in which it leaves: one, or for a paced stream one a chunk.
fn answer_writes(kind: Kind, variant: usize) -> Vec<Vec<u8>> {
    match kind {
        Kind::Json2k | Kind::Json64k => {
            vec![whole("200 OK", "application/json", &traffic::json_answer(kind, variant))]
        }
        Kind::Burst => vec![stream_writes(traffic::events(kind, variant)).concat()],
        Kind::Flushed | Kind::Paced | Kind::Tokens => stream_writes(traffic::events(kind, variant)),
        Kind::Stamped => Vec::new(),
    }
}

const NOT_FOUND: &[u8] = br#"{"detail":"Not Found"}"#;
const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
    cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";

fn stream_writes(events: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let last = events.len() - 1;
    let mut writes = Vec::with_capacity(events.len());
    for (n, event) in events.into_iter().enumerate() {
        let mut bytes = if n == 0 { STREAM_HEAD.to_vec() } else { Vec::new() };
        push_chunk(&mut bytes, &event);
        if n == last {
            bytes.extend_from_slice(b"0\r\n\r\n");
        }
        writes.push(bytes);
    }
    writes
}

fn whole(status: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Runs `bench mock`.
pub fn run(args: &MockArgs) -> io::Result<()> {
    let (trouble, last_engine) = watch::channel(None);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            match Trouble::named(&line) {
                Some(named) => drop(trouble.send_replace(Some(named))),
                None => eprintln!("mock engines: {line:?} names no trouble"),
            }
        }
        // The parent holds the other end: however it ends, this ends too.
        std::process::exit(0);
    });
    let engines = Arc::new(Engines::new(args.metrics_bytes));
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut listeners = Vec::new();
        for engine in 0..args.engines {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.first_port + engine));
            let listener = TcpListener::bind(address).await;
            listeners
                .push(listener.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?);
        }
        println!("ready");
        io::stdout().flush()?;
        let last = listeners.len() - 1;
        // Kept to the end: a receiver whose sender is gone would look like one that has news.
        let (_well, others) = watch::channel(None);
        let spawn = |(n, listener)| {
            let trouble = if n == last { last_engine.clone() } else { others.clone() };
            tokio::spawn(accept(listener, engines.clone(), trouble))
        };
        let accepting: Vec<_> = listeners.into_iter().enumerate().map(spawn).collect();
        for task in accepting {
            task.await.map_err(io::Error::other)??;
        }
        Ok(())
    })
}

async fn accept(
    listener: TcpListener,
    engines: Arc<Engines>,
    trouble: watch::Receiver<Option<Trouble>>,
) -> io::Result<()> {
    let mut death = trouble.clone();
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            () = Trouble::kills(&mut death) => return Ok(()),
        };
        engines.counters.connections.fetch_add(1, Relaxed);
        let engines = engines.clone();
        let (trouble, mut death) = (trouble.clone(), death.clone());
        tokio::spawn(async move {
            let served = tokio::select! {
                served = serve(stream, &engines, &trouble) => served,
                () = Trouble::kills(&mut death) => Ok(()),
            };
            if let Err(error) = served
                && error.kind() == io::ErrorKind::InvalidData
            {
                eprintln!("mock engine: {error}");
            }
        });
    }
}

async fn serve(
    mut stream: TcpStream,
    engines: &Engines,
    trouble: &watch::Receiver<Option<Trouble>>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut filled = 0;
    loop {
        let head = loop {
            if filled > 0
                && let Some(head) = request_head(&buffer[..filled])?
            {
                break head;
            }
            if read_more(&mut stream, &mut buffer, &mut filled).await? == 0 {
                return Ok(());
            }
        };
        if head.expects_continue {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let end = if head.chunked {
            let mut decoder = Chunked::default();
            let (mut body, mut at) = (Vec::new(), head.bytes);
            loop {
                at += decoder.feed(&buffer[at..filled], |data| body.extend_from_slice(data))?;
                if decoder.is_done() {
                    break;
                }
                if read_more(&mut stream, &mut buffer, &mut filled).await? == 0 {
                    return Ok(());
                }
            }
            let trouble = *trouble.borrow();
            answer(&mut stream, engines, &head, &body, trouble).await?;
            at
        } else {
            let end = head.bytes + head.content_length.unwrap_or_default();
            if end > buffer.len() && end <= REQUEST_LIMIT_BYTES {
                buffer.resize(end, 0);
            }
            while filled < end {
                if read_more(&mut stream, &mut buffer, &mut filled).await? == 0 {
                    return Ok(());
                }
            }
            let trouble = *trouble.borrow();
            answer(&mut stream, engines, &head, &buffer[head.bytes..end], trouble).await?;
            end
        };
        if head.closes {
            return Ok(());
        }
        buffer.copy_within(end..filled, 0);
        filled -= end;
    }
}

async fn read_more(stream: &mut TcpStream, buffer: &mut Vec<u8>, filled: &mut usize) -> io::Result<usize> {
    if *filled == buffer.len() {
        if buffer.len() >= REQUEST_LIMIT_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "request is longer than 4 MiB"));
        }
        buffer.resize(buffer.len() * 2, 0);
    }
    let count = stream.read(&mut buffer[*filled..]).await?;
    *filled += count;
    Ok(count)
}

async fn answer(
    stream: &mut TcpStream,
    engines: &Engines,
    head: &Head,
    body: &[u8],
    trouble: Option<Trouble>,
) -> io::Result<()> {
    if trouble == Some(Trouble::Stuck) {
        return std::future::pending().await;
    }
    if !head.is_post {
        return stream.write_all(&page(engines, head)).await;
    }
    if head.path != "/v1/chat/completions" {
        engines.counters.other.fetch_add(1, Relaxed);
        // A vLLM that was started with no special flag tokenises, but does not render.
        return match traffic::read_mark(body).filter(|_| head.path == "/tokenize") {
            Some((kind, variant)) => {
                stream.write_all(&engines.tokens[kind.index() * VARIANTS + variant]).await
            }
            None => stream.write_all(&whole("404 Not Found", "application/json", NOT_FOUND)).await,
        };
    }
    let count = engines.counters.requests.fetch_add(1, Relaxed);
    if trouble == Some(Trouble::Failing) && count.is_multiple_of(2) {
        return stream
            .write_all(&whole("500 Internal Server Error", "application/json", br#"{"error":"trouble"}"#))
            .await;
    }
    let Some((kind, variant)) = traffic::read_mark(body) else {
        engines.counters.altered.fetch_add(1, Relaxed);
        return stream
            .write_all(&whole("400 Bad Request", "application/json", b"{\"error\":\"no mark\"}"))
            .await;
    };
    let index = kind.index() * VARIANTS + variant;
    if engines.due_bodies[index] != body {
        engines.counters.altered.fetch_add(1, Relaxed);
    }
    if kind == Kind::Stamped {
        return stamped_stream(stream).await;
    }
    let begin = tokio::time::Instant::now();
    for (n, bytes) in engines.answers[index].iter().enumerate() {
        let due_ms = match kind {
            Kind::Paced => n as u64 * CHUNK_PAUSE_MS,
            Kind::Tokens => TOKENS_FIRST_MS + n as u64 * TOKENS_PAUSE_MS,
            _ => 0,
        };
        if due_ms > 0 {
            let slowness = if trouble == Some(Trouble::Slow) { Trouble::SLOWNESS } else { 1 };
            tokio::time::sleep_until(begin + Duration::from_millis(due_ms * slowness)).await;
        }
        stream.write_all(bytes).await?;
    }
    Ok(())
}

async fn stamped_stream(stream: &mut TcpStream) -> io::Result<()> {
    let begin = tokio::time::Instant::now();
    stream.write_all(STREAM_HEAD).await?;
    for n in 0..CHUNKS {
        tokio::time::sleep_until(begin + Duration::from_millis(n as u64 * CHUNK_PAUSE_MS)).await;
        let mut bytes = Vec::with_capacity(128);
        push_chunk(&mut bytes, &traffic::stamped_event(clock_ns()));
        if n + 1 == CHUNKS {
            bytes.extend_from_slice(b"0\r\n\r\n");
        }
        stream.write_all(&bytes).await?;
    }
    Ok(())
}

/// The system's clock in nanoseconds; the load generator on the same machine reads the same clock.
pub fn clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn page(engines: &Engines, head: &Head) -> Vec<u8> {
    let counters = &engines.counters;
    match head.path.split('?').next().unwrap_or_default() {
        "/v1/models" => whole(
            "200 OK",
            "application/json",
            br#"{"object":"list","data":[{"id":"mock","object":"model","created":1767225600,"owned_by":"vllm","root":"mock","parent":null,"max_model_len":32768}]}"#,
        ),
        "/metrics" => {
            let count = counters.scrapes.fetch_add(1, Relaxed);
            whole("200 OK", "text/plain; version=0.0.4; charset=utf-8", &engines.metrics.text(count))
        }
        "/health" | "/ping" => whole("200 OK", "application/json", b""),
        "/version" => whole("200 OK", "application/json", br#"{"version":"0.32.0"}"#),
        "/bench/seen" => {
            let seen = Seen {
                connections: counters.connections.load(Relaxed),
                requests: counters.requests.load(Relaxed),
                altered: counters.altered.load(Relaxed),
                other: counters.other.load(Relaxed),
                scrapes: counters.scrapes.load(Relaxed),
            };
            whole("200 OK", "application/json", &serde_json::to_vec(&seen).unwrap_or_default())
        }
        _ => whole("404 Not Found", "application/json", NOT_FOUND),
    }
}
