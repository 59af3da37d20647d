//! The body of an answer to a client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use crate::ticket::Ticket;
use crate::upstream::{AnswerBody, BodyError};

/// An answer's body: the gateway's own bytes, or an endpoint's as they come.
pub enum ResponseBody {
    /// The gateway's own.
    Own(Bytes),
    /// An endpoint's.
    Passed(Box<Passing>),
}

/// An endpoint's answer on its way to the client. Dropping it before its end closes the connection to the
/// endpoint, which cancels the work there.
pub struct Passing {
    answer: AnswerBody,
    ticket: Ticket,
    trailers: Option<HeaderMap>,
    /// The body is over; trailers may be left.
    done: bool,
    /// It broke off; the client is told at the next poll.
    failed: Option<BodyError>,
}

impl ResponseBody {
    /// Passes an endpoint's body on. One that is empty is complete at once.
    pub fn passing(answer: AnswerBody, mut ticket: Ticket) -> Self {
        let done = matches!(answer, AnswerBody::None);
        if done {
            ticket.passed(&Bytes::new(), true);
            ticket.complete();
        }
        Self::Passed(Box::new(Passing { answer, ticket, trailers: None, done, failed: None }))
    }
}

impl Passing {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if !self.done {
            let core = self.ticket.core();
            match ready!(self.answer.poll_next(cx, &core.pool)) {
                Ok(piece) => {
                    self.ticket.passed(&piece.data, piece.done);
                    if piece.done {
                        self.done = true;
                        self.trailers = piece.trailers;
                        self.ticket.complete();
                    }
                    if !piece.data.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(piece.data))));
                    }
                }
                Err(error) => {
                    self.done = true;
                    self.ticket.broke(error.to_string());
                    // The error makes the server drop what it has not flushed yet. What came before the break
                    // belongs to the client: let it be flushed first.
                    self.failed = Some(error);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            ResponseBody::Own(bytes) if bytes.is_empty() => Poll::Ready(None),
            ResponseBody::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            ResponseBody::Passed(passing) => passing.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Own(bytes) => bytes.is_empty(),
            ResponseBody::Passed(passing) => {
                passing.done && passing.trailers.is_none() && passing.failed.is_none()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            ResponseBody::Passed(passing) => match passing.answer.exact_length() {
                Some(length) => SizeHint::with_exact(length),
                None => SizeHint::default(),
            },
        }
    }
}
