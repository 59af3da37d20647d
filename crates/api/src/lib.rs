//! Request and response formats of inference APIs, read no further than routing needs.
//!
//! A gateway asks four things of a request: which call it is ([`route`]), which model and how ([`scan_json`],
//! [`scan_multipart`]), which bytes are the prompt ([`RequestFields::prompt`]), and what to say when it is
//! refused ([`error_body`]). Of an answer it asks how many events passed and what usage the engine reported
//! ([`StreamScan`], [`usage_of_json`]).
//!
//! ```
//! use api::{Operation, Routed, route, scan_json};
//!
//! let Routed::Known(operation) = route("POST", "/v1/chat/completions") else { unreachable!() };
//! let body = br#"{"model":"qwen","messages":[]}"#;
//! let fields = scan_json(operation, body)?;
//! fields.require_model(operation)?;
//! # Ok::<(), api::BodyError>(())
//! ```
//!
//! Pure functions over bytes: no input or output, no clock, nothing kept between calls. It is not a client, has no
//! typed copy of anyone's schema, and never prints JSON that it read: bytes pass unchanged.

mod blocks;
mod body_error;

mod disposition;
mod error_body;
mod json;
mod multipart;
mod operation;
mod request;
mod sse;
mod usage;

pub use body_error::{BodyCode, BodyError};
pub use error_body::error_body;
pub use json::MAX_DEPTH;
pub use multipart::scan_multipart;
pub use operation::{BodyKind, Dialect, Operation, Routed, route};
pub use request::{RequestFields, StringField, scan_body, scan_json};
pub use sse::{Framing, MAX_EVENT_BYTES, Seen, StreamScan};
pub use usage::{Usage, usage_of_json};
