//! The listener: routes, limits, and a thread of its own.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::page::{CONTENT_SECURITY_POLICY, PAGE};
use crate::{Source, write_metrics};

/// Most connections at once; a scraper and a few open pages need less than ten. More wait in the kernel's queue.
pub const CONNECTIONS_MAX: usize = 128;

/// A client that has not finished its request's head by then is closed, so that idle ones do not use up
/// [`CONNECTIONS_MAX`]. Longer than a scrape interval of 30 s would keep idle scrapers' connections for nothing.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// At the end, how long answers that have begun may take.
const FINISH_TIME: Duration = Duration::from_secs(1);

/// The admin listener on its own thread; it ends with [`Server::stop`] or when dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// The address it listens on, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the listener and every connection, answers that have begun excepted, and waits for the thread.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was printed by its own hook, and there is nothing left to clean up.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves on a thread of its own, named `ridge-admin`.
///
/// # Errors
/// When the listener cannot be made non-blocking or the thread or its runtime cannot be started.
pub fn start(listener: std::net::TcpListener, source: Arc<dyn Source>) -> io::Result<Server> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new().name("ridge-admin".into()).spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            let stopped = async {
                let _ = stopped.await; // sent or dropped, both mean stop
            };
            serve(listener, source, stopped).await;
        });
    })?;
    Ok(Server { address, stop: Some(stop), thread: Some(thread) })
}

/// Serves until `shutdown` completes, within the caller's runtime.
pub async fn serve(listener: TcpListener, source: Arc<dyn Source>, shutdown: impl Future<Output = ()>) {
    let on_loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let service = TowerToHyperService::new(router(source, on_loopback));
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_headers(64);
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Dropping the set aborts what is left in it.
    let mut connections = tokio::task::JoinSet::new();
    let (end, ended) = watch::channel(false);
    let accept = async {
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    let connection = http.serve_connection(TokioIo::new(stream), service.clone());
                    let mut ended = ended.clone();
                    connections.spawn(async move {
                        let _slot = slot;
                        let mut connection = pin!(connection);
                        // A client that breaks off is no event for anyone.
                        tokio::select! {
                            _ = connection.as_mut() => return,
                            _ = ended.wait_for(|ended| *ended) => {}
                        }
                        connection.as_mut().graceful_shutdown();
                        let _ = connection.await;
                    });
                }
                // Out of descriptors or the like: the next call would fail at once as well.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = shutdown => {}
    }
    drop(listener);
    let _ = end.send(true);
    let finish = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(FINISH_TIME, finish).await;
}

fn router(source: Arc<dyn Source>, on_loopback: bool) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .route("/api/snapshot", get(snapshot))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .fallback(not_found)
        .with_state(source)
        .layer(middleware::from_fn(move |request, next| guard(on_loopback, request, next)))
}

/// What holds for every path: reading only, from where it was meant to be read, and never cached.
async fn guard(on_loopback: bool, request: Request, next: Next) -> Response {
    let mut response = if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let text =
            format!("{} is not allowed here: the admin listener only answers GET and HEAD", request.method());
        let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &text);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        response
    } else if on_loopback && !host_is_local(request.headers().get(HOST)) {
        // A web page elsewhere can point its own name at 127.0.0.1 and have a browser here read the answer.
        error(
            StatusCode::MISDIRECTED_REQUEST,
            "wrong_host",
            "this listener is on loopback and answers to localhost or an IP address only; \
             set --admin to an address of the network to use another name",
        )
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    headers.insert(HeaderName::from_static("referrer-policy"), HeaderValue::from_static("no-referrer"));
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(
        HeaderName::from_static("content-security-policy"),
        HeaderValue::from_static(CONTENT_SECURITY_POLICY),
    );
    response
}

/// Whether the host asked for is `localhost` or a plain address. HTTP/1.0 probes send none, and no browser does that.
fn host_is_local(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host else { return true };
    let Ok(authority) = host.to_str().unwrap_or("?").parse::<http::uri::Authority>() else { return false };
    let host = authority.host();
    host.eq_ignore_ascii_case("localhost")
        || host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>().is_ok()
}

async fn page() -> Response {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], PAGE).into_response()
}

async fn metrics(State(source): State<Arc<dyn Source>>) -> Response {
    let text = write_metrics(&source.snapshot().await);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn snapshot(State(source): State<Arc<dyn Source>>) -> Response {
    axum::Json(source.snapshot().await).into_response()
}

async fn livez() -> Response {
    axum::Json(serde_json::json!({"status": "ok", "ridge": env!("CARGO_PKG_VERSION")})).into_response()
}

async fn readyz(State(source): State<Arc<dyn Source>>) -> Response {
    let (status, word) = if source.ready() {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    };
    (status, axum::Json(serde_json::json!({"status": word, "ridge": env!("CARGO_PKG_VERSION")})))
        .into_response()
}

async fn not_found(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(128).collect();
    let text = format!("nothing at {path}: there are /, /metrics, /api/snapshot, /livez and /readyz");
    error(StatusCode::NOT_FOUND, "not_found", &text)
}

fn error(status: StatusCode, code: &str, message: &str) -> Response {
    (status, axum::Json(serde_json::json!({"error": {"code": code, "message": message}}))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_and_localhost_are_local_hosts() {
        for host in ["localhost", "LOCALHOST:9090", "127.0.0.1", "127.0.0.1:9090", "[::1]:9090", "[::1]"] {
            assert!(host_is_local(Some(&HeaderValue::from_static(host))), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:9090", "127.0.0.1.evil.example", "", "a b", "::1"]
        {
            assert!(!host_is_local(Some(&HeaderValue::from_static(host))), "{host}");
        }
        assert!(host_is_local(None));
    }
}
