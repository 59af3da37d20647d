//! Where the body of an HTTP/1.1 message ends, found as bytes arrive in any split.

use crate::head::header_values;

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

impl Framing {
    /// The framing that `head` announces; without any, `otherwise`.
    pub(crate) fn of_head(head: &[u8], otherwise: Framing) -> Framing {
        if header_values(head, "transfer-encoding")
            .iter()
            .any(|value| value.to_lowercase().contains("chunked"))
        {
            return Framing::Chunked;
        }
        match header_values(head, "content-length").first().and_then(|value| value.parse().ok()) {
            Some(length) => Framing::Length(length),
            None => otherwise,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkPart {
    Size,
    Data(usize),
    AfterData,
    Trailers,
}

/// Takes a body apart as its bytes arrive.
#[derive(Clone, Debug)]
pub(crate) struct BodyDecoder {
    framing: Framing,
    part: ChunkPart,
    line: Vec<u8>,
    /// The body without its chunk framing.
    pub(crate) body: Vec<u8>,
    /// The size of each chunk as it was framed.
    pub(crate) chunk_sizes: Vec<usize>,
    /// The trailer lines, each with its CRLF.
    pub(crate) trailers: Vec<u8>,
    /// Whether the end that the framing announces has been seen.
    pub(crate) complete: bool,
    /// What was wrong with the framing, if anything.
    pub(crate) malformed: Option<String>,
}

impl BodyDecoder {
    pub(crate) fn new(framing: Framing) -> Self {
        Self {
            framing,
            part: ChunkPart::Size,
            line: Vec::new(),
            body: Vec::new(),
            chunk_sizes: Vec::new(),
            trailers: Vec::new(),
            complete: framing == Framing::Length(0),
            malformed: None,
        }
    }

    /// Takes what belongs to the body from the front of `bytes` and says how much that was.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() && !self.complete && self.malformed.is_none() {
            used += self.step(&bytes[used..]);
        }
        used
    }

    /// The peer has closed its side.
    pub(crate) fn end_of_input(&mut self) {
        if self.framing == Framing::UntilClose {
            self.complete = true;
        }
    }

    fn step(&mut self, bytes: &[u8]) -> usize {
        match (self.framing, self.part) {
            (Framing::UntilClose, _) => {
                self.body.extend_from_slice(bytes);
                bytes.len()
            }
            (Framing::Length(length), _) => {
                let take = bytes.len().min(length - self.body.len());
                self.body.extend_from_slice(&bytes[..take]);
                self.complete = self.body.len() == length;
                take
            }
            (Framing::Chunked, ChunkPart::Data(left)) => {
                let take = bytes.len().min(left);
                self.body.extend_from_slice(&bytes[..take]);
                self.part = if take == left { ChunkPart::AfterData } else { ChunkPart::Data(left - take) };
                take
            }
            (Framing::Chunked, _) => {
                let take = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1);
                self.line.extend_from_slice(&bytes[..take]);
                if self.line.ends_with(b"\n") {
                    let line = std::mem::take(&mut self.line);
                    self.chunk_line(&line);
                }
                take
            }
        }
    }

    fn chunk_line(&mut self, line: &[u8]) {
        match self.part {
            ChunkPart::AfterData if line == b"\r\n" => self.part = ChunkPart::Size,
            ChunkPart::Size => {
                let text = String::from_utf8_lossy(line);
                let digits = text.trim_end().split(';').next().unwrap_or_default().to_owned();
                match usize::from_str_radix(&digits, 16) {
                    Ok(0) => self.part = ChunkPart::Trailers,
                    Ok(size) => {
                        self.chunk_sizes.push(size);
                        self.part = ChunkPart::Data(size);
                    }
                    Err(_) => self.malformed = Some(format!("chunk size line {text:?}")),
                }
            }
            ChunkPart::Trailers if line == b"\r\n" => self.complete = true,
            ChunkPart::Trailers => self.trailers.extend_from_slice(line),
            _ => self.malformed = Some(format!("after a chunk: {:?}", String::from_utf8_lossy(line))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_split_of_a_chunked_body_reads_the_same() {
        let wire = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nx-t: 1\r\n\r\nNEXT";
        for cut in 0..wire.len() {
            let mut decoder = BodyDecoder::new(Framing::Chunked);
            let mut used = decoder.feed(&wire[..cut]);
            used += decoder.feed(&wire[used..]);
            assert_eq!(decoder.body, b"hello world", "cut at {cut}");
            assert_eq!(decoder.trailers, b"x-t: 1\r\n");
            assert!(decoder.complete);
            assert_eq!(&wire[used..], b"NEXT");
        }
    }

    #[test]
    fn a_cut_body_is_not_complete() {
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        decoder.feed(b"5\r\nhello\r\n");
        decoder.end_of_input();
        assert!(!decoder.complete);
    }
}
