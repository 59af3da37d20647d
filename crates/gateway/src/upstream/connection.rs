//! One HTTP/1.1 connection to an upstream, read and written by the task of the request that uses it.
//!
//! Not hyper's client: that hands a request to a task of the connection and each chunk back through a
//! channel, one frame and one write to the client for every chunk of a burst. Here the request's own task
//! reads the socket, and the chunks of one read go on as one piece.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Method};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::framing::{Decoded, Framing, FramingError};
use super::head::{HeadError, ResponseHead, field, parse_response};

/// Bytes read at one time. More than a read usually finds, so that a read that leaves room tells the runtime
/// that the socket is empty, and no second read is made to find that out.
const READ_BYTES: usize = 64 * 1024;

/// Bound for a response's head.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Informational answers before the real one. One or two are usual; an endless row of them would keep a core busy.
const MAX_INTERIM: usize = 32;

thread_local! {
    /// Where every connection of this core reads to: an idle or waiting connection owns no buffer.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// A request that got no answer.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// No connection could be made. Nothing was sent.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The gateway itself lacks what a connection takes: descriptors, ports, memory. No endpoint's fault.
    #[error("the gateway cannot open another connection: {0}")]
    Local(io::Error),
    /// The path does not fit the protocol.
    #[error("the path and query are too long")]
    TooLong,
    /// The connection ended or broke before the first byte of an answer.
    #[error("the connection closed before an answer: {source}")]
    Closed {
        /// What the system said.
        source: io::Error,
        /// Part of the request had been given to the system by then.
        sent: bool,
        /// The connection had carried a request before: the other side may just have been done with it.
        reused: bool,
    },
    /// The answer began and then broke off within its head.
    #[error("the connection broke within the answer's head: {0}")]
    BrokenHead(io::Error),
    /// The answer's head is not HTTP.
    #[error(transparent)]
    Head(#[from] HeadError),
}

impl ExchangeError {
    /// Whether another endpoint may be given the request. `repeatable` says that doing it twice does no harm.
    pub fn may_retry(&self, repeatable: bool) -> bool {
        match self {
            ExchangeError::Connect(_) => true,
            ExchangeError::Closed { sent, .. } => repeatable || !sent,
            ExchangeError::Local(_)
            | ExchangeError::TooLong
            | ExchangeError::BrokenHead(_)
            | ExchangeError::Head(_) => false,
        }
    }
}

/// A connection, idle or in use.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Bytes read beyond what was asked for.
    ahead: Vec<u8>,
    /// The rest of a request whose answer began before it was sent whole.
    unsent: Bytes,
    /// It has carried a request before.
    reused: bool,
    idle_since: Instant,
}

/// Connects to `host`, an address or a name, within `timeout`.
pub async fn connect(host: &str, port: u16, timeout: Duration) -> Result<Connection, ExchangeError> {
    let connecting = async {
        match host.parse() {
            Ok(ip) => TcpStream::connect(SocketAddr::new(ip, port)).await,
            Err(_) => TcpStream::connect((host, port)).await,
        }
    };
    let stream = match tokio::time::timeout(timeout, connecting).await {
        Ok(connected) => connected.map_err(|error| match is_local(&error) {
            true => ExchangeError::Local(error),
            false => ExchangeError::Connect(error),
        })?,
        Err(_) => return Err(ExchangeError::Connect(io::ErrorKind::TimedOut.into())),
    };
    stream.set_nodelay(true).map_err(ExchangeError::Connect)?;
    Ok(Connection {
        stream,
        ahead: Vec::new(),
        unsent: Bytes::new(),
        reused: false,
        idle_since: Instant::now(),
    })
}

fn is_local(error: &io::Error) -> bool {
    let codes = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EADDRNOTAVAIL];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

impl Connection {
    /// The socket, for another protocol.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// When it was last given back.
    pub fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// Marks it idle since `now`.
    pub fn rest(&mut self, now: Option<Instant>) {
        if self.ahead.capacity() > 4 * 1024 {
            self.ahead = Vec::new();
        }
        self.reused = true;
        self.idle_since = now.unwrap_or_else(Instant::now);
    }

    /// Whether an idle connection can still be used, as far as is known without asking the system: it has
    /// not been closed, and the other side has not said anything unasked.
    pub fn is_quiet(&self) -> bool {
        let mut probe = [0u8; 1];
        matches!(self.stream.try_read(&mut probe), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends a request and reads the answer's head.
    pub async fn exchange(
        mut self,
        method: &Method,
        head: &[u8],
        body: &Bytes,
    ) -> Result<(ResponseHead, Connection), ExchangeError> {
        let mut unsent = head.chain(body.clone());
        let total = unsent.remaining();
        // Informational answers (100, 103) may come first; they are for this connection, not for the client.
        for _ in 0..=MAX_INTERIM {
            let wait = poll_fn(|cx| self.poll_send_and_head(cx, &mut unsent, total, method));
            let mut answer = wait.await?;
            self.ahead.drain(..answer.length);
            if answer.status.is_informational() {
                continue;
            }
            if unsent.has_remaining() {
                // The answer began early. One that is good needs the rest of the request, which goes on while the
                // body is read; a refusal does not. Either way a next request gets a connection of its own.
                answer.keep_alive = false;
                if answer.status.is_success() {
                    // The head is out, or no good answer would be here.
                    self.unsent = unsent.into_inner().1;
                }
            }
            return Ok((answer, self));
        }
        Err(HeadError::Interim.into())
    }

    /// Writes what can be written while looking for an answer, which may come before the request is out.
    fn poll_send_and_head<A: Buf, B: Buf>(
        &mut self,
        cx: &mut Context<'_>,
        unsent: &mut bytes::buf::Chain<A, B>,
        total: usize,
        method: &Method,
    ) -> Poll<Result<ResponseHead, ExchangeError>> {
        if !self.ahead.is_empty()
            && let Some(head) = parse_response(&self.ahead, method)?
        {
            return Poll::Ready(Ok(head));
        }
        let mut write_error = None;
        while unsent.has_remaining() {
            let mut slices = [IoSlice::new(&[]); 2];
            let count = unsent.chunks_vectored(&mut slices);
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count]) {
                Poll::Ready(Ok(0)) => {
                    write_error = Some(io::ErrorKind::WriteZero.into());
                    break;
                }
                Poll::Ready(Ok(written)) => unsent.advance(written),
                Poll::Ready(Err(error)) => {
                    // The other side may have answered and closed: its answer is worth more than the error.
                    write_error = Some(error);
                    break;
                }
                Poll::Pending => break,
            }
        }
        let sent = unsent.remaining() < total;
        if !sent && write_error.is_none() {
            // Not one byte could be written yet; what is there to read is no answer to this request.
            return Poll::Pending;
        }
        loop {
            let (began, reused) = (!self.ahead.is_empty(), self.reused);
            let lost = |source: io::Error| match began {
                true => ExchangeError::BrokenHead(source),
                false => ExchangeError::Closed { source, sent, reused },
            };
            match self.poll_read_ahead(cx) {
                Poll::Ready(Ok(0)) => {
                    let source = write_error.take().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                    return Poll::Ready(Err(lost(source)));
                }
                Poll::Ready(Ok(_)) => match parse_response(&self.ahead, method)? {
                    Some(head) => return Poll::Ready(Ok(head)),
                    None if self.ahead.len() > MAX_HEAD_BYTES => {
                        return Poll::Ready(Err(HeadError::TooLarge.into()));
                    }
                    None => {}
                },
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(lost(write_error.take().unwrap_or(error))));
                }
                Poll::Pending => {
                    return match write_error {
                        Some(error) => Poll::Ready(Err(lost(error))),
                        None => Poll::Pending,
                    };
                }
            }
        }
    }

    /// Reads more onto `ahead`.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Self { stream, ahead, .. } = self;
        SCRATCH.with_borrow_mut(|scratch| {
            let read = ready!(poll_read(stream, cx, scratch))?;
            ahead.extend_from_slice(&scratch[..read]);
            Poll::Ready(Ok(read))
        })
    }

    /// Reads the next piece of a body. An empty piece that is not `done` never comes.
    pub fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        framing: &mut Framing,
    ) -> Poll<Result<Decoded, BodyError>> {
        while !self.unsent.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.unsent) {
                Poll::Ready(Ok(written)) if written > 0 => self.unsent.advance(written),
                Poll::Pending => break,
                // The rest is not wanted any more; the answer says whether that is an error.
                Poll::Ready(_) => self.unsent.clear(),
            }
        }
        if !self.ahead.is_empty() {
            let decoded = framing.decode(&self.ahead)?;
            self.ahead.drain(..decoded.used);
            if self.ahead.is_empty() {
                self.ahead = Vec::new();
            }
            if decoded.done || !decoded.data.is_empty() {
                return Poll::Ready(Ok(decoded));
            }
        }
        let Self { stream, ahead, .. } = self;
        SCRATCH.with_borrow_mut(|scratch| {
            loop {
                let read = ready!(poll_read(stream, cx, scratch)).map_err(BodyError::Read)?;
                if read == 0 {
                    return Poll::Ready(if framing.ends_at_close() {
                        Ok(Decoded { done: true, ..Decoded::default() })
                    } else {
                        Err(FramingError::Truncated.into())
                    });
                }
                let decoded = framing.decode(&scratch[..read])?;
                ahead.extend_from_slice(&scratch[decoded.used..read]);
                if decoded.done || !decoded.data.is_empty() {
                    return Poll::Ready(Ok(decoded));
                }
            }
        })
    }

    /// Nothing was read beyond the end of the last body, so that a next answer will start cleanly.
    pub fn is_clean(&self) -> bool {
        self.ahead.is_empty()
    }
}

fn poll_read(stream: &mut TcpStream, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(scratch);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// A body that broke off.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The system's error.
    #[error("the connection broke within the body: {0}")]
    Read(io::Error),
    /// Not the form that was announced.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// An HTTP/2 stream that failed.
    #[error("the stream broke within the body: {0}")]
    Stream(hyper::Error),
}

/// Writes a body with trailers in chunked form: one chunk, the trailers, the end.
pub fn chunked_with_trailers(body: &Bytes, trailers: &HeaderMap) -> Bytes {
    let mut out = Vec::with_capacity(body.len() + 64 * (trailers.len() + 1));
    if !body.is_empty() {
        out.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
        out.extend_from_slice(body);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        field(&mut out, name.as_str(), value.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Answers at once, reads the whole body after that, and says how much it was.
    fn answer_first_read_later(listener: TcpListener, length: usize) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
            let mut left = length;
            let mut buffer = vec![0; 64 * 1024];
            while left > 0 {
                let read = stream.read(&mut buffer).unwrap();
                assert!(read > 0, "the connection ended with {left} bytes to come");
                left -= read;
            }
            stream.write_all(b"3\r\nall\r\n0\r\n\r\n").unwrap();
        })
    }

    #[test]
    fn an_upload_goes_on_under_an_answer_that_began_early() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let body = Bytes::from(vec![b'x'; 20 << 20]); // more than the buffers on the way hold
        let head = b"POST / HTTP/1.1\r\n\r\n";
        let engine = answer_first_read_later(listener, head.len() + body.len());
        let read = async {
            let connection = connect("127.0.0.1", port, Duration::from_secs(5)).await.unwrap();
            let (answer, mut connection) = connection.exchange(&Method::POST, head, &body).await.unwrap();
            assert!(!answer.keep_alive);
            let mut framing = answer.framing.unwrap();
            let mut text = Vec::new();
            loop {
                let piece = poll_fn(|cx| connection.poll_body(cx, &mut framing)).await.unwrap();
                text.extend_from_slice(&piece.data);
                if piece.done {
                    return text;
                }
            }
        };
        let bounded = async { tokio::time::timeout(Duration::from_secs(20), read).await };
        let text = crate::local::runtime().unwrap().block_on(bounded);
        assert_eq!(text.expect("the answer ends"), b"all");
        engine.join().unwrap();
    }
}
