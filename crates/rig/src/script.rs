//! What a scripted engine does with one request: a list of steps, and short ways to write the usual ones.

use std::time::Duration;

/// One thing an engine does on its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes these bytes in one call.
    Bytes(Vec<u8>),
    /// Does nothing for so long; a peer that leaves meanwhile ends the script.
    Pause(Duration),
    /// Closes the connection with a TCP reset.
    Reset,
    /// Closes the connection in order.
    Close,
    /// Does nothing until the peer leaves.
    Hang,
}

/// The steps that answer one request. Without [`Step::Close`] or [`Step::Reset`] the connection stays open for the
/// next request.
pub type Script = Vec<Step>;

/// Bytes, as a step.
pub fn bytes(bytes: impl AsRef<[u8]>) -> Step {
    Step::Bytes(bytes.as_ref().to_vec())
}

/// A pause of `ms` milliseconds, as a step.
pub fn pause(ms: u64) -> Step {
    Step::Pause(Duration::from_millis(ms))
}

/// A whole JSON answer with a content-length.
pub fn json(status: u16, body: impl AsRef<[u8]>) -> Script {
    answer(status, &[("content-type", "application/json")], body)
}

/// A whole answer with a content-length and the given headers, in one write.
pub fn answer(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Script {
    let body = body.as_ref();
    let length = body.len().to_string();
    let mut headers = headers.to_vec();
    headers.push(("content-length", &length));
    let mut wire = head(status, &headers);
    wire.extend_from_slice(body);
    vec![Step::Bytes(wire)]
}

/// The head of an answer; gives the framing only if `headers` do.
pub fn head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Status\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// The head of a streamed answer, chunked, as engines send it.
pub fn sse_head() -> Step {
    Step::Bytes(head(
        200,
        &[
            ("content-type", "text/event-stream; charset=utf-8"),
            ("cache-control", "no-cache"),
            ("transfer-encoding", "chunked"),
        ],
    ))
}

/// `data` as one HTTP chunk.
pub fn chunk(data: impl AsRef<[u8]>) -> Step {
    let data = data.as_ref();
    let mut wire = format!("{:x}\r\n", data.len()).into_bytes();
    wire.extend_from_slice(data);
    wire.extend_from_slice(b"\r\n");
    Step::Bytes(wire)
}

/// The last chunk.
pub fn last_chunk() -> Step {
    Step::Bytes(b"0\r\n\r\n".to_vec())
}

/// A streamed answer: the head, one chunk an item, the last chunk.
pub fn sse<T: AsRef<[u8]>>(chunks: impl IntoIterator<Item = T>) -> Script {
    let mut script = vec![sse_head()];
    script.extend(chunks.into_iter().map(chunk));
    script.push(last_chunk());
    script
}

/// Puts a pause before each step after the first, the last included.
pub fn paced(script: Script, ms: u64) -> Script {
    let mut paced = Vec::with_capacity(script.len() * 2);
    for (index, step) in script.into_iter().enumerate() {
        if index > 0 {
            paced.push(pause(ms));
        }
        paced.push(step);
    }
    paced
}
