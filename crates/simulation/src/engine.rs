//! The engine: a queue, a batch, and steps.

use std::collections::{BTreeSet, VecDeque};

use thiserror::Error;

use crate::counters::Counters;
use crate::params::{EngineParams, ParamsError};
use crate::pool::{BlockPool, Reservation};

/// One sequence to compute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the caller; unique among the sequences in the engine.
    pub id: u64,
    /// Tokens of the prompt, at least one.
    pub prompt_tokens: u32,
    /// Tokens that it will produce. With 0 it is finished when its prompt is computed, as an embedding is.
    pub output_tokens: u32,
    /// Chained hashes of the full blocks, from the first on, as [`prefix_hashes`](crate::prefix_hashes) makes
    /// them. They may go on into the output, which is then cached block by block as it is produced; with fewer
    /// than there are full blocks, the rest is not cached.
    pub block_hashes: Vec<u64>,
}

/// What happened at `at_us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A sequence produced a token; `produced` counts from 1.
    Token {
        /// The sequence.
        id: u64,
        /// When, in µs.
        at_us: u64,
        /// Its tokens so far, this one included.
        produced: u32,
    },
    /// A sequence has produced all its tokens and is out of the engine.
    Finished {
        /// The sequence.
        id: u64,
        /// When, in µs.
        at_us: u64,
        /// Prompt tokens that came from the prefix cache.
        cached_tokens: u32,
    },
}

/// Where a request stands right after submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// It is ahead of no one and joins the next step, unless its blocks turn out not to fit yet.
    Next,
    /// That many requests wait before it.
    Queued(usize),
}

/// Why the engine does not take a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// More blocks than the whole pool has.
    #[error(
        "the request needs {needed} KV blocks and the engine has {total}; shorten it or give the engine more"
    )]
    TooLarge {
        /// Blocks for prompt and output.
        needed: u64,
        /// Blocks in the pool.
        total: u64,
    },
    /// As many requests wait as may.
    #[error("{limit} requests wait already, which is the most; try again later")]
    QueueFull {
        /// The most that may wait.
        limit: usize,
    },
    /// A prompt without a token.
    #[error("the prompt is empty; give at least one token")]
    EmptyPrompt,
    /// The id is in use.
    #[error("a sequence with the id {id} is in the engine; choose another id")]
    DuplicateId {
        /// The id.
        id: u64,
    },
}

struct Waiting {
    request: Request,
    submitted_us: u64,
}

struct Running {
    request: Request,
    submitted_us: u64,
    admitted_us: u64,
    first_token_us: u64,
    last_token_us: u64,
    blocks: Reservation,
    cached_tokens: u32,
    /// Blocks whose hash the pool knows.
    filled: usize,
    /// Tokens whose KV is there: cached, prefilled or decoded.
    computed: u64,
    produced: u32,
    /// What the step in progress does for it.
    prefilling: u32,
    decoding: bool,
}

impl Running {
    fn prompt_left(&self) -> u32 {
        u64::from(self.request.prompt_tokens).saturating_sub(self.computed) as u32
    }
}

/// One engine. See the crate's documentation for an example.
///
/// Calls must not go back in time; a `now_us` before the latest one counts as the latest one.
pub struct Engine {
    params: EngineParams,
    pool: BlockPool,
    waiting: VecDeque<Waiting>,
    running: Vec<Running>,
    /// Ids of all sequences, running and waiting.
    ids: BTreeSet<u64>,
    /// When the step in progress ends.
    step_ends_us: Option<u64>,
    /// When an engine at rest was given work: its next step starts there.
    wake_us: u64,
    now_us: u64,
    counters: Counters,
    /// Events of steps that ended while a submission or cancellation moved the time on.
    outbox: Vec<Event>,
}

impl Engine {
    /// An engine at rest, its cache empty.
    ///
    /// # Errors
    /// A parameter that no engine can have.
    pub fn new(params: EngineParams) -> Result<Self, ParamsError> {
        params.check()?;
        Ok(Self {
            pool: BlockPool::new(params.blocks()),
            params,
            waiting: VecDeque::new(),
            running: Vec::new(),
            ids: BTreeSet::new(),
            step_ends_us: None,
            wake_us: 0,
            now_us: 0,
            counters: Counters::default(),
            outbox: Vec::new(),
        })
    }

    /// Its parameters.
    pub fn params(&self) -> &EngineParams {
        &self.params
    }

    /// Makes steps that begin from now on `factor` times as long as the parameters say.
    ///
    /// # Errors
    /// A factor that [`EngineParams::check`] would refuse; the old one stays.
    pub fn set_slow_factor(&mut self, factor: f64) -> Result<(), ParamsError> {
        let params = EngineParams { slow_factor: factor, ..self.params.clone() };
        params.check()?;
        self.params = params;
        Ok(())
    }

    /// Totals so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sequences that run, i.e. hold blocks.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Prompt tokens still to be computed, for running sequences and waiting requests. What waits counts in
    /// full: whether the cache has it is known only on admission.
    pub fn pending_prefill_tokens(&self) -> u64 {
        let running: u64 = self.running.iter().map(|sequence| u64::from(sequence.prompt_left())).sum();
        let waiting: u64 = self.waiting.iter().map(|waiting| u64::from(waiting.request.prompt_tokens)).sum();
        running + waiting
    }

    /// The KV pool.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Share of the blocks that sequences refer to, 0 to 1.
    pub fn kv_usage(&self) -> f64 {
        self.pool.referenced() as f64 / self.pool.len() as f64
    }

    /// Prompt tokens of a prompt with these block hashes that the cache holds right now.
    pub fn cached_tokens(&self, prompt_tokens: u32, block_hashes: &[u64]) -> u32 {
        let usable = self.usable_hashes(prompt_tokens, block_hashes);
        (self.pool.cached_prefix(usable) * self.params.block_size as usize) as u32
    }

    /// Puts a request into the queue. It joins the batch with the next step that has room for it.
    ///
    /// # Errors
    /// [`Refusal`]; the engine is as before.
    pub fn submit(&mut self, now_us: u64, request: Request) -> Result<Submitted, Refusal> {
        self.catch_up(now_us);
        if request.prompt_tokens == 0 {
            return Err(Refusal::EmptyPrompt);
        }
        let (needed, total) = (self.blocks_needed(&request), self.pool.len() as u64);
        if needed > total {
            self.counters.refused_too_large += 1;
            return Err(Refusal::TooLarge { needed, total });
        }
        if self.waiting.len() >= self.params.max_queued {
            self.counters.refused_queue_full += 1;
            return Err(Refusal::QueueFull { limit: self.params.max_queued });
        }
        let id = request.id;
        if self.ids.contains(&id) {
            return Err(Refusal::DuplicateId { id });
        }
        self.ids.insert(id);
        if self.is_at_rest() {
            self.wake_us = self.now_us;
        }
        let ahead = self.waiting.len();
        self.waiting.push_back(Waiting { request, submitted_us: self.now_us });
        let joins = ahead == 0 && self.running.len() < self.params.max_num_seqs;
        Ok(if joins { Submitted::Next } else { Submitted::Queued(ahead) })
    }

    /// Takes a sequence out at once, wherever it is; its blocks are free again. `false` if it is not there
    /// (finished already, or never was). The step in progress takes as long as it would have.
    pub fn cancel(&mut self, now_us: u64, id: u64) -> bool {
        self.catch_up(now_us);
        if !self.ids.remove(&id) {
            return false;
        }
        if let Some(index) = self.running.iter().position(|running| running.request.id == id) {
            let sequence = self.running.remove(index);
            self.pool.release(sequence.blocks);
        } else if let Some(index) = self.waiting.iter().position(|waiting| waiting.request.id == id) {
            self.waiting.remove(index);
        }
        self.counters.cancelled += 1;
        true
    }

    /// Moves the time to `now_us`: ends the steps that are due, begins those that follow, and appends what
    /// happened to `events` in order of time.
    pub fn advance(&mut self, now_us: u64, events: &mut Vec<Event>) {
        self.catch_up(now_us);
        if self.step_ends_us.is_none() && !self.is_at_rest() {
            self.begin_step(self.wake_us.max(self.now_us));
        }
        events.append(&mut self.outbox);
    }

    /// When [`advance`](Self::advance) has something to do next; `None` while the engine is at rest.
    pub fn next_event_us(&self) -> Option<u64> {
        if !self.outbox.is_empty() {
            return Some(self.now_us);
        }
        self.step_ends_us.or_else(|| (!self.is_at_rest()).then_some(self.wake_us))
    }

    fn is_at_rest(&self) -> bool {
        self.step_ends_us.is_none() && self.running.is_empty() && self.waiting.is_empty()
    }

    fn blocks_needed(&self, request: &Request) -> u64 {
        (u64::from(request.prompt_tokens) + u64::from(request.output_tokens))
            .div_ceil(u64::from(self.params.block_size))
    }

    /// The hashes that a prompt may find: full blocks only, and never the one with the last token, which has to
    /// be computed to say what comes next.
    fn usable_hashes<'a>(&self, prompt_tokens: u32, block_hashes: &'a [u64]) -> &'a [u64] {
        let full = (prompt_tokens.saturating_sub(1) / self.params.block_size) as usize;
        &block_hashes[..full.min(block_hashes.len())]
    }

    /// Runs the steps that end at or before `now_us`. A step that would start exactly now does not yet: others
    /// may be submitted at the same moment and join it.
    fn catch_up(&mut self, now_us: u64) {
        let now_us = now_us.max(self.now_us);
        loop {
            match self.step_ends_us {
                Some(ends_us) if ends_us <= now_us => {
                    self.end_step(ends_us);
                    self.wake_us = ends_us;
                }
                None if !self.is_at_rest() && self.wake_us < now_us => self.begin_step(self.wake_us),
                _ => break,
            }
        }
        self.now_us = now_us;
    }

    fn begin_step(&mut self, at_us: u64) {
        self.admit(at_us);
        // With nothing running all blocks are free, and what does not fit even then was refused.
        debug_assert!(!self.running.is_empty(), "work waits and none of it can run");
        let mut budget = self.params.max_step_prefill_tokens;
        let mut decoding = 0;
        for sequence in &mut self.running {
            let left = sequence.prompt_left();
            if left > 0 {
                sequence.prefilling = left.min(budget);
                budget -= sequence.prefilling;
            } else {
                sequence.decoding = true;
                decoding += 1;
            }
        }
        if self.running.is_empty() {
            return;
        }
        let prefilled = u64::from(self.params.max_step_prefill_tokens - budget);
        self.counters.steps += 1;
        self.counters.step_tokens.observe((prefilled + decoding as u64) as f64);
        self.step_ends_us = Some(at_us.saturating_add(self.params.step_length_us(decoding, prefilled)));
    }

    /// Moves requests from the queue into the batch, first come first served: if the first does not fit, none
    /// behind it is tried.
    fn admit(&mut self, at_us: u64) {
        while self.running.len() < self.params.max_num_seqs {
            let Some(first) = self.waiting.front() else { return };
            let request = &first.request;
            let total = self.blocks_needed(request) as usize;
            let usable = self.usable_hashes(request.prompt_tokens, &request.block_hashes);
            let Some(blocks) = self.pool.reserve(usable, total) else { return };
            let Some(Waiting { request, submitted_us }) = self.waiting.pop_front() else { return };

            let cached_tokens = blocks.hits() as u32 * self.params.block_size;
            self.counters.evicted_blocks = self.pool.evicted();
            self.counters.prompt_tokens += u64::from(request.prompt_tokens);
            self.counters.prefix_queries += u64::from(request.prompt_tokens);
            self.counters.prefix_hits += u64::from(cached_tokens);
            self.running.push(Running {
                submitted_us,
                admitted_us: at_us,
                first_token_us: at_us,
                last_token_us: at_us,
                cached_tokens,
                filled: blocks.hits(),
                computed: u64::from(cached_tokens),
                produced: 0,
                prefilling: 0,
                decoding: false,
                blocks,
                request,
            });
        }
    }

    fn end_step(&mut self, at_us: u64) {
        self.step_ends_us = None;
        let block_size = u64::from(self.params.block_size);
        let mut index = 0;
        while index < self.running.len() {
            let sequence = &mut self.running[index];
            let prefilled = std::mem::take(&mut sequence.prefilling);
            let decoded = std::mem::take(&mut sequence.decoding);
            sequence.computed += u64::from(prefilled) + u64::from(decoded);
            let full = ((sequence.computed / block_size) as usize).min(sequence.request.block_hashes.len());
            while sequence.filled < full {
                self.pool.fill(
                    &sequence.blocks,
                    sequence.filled,
                    sequence.request.block_hashes[sequence.filled],
                );
                sequence.filled += 1;
            }
            // The step that computes the last of the prompt also says the first token.
            let prompt_done = prefilled > 0 && sequence.prompt_left() == 0;
            if (prompt_done && sequence.request.output_tokens > 0) || decoded {
                produce_token(sequence, at_us, &mut self.counters, &mut self.outbox);
            }
            if sequence.prompt_left() == 0 && sequence.produced >= sequence.request.output_tokens {
                let sequence = self.running.remove(index);
                count_finished(&sequence, at_us, &mut self.counters);
                let (id, cached_tokens) = (sequence.request.id, sequence.cached_tokens);
                self.ids.remove(&id);
                self.outbox.push(Event::Finished { id, at_us, cached_tokens });
                self.pool.release(sequence.blocks);
            } else {
                index += 1;
            }
        }
    }
}

fn produce_token(sequence: &mut Running, at_us: u64, counters: &mut Counters, outbox: &mut Vec<Event>) {
    sequence.produced += 1;
    counters.generation_tokens += 1;
    if sequence.produced == 1 {
        sequence.first_token_us = at_us;
        counters.ttft_s.observe_us(at_us - sequence.submitted_us);
    } else {
        counters.itl_s.observe_us(at_us - sequence.last_token_us);
    }
    sequence.last_token_us = at_us;
    outbox.push(Event::Token { id: sequence.request.id, at_us, produced: sequence.produced });
}

fn count_finished(sequence: &Running, at_us: u64, counters: &mut Counters) {
    let first_us = if sequence.produced > 0 { sequence.first_token_us } else { at_us };
    counters.finished += 1;
    counters.e2e_s.observe_us(at_us - sequence.submitted_us);
    counters.queue_s.observe_us(sequence.admitted_us - sequence.submitted_us);
    counters.prefill_s.observe_us(first_us - sequence.admitted_us);
    counters.decode_s.observe_us(at_us - first_us);
    counters.request_prompt_tokens.observe(f64::from(sequence.request.prompt_tokens));
    counters.request_generation_tokens.observe(f64::from(sequence.produced));
    if sequence.produced > 1 {
        counters.tpot_s.observe_us((at_us - first_us) / u64::from(sequence.produced - 1));
    }
}
