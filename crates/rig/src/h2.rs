//! An HTTP/2 client with prior knowledge (h2c), whose streams can be read step by step and cancelled.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::{mpsc as async_mpsc, oneshot};

use crate::tls::Secure;
use crate::wait::DEADLINE;

/// What happens on one stream, in order.
#[derive(Debug)]
pub enum Event {
    /// The response's head.
    Head(http::response::Parts),
    /// One piece of body, and when it came.
    Data(Instant, Bytes),
    /// The trailers.
    Trailers(http::HeaderMap),
    /// The orderly end.
    End,
    /// The stream or the connection failed.
    Failed(String),
}

struct Order {
    request: http::Request<Full<Bytes>>,
    events: mpsc::Sender<Event>,
    cancel: oneshot::Receiver<()>,
}

/// One HTTP/2 connection.
pub struct H2Client {
    orders: async_mpsc::UnboundedSender<Order>,
    authority: String,
}

/// One request on an [`H2Client`]; dropping it cancels the request.
pub struct H2Stream {
    events: mpsc::Receiver<Event>,
    _cancel: oneshot::Sender<()>,
}

/// A whole answer over HTTP/2, or what came of it.
#[derive(Debug, Default)]
pub struct H2Response {
    /// The status code; 0 when no head came.
    pub status: u16,
    /// The headers.
    pub headers: http::HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// When each piece of body came, and how long the body was then.
    pub arrivals: Vec<(Instant, usize)>,
    /// The trailers, if any.
    pub trailers: http::HeaderMap,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

impl H2Client {
    /// Connects and starts HTTP/2 without any upgrade.
    ///
    /// # Panics
    /// If there is no such server.
    #[track_caller]
    pub fn connect(addr: SocketAddr) -> Self {
        Self::connect_by(addr, None)
    }

    /// Connects with TLS and starts HTTP/2 without any upgrade.
    ///
    /// # Panics
    /// If there is no such server.
    #[track_caller]
    pub fn connect_tls(addr: SocketAddr, secure: &Secure) -> Self {
        Self::connect_by(addr, Some(secure.clone()))
    }

    #[track_caller]
    fn connect_by(addr: SocketAddr, secure: Option<Secure>) -> Self {
        let (orders, inbox) = async_mpsc::unbounded_channel();
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime for one connection").block_on(run(addr, secure, inbox, ready));
        });
        let started = is_ready.recv_timeout(DEADLINE).unwrap_or_else(|error| Err(error.to_string()));
        started.unwrap_or_else(|error| panic!("HTTP/2 to {addr}: {error}"));
        Self { orders, authority: addr.to_string() }
    }

    /// Starts a request.
    pub fn start(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> H2Stream {
        let mut request =
            http::Request::builder().method(method).uri(format!("http://{}{path}", self.authority));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("a request that the test wrote well");
        let (events, inbox) = mpsc::channel();
        let (cancel, is_cancelled) = oneshot::channel();
        // When the connection's thread has ended, the stream's own channel says so.
        let _ = self.orders.send(Order { request, events, cancel: is_cancelled });
        H2Stream { events: inbox, _cancel: cancel }
    }

    /// Sends a POST with a JSON body and reads the whole answer.
    pub fn post_json(&self, path: &str, body: impl Into<Bytes>) -> H2Response {
        self.start("POST", path, &[("content-type", "application/json")], body).read_all()
    }
}

impl H2Stream {
    /// The next event, or a failure when none comes within the deadline.
    pub fn next(&self, deadline: Duration) -> Event {
        self.events.recv_timeout(deadline).unwrap_or_else(|error| Event::Failed(error.to_string()))
    }

    /// Reads to the end.
    pub fn read_all(self) -> H2Response {
        let mut response = H2Response::default();
        loop {
            match self.next(DEADLINE) {
                Event::Head(parts) => {
                    response.status = parts.status.as_u16();
                    response.headers = parts.headers;
                }
                Event::Data(at, data) => {
                    response.body.extend_from_slice(&data);
                    response.arrivals.push((at, response.body.len()));
                }
                Event::Trailers(trailers) => response.trailers = trailers,
                Event::End => return response,
                Event::Failed(error) => {
                    response.error = Some(error);
                    return response;
                }
            }
        }
    }
}

async fn run(
    addr: SocketAddr,
    secure: Option<Secure>,
    mut orders: async_mpsc::UnboundedReceiver<Order>,
    ready: mpsc::Sender<Result<(), String>>,
) {
    let sender = match handshake(addr, secure).await {
        Ok(sender) => sender,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    let mut streams = tokio::task::JoinSet::new();
    while let Some(order) = orders.recv().await {
        streams.spawn(carry(sender.clone(), order));
    }
    // The client was dropped; streams that are still read go on.
    while streams.join_next().await.is_some() {}
}

type Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn handshake(addr: SocketAddr, secure: Option<Secure>) -> Result<Sender, String> {
    let stream = tokio::net::TcpStream::connect(addr).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    match secure {
        None => start(TokioIo::new(stream)).await,
        Some(Secure { config, name }) => {
            let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await;
            start(TokioIo::new(stream.map_err(|error| error.to_string())?)).await
        }
    }
}

async fn start<S>(stream: S) -> Result<Sender, String>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
    let (sender, connection) = handshake.await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn carry(sender: Sender, order: Order) {
    let Order { request, events, cancel } = order;
    tokio::select! {
        // Resolves when the test drops the stream; dropping the response then resets it.
        _ = cancel => {}
        () = exchange(sender, request, &events) => {}
    }
}

async fn exchange(mut sender: Sender, request: http::Request<Full<Bytes>>, events: &mpsc::Sender<Event>) {
    let response = match sender.send_request(request).await {
        Ok(response) => response,
        Err(error) => return drop(events.send(Event::Failed(format!("{error:?}")))),
    };
    let (parts, mut body) = response.into_parts();
    let _ = events.send(Event::Head(parts));
    while let Some(frame) = body.frame().await {
        let event = match frame {
            Ok(frame) => match frame.into_data() {
                Ok(data) => Event::Data(Instant::now(), data),
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => Event::Trailers(trailers),
                    Err(_) => continue,
                },
            },
            Err(error) => return drop(events.send(Event::Failed(format!("{error:?}")))),
        };
        let _ = events.send(event);
    }
    let _ = events.send(Event::End);
}
