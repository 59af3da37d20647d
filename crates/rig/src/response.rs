//! A response as it came: every byte, and when.

use std::time::Instant;

use crate::framing::{BodyDecoder, Framing};
use crate::head::{head_end, header_lines, header_values, start_line};

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that its framing announces was seen.
    Complete,
    /// The connection was closed in order before that.
    Cut,
    /// The connection was reset before that.
    Reset,
    /// The deadline of the read passed first.
    Deadline,
    /// The framing was not HTTP/1.1.
    Malformed,
}

/// A response, or as much of it as has come.
#[derive(Clone, Debug)]
pub struct Response {
    head: Vec<u8>,
    unparsed: Vec<u8>,
    decoder: Option<BodyDecoder>,
    to_head_request: bool,
    /// Interim responses (1xx) that came before, as status codes.
    pub interim: Vec<u16>,
    /// When each read of body bytes came, and how long the body was then.
    pub arrivals: Vec<(Instant, usize)>,
    /// How it ended.
    pub end: End,
}

impl Response {
    pub(crate) fn new(to_head_request: bool) -> Self {
        Self {
            head: Vec::new(),
            unparsed: Vec::new(),
            decoder: None,
            to_head_request,
            interim: Vec::new(),
            arrivals: Vec::new(),
            end: End::Deadline,
        }
    }

    /// Takes bytes from the wire and gives back what lies behind the end of this response.
    pub(crate) fn feed(&mut self, bytes: &[u8], at: Instant) -> Vec<u8> {
        self.unparsed.extend_from_slice(bytes);
        while self.decoder.is_none() {
            let Some(end) = head_end(&self.unparsed) else { return Vec::new() };
            let head: Vec<u8> = self.unparsed.drain(..end).collect();
            let status = status_of(&head);
            if (100..200).contains(&status) {
                self.interim.push(status);
                continue;
            }
            let without_body = self.to_head_request || status == 204 || status == 304;
            let framing =
                if without_body { Framing::Length(0) } else { Framing::of_head(&head, Framing::UntilClose) };
            self.decoder = Some(BodyDecoder::new(framing));
            self.head = head;
        }
        let Some(decoder) = self.decoder.as_mut() else { return Vec::new() };
        let before = decoder.body.len();
        let used = decoder.feed(&self.unparsed);
        self.unparsed.drain(..used);
        if decoder.body.len() > before {
            self.arrivals.push((at, decoder.body.len()));
        }
        if decoder.complete {
            self.end = End::Complete;
            return std::mem::take(&mut self.unparsed);
        }
        if decoder.malformed.is_some() {
            self.end = End::Malformed;
        }
        Vec::new()
    }

    pub(crate) fn closed(&mut self, end: End) {
        if let Some(decoder) = self.decoder.as_mut() {
            decoder.end_of_input();
            if decoder.complete && end == End::Cut {
                self.end = End::Complete;
                return;
            }
        }
        self.end = end;
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.end, End::Complete | End::Malformed)
    }

    /// Whether the head has come.
    pub fn has_head(&self) -> bool {
        self.decoder.is_some()
    }

    /// The status code; 0 before the head has come.
    pub fn status(&self) -> u16 {
        status_of(&self.head)
    }

    /// The status line and header lines with the blank line, exactly as received.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// All values of a header, in order.
    pub fn header(&self, name: &str) -> Vec<String> {
        header_values(&self.head, name)
    }

    /// All header lines as (name, value), in order.
    pub fn headers(&self) -> Vec<(String, String)> {
        header_lines(&self.head)
    }

    /// The body so far, without chunk framing.
    pub fn body(&self) -> &[u8] {
        self.decoder.as_ref().map_or(&[], |decoder| &decoder.body)
    }

    /// The body as text; bytes that are not UTF-8 are shown as U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.body()).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is not JSON, showing it.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(self.body())
            .unwrap_or_else(|error| panic!("{error} in the body of {}: {:?}", self.status(), self.text()))
    }

    /// The sizes of the chunks as they were framed.
    pub fn chunk_sizes(&self) -> &[usize] {
        self.decoder.as_ref().map_or(&[], |decoder| &decoder.chunk_sizes)
    }

    /// The trailer lines, each with its CRLF.
    pub fn trailers(&self) -> String {
        self.decoder.as_ref().map_or(String::new(), |d| String::from_utf8_lossy(&d.trailers).into_owned())
    }

    /// When the body's byte number `position` came, counted from 0.
    pub fn arrival_of(&self, position: usize) -> Option<Instant> {
        self.arrivals.iter().find(|(_, length)| *length > position).map(|(at, _)| *at)
    }
}

fn status_of(head: &[u8]) -> u16 {
    start_line(head).split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}
