//! What happens to sources, for the log.

use std::fmt;
use std::sync::Arc;

use config::{Diagnostics, UpstreamUrl};

use crate::dns::DnsError;
use crate::merge::Origin;

/// Something about a source that an operator wants to know. Each is told when it begins, not again while it lasts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A watched file was read; it has that many upstreams.
    FileRead {
        /// Its path, as configured.
        path: String,
        /// Upstreams in it.
        upstreams: usize,
    },
    /// A watched file cannot be read or has errors. Its last good list stays.
    FileRefused {
        /// Its path, as configured.
        path: String,
        /// What is wrong with it.
        diagnostics: Diagnostics,
    },
    /// A name cannot be looked up. Its last answer stays.
    LookupFailed {
        /// The name.
        host: String,
        /// Why.
        error: DnsError,
    },
    /// A name that could not be looked up can be again, or is looked up for the first time.
    LookupWorks {
        /// The name.
        host: String,
        /// Answers.
        addresses: usize,
    },
    /// A name has no answer any more: nothing behind it is used.
    LookupEmpty {
        /// The name.
        host: String,
    },
    /// A name has more answers than are used.
    LookupCut {
        /// The name.
        host: String,
        /// How many are used.
        used: usize,
    },
    /// Two places give one name to two upstreams; the second is left out.
    NameTaken {
        /// The name.
        name: String,
        /// Who has it.
        by: UpstreamUrl,
        /// Who is left out.
        left_out: UpstreamUrl,
        /// Where that one comes from.
        origin: Origin,
    },
    /// Two places have one URL; the first counts.
    UrlRepeated {
        /// The URL.
        url: UpstreamUrl,
        /// Where it stands again.
        origin: Origin,
    },
    /// There are more upstreams than are used; those at the end are left out.
    TooMany {
        /// How many are left out.
        left_out: usize,
    },
    /// The list of endpoints changed.
    Changed {
        /// How many there are now.
        endpoints: usize,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileRead { path, upstreams } => write!(f, "{path}: {upstreams} upstreams read"),
            Self::FileRefused { path, diagnostics } => {
                write!(f, "{path} is refused, its last good list stays\n{diagnostics}")
            }
            Self::LookupFailed { host, error } => {
                write!(f, "{host} cannot be looked up, its last answer stays: {error}")
            }
            Self::LookupWorks { host, addresses } => write!(f, "{host}: {addresses} addresses"),
            Self::LookupEmpty { host } => write!(f, "{host} has no addresses"),
            Self::LookupCut { host, used } => {
                write!(f, "{host} has more addresses than the {used} that are used")
            }
            Self::NameTaken { name, by, left_out, origin } => {
                write!(f, "{left_out} ({origin}) is left out: {by} has the name `{name}` already")
            }
            Self::UrlRepeated { url, origin } => {
                write!(f, "{url} ({origin}) is listed before, the first place counts")
            }
            Self::TooMany { left_out } => {
                write!(f, "{left_out} upstreams are left out: there are too many")
            }
            Self::Changed { endpoints } => write!(f, "{endpoints} endpoints"),
        }
    }
}

/// Who is told of events. It is called from the task that watches: it must not block.
pub type Report = Arc<dyn Fn(Event) + Send + Sync>;
