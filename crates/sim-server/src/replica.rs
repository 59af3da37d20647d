//! One simulated engine and what drives it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use simulation::{Engine, EngineParams, Event, ParamsError, Refusal, Request};
use tokio::sync::Notify;

use crate::answer::Answer;
use crate::clock::Clock;
use crate::fault::Faults;
use crate::model::Model;
use crate::options::EngineKind;
use crate::sequence::{Sequence, Slot};

/// Below this a timer, which counts in milliseconds, is no use: look again at once.
const SPIN_BELOW: Duration = Duration::from_micros(5);

/// Steps run in one go; then others get their turn.
const MAX_STEPS: usize = 4_096;

/// What all requests to one replica share.
pub struct Replica {
    pub index: usize,
    pub model: Model,
    pub kind: EngineKind,
    pub ignore_eos: bool,
    pub real_ids: bool,
    pub block_size: u32,
    pub faults: Faults,
    params: EngineParams,
    clock: Clock,
    core: Mutex<Core>,
    wake: Notify,
    /// Seconds since the epoch when the engine (not the process) started.
    started_s: Mutex<f64>,
    real_ids_given: AtomicU64,
    /// All replicas of the process: a crashed one can be reached only through another.
    fleet: OnceLock<Vec<Weak<Replica>>>,
}

/// How finished sequences ended; the engine does not know.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ended {
    pub stop: u64,
    pub length: u64,
}

struct Core {
    engine: Engine,
    slots: HashMap<u64, Pending>,
    ended: Ended,
    next_id: u64,
    events: Vec<Event>,
}

struct Pending {
    slot: Arc<Slot>,
    ends_naturally: bool,
}

/// One sequence for the engine.
pub struct Work {
    pub prompt_tokens: u32,
    pub answer: Answer,
    pub block_hashes: Vec<u64>,
}

/// What a replica is made of.
pub struct ReplicaSpec {
    pub index: usize,
    pub model: Model,
    pub kind: EngineKind,
    pub params: EngineParams,
    pub speed: f64,
    pub ignore_eos: bool,
    pub real_ids: bool,
}

impl Replica {
    pub fn new(spec: ReplicaSpec) -> Result<Self, ParamsError> {
        let engine = Engine::new(spec.params.clone())?;
        Ok(Self {
            index: spec.index,
            model: spec.model,
            kind: spec.kind,
            ignore_eos: spec.ignore_eos,
            real_ids: spec.real_ids,
            block_size: spec.params.block_size,
            faults: Faults::default(),
            params: spec.params,
            clock: Clock::start(spec.speed),
            core: Mutex::new(Core {
                engine,
                slots: HashMap::new(),
                ended: Ended::default(),
                next_id: 0,
                events: Vec::new(),
            }),
            wake: Notify::new(),
            started_s: Mutex::new(unix_s()),
            real_ids_given: AtomicU64::new(0),
            fleet: OnceLock::new(),
        })
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which replicas the process has.
    pub fn join(&self, fleet: Vec<Weak<Replica>>) {
        _ = self.fleet.set(fleet);
    }

    /// The replica of this process with that index.
    pub fn other(&self, index: usize) -> Option<Arc<Replica>> {
        self.fleet.get()?.get(index)?.upgrade()
    }

    /// Looks at the engine.
    pub fn with_engine<T>(&self, look: impl FnOnce(&Engine, Ended) -> T) -> T {
        let core = self.core();
        look(&core.engine, core.ended)
    }

    /// Seconds since the epoch when the engine last started.
    pub fn started_s(&self) -> f64 {
        *self.started_s.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no other answer of this replica has.
    pub fn real_id(&self) -> u64 {
        self.real_ids_given.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives the engine sequences, all at the same moment. If it refuses one, none is left in it.
    pub fn submit(self: &Arc<Self>, work: Vec<Work>) -> Result<Vec<Sequence>, Refusal> {
        let mut sequences = Vec::with_capacity(work.len());
        let mut core = self.core();
        let now_us = self.clock.now_us();
        // A step that would start right now waits for what comes here.
        core.run_due(now_us.saturating_sub(1), usize::MAX);
        let at_rest = core.engine.next_event_us().is_none();
        let mut refused = None;
        for Work { prompt_tokens, answer, block_hashes } in work {
            let id = core.next_id;
            let request = Request { id, prompt_tokens, output_tokens: answer.tokens(), block_hashes };
            if let Err(refusal) = core.engine.submit(now_us, request) {
                refused = Some(refusal);
                break;
            }
            core.next_id += 1;
            let slot = Arc::new(Slot::default());
            core.slots.insert(id, Pending { slot: slot.clone(), ends_naturally: answer.ends_naturally });
            sequences.push(Sequence::new(self.clone(), id, slot));
        }
        // Sequences that are dropped below take the lock themselves.
        drop(core);
        if at_rest {
            self.wake.notify_one();
        }
        refused.map_or(Ok(sequences), Err)
    }

    /// Takes a sequence out of the engine, if it is still there.
    pub fn cancel(&self, id: u64) {
        let mut core = self.core();
        let now_us = self.clock.now_us();
        core.run_due(now_us, usize::MAX);
        if core.slots.remove(&id).is_some() {
            core.engine.cancel(now_us, id);
        }
    }

    /// Makes the engine `factor` times as slow as it was made; 1 undoes it.
    pub fn slow_down(&self, factor: f64) -> Result<(), ParamsError> {
        self.core().engine.set_slow_factor(self.params.slow_factor * factor)
    }

    /// A new engine in place of the old one: nothing cached, nothing counted.
    pub fn restart(&self) {
        let mut core = self.core();
        if let Ok(engine) = Engine::new(self.params.clone()) {
            core.engine = engine;
        }
        core.slots.clear();
        core.ended = Ended::default();
        drop(core);
        *self.started_s.lock().unwrap_or_else(PoisonError::into_inner) = unix_s();
        self.wake.notify_one();
    }

    /// Moves the engine with the wall clock, for ever. One timer for each step, whatever the number of sequences.
    pub async fn drive(&self) {
        loop {
            match self.advance() {
                None => self.wake.notified().await,
                Some(wait) if wait < SPIN_BELOW => tokio::task::yield_now().await,
                Some(wait) => tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.wake.notified() => {}
                },
            }
        }
    }

    /// Runs the steps that are due; the time until the next is.
    fn advance(&self) -> Option<Duration> {
        let mut core = self.core();
        core.run_due(self.clock.now_us(), MAX_STEPS);
        core.engine.next_event_us().map(|at_us| self.clock.until(at_us))
    }
}

impl Core {
    /// Runs the steps that are due, `limit` at most, and tells the sequences. Step by step, so that no more events
    /// pile up than a step has, however fast the virtual time goes.
    fn run_due(&mut self, now_us: u64, limit: usize) {
        for _ in 0..limit {
            match self.engine.next_event_us() {
                Some(at_us) if at_us <= now_us => self.engine.advance(at_us, &mut self.events),
                _ => return,
            }
            self.tell();
        }
    }

    fn tell(&mut self) {
        for event in self.events.drain(..) {
            match event {
                Event::Token { id, produced, .. } => {
                    if let Some(pending) = self.slots.get(&id) {
                        pending.slot.produced(produced);
                    }
                }
                Event::Finished { id, cached_tokens, .. } => {
                    if let Some(Pending { slot, ends_naturally }) = self.slots.remove(&id) {
                        *(if ends_naturally { &mut self.ended.stop } else { &mut self.ended.length }) += 1;
                        slot.finished(cached_tokens);
                    }
                }
            }
        }
    }
}

/// The wall clock, seconds since the epoch.
pub fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
