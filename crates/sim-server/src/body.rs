//! Response bodies: whole, streamed token by token, or cut off by a fault.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::answer::Answer;
use crate::connection::Conn;
use crate::fault::{Fault, FaultKind};
use crate::replica::Replica;
use crate::sequence::Sequence;

/// One answer in the making.
pub struct Choice {
    pub sequence: Sequence,
    pub answer: Answer,
    /// Whether it counts towards the prompt's usage: several choices share one prompt.
    pub counts_prompt: bool,
}

/// All answers to one request.
pub struct Generation {
    pub choices: Vec<Choice>,
    pub prompt_tokens: u64,
}

/// What a request cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub cached_tokens: u64,
}

impl Generation {
    /// Waits until all answers are complete.
    pub async fn end(&self) {
        for choice in &self.choices {
            choice.sequence.end().await;
        }
    }

    /// The cost so far; final once all answers are complete.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage { prompt_tokens: self.prompt_tokens, ..Default::default() };
        for choice in &self.choices {
            let progress = choice.sequence.progress();
            usage.completion_tokens += u64::from(progress.produced);
            if choice.counts_prompt {
                usage.cached_tokens += u64::from(progress.cached_tokens);
            }
        }
        usage
    }
}

/// How an API says things in a stream: each call appends events, each of which goes out as a chunk of its own.
pub trait Format: Send {
    /// The request was taken; nothing is computed yet.
    fn accepted(&mut self, _events: &mut VecDeque<Bytes>) {}
    /// A token, with its index in its answer.
    fn token(&mut self, choice: usize, index: u32, text: &str, events: &mut VecDeque<Bytes>);
    /// An answer is complete.
    fn finished(&mut self, choice: usize, answer: &Answer, events: &mut VecDeque<Bytes>);
    /// All answers are complete.
    fn ended(&mut self, usage: Usage, events: &mut VecDeque<Bytes>);
}

/// A fault that cuts an answer off.
pub struct Cut {
    kind: FaultKind,
    after_tokens: Option<u32>,
    timer: Option<Pin<Box<Sleep>>>,
    conn: Arc<Conn>,
    replica: Arc<Replica>,
    done: bool,
}

impl Cut {
    /// The cut that a fault of kind reset or stall asks for.
    pub fn new(fault: &Fault, conn: Arc<Conn>, replica: Arc<Replica>) -> Self {
        // Without a number of tokens it is a matter of time alone, and without either it happens at once.
        let timed = fault.after_ms.is_some() || fault.after_tokens.is_none();
        let timer = timed.then(|| Box::pin(tokio::time::sleep(fault.after())));
        Self { kind: fault.kind, after_tokens: fault.after_tokens, timer, conn, replica, done: false }
    }

    /// Whether it leaves the connection open.
    pub fn is_stall(&self) -> bool {
        self.kind == FaultKind::Stall
    }

    /// Whether the answer ends here; once it does, it does for ever.
    fn poll_due(&mut self, tokens: u32, cx: &mut Context<'_>) -> bool {
        if self.done {
            return true;
        }
        let late = self.timer.as_mut().is_some_and(|timer| {
            timer.deadline().elapsed() > Duration::ZERO || timer.as_mut().poll(cx).is_ready()
        });
        if !late && self.after_tokens.is_none_or(|limit| tokens < limit) {
            return false;
        }
        self.done = true;
        self.replica.faults.count(self.kind);
        if self.kind == FaultKind::Reset {
            self.conn.reset();
        }
        true
    }

    /// Waits for the moment of the cut, for an answer that is not streamed.
    pub async fn due(&mut self, generation: &Generation) {
        let watched = generation.choices.first();
        std::future::poll_fn(|cx| {
            let produced = watched.map_or(0, |choice| choice.sequence.progress().produced);
            if self.poll_due(produced, cx) {
                return Poll::Ready(());
            }
            if let (Some(choice), Some(limit)) = (watched, self.after_tokens)
                && choice.sequence.poll_tokens(limit, cx).is_ready()
                && self.poll_due(choice.sequence.progress().produced, cx)
            {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }
}

/// A response's body.
pub enum SimBody {
    /// All at once.
    Full(Option<Bytes>),
    /// The beginning of something that should have `len` bytes, and no more.
    Stalled {
        /// What is sent.
        start: Option<Bytes>,
        /// What was promised.
        len: u64,
    },
    /// Token by token.
    Stream(Box<TokenStream>),
}

impl SimBody {
    /// A body with these bytes.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::Full(Some(bytes.into()))
    }

    /// Half of these bytes, then silence.
    pub fn stalled(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let start = bytes.slice(..bytes.len() / 2);
        Self::Stalled { start: Some(start), len: bytes.len() as u64 }
    }
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stalled { start, .. } => match start.take() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => Poll::Pending,
            },
            Self::Stream(stream) => {
                stream.poll_event(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stalled { len, .. } => SizeHint::with_exact(*len),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// The events of a generation as they happen.
pub struct TokenStream {
    generation: Generation,
    format: Box<dyn Format>,
    events: VecDeque<Bytes>,
    /// For each choice, tokens sent; `None` once its end is.
    sent: Vec<Option<u32>>,
    tokens_sent: u32,
    ended: bool,
    cut: Option<Cut>,
}

impl TokenStream {
    pub fn new(generation: Generation, mut format: Box<dyn Format>, cut: Option<Cut>) -> Self {
        let mut events = VecDeque::new();
        format.accepted(&mut events);
        let sent = vec![Some(0); generation.choices.len()];
        Self { generation, format, events, sent, tokens_sent: 0, ended: false, cut }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(Some(event));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            if let Some(cut) = &mut self.cut
                && cut.poll_due(self.tokens_sent, cx)
            {
                return Poll::Pending;
            }
            if !self.take_progress(cx) {
                return Poll::Pending;
            }
        }
    }

    /// Turns one step of progress into events; `false` if there is none now.
    fn take_progress(&mut self, cx: &mut Context<'_>) -> bool {
        let mut unfinished = false;
        for (index, (choice, sent)) in self.generation.choices.iter().zip(&mut self.sent).enumerate() {
            let Some(count) = *sent else { continue };
            unfinished = true;
            let Poll::Ready(progress) = choice.sequence.poll_tokens(count + 1, cx) else { continue };
            if progress.produced > count {
                self.format.token(index, count, choice.answer.token(count), &mut self.events);
                *sent = Some(count + 1);
                self.tokens_sent += 1;
            } else {
                self.format.finished(index, &choice.answer, &mut self.events);
                *sent = None;
            }
            return true;
        }
        if !unfinished {
            self.ended = true;
            self.format.ended(self.generation.usage(), &mut self.events);
        }
        !unfinished
    }
}
