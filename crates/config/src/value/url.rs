//! The URL of an upstream.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use serde_json::Value as Json;

use crate::diagnostics::Fault;
use crate::field::{Value, pattern};
use crate::value::host_name_fault;

/// The host part of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name, in lower case, to be looked up at each connect.
    Name(String),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Where an engine is: `http://host:port`, with what is put before each request's path.
///
/// ```
/// let url: config::UpstreamUrl = "http://[::1]:8000/base/".parse().unwrap();
/// assert_eq!((url.port(), url.base()), (8000, "/base"));
/// assert_eq!(url.to_string(), "http://[::1]:8000/base");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamUrl {
    host: Host,
    port: u16,
    base: String,
}

impl UpstreamUrl {
    /// The URL of a host and port without a base path.
    pub fn new(host: Host, port: u16) -> Self {
        Self { host, port, base: String::new() }
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port; 80 when none is written.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What goes before the path of each request: empty, or a path without a slash at its end.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// `host:port`, as in a Host header.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.base)
    }
}

/// A text that is no upstream URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlError(Fault);

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.rule, self.0.remedy)
    }
}

impl std::error::Error for UrlError {}

impl std::str::FromStr for UpstreamUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        <Self as Value>::parse(text).map_err(UrlError)
    }
}

impl Value for UpstreamUrl {
    const KIND: &'static str = "a URL";

    fn parse(text: &str) -> Result<Self, Fault> {
        let form = "http://HOST:PORT, perhaps with a base path";
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => {
                return Err(Fault::new(
                    "upstreams are spoken to without TLS",
                    format!("write http://{}", rest.rsplit('@').next().unwrap_or("HOST:PORT")),
                ));
            }
            Some(_) => return Err(Fault::new(form, "write http:// before the host")),
            None if text.contains('@') => return Err(Fault::new(form, "write http://HOST:PORT")),
            None => return Err(Fault::new(form, format!("write http://{text}"))),
        };
        if text.len() > 2048 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            let rule = "at most 2048 printable ASCII characters without spaces";
            return Err(Fault::new(rule, "write http://HOST:PORT"));
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(Fault::new(
                "no user and password in a URL",
                "put a key in `api_key`, read from a variable or a file",
            ));
        }
        let (host, port) = split_port(authority)?;
        Ok(Self { host: parse_host(host)?, port, base: parse_base(path)? })
    }

    fn is_secret(text: &str) -> bool {
        text.contains('@')
    }

    fn schema() -> Json {
        pattern("^[hH][tT][tT][pP]://[^@?#]+$")
    }
}

fn split_port(authority: &str) -> Result<(&str, u16), Fault> {
    // A colon inside brackets belongs to the address.
    let host_end = authority.rfind(']').map_or(0, |at| at + 1);
    let Some(colon) = authority[host_end..].find(':').map(|at| host_end + at) else {
        return Ok((authority, 80));
    };
    let (host, port) = (&authority[..colon], &authority[colon + 1..]);
    if port.contains(':') {
        return Err(Fault::new(
            "an IPv6 address in a URL stands in brackets",
            "write http://[2001:db8::1]:8000",
        ));
    }
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if digits && number > 0 => Ok((host, number)),
        _ => Err(Fault::new("a port is a number from 1 to 65535", format!("write http://{host}:8000"))),
    }
}

fn parse_host(host: &str) -> Result<Host, Fault> {
    if let Some(inner) = host.strip_prefix('[') {
        return inner
            .strip_suffix(']')
            .and_then(|inner| inner.parse::<Ipv6Addr>().ok())
            .map(|ip| Host::Ip(ip.into()))
            .ok_or_else(|| {
                Fault::new(
                    "in brackets stands an IPv6 address, without a zone",
                    "write http://[2001:db8::1]:8000",
                )
            });
    }
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(Host::Ip(ip));
    }
    if host.is_empty() {
        return Err(Fault::new("the host is missing", "write http://HOST:PORT"));
    }
    match host_name_fault(host) {
        Some(fault) => Err(fault),
        None => Ok(Host::Name(host.trim_end_matches('.').to_ascii_lowercase())),
    }
}

fn parse_base(path: &str) -> Result<String, Fault> {
    if path.contains(['?', '#']) {
        return Err(Fault::new("no query and no fragment", "leave out what follows `?` or `#`"));
    }
    let base = path.trim_end_matches('/');
    let parts: Vec<&str> = base.split('/').skip(1).collect();
    if parts.iter().any(|part| part.is_empty() || *part == "." || *part == "..") {
        return Err(Fault::new("a base path has no `.`, `..` or empty parts", "write /base"));
    }
    if parts.last() == Some(&"v1") {
        return Err(Fault::new(
            "the base goes before whole paths, which have /v1 themselves",
            "leave out /v1",
        ));
    }
    Ok(base.to_owned())
}
