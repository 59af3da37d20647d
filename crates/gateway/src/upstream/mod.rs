//! The side towards the engines.

mod connection;
mod framing;
mod h2c;
mod head;
mod pool;

use std::fmt;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use scheduling::EndpointId;

pub use connection::{BodyError, ExchangeError};
use connection::{Connection, chunked_with_trailers};
use framing::{Decoded, Framing};
use h2c::H2Body;
use head::RequestHead;
pub use head::clean_trailers;
pub use pool::Pool;

/// The protocol spoken to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 with connections kept alive.
    #[default]
    Http1,
    /// HTTP/2 without TLS, known beforehand.
    H2c,
}

/// Where an endpoint is and how it is spoken to.
#[derive(Clone)]
pub struct Target {
    /// Which life of which endpoint.
    pub id: EndpointId,
    /// An address or a name, without brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
    /// What `Host` says: host and port as in a URL.
    pub authority: Authority,
    /// A path before every request's own, without a slash at its end.
    pub base: Box<str>,
    /// The protocol.
    pub protocol: Protocol,
    /// The upstream's own credentials (`Bearer …`), sent instead of the client's.
    pub authorization: Option<HeaderValue>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Credentials stay out of it.
        write!(f, "{:?} http://{}{} {:?}", self.id, self.authority, self.base, self.protocol)
    }
}

/// A request as it goes to an upstream.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The method.
    pub method: &'a Method,
    /// Path and query as the client sent them.
    pub path_and_query: &'a str,
    /// The client's fields.
    pub headers: &'a HeaderMap,
    /// The request's id.
    pub request_id: &'a HeaderValue,
    /// The body; `None` for a request that has none.
    pub body: Option<&'a Bytes>,
    /// Trailers after the body.
    pub trailers: Option<&'a HeaderMap>,
}

/// An answer that has begun.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// End-to-end fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: AnswerBody,
}

/// The body of an answer.
#[derive(Debug)]
pub enum AnswerBody {
    /// There is none.
    None,
    /// From an HTTP/1.1 connection, which goes back to the pool after the last byte.
    Http1 {
        /// The connection, until the body is complete.
        connection: Option<Connection>,
        /// How it ends.
        framing: Framing,
        /// The connection can be used again.
        keep_alive: bool,
        /// The pool's key.
        id: EndpointId,
    },
    /// From an HTTP/2 stream.
    Http2(H2Body),
}

impl AnswerBody {
    /// Bytes still to come, if that is known.
    pub fn exact_length(&self) -> Option<u64> {
        match self {
            AnswerBody::None => Some(0),
            AnswerBody::Http1 { framing: Framing::Length(left), .. } => Some(*left),
            AnswerBody::Http1 { .. } => None,
            AnswerBody::Http2(body) => body.exact_length(),
        }
    }

    /// The next piece. After `done` it is not to be called again.
    pub fn poll_next(&mut self, cx: &mut Context<'_>, pool: &Pool) -> Poll<Result<Decoded, BodyError>> {
        match self {
            AnswerBody::None => Poll::Ready(Ok(Decoded { done: true, ..Decoded::default() })),
            AnswerBody::Http1 { connection, framing, keep_alive, id } => {
                let Some(open) = connection else {
                    return Poll::Ready(Ok(Decoded { done: true, ..Decoded::default() }));
                };
                let polled = open.poll_body(cx, framing);
                match &polled {
                    Poll::Ready(Ok(decoded)) if decoded.done => {
                        // Back to the pool at the last byte: with a known length nobody polls for the end.
                        if let Some(open) = connection.take()
                            && *keep_alive
                        {
                            pool.put(*id, open);
                        }
                    }
                    Poll::Ready(Err(_)) => *connection = None,
                    _ => {}
                }
                polled
            }
            AnswerBody::Http2(body) => body.poll_next(cx),
        }
    }
}

/// Sends a request to an endpoint and waits for the answer's head. `fresh` asks for a new connection, which
/// cannot have been closed meanwhile.
pub async fn send(
    pool: &Pool,
    target: &Target,
    request: &Outgoing<'_>,
    fresh: bool,
) -> Result<Answer, ExchangeError> {
    if target.protocol == Protocol::H2c {
        return h2c::send(pool, target, request, fresh).await;
    }
    let connection = match (!fresh).then(|| pool.take(target.id)).flatten() {
        Some(connection) => connection,
        None => connection::connect(&target.host, target.port, target.connect_timeout).await?,
    };
    let mut head = pool.take_buffer();
    RequestHead {
        method: request.method,
        base: &target.base,
        path_and_query: request.path_and_query,
        host: target.authority.as_str(),
        headers: request.headers,
        authorization: target.authorization.as_ref(),
        request_id: request.request_id,
        body_length: request.body.map(Bytes::len),
        chunked: request.trailers.is_some(),
    }
    .write(&mut head);
    let empty = Bytes::new();
    let with_trailers;
    let body = match (request.body, request.trailers) {
        (Some(body), None) => body,
        (body, Some(trailers)) => {
            with_trailers = chunked_with_trailers(body.unwrap_or(&empty), trailers);
            &with_trailers
        }
        (None, None) => &empty,
    };
    let (answer, connection) = connection.exchange(request.method, &head, body).await?;
    pool.put_buffer(head);
    let body = match answer.framing {
        Some(framing) if !matches!(framing, Framing::Length(0)) => AnswerBody::Http1 {
            connection: Some(connection),
            framing,
            keep_alive: answer.keep_alive,
            id: target.id,
        },
        _ => {
            if answer.keep_alive {
                pool.put(target.id, connection);
            }
            AnswerBody::None
        }
    };
    Ok(Answer { status: answer.status, headers: answer.headers, body })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads an answer from memory, in pieces of `piece` bytes, as a connection would: status and body.
    fn read(bytes: &[u8], piece: usize) -> Option<(u16, Vec<u8>)> {
        let mut head = None;
        for end in (1..=bytes.len()).step_by(piece).chain([bytes.len()]) {
            head = head::parse_response(&bytes[..end], &Method::POST).ok()?;
            if head.is_some() {
                break;
            }
        }
        let head = head?;
        let status = head.status.as_u16();
        let Some(mut framing) = head.framing.filter(|framing| !matches!(framing, Framing::Length(0))) else {
            return Some((status, Vec::new()));
        };
        let mut body = Vec::new();
        for input in bytes[head.length..].chunks(piece) {
            let decoded = framing.decode(input).ok()?;
            body.extend_from_slice(&decoded.data);
            if decoded.done {
                return Some((status, body));
            }
        }
        framing.ends_at_close().then_some((status, body))
    }

    fn answer() -> impl Strategy<Value = Vec<u8>> {
        let chunks = proptest::collection::vec("[a-z\\r\\n]{1,20}", 0..5).prop_map(|chunks| {
            let chunks = chunks.iter().map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len()));
            format!("transfer-encoding: chunked\r\n\r\n{}0\r\nx-t: 1\r\n\r\n", chunks.collect::<String>())
        });
        let length =
            "[a-z\\r\\n]{0,60}".prop_map(|body| format!("content-length: {}\r\n\r\n{body}", body.len()));
        let close = "[a-z]{0,60}".prop_map(|body| format!("connection: close\r\n\r\n{body}"));
        prop_oneof![chunks, length, close]
            .prop_map(|rest| format!("HTTP/1.1 200 OK\r\nx-a: b\r\n{rest}").into_bytes())
    }

    proptest! {
        #[test]
        fn every_split_reads_the_same(bytes in answer(), piece in 1usize..40) {
            let whole = read(&bytes, bytes.len());
            prop_assert!(whole.is_some());
            prop_assert_eq!(read(&bytes, piece), whole);
        }

        /// Whatever an engine sends: no panic, and no split makes a whole answer of what was none.
        #[test]
        fn damage_reads_the_same_at_every_split(
            bytes in answer(),
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
            piece in 1usize..40,
        ) {
            let mut bytes = bytes;
            for (place, byte) in damage {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            prop_assert_eq!(read(&bytes, piece), read(&bytes, bytes.len()));
        }
    }
}
