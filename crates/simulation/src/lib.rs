//! Inference engines as pure state machines.
//!
//! An [`Engine`] is what a router sees of an inference engine: a queue, continuous batching with chunked
//! prefill, and a paged KV pool with a prefix cache. It computes nothing; it only knows how long things take
//! and which blocks are held. Time is an argument (microseconds since any epoch), so the same engine runs on
//! the wall clock behind HTTP and on a virtual clock in a simulation, and gives the same answer in both.
//!
//! ```
//! use simulation::{Engine, EngineParams, Event, Request};
//!
//! let mut engine = Engine::new(EngineParams::default()).unwrap();
//! engine.submit(0, Request { id: 1, prompt_tokens: 800, output_tokens: 2, block_hashes: vec![] }).unwrap();
//!
//! let mut events = Vec::new();
//! engine.advance(0, &mut events); // the first step starts
//! while let Some(next_us) = engine.next_event_us() {
//!     engine.advance(next_us, &mut events);
//! }
//! // Prefill: 10.8 ms + 800 / 8,000 per s. Then one decode step: 10.8 + 7.2 + 0.15 ms.
//! assert!(matches!(events[0], Event::Token { id: 1, produced: 1, at_us: 110_800 }));
//! assert!(matches!(events[1], Event::Token { id: 1, produced: 2, at_us: 128_950 }));
//! assert!(matches!(events[2], Event::Finished { id: 1, at_us: 128_950, .. }));
//! ```
//!
//! What it is not: it has no network, no clock, no randomness, and no idea of text. Preemption is not modelled:
//! a sequence reserves the blocks for its whole answer when it is admitted, and waits in the queue until they fit.

mod counters;
mod engine;
mod hashes;
mod params;
mod pool;

pub use counters::{Counters, Histogram};
pub use engine::{Engine, Event, Refusal, Request, Submitted};
pub use hashes::prefix_hashes;
pub use params::{EngineParams, ParamsError};
pub use pool::{BlockPool, Reservation};
