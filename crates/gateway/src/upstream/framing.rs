//! How an HTTP/1.1 response body ends (RFC 9112 section 6), read from bytes at any split.

use bytes::Bytes;
use http::HeaderMap;
use thiserror::Error;

/// Longest chunk-size line that is read, extensions included. A line that is longer is hostile or not HTTP.
const MAX_CHUNK_LINE: usize = 4 * 1024;

/// Bound for a trailer section.
const MAX_TRAILER_BYTES: usize = 64 * 1024;

/// Trailer fields that are read.
const MAX_TRAILERS: usize = 64;

/// What is wrong with a body's framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FramingError {
    /// A chunk-size line that is not hexadecimal digits, an optional extension, CRLF.
    #[error("a chunk size that is not a number")]
    ChunkSize,
    /// No CRLF after a chunk's bytes.
    #[error("no line end after a chunk")]
    ChunkEnd,
    /// A trailer section that is not header fields, or too large.
    #[error("a trailer section that is not header fields, or too large")]
    Trailer,
    /// The connection ended before the body did.
    #[error("the connection ended before the body did")]
    Truncated,
}

/// A body being read.
#[derive(Debug)]
pub enum Framing {
    /// So many bytes are still to come.
    Length(u64),
    /// Chunked transfer coding.
    Chunked(Chunked),
    /// Everything until the connection ends.
    UntilClose,
}

/// What a piece of input held.
#[derive(Debug, Default)]
pub struct Decoded {
    /// Body bytes, joined: the chunks of one read become one piece, which costs the reader one write.
    pub data: Bytes,
    /// Input bytes used. What is left over belongs to whatever follows the body.
    pub used: usize,
    /// The body is complete.
    pub done: bool,
    /// Trailer fields, with `done`.
    pub trailers: Option<HeaderMap>,
}

impl Framing {
    /// Takes body bytes out of `input`.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, FramingError> {
        match self {
            Framing::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= take as u64;
                Ok(Decoded {
                    data: Bytes::copy_from_slice(&input[..take]),
                    used: take,
                    done: *left == 0,
                    trailers: None,
                })
            }
            Framing::UntilClose => Ok(Decoded {
                data: Bytes::copy_from_slice(input),
                used: input.len(),
                done: false,
                trailers: None,
            }),
            Framing::Chunked(chunked) => chunked.decode(input),
        }
    }

    /// Whether the end of the connection, here, is the end of the body.
    pub fn ends_at_close(&self) -> bool {
        matches!(self, Framing::UntilClose)
    }
}

/// The state of a chunked body between two pieces of input.
#[derive(Debug)]
pub struct Chunked {
    state: State,
    /// A size line or trailer section of which only the beginning has come.
    partial: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    SizeLine,
    Data(u64),
    /// CRLF after a chunk: bytes of it still to come.
    DataEnd(u8),
    Trailer,
    Done,
    /// It went wrong after bytes that were good; the error comes with the next input.
    Broken(FramingError),
}

impl Default for Chunked {
    fn default() -> Self {
        Self { state: State::SizeLine, partial: Vec::new() }
    }
}

impl Chunked {
    fn decode(&mut self, input: &[u8]) -> Result<Decoded, FramingError> {
        let mut out = Vec::new();
        match self.decode_into(input, &mut out) {
            // What came before the fault belongs to the client.
            Err(error) if !out.is_empty() => {
                self.state = State::Broken(error); // the input stays unused, so the next call comes at once
                Ok(Decoded { data: Bytes::from(out), used: 0, done: false, trailers: None })
            }
            decoded => decoded.map(|decoded| Decoded { data: Bytes::from(out), ..decoded }),
        }
    }

    fn decode_into(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Decoded, FramingError> {
        let mut at = 0;
        let mut trailers = None;
        while at < input.len() && self.state != State::Done {
            match self.state {
                State::SizeLine => {
                    let Some(line_end) = memchr::memchr(b'\n', &input[at..]) else {
                        self.keep(&input[at..], MAX_CHUNK_LINE, FramingError::ChunkSize)?;
                        at = input.len();
                        break;
                    };
                    let line = &input[at..=at + line_end];
                    at += line_end + 1;
                    let size = if self.partial.is_empty() {
                        chunk_size(line)?
                    } else {
                        self.keep(line, MAX_CHUNK_LINE, FramingError::ChunkSize)?;
                        let size = chunk_size(&self.partial)?;
                        self.partial.clear();
                        size
                    };
                    self.state = if size == 0 { State::Trailer } else { State::Data(size) };
                }
                State::Data(left) => {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len() - at);
                    if out.capacity() == 0 {
                        out.reserve_exact(input.len() - at); // framing is small: one allocation a read
                    }
                    out.extend_from_slice(&input[at..at + take]);
                    at += take;
                    let left = left - take as u64;
                    self.state = if left == 0 { State::DataEnd(2) } else { State::Data(left) };
                }
                State::DataEnd(left) => {
                    let expected = if left == 2 { b'\r' } else { b'\n' };
                    if input[at] != expected {
                        return Err(FramingError::ChunkEnd);
                    }
                    at += 1;
                    self.state = if left == 2 { State::DataEnd(1) } else { State::SizeLine };
                }
                State::Trailer => {
                    let rest = &input[at..];
                    if self.partial.is_empty() && rest.starts_with(b"\r\n") {
                        at += 2; // by far the commonest: no trailers
                        self.state = State::Done;
                        break;
                    }
                    let before = self.partial.len();
                    self.keep(rest, MAX_TRAILER_BYTES, FramingError::Trailer)?;
                    let Some(length) = trailer_section_length(&self.partial) else {
                        at = input.len();
                        break;
                    };
                    at += length - before;
                    trailers = parse_trailers(&self.partial[..length])?;
                    self.partial = Vec::new();
                    self.state = State::Done;
                }
                State::Done => break,
                State::Broken(error) => return Err(error),
            }
        }
        Ok(Decoded { data: Bytes::new(), used: at, done: self.state == State::Done, trailers })
    }

    fn keep(&mut self, bytes: &[u8], bound: usize, error: FramingError) -> Result<(), FramingError> {
        if self.partial.len() + bytes.len() > bound {
            return Err(error);
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }
}

/// `1*HEXDIG [ chunk-ext ] CRLF`. A bare LF is refused: who takes it may disagree with others about where
/// the body ends.
fn chunk_size(line: &[u8]) -> Result<u64, FramingError> {
    let line = line.strip_suffix(b"\r\n").ok_or(FramingError::ChunkSize)?;
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let extension = line[digits..].trim_ascii_start();
    if digits == 0 || digits > 16 || !(extension.is_empty() || extension[0] == b';') {
        return Err(FramingError::ChunkSize);
    }
    if extension.contains(&b'\r') {
        return Err(FramingError::ChunkSize);
    }
    let size = line[..digits]
        .iter()
        .fold(0u64, |size, &digit| size << 4 | u64::from((digit as char).to_digit(16).unwrap_or(0)));
    Ok(size)
}

/// Length of the trailer section with its empty line, once that has come.
fn trailer_section_length(bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(b"\r\n") {
        return Some(2);
    }
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

fn parse_trailers(section: &[u8]) -> Result<Option<HeaderMap>, FramingError> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let Ok(httparse::Status::Complete((_, fields))) = httparse::parse_headers(section, &mut fields) else {
        return Err(FramingError::Trailer);
    };
    let mut map = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = http::HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| FramingError::Trailer)?;
        let value = http::HeaderValue::from_bytes(field.value).map_err(|_| FramingError::Trailer)?;
        map.append(name, value);
    }
    Ok(super::head::clean_trailers(map))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Body, what follows it, whether it is complete, trailers.
    type Read = (Vec<u8>, Vec<u8>, bool, Option<HeaderMap>);

    fn decode_pieces<'a>(
        framing: &mut Framing,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Read, FramingError> {
        let (mut body, mut rest, mut done, mut trailers) = (Vec::new(), Vec::new(), false, None);
        for piece in pieces {
            if done {
                rest.extend_from_slice(piece);
                continue;
            }
            let decoded = framing.decode(piece)?;
            body.extend_from_slice(&decoded.data);
            rest.extend_from_slice(&piece[decoded.used..]);
            done = decoded.done;
            trailers = trailers.or(decoded.trailers);
        }
        Ok((body, rest, done, trailers))
    }

    #[test]
    fn every_split_gives_the_same_body() {
        let wire = b"5\r\nhello\r\n6;ext=\"a\"\r\n world\r\n0\r\nx-sum: 11\r\n\r\nNEXT";
        for size in 1..=wire.len() {
            let mut framing = Framing::Chunked(Chunked::default());
            let (body, rest, done, trailers) = decode_pieces(&mut framing, wire.chunks(size)).unwrap();
            assert_eq!(body, b"hello world", "pieces of {size}");
            assert_eq!(rest, b"NEXT", "pieces of {size}");
            assert!(done);
            assert_eq!(trailers.unwrap()["x-sum"], "11");
        }
    }

    #[test]
    fn no_trailers_at_every_split() {
        let wire = b"1\r\na\r\n0\r\n\r\n";
        for size in 1..=wire.len() {
            let mut framing = Framing::Chunked(Chunked::default());
            let (body, rest, done, trailers) = decode_pieces(&mut framing, wire.chunks(size)).unwrap();
            assert_eq!((body.as_slice(), rest.is_empty(), done, trailers), (&b"a"[..], true, true, None));
        }
    }

    #[test]
    fn chunks_of_one_read_come_as_one_piece() {
        let wire = "3\r\nabc\r\n".repeat(32);
        let decoded = Framing::Chunked(Chunked::default()).decode(wire.as_bytes()).unwrap();
        assert_eq!(decoded.data.len(), 96);
        assert_eq!(decoded.used, wire.len());
        assert!(!decoded.done);
    }

    #[test]
    fn shapes_that_readers_disagree_about_are_refused() {
        let long = format!("{}\r\n", "f".repeat(17));
        let cases: [&[u8]; 9] = [
            b"5\nhello\r\n",
            b"\r\n",
            b"-1\r\n",
            b"0x5\r\nhello\r\n",
            b"5 5\r\nhello\r\n",
            b" 5\r\nhello\r\n",
            b"5\r\nhelloXX",
            b"5\r\nhello\n5",
            long.as_bytes(),
        ];
        for wire in cases {
            let mut framing = Framing::Chunked(Chunked::default());
            let read = decode_pieces(&mut framing, [wire, &b"0\r\n\r\n"[..]].into_iter());
            assert!(read.is_err(), "{:?} was taken", String::from_utf8_lossy(wire));
        }
        let endless = vec![b'1'; MAX_CHUNK_LINE + 1];
        assert!(Framing::Chunked(Chunked::default()).decode(&endless).is_err());
    }

    #[test]
    fn what_came_before_a_fault_is_not_lost() {
        let mut framing = Framing::Chunked(Chunked::default());
        let decoded = framing.decode(b"3\r\nabc\r\nzz\r\n").unwrap();
        assert_eq!((&decoded.data[..], decoded.done), (&b"abc"[..], false));
        assert_eq!(framing.decode(b"zz\r\n").unwrap_err(), FramingError::ChunkSize);
    }

    #[test]
    fn a_length_leaves_what_follows() {
        let mut framing = Framing::Length(3);
        let decoded = framing.decode(b"abcdef").unwrap();
        assert_eq!((&decoded.data[..], decoded.used, decoded.done), (&b"abc"[..], 3, true));
    }
}
