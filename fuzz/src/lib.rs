//! What has to hold for any bytes. Each target is a plain function that panics when it does not; cargo-fuzz and
//! `smoke` call the same ones.
//!
//! A new target is a function here, a row in [`TARGETS`], a folder in `seeds/`, and a file in `fuzz_targets/` with
//! its `[[bin]]` for cargo-fuzz.

mod body;
mod form;
mod metrics;
mod stream;

pub use body::body_scan;
pub use form::multipart;
pub use metrics::metrics_text;
pub use stream::sse_scan;

/// A target as `smoke` runs it.
pub struct Target {
    /// Its name, also that of its folder in `seeds/`.
    pub name: &'static str,
    /// Panics when something does not hold for these bytes.
    pub run: fn(&[u8]),
    /// Pieces of the format, to be put in at random places.
    pub tokens: &'static [&'static [u8]],
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "body_scan", run: body_scan, tokens: body::TOKENS },
    Target { name: "multipart", run: multipart, tokens: form::TOKENS },
    Target { name: "sse_scan", run: sse_scan, tokens: stream::TOKENS },
    Target { name: "metrics_text", run: metrics_text, tokens: metrics::TOKENS },
];
