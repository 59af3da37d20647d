//! Where upstreams come from: the configuration, watched files, DNS.
//!
//! [`Sources`] turns a [`config::Config`] into a list of [`Endpoint`]s that changes while it runs. Everything that can
//! go wrong with a source leaves its last good answer in place and is told as an [`Event`], once.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use discovery::{Options, Sources};
//!
//! let text = b"upstreams: [{url: http://127.0.0.1:8000}, {url: http://127.0.0.1:8001, name: gpu-b}]";
//! let config = config::Config::from_yaml("ridge.yaml", text).unwrap();
//! let report = std::sync::Arc::new(|event| eprintln!("{event}"));
//! let sources = Sources::start(&config, Options::default(), report).await;
//! let endpoints = sources.endpoints().borrow().clone();
//! assert_eq!(endpoints[0].name, "engine-1");
//! assert_eq!(endpoints[1].name, "gpu-b");
//! # });
//! ```
//!
//! It does not know whether an endpoint answers, and gives endpoints no identity: it says which are there, by name and
//! URL, in a stable order. One that goes and comes back is a new one to whoever reads the list.

mod dns;
mod event;
mod file;
mod merge;
mod read;
mod secret;
mod sources;

pub use dns::{DnsError, Nameservers};
pub use event::{Event, Report};
pub use file::FileWatch;
pub use merge::{Endpoint, Origin};
pub use read::read_file;
pub use secret::{Secret, SecretError, read_api_key};
pub use sources::{Options, Sources};
