//! The running gateway: its threads, and the handle on them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use scheduling::PrefixIndex;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

use crate::access_log::Log;
use crate::control::{Control, Controller};
use crate::core::{Command, Core, Gauge, Shared};
use crate::ledger::Ledger;
use crate::settings::{Policy, Startup, Tls, Upstream};
use crate::vitals::{Closed, Closures};
use crate::world::World;
use crate::{accept, control, core};

/// Entries of the prefix table: 2 MiB, four thousand prompts of 64 blocks.
const PREFIX_ENTRIES: usize = 1 << 18;

/// How often a shutdown looks whether all is done.
const DRAIN_LOOK: Duration = Duration::from_millis(10);

/// Time for idle connections to close, and for the last bytes of answers, whatever the bound on a shutdown.
const CLOSE_TIME: Duration = Duration::from_millis(200);

/// A core that does not answer within this time is left out of a snapshot.
const SNAPSHOT_TIME: Duration = Duration::from_secs(2);

/// Why a gateway did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A listener.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The access log.
    #[error("cannot open the access log: {0}")]
    AccessLog(io::Error),
    /// A thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// A running gateway.
pub struct Gateway {
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    /// By the address that was asked for. A port is open as long as any handle is.
    listeners: Vec<(SocketAddr, TcpListener)>,
    tls_listeners: Vec<(SocketAddr, TcpListener)>,
    shared: Arc<Shared>,
    cores: Vec<mpsc::UnboundedSender<Command>>,
    control: mpsc::UnboundedSender<Control>,
    stop_accepting: watch::Sender<bool>,
    accept: Option<JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
    log: Option<Log>,
}

/// Everything a gateway counts and knows at one time.
#[derive(Debug)]
pub struct Snapshot {
    /// Endpoints and rules.
    pub world: Arc<World>,
    /// Each core's counts, those of cores that did not answer in time left out.
    pub ledgers: Vec<Ledger>,
    /// Open client connections and requests of each core.
    pub open: Vec<(usize, usize)>,
    /// How clients are served with TLS.
    pub tls: Option<Arc<Tls>>,
    /// Bytes reserved for request bodies.
    pub body_bytes: u64,
    /// Access log lines that were lost.
    pub log_lines_lost: u64,
    /// Connections and streams of clients that were ended, by reason.
    pub closures: Vec<(Closed, u64)>,
    /// When this was.
    pub at: Instant,
    /// The same on the gateway's clock, milliseconds.
    pub now_ms: u64,
    /// An endpoint has answered, and no shutdown has begun.
    pub ready: bool,
    /// A shutdown has begun.
    pub draining: bool,
}

impl Gateway {
    /// Opens the listeners and starts the threads.
    pub fn start(startup: Startup, policy: Policy, upstreams: Vec<Upstream>) -> Result<Self, StartError> {
        let mut listeners = Vec::new();
        let mut inherited = startup.inherited;
        let mut listen = |wanted: &[SocketAddr], secure| {
            let mut addresses = Vec::new();
            let mut handles = Vec::new();
            for &address in wanted {
                let failed = |source| StartError::Listen { address, source };
                // Taken out: port 0 may stand there twice, for two ports.
                let found = inherited.iter().position(|(of, _)| *of == address);
                let listener = match found.map(|at| inherited.remove(at)) {
                    Some((_, listener)) => accept::adopt(&listener),
                    None => accept::listen(address),
                }
                .map_err(failed)?;
                addresses.push(listener.local_addr().map_err(failed)?);
                handles.push((address, listener.try_clone().map_err(failed)?));
                listeners.push((listener, secure));
            }
            Ok::<_, StartError>((addresses, handles))
        };
        let (addresses, handles) = listen(&startup.listen, false)?;
        let (tls_addresses, tls_handles) = listen(&startup.listen_tls, true)?;
        let notify = startup.notify;
        let log =
            Log::open(startup.access_log.as_ref(), Arc::clone(&notify)).map_err(StartError::AccessLog)?;
        let count = startup.cores.max(1);
        let shared = Arc::new(Shared {
            world: Arc::new(ArcSwap::from_pointee(World::default())),
            index: PrefixIndex::with_entries(PREFIX_ENTRIES),
            epoch: Instant::now(),
            draining: AtomicBool::new(false),
            cutting: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            tls: ArcSwapOption::from_pointee(startup.tls),
            handshake_told_ms: AtomicU64::new(0),
            body_bytes: Arc::new(AtomicU64::new(0)),
            log_lost: Arc::clone(&log.lost),
            closures: Closures::default(),
            gauges: (0..count).map(|_| Gauge::default()).collect(),
        });
        // The picture is in place before the first client is accepted.
        let controller = Controller::new(Arc::clone(&shared), policy, upstreams, Arc::clone(&notify));
        let (control, control_commands) = mpsc::unbounded_channel();
        let mut threads = Vec::new();
        let thread = |name: String, run: Box<dyn FnOnce() -> io::Result<()> + Send>| {
            let notify = Arc::clone(&notify);
            std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || {
                    if let Err(error) = run() {
                        let text = format!("thread {name} ended: {error}");
                        notify(crate::Notice { level: crate::Level::Warning, text });
                    }
                })
                .map_err(StartError::Thread)
        };
        let mut cores = Vec::new();
        for index in 0..count {
            let (sender, commands) = mpsc::unbounded_channel();
            let (shared, buffer, notify) = (Arc::clone(&shared), log.buffer(), Arc::clone(&notify));
            let seed = startup.seed;
            threads.push(thread(
                format!("core-{index}"),
                Box::new(move || core::run(Core::new(index, shared, seed, buffer, notify), commands)),
            )?);
            cores.push(sender);
        }
        threads.push(thread("control".into(), Box::new(move || control::run(controller, control_commands)))?);
        let (stop_accepting, stop) = watch::channel(false);
        let when_ready = startup.accept_when_ready;
        let (accept_shared, accept_cores, accept_notify) =
            (Arc::clone(&shared), cores.clone(), Arc::clone(&notify));
        let accept = thread(
            "accept".into(),
            Box::new(move || {
                accept::run(listeners, accept_shared, accept_cores, stop, when_ready, accept_notify)
            }),
        )?;
        Ok(Self {
            addresses,
            tls_addresses,
            listeners: handles,
            tls_listeners: tls_handles,
            shared,
            cores,
            control,
            stop_accepting,
            accept: Some(accept),
            threads,
            log: Some(log),
        })
    }

    /// Second handles on its listeners without TLS, each with the address that was asked for.
    pub fn listeners(&self) -> io::Result<Vec<(SocketAddr, TcpListener)>> {
        again(&self.listeners)
    }

    /// The same for those with TLS.
    pub fn tls_listeners(&self) -> io::Result<Vec<(SocketAddr, TcpListener)>> {
        again(&self.tls_listeners)
    }

    /// Where it listens without TLS, with the ports that were taken.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it listens with TLS.
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }

    /// Replaces certificates and what else is said of TLS. Open connections keep what they began with.
    pub fn set_tls(&self, tls: Tls) {
        self.shared.tls.store(Some(Arc::new(tls)));
    }

    /// Replaces the upstreams. Those that stay keep their state and their requests.
    pub fn set_upstreams(&self, upstreams: Vec<Upstream>) {
        let _ = self.control.send(Control::Upstreams(upstreams));
    }

    /// Replaces the rules. Requests that are under way keep the old ones.
    pub fn set_policy(&self, policy: Policy) {
        let _ = self.control.send(Control::Policy(Box::new(policy)));
    }

    /// A handle for looking at it from other threads.
    pub fn observer(&self) -> Observer {
        Observer { shared: Arc::clone(&self.shared), cores: self.cores.clone() }
    }

    /// Ends it: readiness goes at once, and answers tell their clients to turn away. New connections are accepted for
    /// `accept`, so that those who watch readiness can turn away too; idle ones are kept for `keep` at least. Then
    /// running requests finish. What still runs after `bound` is cut. Answers how many requests were.
    ///
    /// When another process accepts on the same listeners, `accept` is zero.
    pub async fn shutdown(mut self, accept: Duration, keep: Duration, bound: Duration) -> usize {
        let began = Instant::now();
        self.shared.draining.store(true, Relaxed);
        let open = |of: fn(&Gauge) -> usize| self.shared.gauges.iter().map(of).sum::<usize>();
        let requests = || open(|gauge| gauge.requests.load(Relaxed));
        let connections = || open(|gauge| gauge.connections.load(Relaxed));
        tokio::time::sleep(accept.min(bound)).await;
        let _ = self.stop_accepting.send(true);
        self.listeners.clear();
        // The last one that was accepted is counted, too.
        let stopping = Instant::now();
        while self.accept.as_ref().is_some_and(|thread| !thread.is_finished())
            && stopping.elapsed() < CLOSE_TIME
        {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
        let kept = keep.min(bound).saturating_sub(began.elapsed());
        let keeping = Instant::now();
        while connections() > 0 && keeping.elapsed() < kept {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
        for core in &self.cores {
            let _ = core.send(Command::Drain);
        }
        // Connections without a request close at once, also when there is no time for the others.
        let closing = Instant::now();
        while connections() > 0 && (began.elapsed() < bound || closing.elapsed() < CLOSE_TIME) {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
        let cut = requests();
        self.shared.cutting.store(true, Relaxed);
        for core in &self.cores {
            let _ = core.send(Command::Stop);
        }
        let _ = self.control.send(Control::Stop);
        for thread in self.threads.drain(..).chain(self.accept.take()) {
            let _ = thread.join();
        }
        if let Some(log) = self.log.take() {
            log.close();
        }
        cut
    }
}

fn again(listeners: &[(SocketAddr, TcpListener)]) -> io::Result<Vec<(SocketAddr, TcpListener)>> {
    listeners.iter().map(|(address, listener)| Ok((*address, listener.try_clone()?))).collect()
}

/// Looks at a gateway.
#[derive(Clone)]
pub struct Observer {
    shared: Arc<Shared>,
    cores: Vec<mpsc::UnboundedSender<Command>>,
}

impl Observer {
    /// Copies everything there is to see. Each core makes its copy between two requests.
    pub async fn snapshot(&self) -> Snapshot {
        let mut replies = Vec::new();
        for core in &self.cores {
            let (reply, answer) = oneshot::channel();
            if core.send(Command::Snapshot(reply)).is_ok() {
                replies.push(answer);
            }
        }
        let mut ledgers = Vec::new();
        for answer in replies {
            if let Ok(Ok(ledger)) = tokio::time::timeout(SNAPSHOT_TIME, answer).await {
                ledgers.push(ledger);
            }
        }
        let now = Instant::now();
        let load = |gauge: &Gauge| (gauge.connections.load(Relaxed), gauge.requests.load(Relaxed));
        Snapshot {
            world: self.shared.world.load_full(),
            ledgers,
            open: self.shared.gauges.iter().map(load).collect(),
            tls: self.shared.tls.load_full(),
            body_bytes: self.shared.body_bytes.load(Relaxed),
            log_lines_lost: self.shared.log_lost.load(Relaxed),
            closures: self.shared.closures.counts().to_vec(),
            at: now,
            now_ms: self.shared.ms(now),
            ready: self.is_ready(),
            draining: self.shared.draining.load(Relaxed),
        }
    }

    /// An endpoint has answered, and no shutdown has begun.
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(Relaxed) && !self.shared.draining.load(Relaxed)
    }
}
