//! What the data plane is told: values it uses, already checked.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use access::Access;
use engines::EngineKind;
use http::{HeaderValue, Method};
use scheduling::Role;

use crate::upstream::Protocol;

/// What is fixed for the life of a gateway.
#[derive(Clone)]
pub struct Startup {
    /// Addresses to serve on. Port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Listeners that are open already, by the address in `listen` or `listen_tls` in whose place they are used.
    pub inherited: Vec<(SocketAddr, Arc<TcpListener>)>,
    /// Clients are accepted only once an endpoint has answered: until then another process serves them.
    pub accept_when_ready: bool,
    /// Addresses to serve on with TLS, by `tls`.
    pub listen_tls: Vec<SocketAddr>,
    /// How TLS is served at first.
    pub tls: Option<Tls>,
    /// Cores to serve with, each a thread.
    pub cores: usize,
    /// Seed of the random choices.
    pub seed: u64,
    /// Where the access log goes, if anywhere.
    pub access_log: Option<AccessLog>,
    /// Told of what happens besides requests.
    pub notify: Notify,
}

/// Where access log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Appended to a file.
    File(std::path::PathBuf),
}

/// Takes notices; must not block.
pub type Notify = Arc<dyn Fn(Notice) + Send + Sync>;

/// Something a person who runs the gateway wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How much it matters.
    pub level: Level,
    /// One line.
    pub text: String,
}

/// How much a notice matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Good to know.
    Info,
    /// Something works less well.
    Warning,
}

/// How clients are served with TLS. Can change while it runs; open connections keep what they began with.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Certificates, and what is asked of clients.
    pub serving: tls::Serving,
    /// Longest time for a handshake.
    pub handshake_timeout: Duration,
    /// Handshakes under way at one time, on all cores together.
    pub max_handshakes: usize,
}

/// What can change while it runs.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Largest request body, bytes.
    pub body_limit: u64,
    /// Request bodies held at one time, all together, bytes.
    pub bodies_limit: u64,
    /// Largest request head, bytes.
    pub header_bytes: usize,
    /// Most request header fields.
    pub header_count: usize,
    /// Longest wait for an upstream connection.
    pub connect_timeout: Duration,
    /// Upstreams tried for one request.
    pub attempts: u32,
    /// Response headers.
    pub headers: ResponseHeaders,
    /// Paths passed on besides the known ones.
    pub extra_paths: Vec<ExtraPath>,
    /// Who may call; `None`: everybody, and nobody is asked.
    pub access: Option<Arc<Access>>,
    /// Send prompts that begin alike to one endpoint.
    pub prefix_affinity: bool,
    /// Time between two readings of an endpoint's metrics.
    pub signal_interval: Duration,
    /// Longest wait for one reading.
    pub signal_timeout: Duration,
    /// How long clients may take.
    pub patience: Patience,
}

/// How long clients may take. Kept to within a look of the core's housekeeping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a request's head, from its first byte on; for the first one from the connection's beginning on.
    pub header_ms: u64,
    /// Between two requests.
    pub idle_ms: u64,
    /// Between two pieces of a request's body.
    pub body_ms: u64,
    /// Least bytes a second of a body, over stretches of `body_ms`.
    pub body_rate: u64,
    /// Between two pieces of an answer that the client takes.
    pub send_ms: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { header_ms: 30_000, idle_ms: 900_000, body_ms: 30_000, body_rate: 1024, send_ms: 60_000 }
    }
}

impl Policy {
    /// How long a reading of an endpoint's metrics counts: one lost reading is nothing, five in a row mean that
    /// nobody knows.
    pub fn signals_fresh_ms(&self) -> u64 {
        u64::try_from(self.signal_interval.as_millis()).unwrap_or(u64::MAX).saturating_mul(5)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            body_limit: 64 << 20,
            bodies_limit: 1 << 30,
            header_bytes: 64 << 10,
            header_count: 128,
            connect_timeout: Duration::from_secs(3),
            attempts: 3,
            headers: ResponseHeaders { endpoint: true, attempts: true, request_id: true },
            extra_paths: Vec::new(),
            access: None,
            prefix_affinity: true,
            signal_interval: Duration::from_secs(1),
            signal_timeout: Duration::from_secs(1),
            patience: Patience::default(),
        }
    }
}

/// Which of its own fields the gateway adds to answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeaders {
    /// `x-ridge-endpoint`.
    pub endpoint: bool,
    /// `x-ridge-attempts`.
    pub attempts: bool,
    /// `x-request-id`.
    pub request_id: bool,
}

/// A path that is passed on though it is not an inference call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraPath {
    /// The path; with `below`, without its final slash.
    pub path: String,
    /// All paths below it, not itself.
    pub below: bool,
    /// Methods that are passed on.
    pub methods: Vec<Method>,
}

impl ExtraPath {
    /// Whether it covers the path.
    pub fn covers(&self, path: &str) -> bool {
        if !self.below {
            return path == self.path;
        }
        // Dot segments could lead out of the folder at an engine that resolves them.
        path.strip_prefix(&self.path)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|rest| !rest.is_empty() && !has_dot_segment(rest))
    }
}

fn has_dot_segment(path: &str) -> bool {
    let lower = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    lower.split(['/', '\\']).any(|segment| segment == "." || segment == "..")
}

/// One upstream as configured or discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// What people see.
    pub name: String,
    /// Address or host name, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path before every request's own, without a slash at its end.
    pub base: String,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// Models it serves; empty: it is asked.
    pub models: Vec<String>,
    /// What it may be given.
    pub role: Role,
    /// The program; [`EngineKind::Unknown`]: found out.
    pub engine: EngineKind,
    /// Tells rollouts apart.
    pub revision: Option<String>,
    /// Share of the load.
    pub weight: f32,
    /// Requests it is given at one time.
    pub max_in_flight: Option<u32>,
    /// The protocol.
    pub protocol: Protocol,
    /// `Authorization` sent instead of the client's.
    pub authorization: Option<HeaderValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_folder_does_not_open_its_neighbours() {
        let extra = ExtraPath { path: "/v1/files".into(), below: true, methods: vec![Method::GET] };
        assert!(extra.covers("/v1/files/a/content"));
        for path in [
            "/v1/files",
            "/v1/files/",
            "/v1/files2/a",
            "/v1/files/../sleep",
            "/v1/files/%2e%2e/sleep",
            "/v1/files/..%2Fsleep",
        ] {
            assert!(!extra.covers(path), "{path} was let through");
        }
    }
}
