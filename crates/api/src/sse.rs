//! Events of a streamed answer: counted, and read only where they report usage.

use crate::operation::Operation;
use crate::usage::{Counts, Marker, Usage};

/// The longest event that is read for usage, in bytes. Longer ones are counted only, however they were cut.
///
/// So much is kept of an event that is not whole yet. The last event of `/v1/responses` holds the whole answer
/// again, hence not less.
pub const MAX_EVENT_BYTES: usize = 256 * 1024;

/// What a buffer may keep allocated once its event is over: more than almost any event, little for ten thousand
/// idle streams.
const MAX_IDLE_BYTES: usize = 16 * 1024;

/// Enough of a line to tell its field: a byte order mark, `data` and what follows.
const HEAD_BYTES: usize = 8;

/// How a streamed answer is cut into events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events (`text/event-stream`).
    Sse,
    /// One JSON value per line (`application/x-ndjson`).
    Lines,
}

impl Framing {
    /// The framing that a `content-type` value names; `None` for answers that are not streams of events.
    #[must_use]
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let is = |name: &str| essence.eq_ignore_ascii_case(name);
        if is("text/event-stream") {
            Some(Framing::Sse)
        } else if is("application/x-ndjson") || is("application/ndjson") || is("application/jsonl") {
            Some(Framing::Lines)
        } else {
            None
        }
    }
}

/// What one piece of the stream brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Events with data that this piece finished, the closing `[DONE]` not counted.
    pub events: u32,
}

/// Reads along with a streamed answer, cut anywhere, and changes nothing.
///
/// ```
/// use api::{Framing, Operation, StreamScan};
///
/// let mut scan = StreamScan::new(Operation::ChatCompletions, Framing::Sse);
/// let mut events = scan.push(b"data: {\"choices\":[]}\n\ndata: {\"usage\":{\"prompt_to").events;
/// events += scan.push(b"kens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n").events;
/// events += scan.finish().events;
/// assert_eq!(events, 2);
/// assert_eq!(scan.usage().unwrap().prompt_tokens, 7);
/// ```
#[derive(Debug, Clone)]
pub struct StreamScan {
    framing: Framing,
    marker: Marker,
    counts: Counts,
    oversized_events: u32,
    is_first_line: bool,
    /// The last byte was a CR: a LF right after it belongs to the same line end.
    after_cr: bool,
    /// The start of a line whose end has not come; see `long_line`.
    line: Vec<u8>,
    /// Set when `line` outgrew the bound and was dropped.
    long_line: Option<LineKind>,
    event: Event,
    /// Data of the unfinished event that came in earlier pieces or lines; lines joined by LF.
    data: Vec<u8>,
}

/// What is known of the event whose blank line has not come.
#[derive(Debug, Clone, Copy, Default)]
struct Event {
    data_lines: u32,
    is_oversized: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    Data,
    Other,
}

impl StreamScan {
    /// A scan of the answer to one request.
    #[must_use]
    pub fn new(operation: Operation, framing: Framing) -> Self {
        StreamScan {
            framing,
            marker: Marker::of(operation),
            counts: Counts::default(),
            oversized_events: 0,
            is_first_line: true,
            after_cr: false,
            line: Vec::new(),
            long_line: None,
            event: Event::default(),
            data: Vec::new(),
        }
    }

    /// Reads the next bytes of the answer.
    pub fn push(&mut self, chunk: &[u8]) -> Seen {
        let mut seen = Seen::default();
        let mut rest = chunk;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        // The one data line of the event so far, while it lies in this piece: the usual event is never copied.
        let mut here: Option<&[u8]> = None;
        while let Some(end) = self.line_end(rest) {
            let start = &rest[..end];
            let is_cr = rest[end] == b'\r' && self.framing == Framing::Sse;
            rest = &rest[end + 1..];
            if is_cr {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            if self.line.is_empty() && self.long_line.is_none() {
                self.line(start, &mut here, &mut seen);
            } else {
                self.keep_line(start);
                self.kept_line(&mut here, &mut seen);
            }
        }
        if let Some(data) = here {
            self.keep_data(data);
        }
        self.keep_line(rest);
        seen
    }

    /// The answer ended as it should: an event whose blank line was left out counts too. Not to be called when the
    /// upstream broke off.
    pub fn finish(&mut self) -> Seen {
        let mut seen = Seen::default();
        let mut here = None;
        if !self.line.is_empty() || self.long_line.is_some() {
            self.kept_line(&mut here, &mut seen);
        }
        self.dispatch(None, &mut seen);
        seen
    }

    /// The last usage that the engine reported.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.counts.usage()
    }

    /// Events longer than [`MAX_EVENT_BYTES`]: counted, not read.
    #[must_use]
    pub fn oversized_events(&self) -> u32 {
        self.oversized_events
    }

    #[inline]
    fn line_end(&self, bytes: &[u8]) -> Option<usize> {
        match self.framing {
            Framing::Sse => memchr::memchr2(b'\n', b'\r', bytes),
            Framing::Lines => memchr::memchr(b'\n', bytes),
        }
    }

    /// A whole line. `here` and `self.data` are the two places where the event's data so far can be.
    #[inline]
    fn line<'c>(&mut self, line: &'c [u8], here: &mut Option<&'c [u8]>, seen: &mut Seen) {
        if line.len() > MAX_EVENT_BYTES {
            let kind = self.kind_of(line);
            return self.long_line_ended(kind, here, seen);
        }
        let mut line = line;
        if self.is_first_line {
            self.is_first_line = false;
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        match self.framing {
            Framing::Sse if line.is_empty() => self.dispatch(here.take(), seen),
            Framing::Sse => {
                let Some(data) = data_of(line) else { return };
                self.event.data_lines = self.event.data_lines.saturating_add(1);
                if self.event.data_lines == 1 {
                    *here = Some(data);
                    return;
                }
                if let Some(first) = here.take() {
                    self.keep_data(first);
                }
                self.keep_data(b"\n");
                self.keep_data(data);
            }
            Framing::Lines => {
                let data = line.trim_ascii();
                if !data.is_empty() {
                    self.event.data_lines = 1;
                    self.dispatch(Some(data), seen);
                }
            }
        }
    }

    /// The kept line, whose end has come.
    fn kept_line(&mut self, here: &mut Option<&[u8]>, seen: &mut Seen) {
        if let Some(kind) = self.long_line.take() {
            return self.long_line_ended(kind, here, seen);
        }
        let mut line = std::mem::take(&mut self.line);
        let mut data = here.take();
        self.line(&line, &mut data, seen);
        if let Some(data) = data {
            self.keep_data(data);
        }
        forget(&mut line);
        self.line = line;
    }

    #[cold]
    fn long_line_ended(&mut self, kind: LineKind, here: &mut Option<&[u8]>, seen: &mut Seen) {
        self.is_first_line = false;
        if kind == LineKind::Data {
            *here = None;
            self.event.data_lines = self.event.data_lines.saturating_add(1);
            self.give_up();
        }
        if self.framing == Framing::Lines {
            self.dispatch(None, seen);
        }
    }

    fn kind_of(&self, head: &[u8]) -> LineKind {
        let unmarked = head.strip_prefix(b"\xef\xbb\xbf").filter(|_| self.is_first_line).unwrap_or(head);
        if self.framing == Framing::Lines || data_of(unmarked).is_some() {
            LineKind::Data
        } else {
            LineKind::Other
        }
    }

    #[inline]
    fn dispatch(&mut self, here: Option<&[u8]>, seen: &mut Seen) {
        let event = std::mem::take(&mut self.event);
        if event.data_lines > 0 {
            if event.is_oversized {
                self.oversized_events = self.oversized_events.saturating_add(1);
                seen.events += 1;
            } else {
                let data = here.unwrap_or(&self.data);
                if data != b"[DONE]" {
                    seen.events += 1;
                    if self.marker.is_in(data) {
                        self.counts.read(data);
                    }
                }
            }
        }
        forget(&mut self.data);
    }

    fn keep_line(&mut self, start: &[u8]) {
        if self.long_line.is_some() {
            return;
        }
        if self.line.len() + start.len() > MAX_EVENT_BYTES {
            self.line.extend_from_slice(&start[..start.len().min(HEAD_BYTES)]);
            self.long_line = Some(self.kind_of(&self.line));
            forget(&mut self.line);
            return;
        }
        self.line.extend_from_slice(start);
    }

    fn keep_data(&mut self, data: &[u8]) {
        if self.data.len() + data.len() > MAX_EVENT_BYTES {
            self.give_up();
        }
        if !self.event.is_oversized {
            self.data.extend_from_slice(data);
        }
    }

    fn give_up(&mut self) {
        self.event.is_oversized = true;
        forget(&mut self.data);
    }
}

#[inline]
fn forget(buffer: &mut Vec<u8>) {
    if buffer.capacity() > MAX_IDLE_BYTES {
        *buffer = Vec::new();
    } else {
        buffer.clear();
    }
}

/// The value of a `data` line.
#[inline]
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"data")?;
    match rest.first() {
        None => Some(rest),
        Some(b':') => Some(rest[1..].strip_prefix(b" ").unwrap_or(&rest[1..])),
        Some(_) => None,
    }
}
