//! What differs between inference engines, in one place: how to recognise one, where its metrics are and what they
//! are called, and the shape of its model list.
//!
//! ```
//! use engines::{EngineKind, parse_metrics};
//!
//! let page = b"vllm:num_requests_running{engine=\"0\"} 3.0\nvllm:num_requests_waiting{engine=\"0\"} NaN\n";
//! let signals = parse_metrics(EngineKind::Vllm, page);
//! assert_eq!(signals.running, Some(3));
//! assert_eq!(signals.waiting, None); // not a number: unknown, which is not zero
//! ```
//!
//! It is not a client: nothing here opens a socket, reads a clock or keeps state. Bytes in, facts out; the caller
//! fetches, bounds the size of what it fetches, and decides how old a fact may be.

mod detect;
mod exposition;
mod kind;
mod models;
mod signals;

pub use detect::{Answer, Probe, classify, probes, usual_ports};
pub use kind::{EngineKind, UnknownEngineKind, metrics_path};
pub use models::{MODEL_ID_MAX_BYTES, MODELS_MAX, Model, ModelsError, merge_models, parse_models};
pub use signals::{Signals, parse_metrics};
