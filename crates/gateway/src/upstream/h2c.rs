//! HTTP/2 without TLS to an upstream: one connection for each core and endpoint, many requests on it.

use std::io;
use std::pin::Pin;
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

/// A handle to an HTTP/2 connection.
pub type H2Sender = http2::SendRequest<OutgoingBody>;

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
    let mut sender = match known {
        Some(sender) => sender,
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
    let body = if is_empty { AnswerBody::None } else { AnswerBody::Http2(H2Body { incoming }) };
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}

async fn open(pool: &Pool, target: &Target) -> Result<H2Sender, ExchangeError> {
    let connection = connect(&target.host, target.port, target.connect_timeout).await?;
    let (sender, driver) = http2::Builder::new(LocalExecutor)
        .handshake(TokioIo::new(connection.into_stream()))
        .await
        .map_err(|error| ExchangeError::Connect(io::Error::other(error)))?;
    tokio::task::spawn_local(async move {
        // Its error reaches every request on it through that request's own stream.
        let _ = driver.await;
    });
    pool.put_h2(target.id, sender.clone());
    Ok(sender)
}

/// The body of an HTTP/2 answer. Dropping it resets the stream.
#[derive(Debug)]
pub struct H2Body {
    incoming: Incoming,
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
