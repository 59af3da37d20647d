//! What tests need to look at a gateway from outside: an engine that sends given bytes with given pauses, clients
//! that keep every byte and the time it came, and child processes that are gone when the test ends.
//!
//! Everything blocks and runs on plain threads, so that it works in `#[test]` and beside any runtime. Every wait has
//! a deadline; nothing sleeps for a fixed time.
//!
//! ```
//! use rig::{ScriptedEngine, client, script};
//!
//! let engine = ScriptedEngine::answering(script::json(200, r#"{"ok":1.0}"#));
//! let answer = client::post_json(engine.addr(), "/v1/completions", r#"{"model":"m","prompt":"x"}"#);
//! assert_eq!(answer.status(), 200);
//! assert_eq!(answer.body(), br#"{"ok":1.0}"#);
//! assert_eq!(engine.requests()[0].body, br#"{"model":"m","prompt":"x"}"#);
//! ```
//!
//! It is for tests only: it panics with an explanation where a test would have to fail anyway, and it is not an HTTP
//! library. It knows just enough of HTTP to find where a message ends, and keeps what it does not know as it came.

pub mod certificates;
pub mod client;
mod connection;
mod engine;
mod framing;
pub mod h2;
mod head;
mod leaks;
mod metrics_text;
mod process;
mod response;
pub mod script;
mod tls;
mod wait;

pub use certificates::Authority;
pub use client::RawClient;
pub use engine::{Request, ScriptedEngine};
pub use h2::H2Client;
pub use leaks::Leaks;
pub use metrics_text::MetricsText;
pub use process::{RidgeProcess, SimProcess, ridge_binary};
pub use response::{End, Response};
pub use script::{Script, Step};
pub use tls::Secure;
pub use wait::{DEADLINE, eventually, wait_until};
