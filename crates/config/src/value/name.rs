//! Names, labels, paths and other texts with rules.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::diagnostics::Fault;
use crate::field::Value;

macro_rules! texts {
    ($(
        $(#[doc = $doc:literal])*
        pub struct $name:ident, $kind:literal, $rule:path, $schema:expr;
    )*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Value for $name {
            const KIND: &'static str = $kind;

            fn parse(text: &str) -> Result<Self, Fault> {
                match $rule(text) {
                    None => Ok(Self(text.to_owned())),
                    Some(fault) => Err(fault),
                }
            }

            fn schema() -> Json {
                $schema
            }

            fn is_secret(_: &str) -> bool {
                // A key itself, written where its variable's name belongs.
                stringify!($name) == "VariableName"
            }
        }
    )*};
}

texts! {
    /// A short free text: a model's name, a revision.
    pub struct Text, "a text", text_fault, json!({"type": ["string", "number", "boolean"], "maxLength": 512});
    /// The name that clients and metrics see for an upstream.
    pub struct UpstreamName, "a name", upstream_name_fault, json!({"type": ["string", "number"], "pattern": "^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"});
    /// The key of a label, as in Kubernetes: a name, before it perhaps a domain and a slash.
    pub struct LabelKey, "a label's name", label_key_fault, json!({"type": "string"});
    /// The value of a label.
    pub struct LabelValue, "a text", label_value_fault, json!({"type": ["string", "number", "boolean"], "maxLength": 256});
    /// A name to look up in DNS.
    pub struct DnsName, "a DNS name", dns_name_fault, json!({"type": "string", "maxLength": 254});
    /// The name of an environment variable.
    pub struct VariableName, "an environment variable's name", variable_fault, json!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"});
    /// A path in the file system, relative ones from the working directory.
    pub struct FilePath, "a path", file_path_fault, json!({"type": "string", "minLength": 1});
    /// A path of requests: exact, or all below it when it ends in `/*`.
    pub struct PathPattern, "a request path", path_pattern_fault, json!({"type": "string", "pattern": "^/"});
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl PathPattern {
    /// Whether a request's path, without its query, is meant.
    pub fn matches(&self, path: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == self.0,
        }
    }
}

fn plain_fault(text: &str, max_bytes: usize) -> Option<Fault> {
    if text.len() > max_bytes {
        let rule = format!("at most {max_bytes} bytes, these are {}", text.len());
        return Some(Fault::new(rule, "write a shorter one"));
    }
    text.chars()
        .any(char::is_control)
        .then(|| Fault::new("no control characters or line breaks", "write it in one line"))
}

fn text_fault(text: &str) -> Option<Fault> {
    if text.trim() != text || text.is_empty() {
        return Some(Fault::new("not empty, no white space around it", "write the text itself"));
    }
    plain_fault(text, 512)
}

fn label_value_fault(text: &str) -> Option<Fault> {
    plain_fault(text, 256)
}

fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && ends(bytes.first()) && ends(bytes.last()) && bytes.iter().copied().all(inner)
}

fn upstream_name_fault(text: &str) -> Option<Fault> {
    // Names reach clients in a header: no address of the inside may hide in one.
    let address = text.parse::<IpAddr>().is_ok()
        || text.replace(['-', '_'], ".").parse::<Ipv4Addr>().is_ok()
        || text.contains(':')
        || text.contains('/');
    if address {
        return Some(Fault::new(
            "a name is shown to clients and must not be an address",
            "write a name such as gpu-a",
        ));
    }
    (!is_name(text)).then(|| {
        Fault::new(
            "a name is 1 to 63 letters, digits, `-`, `_` or `.`, with a letter or digit at both ends",
            "write a name such as gpu-a",
        )
    })
}

fn label_key_fault(text: &str) -> Option<Fault> {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    let good = is_name(name) && domain.is_none_or(|domain| host_name_fault(domain).is_none());
    (!good).then(|| {
        Fault::new(
            "a label's name is 1 to 63 letters, digits, `-`, `_` or `.`, before it perhaps a domain and `/`",
            "write a name such as zone or topology.kubernetes.io/zone",
        )
    })
}

/// The rule for host names: letters, digits, `-` and `_` between dots.
pub(crate) fn host_name_fault(text: &str) -> Option<Fault> {
    let fault = |rule: &str| Some(Fault::new(rule, "write a name such as engines.example.com"));
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if name.len() > 253 {
        return fault("a host name has at most 253 characters");
    }
    if !name.split('.').all(label) {
        return fault("a host name is letters, digits and `-` between dots, each part 1 to 63 long");
    }
    let last = name.rsplit('.').next().unwrap_or("");
    if last.bytes().all(|b| b.is_ascii_digit()) {
        // Some resolvers read 127.1 or 2130706433 as an address.
        return fault("neither an IP address nor a host name, whose last part is not all digits");
    }
    None
}

fn dns_name_fault(text: &str) -> Option<Fault> {
    if text.contains("://") || text.contains(':') {
        return Some(Fault::new(
            "a DNS name alone, without scheme and port",
            "write the name here and the port in `port`",
        ));
    }
    host_name_fault(text)
}

fn variable_fault(text: &str) -> Option<Fault> {
    let good = text.len() <= 128
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (!good).then(|| {
        Fault::new(
            "letters, digits and `_`, not first a digit",
            "write the variable's name without `$`, such as ENGINE_API_KEY",
        )
    })
}

fn file_path_fault(text: &str) -> Option<Fault> {
    if text.is_empty() {
        return Some(Fault::new("not empty", "write a path such as /etc/ridge/upstreams.yaml"));
    }
    plain_fault(text, 4096)
}

fn path_pattern_fault(text: &str) -> Option<Fault> {
    let remedy = "write for example /v1/files or /v1/files/*";
    let fault = |rule: &str| Some(Fault::new(rule, remedy));
    if !text.starts_with('/') {
        return fault("a request path starts with `/`");
    }
    let exact = text.strip_suffix("/*").unwrap_or(text);
    if exact.contains('*') {
        return fault("`*` stands only at the end, after `/`");
    }
    if exact.contains(['?', '#', '%', '\\']) || !exact.bytes().all(|b| b.is_ascii_graphic()) {
        return fault("plain path characters, no query, no escapes");
    }
    if exact.split('/').any(|part| part == "." || part == "..") || exact.contains("//") {
        return fault("no `.` or `..` or empty parts");
    }
    plain_fault(text, 512)
}
