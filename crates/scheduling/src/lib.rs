//! Which endpoint takes a request.
//!
//! A decider: it holds the endpoints' state as plain counters and answers [`pick`]. It opens no socket,
//! reads no clock and draws no random number; the time and a seed are arguments, so the same state, request,
//! time and seed give the same answer, in production and in a simulation alike.
//!
//! ```
//! use scheduling::{pick, Ask, EndpointId, Fleet, Member, PrefixIndex, PrefixHashes, Models, Endpoint, Wanted};
//!
//! let a = Member::new(Endpoint::new(EndpointId(1), None), "a", 1.0, Models::Known(vec!["m".into()]));
//! let b = Member::new(Endpoint::new(EndpointId(2), None), "b", 1.0, Models::Known(vec!["m".into()]));
//! let fleet = Fleet::new(vec![a, b]);
//! let busy = fleet.members()[0].endpoint.enter().unwrap();
//! let ask = Ask { model: Wanted::Model(fleet.model("m").unwrap()), prefix: &PrefixHashes::default(), tried: &[], now_ms: 0, fresh_ms: 5_000, seed: 7 };
//! let decision = pick(&fleet, &PrefixIndex::with_entries(1024), &ask).unwrap();
//! assert_eq!(&*fleet.members()[decision.member].name, "b");
//! drop(busy);
//! ```
//!
//! It is not a queue and not a predictor: a request is placed at once, by least load and a little prefix
//! affinity, or refused.

mod endpoint;
mod fleet;
mod pick;
mod prefix;

pub use endpoint::{Endpoint, EndpointId, Health, InFlight, Observation, Signals, TURNED_AWAY_MS};
pub use fleet::{Fleet, Member, ModelId, Models, Role};
pub use pick::{AFFINITY_WORTH, Ask, Decision, Reason, Refusal, RunnerUp, Wanted, pick};
pub use prefix::{BLOCK_BYTES, MAX_BLOCKS, PrefixHashes, PrefixIndex};
