//! Steps take what the formula says, in virtual time: 10.8 ms + 0.15 ms for each decoding sequence + prefilled
//! tokens / 8,000 per s + 7.2 ms if anything decodes, with at most 2,048 prompt tokens in a step.

use simulation::{Engine, EngineParams, Event, Refusal, Request, Submitted, prefix_hashes};

fn engine(params: EngineParams) -> Engine {
    Engine::new(params).expect("good parameters")
}

fn request(id: u64, prompt_tokens: u32, output_tokens: u32) -> Request {
    Request { id, prompt_tokens, output_tokens, block_hashes: vec![] }
}

fn run(engine: &mut Engine) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(next_us) = engine.next_event_us() {
        engine.advance(next_us, &mut events);
    }
    events
}

fn times(events: &[Event], of: u64) -> Vec<u64> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Token { id, at_us, .. } if *id == of => Some(*at_us),
            _ => None,
        })
        .collect()
}

#[test]
fn a_long_prefill_is_chunked_and_slows_those_that_decode() {
    let mut engine = engine(EngineParams::default());
    // A prompt of 80 tokens: 10.8 + 10 ms, so its first token comes at 20.8 ms.
    engine.submit(0, request(1, 80, 4)).unwrap();
    let mut events = Vec::new();
    engine.advance(0, &mut events);
    // One of 3,000 arrives during that step and joins the next: 2,048 tokens, then the other 952.
    assert_eq!(engine.submit(5_000, request(2, 3_000, 2)), Ok(Submitted::Next));
    assert_eq!(engine.pending_prefill_tokens(), 3_080);
    events.extend(run(&mut engine));

    let first = 10_800 + 10_000;
    let second = first + 10_800 + 7_200 + 150 + 256_000; // 1 decodes, 2,048 prefilled
    let third = second + 10_800 + 7_200 + 150 + 119_000; // 1 decodes, 952 prefilled
    let fourth = third + 10_800 + 7_200 + 300; // both decode
    assert_eq!(times(&events, 1), [first, second, third, fourth]);
    assert_eq!(times(&events, 2), [third, fourth]);
    assert_eq!((engine.counters().ttft_s.sum() * 1e6).round(), (first + third - 5_000) as f64);
    assert_eq!(engine.counters().steps, 4);
}

#[test]
fn prefill_is_first_come_first_served_within_the_step() {
    let mut engine = engine(EngineParams::default());
    for id in 1..=3 {
        engine.submit(0, request(id, 1_000, 1)).unwrap();
    }
    let events = run(&mut engine);
    // 1,000 + 1,000 + 48 in the first step, 952 in the second.
    assert_eq!(times(&events, 1), [10_800 + 256_000]);
    assert_eq!(times(&events, 2), [10_800 + 256_000]);
    assert_eq!(times(&events, 3), [2 * 10_800 + 375_000]);
}

#[test]
fn what_the_cache_holds_is_not_computed_again_but_the_last_token_is() {
    let mut engine = engine(EngineParams { block_size: 16, ..EngineParams::default() });
    let text = vec![b'x'; 64 * 4];
    let block_hashes = prefix_hashes(&text, 16 * 4);
    let prompt = |id| Request { id, prompt_tokens: 64, output_tokens: 1, block_hashes: block_hashes.clone() };
    engine.submit(0, prompt(1)).unwrap();
    run(&mut engine);
    assert_eq!(engine.cached_tokens(64, &block_hashes), 48, "the block with the last token does not count");
    assert_eq!(engine.cached_tokens(65, &block_hashes), 64);

    let start_us = 1_000_000;
    engine.submit(start_us, prompt(2)).unwrap();
    let events = run(&mut engine);
    assert_eq!(times(&events, 2), [start_us + 10_800 + 2_000], "16 tokens to compute, not 64");
    assert!(matches!(events.last(), Some(Event::Finished { id: 2, cached_tokens: 48, .. })));
    assert_eq!((engine.counters().prefix_queries, engine.counters().prefix_hits), (128, 48));
}

#[test]
fn an_answer_is_cached_for_the_next_turn() {
    let mut engine = engine(EngineParams { block_size: 4, ..EngineParams::default() });
    let text: Vec<u8> = (0..64).collect();
    let block_hashes = prefix_hashes(&text, 16);
    engine
        .submit(0, Request { id: 1, prompt_tokens: 6, output_tokens: 8, block_hashes: block_hashes.clone() })
        .unwrap();
    run(&mut engine);
    // 6 + 8 tokens, the last of which was said but never computed: three full blocks.
    assert_eq!(engine.cached_tokens(16, &block_hashes), 12);
}

#[test]
fn a_request_waits_until_its_blocks_fit_and_nobody_overtakes_it() {
    let mut engine = engine(EngineParams { kv_tokens: 40, block_size: 4, ..EngineParams::default() });
    assert_eq!(engine.submit(0, request(9, 33, 8)), Err(Refusal::TooLarge { needed: 11, total: 10 }));
    engine.submit(0, request(1, 20, 4)).unwrap();
    engine.submit(0, request(2, 20, 4)).unwrap();
    engine.submit(0, request(3, 2, 1)).unwrap();
    let mut events = Vec::new();
    engine.advance(0, &mut events);
    assert_eq!((engine.running(), engine.waiting()), (1, 2), "3 would fit, but 2 is before it");
    assert_eq!(engine.kv_usage(), 0.6);
    assert!(engine.cancel(1, 1));
    events.extend(run(&mut engine));
    assert_eq!((times(&events, 2).len(), times(&events, 3).len()), (4, 1));
    assert_eq!((engine.kv_usage(), engine.counters().cancelled, engine.counters().finished), (0.0, 1, 2));
}

#[test]
fn no_more_run_than_may() {
    let mut engine = engine(EngineParams { max_num_seqs: 2, max_queued: 3, ..EngineParams::default() });
    for id in 0..3 {
        engine.submit(0, request(id, 8, 5)).unwrap();
    }
    assert_eq!(engine.submit(0, request(7, 8, 5)), Err(Refusal::QueueFull { limit: 3 }));
    engine.advance(0, &mut Vec::new());
    assert_eq!((engine.running(), engine.waiting()), (2, 1));
    assert_eq!(engine.submit(0, request(2, 8, 5)), Err(Refusal::DuplicateId { id: 2 }));
    assert_eq!(engine.submit(0, request(5, 0, 5)), Err(Refusal::EmptyPrompt));
}

#[test]
fn an_engine_can_become_slow_and_recover() {
    let mut engine = engine(EngineParams::default());
    engine.set_slow_factor(5.0).unwrap();
    assert!(engine.set_slow_factor(-1.0).is_err());
    engine.submit(0, request(1, 80, 2)).unwrap();
    let mut events = Vec::new();
    engine.advance(0, &mut events);
    engine.set_slow_factor(1.0).unwrap();
    events.extend(run(&mut engine));
    assert_eq!(times(&events, 1), [5 * 20_800, 5 * 20_800 + 18_150]);
}

#[test]
fn an_embedding_ends_with_its_prefill() {
    let mut engine = engine(EngineParams::default());
    engine.submit(0, request(1, 80, 0)).unwrap();
    assert_eq!(run(&mut engine), [Event::Finished { id: 1, at_us: 20_800, cached_tokens: 0 }]);
    assert_eq!(engine.counters().ttft_s.count(), 0);
}
