//! Where upstreams come from: the configuration, watched files, DNS.
//!
//! [`Sources`] turns a [`config::Config`] into a list of [`Endpoint`]s that changes while it runs. Everything that can
//! go wrong with a source leaves its last good answer in place and is told as an [`Event`], once.
//!
//! It does not know whether an endpoint answers, and gives endpoints no identity: it says which are there, by name and
//! URL, in a stable order. One that goes and comes back is a new one to whoever reads the list.

mod dns;
mod event;
mod file;
mod merge;
mod secret;
mod sources;

pub use dns::{DnsError, Nameservers};
pub use event::{Event, Report};
pub use file::FileWatch;
pub use merge::{Endpoint, Origin};
pub use secret::{Secret, SecretError, read_api_key};
pub use sources::{Options, Sources};
