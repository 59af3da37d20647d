//! One request and its answer on a kept connection, with the times at which bytes came and a check of every byte.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http1::{Chunked, response_head};
use crate::mock::clock_ns;
use crate::traffic::{CHUNKS, Kind, STAMPED_EVENT_BYTES, read_stamp};

const BUFFER_BYTES: usize = 64 * 1024;

/// Why a request has no good answer.
#[derive(Debug)]
#[allow(dead_code, reason = "the values are for the report's text")]
pub enum Fault {
    /// No connection.
    Connect(io::Error),
    /// The connection ended or broke before the answer's end.
    Cut(io::Error),
    /// The status, and how the answer begins.
    Status(u16, String),
    /// Where the body differs from the one due, and how it goes on there.
    WrongBytes(String),
    /// No whole answer within the load's patience.
    TimedOut,
}

/// When the answer came.
#[derive(Debug)]
pub struct Timing {
    /// The first read that brought bytes.
    pub first_byte: Instant,
    /// The read that brought the last byte.
    pub last_byte: Instant,
    /// For stamped streams: from the engine's write to our read, each event.
    pub event_delays_ns: Vec<u64>,
    /// The proxy closes the connection.
    pub closes: bool,
}

/// A connection to the proxy.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects, without Nagle's algorithm.
    pub async fn open(target: SocketAddr) -> Result<Self, Fault> {
        let stream = TcpStream::connect(target).await.map_err(Fault::Connect)?;
        stream.set_nodelay(true).map_err(Fault::Connect)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES] })
    }

    async fn read(&mut self, from: usize) -> Result<usize, Fault> {
        match self.stream.read(&mut self.buffer[from..]).await {
            Ok(0) => Err(Fault::Cut(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => Ok(count),
            Err(error) => Err(Fault::Cut(error)),
        }
    }

    /// Sends `wire`, reads the answer to its end and compares its body with `due`.
    pub async fn exchange(&mut self, wire: &[u8], kind: Kind, due: &[u8]) -> Result<Timing, Fault> {
        self.stream.write_all(wire).await.map_err(Fault::Cut)?;
        let mut filled = self.read(0).await?;
        let first_byte = Instant::now();
        let head = loop {
            if let Some(head) = response_head(&self.buffer[..filled]).map_err(Fault::Cut)? {
                break head;
            }
            filled += self.read(filled).await?;
        };
        if head.status != 200 {
            let text = String::from_utf8_lossy(&self.buffer[..filled.min(400)]).into_owned();
            return Err(Fault::Status(head.status, text));
        }
        let mut check = if kind == Kind::Stamped { Check::stamps() } else { Check::equal(due) };
        let mut decoder = Chunked::default();
        let mut left = head.content_length.unwrap_or_default();
        let mut at = head.bytes;
        loop {
            let piece = &self.buffer[at..filled];
            let done = if head.chunked {
                check.begin_read();
                let taken = decoder.feed(piece, |data| check.take(data)).map_err(Fault::Cut)?;
                if taken < piece.len() {
                    return Err(Fault::WrongBytes("bytes after the answer's end".to_owned()));
                }
                decoder.is_done()
            } else {
                if piece.len() > left {
                    return Err(Fault::WrongBytes("bytes after the answer's end".to_owned()));
                }
                check.begin_read();
                check.take(piece);
                left -= piece.len();
                left == 0
            };
            if done {
                break;
            }
            at = 0;
            filled = self.read(0).await?;
        }
        let last_byte = Instant::now();
        let event_delays_ns = check.end()?;
        Ok(Timing { first_byte, last_byte, event_delays_ns, closes: head.closes })
    }
}

enum Check<'a> {
    Equal { due: &'a [u8], at: usize, wrong: Option<String> },
    Stamps { read_ns: u64, pending: Vec<u8>, delays_ns: Vec<u64>, wrong: Option<String> },
}

impl<'a> Check<'a> {
    fn equal(due: &'a [u8]) -> Self {
        Check::Equal { due, at: 0, wrong: None }
    }

    fn stamps() -> Self {
        Check::Stamps { read_ns: 0, pending: Vec::new(), delays_ns: Vec::with_capacity(CHUNKS), wrong: None }
    }

    fn begin_read(&mut self) {
        if let Check::Stamps { read_ns, .. } = self {
            *read_ns = clock_ns();
        }
    }

    fn take(&mut self, data: &[u8]) {
        match self {
            Check::Equal { due, at, wrong } => {
                if !due[(*at).min(due.len())..].starts_with(data) {
                    wrong.get_or_insert_with(|| {
                        format!("at {at}: {}", String::from_utf8_lossy(shorten(data)))
                    });
                }
                *at += data.len();
            }
            Check::Stamps { read_ns, pending, delays_ns, wrong } => {
                pending.extend_from_slice(data);
                while pending.len() >= STAMPED_EVENT_BYTES {
                    match read_stamp(&pending[..STAMPED_EVENT_BYTES]) {
                        Some(written_ns) => delays_ns.push(read_ns.saturating_sub(written_ns)),
                        None => {
                            wrong.get_or_insert_with(|| {
                                String::from_utf8_lossy(shorten(pending)).into_owned()
                            });
                        }
                    }
                    pending.drain(..STAMPED_EVENT_BYTES);
                }
            }
        }
    }

    fn end(self) -> Result<Vec<u64>, Fault> {
        match self {
            Check::Equal { wrong: Some(wrong), .. } | Check::Stamps { wrong: Some(wrong), .. } => {
                Err(Fault::WrongBytes(wrong))
            }
            Check::Equal { due, at, .. } if at != due.len() => {
                Err(Fault::WrongBytes(format!("{at} bytes instead of {}", due.len())))
            }
            Check::Equal { .. } => Ok(Vec::new()),
            Check::Stamps { delays_ns, .. } if delays_ns.len() != CHUNKS => {
                Err(Fault::WrongBytes(format!("{} events instead of {CHUNKS}", delays_ns.len())))
            }
            Check::Stamps { delays_ns, .. } => Ok(delays_ns),
        }
    }
}

fn shorten(data: &[u8]) -> &[u8] {
    &data[..data.len().min(200)]
}
