//! From the configuration's values to those that the gateway takes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::Access;
use config::{AccessLogTarget, Config, Host};
use gateway::{EngineKind, ExtraPath, Patience, Policy, Protocol, ResponseHeaders, Role, Upstream};
use http::HeaderValue;

/// The rules that can change while running.
pub fn policy(config: &Config, access: Option<Arc<Access>>) -> Policy {
    Policy {
        body_limit: config.limits.body.0,
        bodies_limit: config.limits.bodies.0,
        header_bytes: config.limits.header_bytes.as_usize(),
        header_count: config.limits.header_count as usize,
        connect_timeout: config.timeouts.connect,
        attempts: config.attempts,
        headers: ResponseHeaders {
            endpoint: config.headers.endpoint,
            attempts: config.headers.attempts,
            request_id: config.headers.request_id,
        },
        extra_paths: config.allow_paths.iter().map(extra_path).collect(),
        access,
        prefix_affinity: config.routing.prefix_affinity,
        signal_interval: config.signals.interval,
        signal_timeout: config.signals.timeout,
        patience: patience(config),
    }
}

fn patience(config: &Config) -> Patience {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (timeouts, limits) = (&config.timeouts, &config.limits);
    Patience {
        header_ms: ms(timeouts.header),
        idle_ms: ms(timeouts.idle),
        body_ms: ms(timeouts.body),
        body_rate: limits.body_rate.0,
        send_ms: ms(timeouts.send),
    }
}

fn extra_path(allowed: &config::AllowPath) -> ExtraPath {
    let pattern = allowed.path.as_str();
    let below = pattern.strip_suffix("/*");
    ExtraPath {
        path: below.unwrap_or(pattern).to_owned(),
        below: below.is_some(),
        methods: allowed.methods.iter().filter_map(|method| method.as_str().parse().ok()).collect(),
    }
}

/// Where the access log goes.
pub fn access_log(config: &Config) -> Option<gateway::AccessLog> {
    match &config.access_log.to {
        AccessLogTarget::Stdout => Some(gateway::AccessLog::Stdout),
        AccessLogTarget::Stderr => Some(gateway::AccessLog::Stderr),
        AccessLogTarget::Off => None,
        AccessLogTarget::File(path) => Some(gateway::AccessLog::File(PathBuf::from(path.as_str()))),
    }
}

/// Cores to serve with.
pub fn cores(config: &Config) -> usize {
    let available = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    config.threads.map_or_else(available, |threads| threads as usize)
}

/// The upstreams as the gateway takes them. A key that cannot be read is an error that names it.
pub fn upstreams(list: &[discovery::Endpoint], default_max: Option<u32>) -> Result<Vec<Upstream>, String> {
    list.iter().map(|endpoint| one(&endpoint.name, &endpoint.upstream, default_max)).collect()
}

fn one(name: &str, upstream: &config::Upstream, default_max: Option<u32>) -> Result<Upstream, String> {
    let known = &upstream.attributes;
    let authorization = authorization(upstream).map_err(|error| format!("upstream {name}: {error}"))?;
    Ok(Upstream {
        host: match upstream.url.host() {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.clone(),
        },
        port: upstream.url.port(),
        base: upstream.url.base().to_owned(),
        labels: known
            .labels
            .iter()
            .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
            .collect(),
        models: known.models.iter().map(|model| model.as_str().to_owned()).collect(),
        role: match known.role {
            config::Role::Both => Role::Both,
            config::Role::Prefill => Role::Prefill,
            config::Role::Decode => Role::Decode,
        },
        engine: known.engine.as_str().parse().unwrap_or(EngineKind::Unknown),
        revision: known.revision.as_ref().map(|revision| revision.as_str().to_owned()),
        weight: known.weight as f32,
        max_in_flight: known.max_in_flight.or(default_max),
        protocol: match known.protocol {
            config::Protocol::Http1 => Protocol::Http1,
            config::Protocol::H2c => Protocol::H2c,
        },
        authorization,
        name: name.to_owned(),
    })
}

/// Reads an upstream's key, if it has one, and makes the header of it. The key itself is in no message.
pub fn authorization(upstream: &config::Upstream) -> Result<Option<HeaderValue>, String> {
    let Some(key) = &upstream.attributes.api_key else { return Ok(None) };
    let secret = discovery::read_api_key(key).map_err(|error| error.to_string())?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", secret.expose()))
        .map_err(|_| "its key has characters that no header may hold".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// How long a shutdown goes on serving before it closes its listeners.
pub fn linger(config: &Config) -> Duration {
    config.timeouts.linger.min(config.timeouts.drain)
}
