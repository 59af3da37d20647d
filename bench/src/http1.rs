//! As much HTTP/1.1 as the mock engines and the load generator need: heads, and chunked bodies cut anywhere.

use std::io;

/// What a message's head says about its body and its connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes up to and including the empty line.
    pub bytes: usize,
    /// A response's status; 0 in a request.
    pub status: u16,
    /// A request's path; empty in a response.
    pub path: String,
    /// A request's method is POST.
    pub is_post: bool,
    /// Length of the body, from `content-length`.
    pub content_length: Option<usize>,
    /// The body is chunked.
    pub chunked: bool,
    /// The sender closes the connection afterwards.
    pub closes: bool,
    /// The client waits for `100 Continue`.
    pub expects_continue: bool,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Head {
    fn empty(bytes: usize) -> Head {
        Head {
            bytes,
            status: 0,
            path: String::new(),
            is_post: false,
            content_length: None,
            chunked: false,
            closes: false,
            expects_continue: false,
        }
    }

    fn read_headers(&mut self, headers: &[httparse::Header<'_>]) -> io::Result<()> {
        for header in headers {
            let has =
                |word: &[u8]| header.value.to_ascii_lowercase().windows(word.len()).any(|part| part == word);
            if header.name.eq_ignore_ascii_case("content-length") {
                let text =
                    std::str::from_utf8(header.value).map_err(|_| broken("content-length is not text"))?;
                let length = text.trim().parse().map_err(|_| broken("content-length is not a number"))?;
                self.content_length = Some(length);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                self.chunked = has(b"chunked");
            } else if header.name.eq_ignore_ascii_case("connection") {
                self.closes = has(b"close");
            } else if header.name.eq_ignore_ascii_case("expect") {
                self.expects_continue = has(b"100-continue");
            }
        }
        Ok(())
    }
}

/// Reads a request's head; `None` when it is not complete yet.
pub fn request_head(input: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(input) {
        Ok(httparse::Status::Complete(bytes)) => {
            let mut head = Head::empty(bytes);
            head.path = request.path.unwrap_or_default().to_owned();
            head.is_post = request.method == Some("POST");
            head.read_headers(request.headers)?;
            Ok(Some(head))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(error) => Err(broken(&format!("request head: {error}"))),
    }
}

/// Reads a response's head; `None` when it is not complete yet.
pub fn response_head(input: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(input) {
        Ok(httparse::Status::Complete(bytes)) => {
            let mut head = Head::empty(bytes);
            head.status = response.code.unwrap_or_default();
            head.closes = response.version == Some(0);
            head.read_headers(response.headers)?;
            Ok(Some(head))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(error) => Err(broken(&format!("response head: {error}"))),
    }
}

/// Decodes a chunked body that arrives in pieces cut anywhere.
#[derive(Debug, Default)]
pub struct Chunked {
    state: State,
    remaining: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Extension,
    Data,
    DataEnd,
    Trailer,
    TrailerLine,
    Done,
}

impl Chunked {
    /// Takes `input`, hands the data in it to `sink`, and says how many bytes belonged to this body.
    pub fn feed(&mut self, input: &[u8], mut sink: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            let byte = input[at];
            match self.state {
                State::Data => {
                    let take = self.remaining.min(input.len() - at);
                    sink(&input[at..at + take]);
                    self.remaining -= take;
                    at += take;
                    if self.remaining == 0 {
                        self.state = State::DataEnd;
                    }
                    continue;
                }
                State::Size => match byte {
                    b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' => {
                        let digit = (byte as char).to_digit(16).unwrap_or_default() as usize;
                        if self.remaining > usize::MAX >> 8 {
                            return Err(broken("chunk size overflows"));
                        }
                        self.remaining = self.remaining * 16 + digit;
                    }
                    b';' | b' ' | b'\t' => self.state = State::Extension,
                    b'\r' => {}
                    b'\n' => self.end_size(),
                    _ => return Err(broken("chunk size is not a hexadecimal number")),
                },
                State::Extension if byte == b'\n' => self.end_size(),
                State::Extension => {}
                State::DataEnd => match byte {
                    b'\r' => {}
                    b'\n' => self.state = State::Size,
                    _ => return Err(broken("chunk is longer than its size")),
                },
                State::Trailer => match byte {
                    b'\r' => {}
                    b'\n' => self.state = State::Done,
                    _ => self.state = State::TrailerLine,
                },
                State::TrailerLine if byte == b'\n' => self.state = State::Trailer,
                State::TrailerLine | State::Done => {}
            }
            at += 1;
        }
        Ok(at)
    }

    fn end_size(&mut self) {
        self.state = if self.remaining == 0 { State::Trailer } else { State::Data };
    }

    /// The last byte of the body has been fed.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }
}

/// Appends `data` as one chunk.
pub fn push_chunk(into: &mut Vec<u8>, data: &[u8]) {
    into.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
    into.extend_from_slice(data);
    into.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunked_body_is_the_same_wherever_it_is_cut() {
        let mut wire = Vec::new();
        push_chunk(&mut wire, b"hello ");
        push_chunk(&mut wire, &[b'x'; 300]);
        wire.extend_from_slice(b"3;name=value\r\nend\r\n0\r\ntrailer: yes\r\n\r\n");
        let due = [b"hello ".as_slice(), &[b'x'; 300], b"end"].concat();
        for cut in 0..=wire.len() {
            let (mut body, mut decoder) = (Vec::new(), Chunked::default());
            for part in [&wire[..cut], &wire[cut..]] {
                assert_eq!(decoder.feed(part, |data| body.extend_from_slice(data)).unwrap(), part.len());
            }
            assert!(decoder.is_done());
            assert_eq!(body, due);
        }
        let mut next = wire.clone();
        next.extend_from_slice(b"HTTP/1.1 200 OK");
        assert_eq!(Chunked::default().feed(&next, |_| ()).unwrap(), wire.len());
    }

    #[test]
    fn a_broken_size_is_an_error() {
        assert!(Chunked::default().feed(b"zz\r\n", |_| ()).is_err());
        assert!(Chunked::default().feed(b"ffffffffffffffffffff\r\n", |_| ()).is_err());
        assert!(Chunked::default().feed(b"1\r\nab", |_| ()).is_err());
    }

    #[test]
    fn heads_are_read() {
        let head = request_head(b"POST /v1/x HTTP/1.1\r\nContent-Length: 12\r\n\r\nbody").unwrap().unwrap();
        assert_eq!((head.path.as_str(), head.content_length, head.is_post), ("/v1/x", Some(12), true));
        let head =
            response_head(b"HTTP/1.1 503 No\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n")
                .unwrap()
                .unwrap();
        assert_eq!((head.status, head.chunked, head.closes), (503, true, true));
        assert_eq!(response_head(b"HTTP/1.1 200 OK\r\n").unwrap(), None);
    }
}
