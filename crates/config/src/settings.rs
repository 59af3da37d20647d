//! The definition: every key of `ridge serve`, once.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use crate::diagnostics::Fault;
use crate::field::{Field, Reader, Spec, settings};
use crate::node::{Kind, Node};
use crate::value::{
    AccessLogTarget, Admin, ByteSize, DnsName, DnsType, EngineKind, Family, FilePath, LabelKey, LabelValue,
    Method, PathPattern, Protocol, Role, SanRule, Text, UpstreamName, UpstreamUrl, VariableName,
};

settings! {
    /// The whole configuration of `ridge serve`.
    pub struct Config {
        /// Addresses on which clients are served. Port 0 takes a free one.
        listen: Vec<SocketAddr> { default: "127.0.0.1:8080", example: "127.0.0.1:8080", restart: true, single: true },
        /// Addresses on which clients are served with TLS, besides those of `listen`. For TLS alone write `listen: []`.
        listen_tls: Vec<SocketAddr> { unset: "none", example: "0.0.0.0:8443", restart: true, single: true },
        /// Certificates of the addresses in `listen_tls`.
        tls: Tls { example: "certificate: /etc/ridge/tls.crt" },
        /// Address of the admin listener with metrics, health and the dashboard; `off` for none. It has no
        /// authentication: keep it on an address that only operators reach.
        admin: Admin { default: "127.0.0.1:9090", example: "127.0.0.1:9090", restart: true },
        /// Threads that carry requests, each with its own connections to upstreams.
        threads: Option<u32> { unset: "one for each core", min: "1", max: "1024", example: "8", restart: true },
        /// Engines to send requests to. On the command line: the URL, then perhaps attributes, as in
        /// `http://127.0.0.1:8000,name=a,weight=2,label.zone=x`, or a YAML mapping in braces.
        upstreams: Vec<Upstream> { example: "url: http://127.0.0.1:8000", flag: "upstream" },
        /// YAML files that hold nothing but a list `upstreams`. They are watched: a change is taken in while running,
        /// a file with an error is refused and its last good list stays.
        upstream_files: Vec<FilePath> { example: "/etc/ridge/upstreams.yaml", flag: "upstream-file" },
        /// DNS names that are looked up again and again; each answer is an upstream. On the command line: the name,
        /// then perhaps attributes, as in `vllm.default.svc,port=8000`.
        upstream_dns: Vec<UpstreamDns> { example: "host: vllm.default.svc.cluster.local", flag: "upstream-dns" },
        /// Bounds on what a client may send, and on what an upstream is given.
        limits: Limits { example: "body: 64MiB" },
        /// How long things may take.
        timeouts: Timeouts { example: "connect: 3s" },
        /// Response headers that can be turned off.
        headers: Headers { example: "endpoint: true" },
        /// One JSON line for each request.
        access_log: AccessLog { example: "to: stdout" },
        /// Paths that are passed on besides the known inference paths. Engines have paths that unload models or run
        /// commands: list only what every client may call. On the command line: the path, then perhaps methods, as
        /// in `/v1/files/*,method=GET`.
        allow_paths: Vec<AllowPath> { example: "path: /v1/files/*", flag: "allow-path" },
        /// Who may call. Without it everybody who reaches the gateway may.
        auth: Auth { example: "keys: [/etc/ridge/keys.jsonl]" },
        /// How an upstream is chosen.
        routing: Routing { example: "prefix_affinity: true" },
        /// Reading the state of engines from their metrics pages.
        signals: Signals { example: "interval: 1s" },
        /// Upstreams that are tried for one request before it fails, the first included. Only requests of which no
        /// response byte has come are tried again.
        attempts: u32 { default: "3", min: "1", max: "10", example: "3" },
    }
    check check_config;

    /// TLS towards clients.
    pub struct Tls {
        /// A PEM file with the server's certificate, and after it those of the authorities between it and the root. All
        /// files of TLS are watched: new ones are taken in while running, open connections go on.
        certificate: Option<FilePath> { unset: "needed with `listen_tls`", example: "/etc/ridge/tls.crt" },
        /// A PEM file with the certificate's private key.
        key: Option<FilePath> { unset: "needed with `certificate`", example: "/etc/ridge/tls.key" },
        /// More certificates with their keys, for clients that ask for their host names. Who asks for none, or for another,
        /// gets the one above. On the command line `/etc/ridge/b.crt,key=/etc/ridge/b.key`.
        more_certificates: Vec<TlsPair> { unset: "none", example: "{certificate: b.crt, key: b.key}" },
        /// A PEM file with the authorities that issue certificates to clients. With it, every client must show one.
        client_ca: Option<FilePath> { unset: "clients are not asked for a certificate", example: "/etc/ridge/clients.crt" },
        /// Names of which a client's certificate must have one: `dns:`, `uri:` or `email:` and the name; `dns:*.example.com`
        /// for all names below.
        client_names: Vec<SanRule> { unset: "all that `client_ca` has issued", example: "uri:spiffe://prod/batch" },
        /// How long a handshake may take.
        handshake_timeout: Duration { default: "10s", min: "100ms", max: "5m", example: "10s" },
        /// Handshakes under way at the same time; clients beyond that are closed at once.
        max_handshakes: u32 { default: "4096", min: "1", max: "1000000", example: "4096" },
    }
    check check_tls;

    /// A certificate with its key.
    pub struct TlsPair {
        /// A PEM file with the certificate chain.
        certificate: FilePath { required: true, example: "/etc/ridge/b.crt" },
        /// A PEM file with its private key.
        key: FilePath { required: true, example: "/etc/ridge/b.key" },
    }

    /// One engine.
    pub struct Upstream {
        /// Where the engine is. A base path goes before the path of each request; leave out `/v1`.
        url: UpstreamUrl { required: true, example: "http://127.0.0.1:8000" },
        /// What clients (in `x-ridge-endpoint`), logs and metrics call it. Unique, and no address.
        name: Option<UpstreamName> { unset: "engine-1, engine-2, … in order", example: "gpu-a" },
        ..
        /// What else is known about it.
        attributes: Attributes,
    }

    /// What is known about an engine besides where it is.
    pub struct Attributes {
        /// Free labels, for metrics and for rules.
        labels: BTreeMap<LabelKey, LabelValue> { unset: "none", example: "zone: a", flag: "label" },
        /// Names of the models it serves.
        models: Vec<Text> { unset: "asked from its `/v1/models`", example: "llama-3.1-8b", flag: "model" },
        /// Which phases of a request it serves.
        role: Role { default: "both", example: "both" },
        /// Which program it is; `auto` finds out.
        engine: EngineKind { default: "auto", example: "vllm" },
        /// Free text that tells one rollout from another.
        revision: Option<Text> { unset: "none", example: "2026-11-04" },
        /// Share of the work compared with the others: one with 2 gets twice the load of one with 1.
        weight: f64 { default: "1", min: "0.001", max: "1000000", example: "1.5" },
        /// Requests it is given at the same time. When every upstream is at its own, clients get 429.
        max_in_flight: Option<u32> { unset: "`limits.max_in_flight`", min: "1", max: "1000000", example: "256" },
        /// How it is spoken to: HTTP/1.1, or HTTP/2 without TLS.
        protocol: Protocol { default: "http1", example: "http1" },
        /// The key sent to it as `Authorization: Bearer`, in place of the client's. The file names where the key is,
        /// never the key itself.
        api_key: Option<ApiKey> { unset: "the client's own header is passed on", example: "{env: ENGINE_API_KEY}" },
    }

    /// Where an API key is kept: in exactly one of the two.
    pub struct ApiKey {
        /// An environment variable that holds the key.
        env: Option<VariableName> { unset: "see `file`", example: "ENGINE_API_KEY" },
        /// A file that holds the key, read again when upstreams change.
        file: Option<FilePath> { unset: "see `env`", example: "/run/secrets/engine-key" },
    }
    check check_api_key;

    /// Engines behind one DNS name.
    pub struct UpstreamDns {
        /// The name to look up.
        host: DnsName { required: true, example: "vllm.default.svc.cluster.local" },
        /// Which records: `a` for addresses (IPv4 and IPv6), `srv` for hosts with ports and weights.
        records: DnsType { default: "a", example: "a" },
        /// Addresses of which family are used: `any` for both. Engines that have an address of each family under one name
        /// would count twice: choose one family for them.
        family: Family { default: "any", example: "ipv4" },
        /// The engines' port; SRV records bring their own.
        port: Option<u16> { unset: "needed for records of type `a`", min: "1", max: "65535", example: "8000" },
        /// How often the name is looked up. A failing lookup leaves the last answer in place.
        refresh: Duration { default: "5s", min: "100ms", max: "1h", example: "5s" },
        /// What the engines are called: this name with a number.
        name: Option<UpstreamName> { unset: "engine-1, engine-2, …", example: "vllm" },
        ..
        /// What else is known about each of them.
        attributes: Attributes,
    }
    check check_dns;

    /// Bounds on what a client may send.
    pub struct Limits {
        /// The largest request body; larger ones get 413.
        body: ByteSize { default: "64MiB", min: "1KiB", max: "16GiB", example: "128MiB" },
        /// Request bodies that the gateway holds at one time, all together; beyond that requests get 503. A body is held
        /// until its answer begins, since until then it may have to be sent again.
        bodies: ByteSize { default: "1GiB", min: "1MiB", max: "1TiB", example: "4GiB" },
        /// The least bytes a second of a request's body, taken over stretches of `timeouts.body`; slower ones get 408.
        body_rate: ByteSize { default: "1KiB", min: "1B", max: "1GiB", example: "10KiB" },
        /// The most bytes of a request's line and headers together; more get 431.
        header_bytes: ByteSize { default: "64KiB", min: "8KiB", max: "1MiB", example: "64KiB" },
        /// The most headers of a request; more get 431.
        header_count: u32 { default: "128", min: "16", max: "1024", example: "128" },
        /// Requests that one upstream is given at the same time, for upstreams that do not say it themselves.
        max_in_flight: Option<u32> { unset: "unlimited", min: "1", max: "1000000", example: "256" },
    }

    /// How long things may take.
    pub struct Timeouts {
        /// Opening a connection to an upstream; then the next one is tried.
        connect: Duration { default: "3s", min: "1ms", max: "5m", example: "3s" },
        /// A request's head, from its first byte on, and a connection's first one from the connection's beginning on. Then
        /// the connection is closed, with a 408 where a part of a head has come.
        header: Duration { default: "30s", min: "100ms", max: "1h", example: "10s" },
        /// How long a client's connection may be without a request. Set it longer than a load balancer in front keeps its
        /// connections, or that one meets closed ones.
        idle: Duration { default: "15m", min: "1s", max: "24h", example: "2m" },
        /// A pause within a request's body; then 408.
        body: Duration { default: "30s", min: "100ms", max: "1h", example: "1m" },
        /// How long a client may take nothing of an answer that waits for it. Then its connection is closed and its request
        /// at the engine ends.
        send: Duration { default: "60s", min: "1s", max: "1h", example: "2m" },
        /// On shutdown, how long running responses may take to finish.
        drain: Duration { default: "30s", min: "0s", max: "24h", example: "5m" },
        /// On shutdown, how long clients are served as before while readiness is off already, so that load balancers
        /// notice and turn away. Part of `drain`.
        linger: Duration { default: "1s", min: "0s", max: "1h", example: "10s" },
        /// On an upgrade (SIGUSR2), how long the new process may take until an upstream has answered it; then it is
        /// ended and the old one goes on.
        upgrade: Duration { default: "60s", min: "100ms", max: "1h", example: "2m" },
    }

    /// Response headers, each on or off.
    pub struct Headers {
        /// `x-ridge-endpoint`: the name of the upstream that answered.
        endpoint: bool { default: "true", example: "false" },
        /// `x-ridge-attempts`: how many upstreams were tried.
        attempts: bool { default: "true", example: "false" },
        /// `x-request-id`: the request's id, as in the access log.
        request_id: bool { default: "true", example: "false" },
    }

    /// The access log.
    pub struct AccessLog {
        /// Where it goes: `stdout`, `stderr`, `off`, or a path (with a slash in it), which is appended to.
        to: AccessLogTarget { default: "stdout", example: "/var/log/ridge/access.log", restart: true },
    }

    /// A path that is passed on.
    pub struct AllowPath {
        /// The exact path, or all paths below it when it ends in `/*`.
        path: PathPattern { required: true, example: "/v1/files/*" },
        /// The methods that are passed on.
        methods: Vec<Method> { default: "GET POST", example: "GET", flag: "method" },
    }

    /// Who may call.
    pub struct Auth {
        /// Files of API keys, which `ridge keys` writes: JSON lines that hold hashes, never a key. They are watched: a
        /// change is taken in while running, a file with an error is refused and the keys stay as they were.
        keys: Vec<FilePath> { unset: "no keys", example: "/etc/ridge/keys.jsonl" },
        /// Whether who shows no credentials is let in too, as the tenant `anonymous`. Who shows wrong ones never is.
        anonymous: bool { default: "false", example: "true" },
    }

    /// How an upstream is chosen.
    pub struct Routing {
        /// Send requests that begin alike to the same upstream, so that its prefix cache serves them.
        prefix_affinity: bool { default: "true", example: "false" },
        /// Seed of the random choices, to repeat a run.
        seed: Option<u64> { unset: "a new one at each start", example: "42", restart: true },
    }

    /// Reading the state of engines.
    pub struct Signals {
        /// How often each engine's metrics page is read.
        interval: Duration { default: "1s", min: "100ms", max: "1h", example: "1s" },
        /// How long one reading may take; a later answer counts as none.
        timeout: Duration { default: "1s", min: "10ms", max: "1m", example: "1s" },
    }

    /// A watched file of upstreams.
    pub struct UpstreamList {
        /// Engines to send requests to.
        upstreams: Vec<Upstream> { required: true, example: "url: http://127.0.0.1:8000" },
    }
    check check_list;
}

/// Where the key for an upstream is to be read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySource<'k> {
    /// An environment variable.
    Env(&'k VariableName),
    /// A file.
    File(&'k FilePath),
}

impl ApiKey {
    /// Where the key is; there is always one in a configuration that was read.
    pub fn source(&self) -> Option<KeySource<'_>> {
        let env = self.env.as_ref().map(KeySource::Env);
        env.or_else(|| self.file.as_ref().map(KeySource::File))
    }
}

impl Auth {
    /// Whether callers are asked who they are.
    pub fn is_on(&self) -> bool {
        !self.keys.is_empty()
    }
}

impl Config {
    /// The admin listener's address, unless it is off.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.addr()
    }

    /// The keys that differ between two configurations and take effect only after a restart.
    pub fn changed_needing_restart(old: &Self, new: &Self) -> Vec<String> {
        let mut out = Vec::new();
        old.changed(new, &Spec::EMPTY, "", &mut out);
        out
    }
}

/// An item's node in a list that was read without a problem.
fn item<'n>(node: &'n Node, key: &str, at: usize) -> &'n Node {
    match node.get(key).map(|list| &list.kind) {
        Some(Kind::List(items)) => items.get(at).unwrap_or(node),
        _ => node.get(key).unwrap_or(node),
    }
}

fn check_config(config: &Config, node: &Node, reader: &mut Reader) {
    check_auth(&config.auth, node, reader);
    check_upstreams(&config.upstreams, node, reader);
    let mut seen = HashMap::new();
    for (key, list) in [("listen", &config.listen), ("listen_tls", &config.listen_tls)] {
        for (at, addr) in list.iter().enumerate() {
            if addr.port() != 0 && seen.insert(addr, at).is_some() {
                let fault = Fault::new("each address once", "remove one of the two");
                let title = format!("`{addr}` is listed twice");
                let span = item(node, key, at).span;
                reader.report_below(&format!("{key}[{at}]"), title, fault, span);
            }
        }
    }
    if !config.listen_tls.is_empty() && config.tls.certificate.is_none() {
        let fault = Fault::new(
            "an address with TLS needs a certificate and its key",
            "add `tls: {certificate: /etc/ridge/tls.crt, key: /etc/ridge/tls.key}`",
        );
        let span = node.get("listen_tls").unwrap_or(node).span;
        reader.report_below("listen_tls", "{key} has no certificate".to_owned(), fault, span);
    }
    if let Some(addr) = config.admin_addr()
        && seen.contains_key(&addr)
    {
        let fault = Fault::new(
            "`listen` has this address already",
            "give the admin listener a port of its own, or turn it off",
        );
        let span = node.get("admin").unwrap_or(node).span;
        reader.report_below("admin", format!("`admin` cannot be `{addr}`"), fault, span);
    }
    if config.listen.is_empty() && config.listen_tls.is_empty() {
        let fault = Fault::new("at least one address", "write listen: [\"127.0.0.1:8080\"]");
        let span = node.get("listen").unwrap_or(node).span;
        reader.report_below("listen", "{key} is empty".to_owned(), fault, span);
    }
}

/// An `auth` that names nobody would look like a closed door and be an open one.
fn check_auth(auth: &Auth, node: &Node, reader: &mut Reader) {
    if let Some(written) = node.get("auth")
        && !auth.is_on()
    {
        let fault = Fault::new(
            "it must say who may call",
            "name a file under `auth.keys` (`ridge keys create` writes one), or remove `auth` to let everybody in",
        );
        reader.report_below("auth", "{key} lets nobody in".to_owned(), fault, written.span);
    }
}

fn check_list(list: &UpstreamList, node: &Node, reader: &mut Reader) {
    check_upstreams(&list.upstreams, node, reader);
}

/// Names and URLs are there once: a URL is one engine, and its load is counted in one place.
fn check_upstreams(upstreams: &[Upstream], node: &Node, reader: &mut Reader) {
    let mut names: HashMap<&str, usize> = HashMap::new();
    let mut urls: HashMap<&UpstreamUrl, usize> = HashMap::new();
    let mut repeated = |at: usize, key: &str, shown: &str, rule: String, remedy: &str| {
        let upstream = item(node, "upstreams", at);
        let span = upstream.get(key).unwrap_or(upstream).span;
        let title = format!("`{shown}` is listed twice");
        let path = format!("upstreams[{at}].{key}");
        reader.report_below(&path, title, Fault::new(rule, remedy), span);
    };
    for (at, upstream) in upstreams.iter().enumerate() {
        if let Some(name) = upstream.name.as_deref()
            && let Some(before) = names.insert(name, at)
        {
            let rule = format!("`upstreams[{before}]` has this name already");
            let remedy = "give each upstream a name of its own, or leave names out";
            repeated(at, "name", name, rule, remedy);
        }
        if let Some(before) = urls.insert(&upstream.url, at) {
            let rule = format!("`upstreams[{before}]` has this URL already");
            let remedy = "remove one of the two; `weight` gives an upstream a larger share";
            repeated(at, "url", &upstream.url.to_string(), rule, remedy);
        }
    }
}

fn check_tls(tls: &Tls, node: &Node, reader: &mut Reader) {
    let mut lacks = |key: &str, of: &str, remedy: &str| {
        let rule = format!("`{of}` needs `{key}`");
        let span = node.get(of).unwrap_or(node).span;
        reader.report_below(of, format!("{{key}} stands without `{key}`"), Fault::new(rule, remedy), span);
    };
    match (&tls.certificate, &tls.key) {
        (Some(_), None) => lacks("key", "certificate", "add `key: /etc/ridge/tls.key`"),
        (None, Some(_)) => lacks("certificate", "key", "add `certificate: /etc/ridge/tls.crt`"),
        (None, None) if !tls.more_certificates.is_empty() => {
            lacks("certificate", "more_certificates", "write the first pair as `certificate` and `key`");
        }
        _ => {}
    }
    if tls.client_ca.is_none() && !tls.client_names.is_empty() {
        lacks("client_ca", "client_names", "add `client_ca: /etc/ridge/clients.crt`");
    }
}

fn check_api_key(key: &ApiKey, node: &Node, reader: &mut Reader) {
    let rule = "exactly one of `env` and `file` says where the key is";
    let remedy = match (&key.env, &key.file) {
        (Some(_), Some(_)) => "remove one of the two",
        (None, None) => "write {env: NAME} or {file: PATH}",
        _ => return,
    };
    reader.report("{key} is not clear".to_owned(), Fault::new(rule, remedy), node.span);
}

fn check_dns(dns: &UpstreamDns, node: &Node, reader: &mut Reader) {
    match (dns.records, dns.port) {
        (DnsType::A, None) => {
            let fault = Fault::new(
                "records of type `a` carry no port",
                "add `port: 8000`, or look up `records: srv`",
            );
            reader.report("{key} has no port".to_owned(), fault, node.span);
        }
        (DnsType::Srv, Some(port)) => {
            let fault = Fault::new("SRV records bring their own port", "remove `port`");
            let span = node.get("port").unwrap_or(node).span;
            reader.report_below("port", format!("{{key}} cannot be `{port}`"), fault, span);
        }
        _ => {}
    }
}
