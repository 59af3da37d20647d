//! A fleet on free ports and a plain client, for the tests.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use sim_server::{Sim, SimOptions};
use tokio::net::TcpStream;

/// Runs `test` against a fleet, on one thread.
pub fn with_fleet<F: Future<Output = ()>>(options: SimOptions, test: impl FnOnce(Vec<SocketAddr>) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let sim = Sim::bind(options).await.expect("free ports");
        let addresses = sim.addresses();
        tokio::select! {
            () = sim.run(std::future::pending()) => unreachable!("nothing ends it"),
            done = tokio::time::timeout(Duration::from_secs(20), test(addresses)) => done.expect("in time"),
        }
    });
}

/// Options for a fleet of one on a free port, a thousand times as fast as real time.
pub fn fast() -> SimOptions {
    SimOptions { listen: ([127, 0, 0, 1], 0).into(), speed: 1_000.0, ..SimOptions::default() }
}

/// The same at real speed.
pub fn real_time() -> SimOptions {
    SimOptions { speed: 1.0, ..fast() }
}

/// One HTTP/1.1 connection.
pub struct Client {
    sender: http1::SendRequest<Full<Bytes>>,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
        tokio::spawn(connection);
        Self { sender }
    }

    pub async fn try_send(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> hyper::Result<Response<Incoming>> {
        self.sender.ready().await?;
        self.sender.send_request(request(method, path, body)).await
    }

    pub async fn send(&mut self, method: &str, path: &str, body: &str) -> Response<Incoming> {
        self.try_send(method, path, body).await.expect("an answer")
    }

    /// Status and text.
    pub async fn text(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        let response = self.send(method, path, body).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a whole body").to_bytes();
        (status, String::from_utf8(bytes.to_vec()).expect("UTF-8"))
    }

    /// The JSON answer to a POST that must succeed.
    pub async fn post(&mut self, path: &str, body: Value) -> Value {
        let (status, text) = self.text("POST", path, &body.to_string()).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

pub fn request(method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "sim")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_owned())))
        .expect("a request")
}

/// An HTTP/2 connection without TLS.
pub async fn connect_h2(address: SocketAddr) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

/// One request on a connection of its own.
pub async fn text(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    Client::connect(address).await.text(method, path, body).await
}

/// The value of a sample on the metrics page whose line starts with `name`; labels are not looked at.
pub async fn metric(address: SocketAddr, name: &str) -> f64 {
    let (_, page) = text(address, "GET", "/metrics", "").await;
    let line = page.lines().find(|line| line.starts_with(name) && line[name.len()..].starts_with('{'));
    let line = line.unwrap_or_else(|| panic!("no {name} in {page}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

/// Looks at a metric until it has the value.
pub async fn until_metric(address: SocketAddr, name: &str, value: f64) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let now = metric(address, name).await;
        if now == value {
            return;
        }
        assert!(Instant::now() < deadline, "{name} is {now}, not {value}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The data of each server-sent event in a whole stream.
pub fn data_of(stream: &str) -> Vec<&str> {
    stream
        .split_terminator("\n\n")
        .filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: ")))
        .collect()
}
