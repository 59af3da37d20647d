//! HTTP/2 without TLS to an upstream: many requests on a connection, and another connection for each core and
//! endpoint when the upstream takes no more on the first.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, Version};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;

use super::connection::{BodyError, ExchangeError, connect};
use super::framing::Decoded;
use super::head::{clean_trailers, forwarded};
use super::pool::Pool;
use super::{Answer, AnswerBody, Outgoing, Target};
use crate::local::LocalExecutor;

/// An open HTTP/2 connection.
#[derive(Debug)]
pub struct H2Connection {
    sender: http2::SendRequest<OutgoingBody>,
    streams: Arc<Streams>,
}

/// The requests on a connection. Atomics only because a pool is made before its thread is.
#[derive(Debug)]
struct Streams {
    open: AtomicUsize,
    /// As many as the other side takes.
    limit: AtomicUsize,
}

impl H2Connection {
    /// Whether it can carry nothing more.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Requests on it.
    pub fn streams(&self) -> usize {
        self.streams.open.load(Relaxed)
    }

    /// Whether the other side takes another request at once.
    pub fn has_room(&self) -> bool {
        self.streams() < self.streams.limit.load(Relaxed)
    }

    /// A place on it.
    pub fn stream(&self) -> H2Stream {
        self.streams.open.fetch_add(1, Relaxed);
        H2Stream { sender: self.sender.clone(), count: StreamCount(Arc::clone(&self.streams)) }
    }
}

/// A place on an HTTP/2 connection.
#[derive(Debug)]
pub struct H2Stream {
    sender: http2::SendRequest<OutgoingBody>,
    count: StreamCount,
}

/// Counts a request on its connection for as long as it lives.
#[derive(Debug)]
struct StreamCount(Arc<Streams>);

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

/// A request's body and trailers, whole.
#[derive(Debug)]
pub struct OutgoingBody {
    data: Option<Bytes>,
    trailers: Option<http::HeaderMap>,
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(data) = self.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.data.as_ref().map_or(0, Bytes::len) as u64)
    }
}

/// Sends a request and waits for the answer's head.
pub async fn send(
    pool: &Pool,
    target: &Target,
    request: &Outgoing<'_>,
    fresh: bool,
) -> Result<Answer, ExchangeError> {
    let known = if fresh { None } else { pool.h2(target.id) };
    let reused = known.is_some();
    let H2Stream { mut sender, count } = match known {
        Some(stream) => stream,
        None => open(pool, target).await?,
    };
    let uri: Uri = Uri::builder()
        .scheme("http")
        .authority(target.authority.clone())
        .path_and_query(format!("{}{}", target.base, request.path_and_query))
        .build()
        .map_err(|_| ExchangeError::TooLong)?;
    let mut outgoing = Request::new(OutgoingBody {
        data: request.body.filter(|body| !body.is_empty()).cloned(),
        trailers: request.trailers.cloned(),
    });
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = uri;
    *outgoing.version_mut() = Version::HTTP_2;
    let headers = outgoing.headers_mut();
    for (name, value) in forwarded(request.headers, target.authorization.is_some()) {
        headers.append(name.clone(), value.clone());
    }
    if let Some(value) = &target.authorization {
        headers.insert(http::header::AUTHORIZATION, value.clone());
    }
    headers.insert("x-request-id", request.request_id.clone());
    if let Err(error) = sender.ready().await {
        return Err(ExchangeError::Closed { source: io::Error::other(error), sent: false, reused });
    }
    let response = match sender.try_send_request(outgoing).await {
        Ok(response) => response,
        Err(failed) => {
            let sent = failed.message().is_none();
            let source = io::Error::other(failed.into_error());
            return Err(ExchangeError::Closed { source, sent, reused });
        }
    };
    let (parts, incoming) = response.into_parts();
    // As with bodies below: who knows that nothing comes does not wait for the stream's end.
    let is_empty = incoming.is_end_stream()
        || incoming.size_hint().exact() == Some(0)
        || request.method == Method::HEAD
        || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body =
        if is_empty { AnswerBody::None } else { AnswerBody::Http2(H2Body { incoming, _count: count }) };
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}

async fn open(pool: &Pool, target: &Target) -> Result<H2Stream, ExchangeError> {
    let connection = connect(&target.host, target.port, target.connect_timeout).await?;
    let (sender, mut driver) = http2::Builder::new(LocalExecutor)
        .handshake(TokioIo::new(connection.into_stream()))
        .await
        .map_err(|error| ExchangeError::Connect(io::Error::other(error)))?;
    let limit = AtomicUsize::new(driver.current_max_send_streams());
    let streams = Arc::new(Streams { open: AtomicUsize::new(0), limit });
    let learned = Arc::clone(&streams);
    tokio::task::spawn_local(poll_fn(move |cx| {
        // Polled for each request on it, and so is the limit looked at. Its error reaches every request on it through
        // that request's own stream.
        let ended = Pin::new(&mut driver).poll(cx);
        learned.limit.store(driver.current_max_send_streams(), Relaxed);
        ended.map(drop)
    }));
    let connection = H2Connection { sender, streams };
    let stream = connection.stream();
    pool.put_h2(target.id, connection);
    Ok(stream)
}

/// The body of an HTTP/2 answer. Dropping it resets the stream.
#[derive(Debug)]
pub struct H2Body {
    incoming: Incoming,
    _count: StreamCount,
}

impl H2Body {
    /// Bytes still to come, if the answer said.
    pub fn exact_length(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    /// The next piece.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decoded, BodyError>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
                None => return Poll::Ready(Ok(Decoded { done: true, ..Decoded::default() })),
                Some(Err(error)) => return Poll::Ready(Err(BodyError::Stream(error))),
                Some(Ok(frame)) => frame,
            };
            return Poll::Ready(Ok(match frame.into_data() {
                Ok(data) => {
                    // Many servers end the stream in a frame of its own, after the last byte. Who knows the length
                    // does not wait for it.
                    let done = self.incoming.is_end_stream() || self.exact_length() == Some(0);
                    if data.is_empty() && !done {
                        continue;
                    }
                    Decoded { data, used: 0, done, trailers: None }
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().ok().and_then(clean_trailers);
                    Decoded { done: true, trailers, ..Decoded::default() }
                }
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use http::{HeaderMap, HeaderValue, Response};
    use http_body_util::Full;
    use hyper::service::service_fn;
    use scheduling::EndpointId;
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;
    use tokio::task::spawn_local;

    use super::super::{Protocol, send};
    use super::*;

    /// A server that takes two requests on a connection and answers when `gate` lets it; counts its connections.
    async fn serve_two_at_a_time(listener: TcpListener, gate: Rc<Semaphore>, connections: Rc<Cell<usize>>) {
        while let Ok((stream, _)) = listener.accept().await {
            connections.set(connections.get() + 1);
            let gate = Rc::clone(&gate);
            let service = service_fn(move |_| {
                let gate = Rc::clone(&gate);
                async move {
                    drop(gate.acquire().await);
                    Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from_static(b"yes"))))
                }
            });
            let mut builder = hyper::server::conn::http2::Builder::new(LocalExecutor);
            builder.max_concurrent_streams(2);
            spawn_local(builder.serve_connection(TokioIo::new(stream), service));
        }
    }

    #[test]
    fn requests_beyond_a_connections_limit_get_another_connection() {
        crate::local::runtime().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let (gate, connections) = (Rc::new(Semaphore::new(1)), Rc::new(Cell::new(0)));
            spawn_local(serve_two_at_a_time(listener, Rc::clone(&gate), Rc::clone(&connections)));
            let target = Rc::new(Target {
                id: EndpointId(1),
                host: "127.0.0.1".into(),
                port,
                authority: format!("127.0.0.1:{port}").parse().unwrap(),
                base: "".into(),
                protocol: Protocol::H2c,
                authorization: None,
                connect_timeout: Duration::from_secs(5),
            });
            let pool = Rc::new(Pool::default());
            let request = || {
                let (pool, target) = (Rc::clone(&pool), Rc::clone(&target));
                spawn_local(async move {
                    let outgoing = Outgoing {
                        method: &Method::POST,
                        path_and_query: "/",
                        headers: &HeaderMap::new(),
                        request_id: &HeaderValue::from_static("x"),
                        body: None,
                        trailers: None,
                    };
                    send(&pool, &target, &outgoing, false).await.map(|answer| answer.status)
                })
            };
            // The first one opens a connection; with the second one the limit is known.
            assert_eq!(request().await.unwrap().unwrap(), 200);
            assert_eq!(request().await.unwrap().unwrap(), 200);
            assert_eq!(connections.get(), 1);
            // Then nothing is answered until six wait, of which one connection takes two.
            let permit = gate.acquire().await.unwrap();
            let waiting: Vec<_> = (0..6).map(|_| request()).collect();
            let three = async {
                while connections.get() < 3 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), three).await.expect("three connections");
            drop(permit);
            for answer in waiting {
                assert_eq!(answer.await.unwrap().unwrap(), 200);
            }
            let left = pool.h2(EndpointId(1)).unwrap();
            assert_eq!(left.count.0.open.load(Relaxed), 1, "only this one's place is taken");
        });
    }
}
