//! One connection of a scripted engine: reads requests, does the steps, notices when the peer leaves.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::engine::{Handler, Request, Shared};
use crate::framing::{BodyDecoder, Framing};
use crate::head::{head_end, header_values};
use crate::script::{Script, Step};

/// How often a thread that waits looks whether the engine was stopped.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A head longer than this is not read: the test sends nonsense, and memory must end somewhere.
const MAX_HEAD_BYTES: usize = 1 << 20;

/// What a read or a wait on the peer came to.
enum Peer {
    Sent(usize),
    Silent,
    Left,
}

/// Whether the connection may carry another request.
#[derive(PartialEq, Eq)]
enum Next {
    Request,
    Closed,
    Reset,
}

pub(crate) fn serve(stream: &TcpStream, connection: usize, shared: &Shared) {
    let mut unread = Vec::new();
    let mut index_on_connection = 0;
    loop {
        match one_request(stream, connection, index_on_connection, &mut unread, shared) {
            Next::Request => index_on_connection += 1,
            Next::Closed => {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            // Closing without a shutdown first: a shutdown would send the orderly end that a reset is not.
            Next::Reset => return,
        }
    }
}

fn one_request(
    stream: &TcpStream,
    connection: usize,
    index_on_connection: usize,
    unread: &mut Vec<u8>,
    shared: &Shared,
) -> Next {
    let Some(end) = read_head(stream, unread, shared) else { return Next::Closed };
    let head: Vec<u8> = unread.drain(..end).collect();
    let mut decoder = BodyDecoder::new(Framing::of_head(&head, Framing::Length(0)));
    let wants_close = header_values(&head, "connection").iter().any(|v| v.eq_ignore_ascii_case("close"));
    let wants_continue = !header_values(&head, "expect").is_empty();
    let index = shared.add(Request {
        connection,
        index_on_connection,
        head_at: Instant::now(),
        head,
        body: Vec::new(),
        trailers: Vec::new(),
        complete: decoder.complete,
        complete_at: None,
        aborted_at: None,
        answered_at: None,
        written_at: Vec::new(),
    });

    if let Some(script) = handler(&shared.at_head)(&shared.get(index)) {
        let next = perform(stream, &script, index, shared);
        if next == Next::Request {
            // The body is left unread, so nothing after it can be told apart. Closing with bytes unread would reset
            // the connection and might take the answer with it.
            discard(stream, shared);
            return Next::Closed;
        }
        return next;
    }
    if wants_continue && (&*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n").is_err() {
        return Next::Closed;
    }
    if !read_body(stream, unread, &mut decoder, index, shared) {
        shared.note(index, |request| request.aborted_at = Some(Instant::now()));
        return Next::Closed;
    }
    let request = shared.get(index);
    let script = handler(&shared.at_body)(&request).unwrap_or_else(|| shared.default_answer(&request));
    let next = perform(stream, &script, index, shared);
    if wants_close && next == Next::Request { Next::Closed } else { next }
}

fn handler(slot: &std::sync::Mutex<Handler>) -> Handler {
    slot.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn read_head(stream: &TcpStream, unread: &mut Vec<u8>, shared: &Shared) -> Option<usize> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        if let Some(end) = head_end(unread) {
            return Some(end);
        }
        if unread.len() > MAX_HEAD_BYTES {
            return None;
        }
        match read(stream, &mut buffer, shared) {
            Peer::Sent(count) => unread.extend_from_slice(&buffer[..count]),
            Peer::Silent => {}
            Peer::Left => return None,
        }
    }
}

fn read_body(
    stream: &TcpStream,
    unread: &mut Vec<u8>,
    decoder: &mut BodyDecoder,
    index: usize,
    shared: &Shared,
) -> bool {
    let mut buffer = vec![0; 256 << 10];
    let mut noted = 0;
    loop {
        let used = decoder.feed(unread);
        unread.drain(..used);
        shared.note(index, |request| {
            request.body.extend_from_slice(&decoder.body[noted..]);
            request.trailers.clone_from(&decoder.trailers);
            request.complete = decoder.complete;
            request.complete_at = decoder.complete.then(Instant::now);
        });
        noted = decoder.body.len();
        if decoder.complete || decoder.malformed.is_some() {
            return decoder.complete;
        }
        match read(stream, &mut buffer, shared) {
            Peer::Sent(count) => unread.extend_from_slice(&buffer[..count]),
            Peer::Silent => {}
            Peer::Left => return false,
        }
    }
}

fn read(mut stream: &TcpStream, buffer: &mut [u8], shared: &Shared) -> Peer {
    if shared.stopped.load(Ordering::SeqCst) {
        return Peer::Left;
    }
    let _ = stream.set_read_timeout(Some(LOOK_EVERY));
    peer_of(stream.read(buffer))
}

fn peer_of(result: std::io::Result<usize>) -> Peer {
    match result {
        Ok(0) => Peer::Left,
        Ok(count) => Peer::Sent(count),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Peer::Silent,
            _ => Peer::Left,
        },
    }
}

fn perform(stream: &TcpStream, script: &Script, index: usize, shared: &Shared) -> Next {
    for step in script {
        let peer_is_there = match step {
            Step::Bytes(bytes) => {
                shared.note(index, |request| request.written_at.push(Instant::now()));
                (&*stream).write_all(bytes).is_ok()
            }
            Step::Pause(time) => wait(stream, Some(Instant::now() + *time), shared),
            Step::Hang => wait(stream, None, shared),
            Step::Reset => {
                let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
                shared.note(index, |request| request.answered_at = Some(Instant::now()));
                // The copy kept for `kill` must go too, or the reset waits for it.
                let connection = shared.get(index).connection;
                shared.closed(connection);
                return Next::Reset;
            }
            Step::Close => {
                shared.note(index, |request| request.answered_at = Some(Instant::now()));
                return Next::Closed;
            }
        };
        if !peer_is_there {
            shared.note(index, |request| request.aborted_at = Some(Instant::now()));
            return Next::Closed;
        }
    }
    shared.note(index, |request| request.answered_at = Some(Instant::now()));
    Next::Request
}

/// Waits until `deadline`, or for ever; false when the peer left or the engine was stopped.
fn wait(stream: &TcpStream, deadline: Option<Instant>, shared: &Shared) -> bool {
    let mut byte = [0];
    loop {
        if shared.stopped.load(Ordering::SeqCst) {
            return false;
        }
        let left = deadline.map_or(LOOK_EVERY, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return true;
        }
        let _ = stream.set_read_timeout(Some(left.min(LOOK_EVERY).max(Duration::from_micros(100))));
        match peer_of(stream.peek(&mut byte)) {
            Peer::Left => return false,
            Peer::Silent => {}
            // The peer has already sent its next request: leaving can no longer be seen by peeking.
            Peer::Sent(_) => std::thread::sleep(left.min(Duration::from_millis(1))),
        }
    }
}

fn discard(stream: &TcpStream, shared: &Shared) {
    let mut buffer = vec![0; 256 << 10];
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end && !matches!(read(stream, &mut buffer, shared), Peer::Left) {}
}
