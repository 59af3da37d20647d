//! The types of single values: each parses one text, says which rule a bad text breaks, and how to write it.

mod address;
mod choice;
mod name;
mod number;
mod san;
mod size;
mod time;
mod url;

pub use address::Admin;
pub use choice::{AccessLogTarget, DnsType, EngineKind, Family, Method, Protocol, Role};
pub use name::{DnsName, FilePath, LabelKey, LabelValue, PathPattern, Text, UpstreamName, VariableName};
pub use san::SanRule;
pub use size::ByteSize;
pub use url::{Host, UpstreamUrl, UrlError};

pub(crate) use name::host_name_fault;
