//! An engine on loopback that does what a test tells it and writes down what it saw.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

use crate::connection;
use crate::head::{header_lines, header_values, start_line};
use crate::script::{self, Script};
use crate::wait::wait_until;

/// A request as the engine saw it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which connection it came on, counted from 0 in the order of accepting.
    pub connection: usize,
    /// How many requests came before it on that connection.
    pub index_on_connection: usize,
    /// When its head was complete.
    pub head_at: Instant,
    /// The start line and header lines with the blank line, exactly as received.
    pub head: Vec<u8>,
    /// The body as far as it has come, without chunk framing.
    pub body: Vec<u8>,
    /// The trailer lines after a chunked body, each with its CRLF.
    pub trailers: Vec<u8>,
    /// Whether all of the body has come.
    pub complete: bool,
    /// When it had.
    pub complete_at: Option<Instant>,
    /// When the peer was seen to have left before the answer was done.
    pub aborted_at: Option<Instant>,
    /// When the last step of the script was done.
    pub answered_at: Option<Instant>,
    /// When each [`Step::Bytes`](crate::Step::Bytes) of the answer was about to be written.
    pub written_at: Vec<Instant>,
}

impl Request {
    /// The method, for example `POST`.
    pub fn method(&self) -> String {
        start_line(&self.head).split(' ').next().unwrap_or_default().to_owned()
    }

    /// The target with its query, as received.
    pub fn target(&self) -> String {
        start_line(&self.head).split(' ').nth(1).unwrap_or_default().to_owned()
    }

    /// All values of a header, in order.
    pub fn header(&self, name: &str) -> Vec<String> {
        header_values(&self.head, name)
    }

    /// All header lines as (name, value), in order.
    pub fn headers(&self) -> Vec<(String, String)> {
        header_lines(&self.head)
    }
}

pub(crate) type Handler = Arc<dyn Fn(&Request) -> Option<Script> + Send + Sync>;

pub(crate) struct Shared {
    pub(crate) stopped: AtomicBool,
    accepted: AtomicUsize,
    pub(crate) log: Mutex<Vec<Request>>,
    pub(crate) at_head: Mutex<Handler>,
    pub(crate) at_body: Mutex<Handler>,
    open: Mutex<HashMap<usize, TcpStream>>,
    model: Mutex<String>,
    metrics: Mutex<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test thread that panicked while holding the lock has failed already; what it left is still worth reading.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn note(&self, index: usize, change: impl FnOnce(&mut Request)) {
        if let Some(request) = lock(&self.log).get_mut(index) {
            change(request);
        }
    }

    pub(crate) fn add(&self, request: Request) -> usize {
        let mut log = lock(&self.log);
        log.push(request);
        log.len() - 1
    }

    pub(crate) fn get(&self, index: usize) -> Request {
        lock(&self.log)[index].clone()
    }

    pub(crate) fn closed(&self, connection: usize) {
        lock(&self.open).remove(&connection);
    }

    /// What every engine answers when its script has nothing to say: enough for a gateway to find a vLLM engine.
    pub(crate) fn default_answer(&self, request: &Request) -> Script {
        let target = request.target();
        match target.split('?').next().unwrap_or_default() {
            "/health" | "/ping" => script::answer(200, &[], ""),
            "/version" => script::json(200, r#"{"version":"0.32.0"}"#),
            "/v1/models" => script::json(200, models_json(&lock(&self.model))),
            "/metrics" => script::answer(
                200,
                &[("content-type", "text/plain; version=0.0.4; charset=utf-8")],
                lock(&self.metrics).as_str(),
            ),
            _ => script::json(404, r#"{"detail":"Not Found"}"#),
        }
    }
}

fn models_json(model: &str) -> String {
    format!(
        r#"{{"object":"list","data":[{{"id":"{model}","object":"model","created":1,"owned_by":"vllm","root":"{model}","parent":null,"max_model_len":8192}}]}}"#
    )
}

fn vllm_metrics(model: &str, running: usize, waiting: usize) -> String {
    let labels = format!(r#"{{engine="0",model_name="{model}"}}"#);
    format!(
        "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{labels} {running}.0\n\
         # TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{labels} {waiting}.0\n\
         # TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{labels} 0.0\n\
         # TYPE vllm:cache_config_info gauge\n\
         vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1000\"}} 1.0\n"
    )
}

/// A scripted engine on its own port of 127.0.0.1; gone when dropped.
///
/// It speaks HTTP/1.1 with kept-alive connections. `GET /v1/models`, `/metrics`, `/version` and `/health` are
/// answered as vLLM does, for the model named `m`, unless the script answers them.
pub struct ScriptedEngine {
    addr: SocketAddr,
    shared: Arc<Shared>,
    running: bool,
}

impl ScriptedEngine {
    /// Starts an engine that answers each request as `script` says once all of it is there; None means the default.
    pub fn start(script: impl Fn(&Request) -> Option<Script> + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            stopped: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            log: Mutex::new(Vec::new()),
            at_head: Mutex::new(Arc::new(|_| None)),
            at_body: Mutex::new(Arc::new(script)),
            open: Mutex::new(HashMap::new()),
            model: Mutex::new("m".to_owned()),
            metrics: Mutex::new(vllm_metrics("m", 0, 0)),
        });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
        let addr = listener.local_addr().expect("the address of a bound socket");
        accept_on(listener, shared.clone());
        Self { addr, shared, running: true }
    }

    /// Starts an engine that answers every POST with `script`.
    pub fn answering(script: Script) -> Self {
        Self::start(move |request| (request.method() == "POST").then(|| script.clone()))
    }

    /// Changes what later requests are answered with.
    pub fn set(&self, script: impl Fn(&Request) -> Option<Script> + Send + Sync + 'static) {
        *lock(&self.shared.at_body) = Arc::new(script);
    }

    /// Answers as `script` says as soon as the head is there, without reading the body, where it gives steps.
    pub fn set_at_head(&self, script: impl Fn(&Request) -> Option<Script> + Send + Sync + 'static) {
        *lock(&self.shared.at_head) = Arc::new(script);
    }

    /// Names the model that `/v1/models` and `/metrics` tell.
    pub fn set_model(&self, model: &str) {
        *lock(&self.shared.model) = model.to_owned();
        *lock(&self.shared.metrics) = vllm_metrics(model, 0, 0);
    }

    /// Sets the two gauges that `/metrics` tells.
    pub fn set_load(&self, running: usize, waiting: usize) {
        let model = lock(&self.shared.model).clone();
        *lock(&self.shared.metrics) = vllm_metrics(&model, running, waiting);
    }

    /// Sets the whole text of `/metrics`.
    pub fn set_metrics(&self, text: &str) {
        *lock(&self.shared.metrics) = text.to_owned();
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens, as `http://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Every request so far, whatever it asks.
    pub fn all_requests(&self) -> Vec<Request> {
        lock(&self.shared.log).clone()
    }

    /// The POST requests so far: what clients sent, without a gateway's own questions.
    pub fn requests(&self) -> Vec<Request> {
        self.all_requests().into_iter().filter(|request| request.method() == "POST").collect()
    }

    /// Waits for the first `count` POST requests (their heads at least) and gives all there are.
    #[track_caller]
    pub fn wait_for_requests(&self, count: usize) -> Vec<Request> {
        wait_until(&format!("{count} requests at the engine"), || self.requests().len() >= count);
        self.requests()
    }

    /// The connections on which POST requests came, each once, in order of accepting.
    pub fn request_connections(&self) -> Vec<usize> {
        let mut connections: Vec<usize> = self.requests().iter().map(|request| request.connection).collect();
        connections.sort_unstable();
        connections.dedup();
        connections
    }

    /// How many connections it has accepted since it was started.
    pub fn connections_accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are open now.
    pub fn connections_open(&self) -> usize {
        lock(&self.shared.open).len()
    }

    /// Forgets the requests seen so far.
    pub fn clear(&self) {
        lock(&self.shared.log).clear();
    }

    /// Dies as a killed process does: the port refuses, every connection is closed at once.
    pub fn kill(&mut self) {
        if !std::mem::take(&mut self.running) {
            return;
        }
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for connections, which then lets go of the port.
        drop(TcpStream::connect(self.addr));
        for (_, stream) in lock(&self.shared.open).drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        wait_until("the engine's port is free", || TcpStream::connect(self.addr).is_err());
    }

    /// Comes back on the same port with the same script.
    pub fn restart(&mut self) {
        self.kill();
        let log = std::mem::take(&mut *lock(&self.shared.log));
        let fresh = Shared {
            stopped: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            log: Mutex::new(log),
            at_head: Mutex::new(lock(&self.shared.at_head).clone()),
            at_body: Mutex::new(lock(&self.shared.at_body).clone()),
            open: Mutex::new(HashMap::new()),
            model: Mutex::new(lock(&self.shared.model).clone()),
            metrics: Mutex::new(lock(&self.shared.metrics).clone()),
        };
        self.shared = Arc::new(fresh);
        let listener = TcpListener::bind(self.addr).expect("the port it had");
        accept_on(listener, self.shared.clone());
        self.running = true;
    }
}

impl Drop for ScriptedEngine {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        if self.running {
            drop(TcpStream::connect(self.addr));
        }
        for (_, stream) in lock(&self.shared.open).drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept_on(listener: TcpListener, shared: Arc<Shared>) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            if shared.stopped.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let _ = stream.set_nodelay(true);
            let id = shared.accepted.fetch_add(1, Ordering::SeqCst);
            if let Ok(copy) = stream.try_clone() {
                lock(&shared.open).insert(id, copy);
            }
            let shared = shared.clone();
            thread::spawn(move || {
                connection::serve(&stream, id, &shared);
                shared.closed(id);
            });
        }
    });
}
