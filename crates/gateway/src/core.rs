//! One core: a thread with its own runtime, client connections, upstream connections and counts.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::HeaderValue;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use scheduling::PrefixIndex;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use crate::access_log::LogBuffer;
use crate::arriving::Arrivals;
use crate::bodies::Bodies;
use crate::client::{ClientStream, Peer, Socket};
use crate::handshake::{self, Handshakes};
use crate::ledger::Ledger;
use crate::local::LocalExecutor;
use crate::metered::Metered;
use crate::refuse;
use crate::service;
use crate::settings::{Notify, Tls};
use crate::upstream::Pool;
use crate::vitals::{Closed, Closures, End};
use crate::world::{LocalWorld, World};

/// Housekeeping: idle connections, the log's rest, a changed world.
const TICK: Duration = Duration::from_millis(250);

/// Bytes read from a client at one time, at most: hyper begins with 8 KiB and doubles while reads fill it. Long
/// prompts have 64 KB and more; one that comes in one read is one piece and is not copied. The limit on heads is
/// checked by the service, since hyper has but this one number for both.
const READ_AHEAD: usize = 256 * 1024;

/// Requests at one time on one HTTP/2 connection of a client. A load balancer in front may send everything over one
/// connection; hyper's 200 would be the whole gateway's limit then.
const MAX_STREAMS: u32 = 4096;

/// A handshake that is under way when a shutdown begins may still become a request, but not hold the shutdown up.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// Shared by all cores and the control thread.
pub struct Shared {
    /// The endpoints and the rules.
    pub world: Arc<ArcSwap<World>>,
    /// Who saw which prompt.
    pub index: PrefixIndex,
    /// Start of the gateway's clock.
    pub epoch: Instant,
    /// No new work is wanted: readiness says so, HTTP/1.1 answers close their connections.
    pub draining: AtomicBool,
    /// The time for draining is over: what still runs is cut.
    pub cutting: AtomicBool,
    /// An endpoint has answered.
    pub ready: AtomicBool,
    /// How clients are served with TLS.
    pub tls: ArcSwapOption<Tls>,
    /// When a failed handshake was last told of, milliseconds of the gateway's clock.
    pub handshake_told_ms: AtomicU64,
    /// Bytes that cores have reserved for request bodies.
    pub body_bytes: Arc<AtomicU64>,
    /// Access log lines that were lost.
    pub log_lost: Arc<AtomicU64>,
    /// Connections and streams of clients that were ended.
    pub closures: Closures,
    /// One for each core.
    pub gauges: Vec<Gauge>,
}

impl Shared {
    /// Nanoseconds on the gateway's clock, for rates.
    pub fn ns(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Milliseconds on the gateway's clock.
    pub fn ms(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }
}

/// What a core has open. Written by that core and the acceptor, read by all.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Gauge {
    /// Client connections, those on their way to the core included.
    pub connections: AtomicUsize,
    /// Requests whose answer is not complete.
    pub requests: AtomicUsize,
}

/// What the control thread asks of a core.
pub enum Command {
    /// Serve this client.
    Accept(std::net::TcpStream, Peer),
    /// Copy the counts.
    Snapshot(oneshot::Sender<Ledger>),
    /// Close connections as they become idle.
    Drain,
    /// End at once.
    Stop,
}

/// A core's state. Its thread is the only one that touches it.
pub struct Core {
    /// Its number.
    pub index: usize,
    /// What is shared.
    pub shared: Arc<Shared>,
    /// Upstream connections.
    pub pool: Pool,
    /// Memory for request bodies.
    pub bodies: Rc<Bodies>,
    /// Request bodies that are waited for.
    pub arrivals: Rc<Arrivals>,
    /// TLS handshakes under way.
    pub handshakes: Handshakes,
    /// Counts.
    pub ledger: RefCell<Ledger>,
    /// Access log lines on their way.
    pub log: RefCell<LogBuffer>,
    /// Told of what happens besides requests.
    pub notify: Notify,
    world: RefCell<WorldCache>,
    random: Cell<u64>,
    id_prefix: u64,
    id_count: Cell<u64>,
    connections: RefCell<Connections>,
}

/// This core's handle on the world: a plain counter is cheaper to copy than one that all cores write to.
struct WorldCache {
    cache: arc_swap::Cache<Arc<ArcSwap<World>>, Arc<World>>,
    local: LocalWorld,
}

#[derive(Default)]
struct Connections {
    next: u64,
    open: HashMap<u64, Rc<Peer>>,
    draining: bool,
}

impl Core {
    /// A core that has served nothing yet.
    pub fn new(index: usize, shared: Arc<Shared>, seed: u64, log: LogBuffer, notify: Notify) -> Rc<Self> {
        let mut cache = arc_swap::Cache::new(Arc::clone(&shared.world));
        let local = Rc::new(Arc::clone(cache.load()));
        let bodies = Bodies::new(Arc::clone(&shared.body_bytes));
        Rc::new(Self {
            bodies,
            arrivals: Rc::default(),
            index,
            shared,
            pool: Pool::default(),
            handshakes: Handshakes::default(),
            ledger: RefCell::default(),
            log: RefCell::new(log),
            notify,
            world: RefCell::new(WorldCache { cache, local }),
            random: Cell::new(seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            // Ids must differ between processes whatever the seed: keys of the standard hash maps come from
            // the system's randomness.
            id_prefix: RandomState::new().hash_one(index),
            id_count: Cell::new(0),
            connections: RefCell::default(),
        })
    }

    /// The endpoints and the rules as they are now.
    pub fn world(&self) -> LocalWorld {
        let mut world = self.world.borrow_mut();
        let WorldCache { cache, local } = &mut *world;
        let current = cache.load();
        if !Arc::ptr_eq(current, local) {
            *local = Rc::new(Arc::clone(current));
        }
        Rc::clone(local)
    }

    /// A number that the next call will not give again soon.
    pub fn random(&self) -> u64 {
        let next = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(next);
        next
    }

    /// A new request id: 32 hexadecimal digits.
    pub fn request_id(&self) -> HeaderValue {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let count = self.id_count.get();
        self.id_count.set(count + 1);
        // An odd multiplier maps different counts to different numbers, and looks unlike a count.
        let id = u128::from(self.id_prefix) << 64 | u128::from(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut text = [0u8; 32];
        for (place, digit) in text.iter_mut().enumerate() {
            *digit = DIGITS[(id >> (124 - 4 * place)) as usize & 15];
        }
        HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("0"))
    }

    /// Comes when a connection that carries no request yet is to end: it took too long, or a shutdown began
    /// [`DRAIN_GRACE`] ago.
    async fn wants_end(&self, peer: &Peer) {
        let draining = std::future::poll_fn(|cx| {
            peer.vitals.set_waker(cx.waker().clone());
            let ends = peer.vitals.end().is_some();
            if ends || self.connections.borrow().draining { Poll::Ready(!ends) } else { Poll::Pending }
        });
        if draining.await {
            tokio::time::sleep(DRAIN_GRACE).await;
        }
    }

    /// This core's gauge.
    pub fn gauge(&self) -> &Gauge {
        &self.shared.gauges[self.index]
    }
}

/// Runs a core until it is told to stop.
pub fn run(core: Rc<Core>, mut commands: mpsc::UnboundedReceiver<Command>) -> std::io::Result<()> {
    crate::local::runtime()?.block_on(async move {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Accept(stream, peer)) => accept(&core, stream, peer),
                    Some(Command::Snapshot(reply)) => {
                        let mut copy = core.ledger.borrow().clone();
                        copy.idle_upstream = core.pool.idle_count();
                        copy.handshakes_open = core.handshakes.open();
                        let _ = reply.send(copy);
                    }
                    Some(Command::Drain) => {
                        let mut connections = core.connections.borrow_mut();
                        connections.draining = true;
                        connections.open.values().for_each(|peer| peer.vitals.wake());
                    }
                    Some(Command::Stop) | None => break,
                },
                _ = tick.tick() => housekeeping(&core),
            }
        }
    });
    Ok(())
}

fn housekeeping(core: &Rc<Core>) {
    let world = core.world();
    core.pool.sweep(Instant::now(), |id| world.places.contains_key(&id));
    core.ledger.borrow_mut().retain(|endpoint, model| world.counts(endpoint, model));
    core.log.borrow_mut().flush();
    let (now_ms, patience) = (core.shared.ms(Instant::now()), &world.policy.patience);
    for peer in core.connections.borrow().open.values() {
        if let Some(why) = peer.vitals.look(now_ms, patience) {
            core.shared.closures.add(why);
        }
    }
    core.arrivals.look(now_ms, patience);
}

/// Holds a connection's place in the core's count.
struct Open {
    core: Rc<Core>,
    number: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.core.gauge().connections.fetch_sub(1, Relaxed);
        self.core.connections.borrow_mut().open.remove(&self.number);
    }
}

fn accept(core: &Rc<Core>, stream: std::net::TcpStream, peer: Peer) {
    // The acceptor counted it already.
    let peer = Rc::new(peer);
    let number = {
        let mut connections = core.connections.borrow_mut();
        connections.next += 1;
        let number = connections.next;
        connections.open.insert(number, Rc::clone(&peer));
        number
    };
    let open = Open { core: Rc::clone(core), number };
    core.ledger.borrow_mut().connections_total += 1;
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    tokio::task::spawn_local(async move {
        let core = &open.core;
        let socket = match peer.secure {
            false => Socket::Plain(stream),
            true => match handshake::accept(core, stream, &peer, core.wants_end(&peer)).await {
                Some(secured) => secured,
                None => return,
            },
        };
        let service = {
            let (core, peer) = (Rc::clone(core), Rc::clone(&peer));
            service_fn(move |request| {
                let (core, peer) = (Rc::clone(&core), Rc::clone(&peer));
                async move { Ok::<_, std::convert::Infallible>(service::serve(core, peer, request).await) }
            })
        };
        let policy = Arc::clone(&core.world().policy);
        let mut builder = auto::Builder::new(LocalExecutor);
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_headers(policy.header_count)
            .max_buf_size(READ_AHEAD.max(policy.header_bytes));
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(policy.header_bytes).unwrap_or(u32::MAX));
        let client = ClientStream::new(socket);
        let stream = Metered::new(client.clone(), Rc::clone(&peer));
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut watch = client.watch();
        let mut registered = false;
        let mut told = false;
        // A broken client connection is the client's business: its requests have been counted by their guards.
        std::future::poll_fn(|cx| {
            if !registered {
                registered = true;
                peer.vitals.set_waker(cx.waker().clone());
            }
            let end = peer.vitals.end();
            if let Some((End::Cut, why)) = end {
                if why == Closed::HeadTooSlow && peer.vitals.has_part_of_a_head() {
                    client.write_now(&refuse::head_too_slow());
                }
                return Poll::Ready(());
            }
            if !told && (end.is_some() || core.connections.borrow().draining) {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
            match Pin::new(&mut connection).poll(cx) {
                Poll::Pending if watch.poll_gone(cx) => Poll::Ready(()),
                polled => polled.map(|_| ()),
            }
        })
        .await;
    });
}
