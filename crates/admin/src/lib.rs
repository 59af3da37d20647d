//! The admin listener: what an operator asks a running gateway, on a thread of its own, away from traffic.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page that shows the rest, one file, nothing from elsewhere |
//! | `/metrics` | Prometheus text |
//! | `/api/snapshot` | [`Snapshot`] as JSON |
//! | `/livez` | 200 while the process can answer |
//! | `/readyz` | 200 while it wants traffic, else 503 |
//!
//! The crate knows nothing of the gateway: whoever runs one implements [`Source`], which fills plain structs.
//!
//! ```
//! use std::sync::Arc;
//! use admin::{Snapshot, Source};
//!
//! struct Idle;
//! impl Source for Idle {
//!     fn snapshot(&self) -> admin::SnapshotFuture<'_> {
//!         Box::pin(async { Snapshot { version: "0.1.0".into(), ..Snapshot::default() } })
//!     }
//!     fn ready(&self) -> bool {
//!         true
//!     }
//! }
//!
//! let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let server = admin::start(listener, Arc::new(Idle))?;
//! println!("admin page at http://{}/", server.address());
//! server.stop();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! It changes nothing (GET and HEAD only), asks for no password, and so belongs on loopback or a network of
//! operators. It is no store of history: the page draws what it saw since it was opened.

mod exposition;
mod metrics;
mod page;
mod server;
mod snapshot;

pub use metrics::write_metrics;
pub use server::{CONNECTIONS_MAX, Server, serve, start};
pub use snapshot::{
    CoreRow, EndpointRow, Health, Histogram, HistogramKind, RecentRequest, RequestCount, Series, Snapshot,
    SnapshotFuture, Source, Why,
};
