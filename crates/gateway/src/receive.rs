//! Reading a request's body, whole and bounded.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use api::Dialect;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use http_body::Body;
use hyper::body::Incoming;

use crate::bodies::Held;
use crate::core::Core;
use crate::joined::Joined;
use crate::refuse::Refused;
use crate::settings::Policy;
use crate::upstream::clean_trailers;
use crate::vitals::Closed;

/// The body of a refused request is read to its end and thrown away, up to this multiple of the limit: a client
/// that is cut off while it sends sees a broken connection instead of the refusal. One that waits for permission
/// (`Expect`) has sent nothing yet and gets its answer at once.
const DISCARD_FACTOR: u64 = 4;

/// Longest time spent on that.
const DISCARD_TIME: Duration = Duration::from_secs(10);

/// A client that pauses this long waits for an answer.
const DISCARD_PAUSE: Duration = Duration::from_millis(500);

/// A request's body.
#[derive(Debug)]
pub struct Received {
    /// Its bytes.
    pub body: Bytes,
    /// Fields after it.
    pub trailers: Option<HeaderMap>,
    /// Its place in the count of bytes held.
    _held: Held,
}

/// Takes the body out of `unread` and reads it, within the limits on one body and on all of them.
pub async fn receive(
    core: &Rc<Core>,
    unread: &mut Option<Incoming>,
    policy: &Policy,
    dialect: Dialect,
) -> Result<Received, Refused> {
    let limit = policy.body_limit;
    let mut held = core.bodies.hold();
    let announced = unread.as_ref().map_or(0, |incoming| incoming.size_hint().lower());
    if announced > limit {
        return Err(too_large(dialect, limit, Some(announced)));
    }
    let Some(mut incoming) = unread.take() else {
        return Ok(Received { body: Bytes::new(), trailers: None, _held: held });
    };
    let mut body = Joined::default();
    let mut received = 0u64;
    let mut trailers = None;
    let mut arrival = core.arrivals.expect();
    loop {
        let next = poll_fn(|cx| match Pin::new(&mut incoming).poll_frame(cx) {
            Poll::Pending => arrival.poll_overdue(cx).map(Err),
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
        });
        let Some(frame) = next.await.map_err(|()| {
            core.shared.closures.add(Closed::BodyTooSlow);
            too_slow(dialect, received)
        })?
        else {
            break;
        };
        let frame = frame.map_err(|error| {
            Refused::new(dialect, 400, "body_broken", format!("the request's body broke off: {error}"))
        })?;
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                trailers = frame.into_trailers().ok().and_then(clean_trailers);
                continue;
            }
        };
        arrival.moved(data.len());
        received += data.len() as u64;
        if received > limit {
            *unread = Some(incoming);
            return Err(too_large(dialect, limit, None));
        }
        if !held.add(data.len(), policy.bodies_limit) {
            *unread = Some(incoming);
            return Err(bodies_full(dialect, policy.bodies_limit));
        }
        body.push(data, announced.saturating_sub(received));
    }
    let body = body.into_bytes();
    Ok(Received { body, trailers, _held: held })
}

/// Reads a body that is not wanted to its end, within bounds.
pub async fn discard(mut incoming: Incoming, limit: u64) {
    let read = async {
        let mut left = limit.saturating_mul(DISCARD_FACTOR);
        loop {
            let next =
                tokio::time::timeout(DISCARD_PAUSE, poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)));
            let Ok(Some(Ok(frame))) = next.await else { break };
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            left = left.saturating_sub(length);
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DISCARD_TIME, read).await;
}

fn bodies_full(dialect: Dialect, limit: u64) -> Refused {
    let message = format!(
        "the gateway holds request bodies of {limit} bytes in all, its limit (`limits.bodies`); try again"
    );
    Refused::new(dialect, 503, "bodies_full", message).retry_after_s(1)
}

fn too_slow(dialect: Dialect, received: u64) -> Refused {
    let message = format!(
        "the request's body came too slowly: {received} bytes were here when it was given up (`timeouts.body` bounds \
         its pauses, `limits.body_rate` the whole)"
    );
    Refused::new(dialect, 408, "body_too_slow", message)
        .with_header(header::CONNECTION, HeaderValue::from_static("close"))
}

fn too_large(dialect: Dialect, limit: u64, announced: Option<u64>) -> Refused {
    let size = match announced {
        Some(announced) => format!("{announced} bytes"),
        None => "larger".to_owned(),
    };
    let message = format!(
        "the request's body is {size}; the limit is {limit} bytes. Send less, or raise `limits.body` in the \
         gateway's configuration"
    );
    Refused::new(dialect, 413, "body_too_large", message)
}
