//! The configuration of `ridge serve`: one definition for file and flags, with errors that point at the place.
//!
//! ```
//! let text = b"limits:\n  body: 64\n";
//! let wrong = config::Config::from_yaml("ridge.yaml", text).unwrap_err();
//! assert_eq!(
//!     wrong.to_string(),
//!     "\
//! error: `limits.body` cannot be `64`
//!  --> ridge.yaml:2:9
//!   |
//! 2 |   body: 64
//!   |         ^^ a size is a whole number and a unit: B, KiB, MiB, GiB, KB, MB or GB
//!   |
//!   = help: write 64B for bytes, 64MiB for mebibytes"
//! );
//! ```
//!
//! It is pure: texts go in, values or diagnostics come out. It opens no file and no socket and knows no runtime; the
//! crate `discovery` does that.

mod command;
mod diagnostics;
mod explain;
mod field;
mod flags;
mod keys;
mod load;
mod nearest;
mod node;
mod schema;
mod settings;
mod value;
mod yaml;

pub use command::{ConfigCommand, Output, unreadable};
pub use diagnostics::{Diagnostics, Problem};
pub use explain::{explain, key_names, markdown, nearest_key};
pub use flags::ServeFlags;
pub use settings::{
    AccessLog, AllowPath, ApiKey, Attributes, Auth, Config, Headers, KeySource, Limits, Routing, Signals,
    Timeouts, Tls, TlsPair, Upstream, UpstreamDns, UpstreamList,
};
pub use value::{
    AccessLogTarget, Admin, ByteSize, DnsName, DnsType, EngineKind, Family, FilePath, Host, LabelKey,
    LabelValue, Method, PathPattern, Protocol, Role, SanRule, Text, UpstreamName, UpstreamUrl, UrlError,
    VariableName,
};
