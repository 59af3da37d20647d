//! The HTTP APIs that a replica speaks.

pub mod chat;
pub mod completions;
pub mod embeddings;
mod fields;
mod generate;
pub mod info;
pub mod messages;
pub mod refusal;
pub mod rerank;
pub mod responses;
pub mod sglang;
pub mod tokenize;

use std::sync::Arc;

use crate::body::Cut;
use crate::replica::Replica;

/// One request's surroundings.
pub struct Call {
    pub replica: Arc<Replica>,
    pub cut: Option<Cut>,
}

/// A string as JSON.
pub fn quoted(text: &str) -> String {
    // A string always has a JSON form.
    serde_json::to_string(text).unwrap_or_default()
}
