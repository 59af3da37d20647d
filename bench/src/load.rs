//! The load generator: prepared requests over kept connections, closed loop or at a fixed rate, every answer checked.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use serde::{Deserialize, Serialize};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::arrivals::Arrivals;
use crate::exchange::{Connection, Fault, Timing};
use crate::histogram::{Histogram, Quantiles};
use crate::traffic::{self, Kind, VARIANTS};

/// With no answer at all for this long, what is still under way counts as hung.
const HANG_SECONDS: u32 = 20;

/// Sends requests and prints a report; started by the other subcommands.
#[derive(clap::Args, Debug)]
pub struct LoadArgs {
    /// Where the proxy (or an engine) listens.
    #[arg(long)]
    target: SocketAddr,
    /// Kinds of requests, in turn.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Connections kept open.
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// How long to send.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Send this many requests instead.
    #[arg(long)]
    requests: Option<u64>,
    /// Requests per second at even distances, whatever the answers do; latency counts from the due time.
    #[arg(long)]
    rate: Option<f64>,
    /// With a rate: at random distances drawn from this seed, as independent clients would send, in place of even ones.
    #[arg(long)]
    seed: Option<u64>,
    /// A request without a whole answer after so long is given up, and counts with this time to its first byte; so does
    /// every other that fails.
    #[arg(long)]
    patience: Option<f64>,
    /// Requests due in the first seconds are sent and not counted.
    #[arg(long, default_value_t = 0.0)]
    count_after: f64,
}

/// A line from the load generator to its parent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Connections are open and warm; the run begins when a line arrives on standard input.
    Ready,
    /// Requests answered so far, each second.
    Progress(u64),
    /// The run is over; connections stay open until standard input ends.
    Report(Box<Report>),
    /// The run could not begin.
    Failed(String),
}

/// What came of the requests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Requests answered as they should be.
    pub answered: u64,
    /// Requests sent at all.
    pub sent: u64,
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
    /// Connections refused or not made.
    pub connect_errors: u64,
    /// Connections that ended before the answer did.
    pub cut_errors: u64,
    /// Answers with a status other than 200.
    pub status_errors: u64,
    /// Answers whose bytes are not those that the engine sent.
    pub wrong_bytes: u64,
    /// Requests given up after the load's patience.
    pub timed_out: u64,
    /// Requests without an answer for 20 s.
    pub hung: u64,
    /// Connections made anew during the run.
    pub reconnects: u64,
    /// What the first error looked like.
    pub first_error: Option<String>,
    /// From sending (or the due time) to the last byte.
    pub latency: Quantiles,
    /// From sending (or the due time) to the first byte of the answer.
    pub first_byte: Quantiles,
    /// From the engine's write of an event to the client's read of it.
    pub event_delay: Quantiles,
    /// The longest such delay of each stream.
    pub worst_event_delay: Quantiles,
}

impl Report {
    /// Errors of all kinds.
    pub fn errors(&self) -> u64 {
        self.connect_errors
            + self.cut_errors
            + self.status_errors
            + self.wrong_bytes
            + self.timed_out
            + self.hung
    }
}

struct Tally {
    report: Report,
    latency: Histogram,
    first_byte: Histogram,
    event_delay: Histogram,
    worst_event_delay: Histogram,
}

impl Tally {
    fn new() -> Self {
        Self {
            report: Report::default(),
            latency: Histogram::new(),
            first_byte: Histogram::new(),
            event_delay: Histogram::new(),
            worst_event_delay: Histogram::new(),
        }
    }

    fn count(&mut self, due: Instant, outcome: &Result<Timing, Fault>, patience: Option<Duration>) {
        let fault = match outcome {
            Ok(timing) => {
                self.report.answered += 1;
                self.latency.record(nanoseconds(timing.last_byte - due));
                self.first_byte.record(nanoseconds(timing.first_byte - due));
                for delay_ns in &timing.event_delays_ns {
                    self.event_delay.record(*delay_ns);
                }
                if let Some(worst) = timing.event_delays_ns.iter().max() {
                    self.worst_event_delay.record(*worst);
                }
                return;
            }
            Err(fault) => fault,
        };
        *match fault {
            Fault::Connect(_) => &mut self.report.connect_errors,
            Fault::Cut(_) => &mut self.report.cut_errors,
            Fault::Status(..) => &mut self.report.status_errors,
            Fault::WrongBytes(_) => &mut self.report.wrong_bytes,
            Fault::TimedOut => &mut self.report.timed_out,
        } += 1;
        if let Some(patience) = patience {
            self.first_byte.record(nanoseconds(patience));
        }
        self.report.first_error.get_or_insert_with(|| format!("{fault:?}"));
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

struct Run {
    target: SocketAddr,
    kinds: Vec<Kind>,
    /// By kind, then variant: the request as it goes out, and the decoded body due.
    wires: Vec<Vec<u8>>,
    due_answers: Vec<Vec<u8>>,
    begin: Instant,
    count_after: Duration,
    patience: Option<Duration>,
    end: Option<Instant>,
    remaining: AtomicI64,
    answered: AtomicU64,
    sent: AtomicU64,
    /// Due times that no connection has taken yet; bounded by rate times seconds.
    due: Mutex<VecDeque<Instant>>,
    all_due: AtomicBool,
    arrived: Notify,
    tally: Mutex<Tally>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wire(target: SocketAddr, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {target}\r\nuser-agent: bench\r\naccept: */*\r\n\
         authorization: Bearer none\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// One request as it goes out and the decoded body of its answer.
pub fn sample(target: SocketAddr, kind: Kind, variant: usize) -> (Vec<u8>, Vec<u8>) {
    (wire(target, &traffic::request_body(kind, variant)), due_answer(kind, variant))
}

fn due_answer(kind: Kind, variant: usize) -> Vec<u8> {
    match kind {
        Kind::Json2k | Kind::Json64k => traffic::json_answer(kind, variant),
        Kind::Burst | Kind::Flushed | Kind::Paced | Kind::Tokens => traffic::events(kind, variant).concat(),
        Kind::Stamped => Vec::new(),
    }
}

fn say(line: &Line) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Runs `bench load`.
pub fn run(args: &LoadArgs) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let each = || Kind::ALL.into_iter().flat_map(|kind| (0..VARIANTS).map(move |variant| (kind, variant)));
    let mut run = Run {
        target: args.target,
        kinds: args.kinds.clone(),
        wires: each()
            .map(|(kind, variant)| wire(args.target, &traffic::request_body(kind, variant)))
            .collect(),
        due_answers: each().map(|(kind, variant)| due_answer(kind, variant)).collect(),
        begin: Instant::now(),
        count_after: Duration::from_secs_f64(args.count_after),
        patience: args.patience.map(Duration::from_secs_f64),
        end: None,
        remaining: AtomicI64::new(args.requests.map_or(i64::MAX, |requests| requests as i64)),
        answered: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        due: Mutex::new(VecDeque::new()),
        all_due: AtomicBool::new(false),
        arrived: Notify::new(),
        tally: Mutex::new(Tally::new()),
    };
    if run.kinds.is_empty() {
        return Err(io::Error::other("--kinds names no kind of request"));
    }
    let connections = match runtime.block_on(warm(&run, args.connections)) {
        Ok(connections) => connections,
        Err(fault) => return say(&Line::Failed(format!("{fault:?}"))),
    };
    say(&Line::Ready)?;
    // Nothing else goes on in this process now, so blocking is right.
    if io::stdin().lock().read_line(&mut String::new())? == 0 {
        return Ok(());
    }
    run.begin = Instant::now();
    if args.requests.is_none() {
        run.end = Some(run.begin + Duration::from_secs_f64(args.seconds));
    }
    let report = runtime.block_on(drive(
        Arc::new(run),
        connections,
        args.rate.map(|rate| Arrivals::new(rate, args.seed)),
    ))?;
    say(&Line::Report(Box::new(report)))?;
    // Closing the connections would be charged to the proxy while its time is being read.
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

async fn warm(run: &Run, count: usize) -> Result<Vec<Connection>, Fault> {
    let mut connections = Vec::new();
    let mut pick = Picker::new(0);
    for _ in 0..count {
        let mut connection = Connection::open(run.target).await?;
        // Paced streams take 0.3 s each: a short answer warms the connection as well.
        let index = Kind::Json2k.index() * VARIANTS + pick.variant();
        connection.exchange(&run.wires[index], Kind::Json2k, &run.due_answers[index]).await?;
        connections.push(connection);
    }
    Ok(connections)
}

/// Which request comes next on a connection: kinds in turn, variants by a small generator of its own.
struct Picker {
    state: u64,
    turn: usize,
}

impl Picker {
    fn new(seed: usize) -> Self {
        Self { state: (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15), turn: seed }
    }

    fn variant(&mut self) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 33) as usize % VARIANTS
    }

    fn kind(&mut self, kinds: &[Kind]) -> Kind {
        self.turn = (self.turn + 1) % kinds.len();
        kinds[self.turn]
    }
}

async fn drive(
    run: Arc<Run>,
    connections: Vec<Connection>,
    arrivals: Option<Arrivals>,
) -> io::Result<Report> {
    let mut tasks = JoinSet::new();
    for (seed, connection) in connections.into_iter().enumerate() {
        tasks.spawn(work(run.clone(), connection, seed, arrivals.is_some()));
    }
    if let Some(arrivals) = arrivals {
        let run = run.clone();
        tasks.spawn(async move {
            if let Err(error) = announce(&run, arrivals).await {
                lock(&run.tally).report.first_error = Some(format!("timer: {error}"));
            }
            run.all_due.store(true, Relaxed);
            run.arrived.notify_waiters();
        });
    }
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let (mut before, mut silent_seconds) = (0, 0);
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                None => break,
                Some(Err(error)) => return Err(io::Error::other(error)),
                Some(Ok(())) => {}
            },
            _ = ticks.tick() => {
                let answered = run.answered.load(Relaxed);
                silent_seconds = if answered == before { silent_seconds + 1 } else { 0 };
                before = answered;
                say(&Line::Progress(answered))?;
                if silent_seconds > HANG_SECONDS {
                    break;
                }
            }
        }
    }
    let mut tally = lock(&run.tally);
    tally.report.hung = tasks.len() as u64;
    let mut report = tally.report.clone();
    report.sent = run.sent.load(Relaxed);
    report.seconds = run.begin.elapsed().as_secs_f64();
    report.latency = tally.latency.quantiles();
    report.first_byte = tally.first_byte.quantiles();
    report.event_delay = tally.event_delay.quantiles();
    report.worst_event_delay = tally.worst_event_delay.quantiles();
    Ok(report)
}

async fn work(run: Arc<Run>, connection: Connection, seed: usize, paced: bool) {
    let mut connection = Some(connection);
    let mut pick = Picker::new(seed);
    while let Some(due) = if paced { run.next_due().await } else { run.next_now() } {
        let counts = due.saturating_duration_since(run.begin) >= run.count_after;
        run.sent.fetch_add(u64::from(counts), Relaxed);
        let kind = pick.kind(&run.kinds);
        let index = kind.index() * VARIANTS + pick.variant();
        let attempt = attempt(&run, &mut connection, index, kind);
        let outcome = match run.patience {
            None => attempt.await,
            Some(patience) => {
                let end = due + patience;
                tokio::time::timeout_at(end.into(), attempt).await.unwrap_or(Err(Fault::TimedOut))
            }
        };
        if counts {
            lock(&run.tally).count(due, &outcome, run.patience);
        }
        run.answered.fetch_add(1, Relaxed);
        if matches!(outcome, Err(Fault::Connect(_))) {
            // A proxy that is down would otherwise be asked a hundred thousand times a second.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn attempt(
    run: &Run,
    connection: &mut Option<Connection>,
    index: usize,
    kind: Kind,
) -> Result<Timing, Fault> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => {
            lock(&run.tally).report.reconnects += 1;
            Connection::open(run.target).await?
        }
    };
    let timing = open.exchange(&run.wires[index], kind, &run.due_answers[index]).await?;
    if !timing.closes {
        *connection = Some(open);
    }
    Ok(timing)
}

impl Run {
    fn next_now(&self) -> Option<Instant> {
        let now = Instant::now();
        let open = self.end.is_none_or(|end| now < end) && self.remaining.fetch_sub(1, Relaxed) > 0;
        open.then_some(now)
    }

    async fn next_due(&self) -> Option<Instant> {
        loop {
            let arrived = self.arrived.notified();
            if let Some(due) = lock(&self.due).pop_front() {
                return Some(due);
            }
            if self.all_due.load(Relaxed) {
                return None;
            }
            arrived.await;
        }
    }
}

/// Puts due times into the queue when they come. A timer of the kernel, since the runtime's own ticks once a
/// millisecond and would send in lumps.
async fn announce(run: &Run, mut arrivals: Arrivals) -> io::Result<()> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
    #[allow(
        deprecated,
        reason = "deprecated for types that may close their descriptor early; its successor is unsafe"
    )]
    let timer: AsyncFd<OwnedFd> = AsyncFd::new(timer)?;
    let mut due = run.begin + arrivals.next_after();
    loop {
        let now = Instant::now();
        while due <= now {
            if run.end.is_some_and(|end| due >= end) || run.remaining.fetch_sub(1, Relaxed) <= 0 {
                return Ok(());
            }
            lock(&run.due).push_back(due);
            run.arrived.notify_one();
            due = run.begin + arrivals.next_after();
        }
        let pause = due - now;
        let value = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: zero, it_value: value };
        rustix::time::timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        let mut ready = timer.readable().await?;
        let _ = rustix::io::read(timer.get_ref(), &mut [0u8; 8]);
        ready.clear_ready();
    }
}
