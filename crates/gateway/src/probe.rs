//! Asking an endpoint about itself: which engine it is, its models, its signals.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use engines::{EngineKind, Model, ModelsError, classify, metrics_path, parse_metrics, parse_models, probes};
use http::header::HeaderMap;
use http::{HeaderValue, Method};
use thiserror::Error;

use crate::joined::Joined;
use crate::upstream::{ExchangeError, Outgoing, Pool, Target, send};

/// Largest answer that is read. vLLM's metrics page has 50 KB, a model list of a large site 1 MB.
const MAX_ANSWER: usize = 8 << 20;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// It cannot be reached, or broke off.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The answer broke off or is too large.
    #[error("the answer broke off or is larger than 8 MiB")]
    Body,
    /// Too slow.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// A whole answer.
pub struct Page {
    /// The status.
    pub status: u16,
    /// The fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// GETs a page.
pub async fn get(pool: &Pool, target: &Target, path: &str, timeout: Duration) -> Result<Page, ProbeError> {
    // An endpoint that does not take connections is down, which a question that is only late does not say.
    let connect_timeout = target.connect_timeout.min(timeout.mul_f32(0.9));
    let target = &Target { connect_timeout, ..target.clone() };
    let get = async {
        let outgoing = Outgoing {
            method: &Method::GET,
            path_and_query: path,
            headers: &HeaderMap::new(),
            request_id: &HeaderValue::from_static("ridge-probe"),
            body: None,
            trailers: None,
        };
        let answer = match send(pool, target, &outgoing, false).await {
            // A connection that was idle since the last question may have been closed.
            Err(ExchangeError::Closed { reused: true, .. }) => {
                pool.forget(target.id);
                send(pool, target, &outgoing, true).await?
            }
            answer => answer?,
        };
        let mut body = answer.body;
        let mut whole = Joined::default();
        loop {
            let piece = poll_fn(|cx| body.poll_next(cx, pool)).await.map_err(|_| ProbeError::Body)?;
            whole.push(piece.data, body.exact_length().unwrap_or(0));
            if whole.len() > MAX_ANSWER {
                return Err(ProbeError::Body);
            }
            if piece.done {
                break;
            }
        }
        let body = whole.into_bytes();
        Ok(Page { status: answer.status.as_u16(), headers: answer.headers, body })
    };
    tokio::time::timeout(timeout, get).await.map_err(|_| ProbeError::Timeout(timeout))?
}

/// Finds out which engine it is.
pub async fn detect(pool: &Pool, target: &Target, timeout: Duration) -> Result<EngineKind, ProbeError> {
    for probe in probes() {
        let page = get(pool, target, probe.path, timeout).await?;
        let server = page.headers.get(http::header::SERVER).and_then(|server| server.to_str().ok());
        let answer = engines::Answer { path: probe.path, status: page.status, server, body: &page.body };
        if let Some(kind) = classify(&answer) {
            return Ok(kind);
        }
    }
    Ok(EngineKind::Unknown)
}

/// Who answers at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// The engine.
    pub engine: EngineKind,
    /// Names of its models.
    pub models: Vec<String>,
}

/// Finds out who answers HTTP at an address; `None` when nobody does.
pub async fn identify(host: &str, port: u16, timeout: Duration) -> Option<Identified> {
    let pool = Pool::default();
    let target = Target {
        id: scheduling::EndpointId(0),
        host: host.into(),
        port,
        authority: http::uri::Authority::try_from(format!("{host}:{port}")).ok()?,
        base: "".into(),
        protocol: crate::Protocol::Http1,
        authorization: None,
        connect_timeout: timeout,
    };
    let engine = detect(&pool, &target, timeout).await.ok()?;
    let models = match models(&pool, &target, timeout).await {
        Ok(Ok(Some(models))) => models,
        _ => Vec::new(),
    };
    Some(Identified { engine, models: models.into_iter().map(|model| model.id).collect() })
}

/// Its models; `None` if it has no such list, an error if the list cannot be used.
pub async fn models(
    pool: &Pool,
    target: &Target,
    timeout: Duration,
) -> Result<Result<Option<Vec<Model>>, ModelsError>, ProbeError> {
    let page = get(pool, target, "/v1/models", timeout).await?;
    Ok((page.status == 200).then(|| parse_models(&page.body)).transpose())
}

/// Its signals. An engine without a metrics page is only asked whether it is there.
pub async fn signals(
    pool: &Pool,
    target: &Target,
    kind: EngineKind,
    timeout: Duration,
) -> Result<scheduling::Signals, ProbeError> {
    let path = metrics_path(kind);
    let page = get(pool, target, path.unwrap_or("/v1/models"), timeout).await?;
    if path.is_none() || page.status != 200 {
        return Ok(scheduling::Signals::default());
    }
    let read = parse_metrics(kind, &page.body);
    Ok(scheduling::Signals { running: read.running, waiting: read.waiting, kv_usage: read.kv_usage })
}
