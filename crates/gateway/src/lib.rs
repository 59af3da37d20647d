//! The data plane: listeners, upstream pools, streaming.
//!
//! A doer: it moves bytes between clients and engines and holds no policy; `scheduling` picks the endpoint and
//! `api` reads what must be known of a request. One thread a core, each with its own runtime, client
//! connections, upstream connections and counts; nothing that cores share is locked on a request's way.
//!
//! ```no_run
//! fn start(startup: gateway::Startup, upstreams: Vec<gateway::Upstream>) -> Result<(), gateway::StartError> {
//!     let gateway = gateway::Gateway::start(startup, gateway::Policy::default(), upstreams)?;
//!     println!("{:?}", gateway.addresses());
//!     Ok(())
//! }
//! ```
//!
//! It is not a general reverse proxy: it answers inference calls, and other paths only when they are listed.

mod accept;
mod access_log;
mod arriving;
mod bodies;
mod body;
mod caller;
mod client;
mod control;
mod core;
mod gateway;
mod handshake;
mod health;
mod joined;
mod ledger;
mod local;
mod metered;
mod pages;
mod probe;
mod receive;
mod refuse;
mod route;
mod service;
mod settings;
mod tenants;
mod ticket;
mod upstream;
mod vitals;
mod world;

pub use engines::EngineKind;
pub use gateway::{Gateway, Observer, Snapshot, StartError};
pub use handshake::Handshake;
pub use ledger::{CLIENT_GONE, Histogram, ITL_BOUNDS_S, LATENCY_BOUNDS_S, Ledger, NOWHERE, Recent, Series};
pub use probe::{Identified, identify};
pub use scheduling::{Health, Role};
pub use settings::{
    AccessLog, ExtraPath, Level, Notice, Notify, Patience, Policy, ResponseHeaders, Startup, Tls, Upstream,
};
pub use tenants::{TenantSeries, Tenants, TokenCounts};
pub use upstream::Protocol;
pub use vitals::Closed;
pub use world::{ModelLabel, World};
