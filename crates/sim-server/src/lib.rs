//! Simulated engines on the wall clock, behind HTTP.
//!
//! A [`Sim`] is a small fleet of engines that need no accelerator: each replica is a
//! [`simulation::Engine`] with its own port, the HTTP API and the metrics page of a real engine, answers that
//! depend on nothing but the prompt, and faults on demand.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use sim_server::{Sim, SimOptions};
//!
//! let options = SimOptions { listen: "127.0.0.1:0".parse().unwrap(), replicas: 2, ..Default::default() };
//! let sim = Sim::bind(options).await.unwrap();
//! assert_eq!(sim.addresses().len(), 2); // each on a port of its own
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let running = tokio::spawn(sim.run(async { _ = stopped.await }));
//! stop.send(()).unwrap();
//! running.await.unwrap();
//! # });
//! ```
//!
//! What it is not: a model. It counts four bytes as one token and says words from a short list. Nor is it a
//! security boundary: anyone who reaches a replica can crash it, which is what it is for.

mod answer;
mod api;
mod body;
mod clock;
mod connection;
mod error;
mod fault;
mod http_api;
mod metrics;
mod model;
mod options;
mod overrides;
mod prompt;
mod replica;
mod sequence;
mod sim;

pub use error::SimError;
pub use options::{EngineKind, SimOptions};
pub use overrides::ReplicaOverride;
pub use sim::{Sim, serve};
