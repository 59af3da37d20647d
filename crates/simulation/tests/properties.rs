//! Whatever is asked of an engine, in whatever order: blocks are conserved, every request comes to its end once,
//! and the outcome depends on what was asked and when, not on how often anyone looked.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;
use simulation::{BlockPool, Engine, EngineParams, Event, Request, Reservation, prefix_hashes};

#[derive(Debug, Clone)]
enum Op {
    /// A prompt of `family`'s text, `tokens` long.
    Submit {
        family: u8,
        tokens: u32,
        output: u32,
    },
    /// Cancels the n-th request so far, wherever it is.
    Cancel(usize),
    Wait,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0u8..3, 1u32..40, 0u32..12).prop_map(|(family, tokens, output)| Op::Submit { family, tokens, output }),
        1 => (0usize..30).prop_map(Op::Cancel),
        1 => Just(Op::Wait),
    ]
}

fn ops() -> impl Strategy<Value = Vec<(u64, Op)>> {
    proptest::collection::vec((1u64..90_000, op()), 1..40)
}

fn params() -> impl Strategy<Value = EngineParams> {
    (1usize..5, 1u32..20, 4u64..24, 1u32..6).prop_map(|(max_num_seqs, chunk, blocks, block_size)| {
        EngineParams {
            max_num_seqs,
            max_step_prefill_tokens: chunk,
            kv_tokens: blocks * u64::from(block_size),
            block_size,
            max_queued: 8,
            ..EngineParams::default()
        }
    })
}

fn text(family: u8, tokens: u32) -> Vec<u8> {
    // Families share their first 20 bytes and differ after.
    (0..tokens * 4).map(|index| if index < 20 { 0 } else { family + 1 }).collect()
}

/// Runs the operations, looking `looks` times between each two of them, and checks what must hold all along.
fn run(params: &EngineParams, ops: &[(u64, Op)], looks: u64) -> (Vec<Event>, HashMap<u64, (u32, bool)>) {
    let mut engine = Engine::new(params.clone()).expect("good parameters");
    let mut events = Vec::new();
    // Accepted requests: tokens asked for, and whether cancelled.
    let mut asked = HashMap::new();
    let mut now_us = 0;
    let mut next_id = 0;
    for (pause_us, op) in ops {
        for look in 1..=looks {
            engine.advance(now_us + pause_us * look / (looks + 1), &mut events);
        }
        now_us += pause_us;
        match op {
            Op::Submit { family, tokens, output } => {
                let block_hashes =
                    prefix_hashes(&text(*family, *tokens + *output), params.block_size as usize * 4);
                let request =
                    Request { id: next_id, prompt_tokens: *tokens, output_tokens: *output, block_hashes };
                if engine.submit(now_us, request).is_ok() {
                    asked.insert(next_id, (*output, false));
                }
                next_id += 1;
            }
            Op::Cancel(index) => {
                if engine.cancel(now_us, *index as u64) {
                    asked.get_mut(&(*index as u64)).expect("only what was accepted can be cancelled").1 =
                        true;
                }
            }
            Op::Wait => {}
        }
        check(&engine, params);
    }
    while let Some(next_us) = engine.next_event_us() {
        engine.advance(next_us, &mut events);
        check(&engine, params);
    }
    assert_eq!(
        (engine.running(), engine.waiting(), engine.pool().referenced()),
        (0, 0, 0),
        "nothing is left behind"
    );
    assert_eq!(engine.pending_prefill_tokens(), 0);
    (events, asked)
}

fn check(engine: &Engine, params: &EngineParams) {
    assert!(engine.running() <= params.max_num_seqs && engine.waiting() <= params.max_queued);
    assert!(
        engine.pool().referenced() <= engine.pool().len() && engine.pool().cached() <= engine.pool().len()
    );
    assert_eq!(engine.pool().len() as u64, params.blocks());
    assert!(engine.running() == 0 || engine.pool().referenced() > 0);
    let counters = engine.counters();
    assert!(counters.prefix_hits <= counters.prefix_queries);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_request_comes_to_one_end(params in params(), ops in ops()) {
        let (events, asked) = run(&params, &ops, 0);
        let mut produced: HashMap<u64, u32> = HashMap::new();
        let mut finished: HashMap<u64, u32> = HashMap::new();
        let mut last_us = 0;
        for event in &events {
            let (id, at_us) = match *event {
                Event::Token { id, at_us, produced: count } => {
                    let before = produced.entry(id).or_default();
                    *before += 1;
                    prop_assert_eq!(count, *before);
                    prop_assert!(!finished.contains_key(&id), "a token after the end");
                    (id, at_us)
                }
                Event::Finished { id, at_us, .. } => {
                    *finished.entry(id).or_default() += 1;
                    (id, at_us)
                }
            };
            prop_assert!(at_us >= last_us, "events are in order of time");
            prop_assert!(asked.contains_key(&id));
            last_us = at_us;
        }
        for (id, (output, cancelled)) in asked {
            let (tokens, ends) = (produced.get(&id).copied().unwrap_or(0), finished.get(&id).copied().unwrap_or(0));
            if cancelled {
                prop_assert!(ends == 0 && tokens <= output);
            } else {
                prop_assert_eq!((tokens, ends), (output, 1));
            }
        }
    }

    #[test]
    fn looking_changes_nothing(params in params(), ops in ops(), looks in 1u64..5) {
        prop_assert_eq!(run(&params, &ops, 0).0, run(&params, &ops, looks).0);
    }

    /// One after the other through a pool that never fills: the hit is the longest prefix in whole blocks that any
    /// earlier request computed, short of the last token.
    #[test]
    fn hits_are_the_longest_known_prefix(
        block_size in 1u32..6,
        prompts in proptest::collection::vec((0u8..3, 1u32..60), 1..20),
    ) {
        let params = EngineParams { block_size, kv_tokens: 100_000, ..EngineParams::default() };
        let mut engine = Engine::new(params).expect("good parameters");
        let mut known: Vec<Vec<u8>> = Vec::new();
        for (id, (family, tokens)) in prompts.into_iter().enumerate() {
            let prompt = text(family, tokens);
            let common = |other: &Vec<u8>| prompt.iter().zip(other).take_while(|(a, b)| a == b).count();
            let longest = known.iter().map(common).max().unwrap_or(0).min(prompt.len() - 4);
            let block_bytes = block_size as usize * 4;
            let expected = longest / block_bytes * block_size as usize;

            let block_hashes = prefix_hashes(&prompt, block_bytes);
            let request = Request { id: id as u64, prompt_tokens: tokens, output_tokens: 1, block_hashes };
            engine.submit(0, request).expect("room");
            let mut events = Vec::new();
            while let Some(next_us) = engine.next_event_us() {
                engine.advance(next_us, &mut events);
            }
            let cached = events.iter().find_map(|event| match event {
                Event::Finished { cached_tokens, .. } => Some(*cached_tokens as usize),
                Event::Token { .. } => None,
            });
            prop_assert_eq!(cached, Some(expected));
            // Only whole blocks are kept.
            known.push(prompt[..prompt.len() / block_bytes * block_bytes].to_vec());
        }
    }
}

/// The pool again, in plain lists.
#[derive(Default)]
struct NaivePool {
    content: HashMap<usize, u64>,
    refs: HashMap<usize, u32>,
    /// Unreferenced blocks, the next to be given up first.
    idle: VecDeque<usize>,
}

impl NaivePool {
    fn new(blocks: usize) -> Self {
        Self { idle: (0..blocks).collect(), ..Self::default() }
    }

    fn holder(&self, hash: u64) -> Option<usize> {
        self.content.iter().find(|(_, content)| **content == hash).map(|(block, _)| *block)
    }

    fn reserve(&mut self, hashes: &[u64], total: usize) -> Option<(Vec<usize>, usize)> {
        let mut blocks: Vec<usize> = hashes.iter().take(total).map_while(|hash| self.holder(*hash)).collect();
        let hits = blocks.len();
        let left: Vec<usize> = self.idle.iter().copied().filter(|block| !blocks.contains(block)).collect();
        if left.len() < total - hits {
            return None;
        }
        for block in &left[..total - hits] {
            self.content.remove(block);
            blocks.push(*block);
        }
        self.idle = left[total - hits..].iter().copied().collect();
        for block in &blocks {
            *self.refs.entry(*block).or_default() += 1;
        }
        Some((blocks, hits))
    }

    fn release(&mut self, blocks: Vec<usize>) {
        for block in blocks.into_iter().rev() {
            let refs = self.refs.get_mut(&block).expect("held");
            *refs -= 1;
            match (*refs, self.content.contains_key(&block)) {
                (0, true) => self.idle.push_back(block),
                (0, false) => self.idle.push_front(block),
                _ => {}
            }
        }
    }
}

#[derive(Debug, Clone)]
enum PoolOp {
    /// Reserves for a chain of `family`, fills `filled` of its blocks.
    Reserve {
        family: u64,
        total: usize,
        filled: usize,
    },
    Release(usize),
}

fn pool_op() -> impl Strategy<Value = PoolOp> {
    prop_oneof![
        (0u64..3, 1usize..8, 0usize..8).prop_map(|(family, total, filled)| PoolOp::Reserve {
            family,
            total,
            filled
        }),
        (0usize..8).prop_map(PoolOp::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_pool_agrees_with_plain_lists(
        blocks in 1usize..16,
        ops in proptest::collection::vec(pool_op(), 1..80),
    ) {
        let mut pool = BlockPool::new(blocks as u64);
        let mut naive = NaivePool::new(blocks);
        let mut held: Vec<(Reservation, Vec<usize>)> = Vec::new();
        for op in ops {
            match op {
                PoolOp::Reserve { family, total, filled } => {
                    let chain: Vec<u64> = (0..total as u64).map(|index| if index < 2 { index } else { 100 * (family + 1) + index }).collect();
                    match (pool.reserve(&chain, total), naive.reserve(&chain, total)) {
                        (None, None) => {}
                        (Some(real), Some((plain, hits))) => {
                            prop_assert_eq!(real.hits(), hits);
                            prop_assert_eq!(real.len(), total);
                            for index in hits..filled.min(total) {
                                pool.fill(&real, index, chain[index]);
                                if naive.holder(chain[index]).is_none() {
                                    naive.content.insert(plain[index], chain[index]);
                                }
                            }
                            held.push((real, plain));
                        }
                        (real, plain) => prop_assert!(false, "{:?} against {:?}", real, plain),
                    }
                }
                PoolOp::Release(index) if index < held.len() => {
                    let (real, plain) = held.remove(index);
                    pool.release(real);
                    naive.release(plain);
                }
                PoolOp::Release(_) => {}
            }
            prop_assert_eq!(pool.referenced() + naive.idle.len(), blocks);
            prop_assert_eq!(pool.cached(), naive.content.len());
            for hash in [0, 1, 102, 203, 304] {
                prop_assert_eq!(pool.cached_prefix(&[hash]), usize::from(naive.holder(hash).is_some()));
            }
        }
    }
}
