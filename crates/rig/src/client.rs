//! A client that writes given bytes and keeps every byte that comes back with its time.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::response::{End, Response};
use crate::tls::Secure;
use crate::wait::DEADLINE;

/// One HTTP/1.1 connection under the test's full control.
pub struct RawClient {
    stream: TcpStream,
    session: Option<Box<rustls::ClientConnection>>,
    unread: Vec<u8>,
}

impl RawClient {
    /// Connects, with small writes sent at once.
    ///
    /// # Panics
    /// If nothing listens there.
    #[track_caller]
    pub fn connect(addr: SocketAddr) -> Self {
        Self::try_connect(addr).unwrap_or_else(|error| panic!("connect to {addr}: {error}"))
    }

    /// Like [`RawClient::connect`] for a server that may not be there.
    pub fn try_connect(addr: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, DEADLINE)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, session: None, unread: Vec::new() })
    }

    /// Connects with TLS. With TLS 1.3 a server that refuses the client's certificate says so only after that.
    pub fn connect_tls(addr: SocketAddr, secure: &Secure) -> std::io::Result<Self> {
        let mut client = Self::try_connect(addr)?;
        client.stream.set_read_timeout(Some(DEADLINE))?;
        let session = rustls::ClientConnection::new(secure.config.clone(), secure.name.clone());
        let mut session = session.map_err(std::io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut client.stream)?;
        }
        client.session = Some(Box::new(session));
        Ok(client)
    }

    /// The TLS session.
    ///
    /// # Panics
    /// If there is none.
    pub fn session(&self) -> &rustls::ClientConnection {
        self.session.as_deref().expect("a connection with TLS")
    }

    /// Ends the TLS session in order and leaves the connection as it is.
    pub fn close_notify(&mut self) {
        if let Some(session) = &mut self.session {
            session.send_close_notify();
            let _ = session.complete_io(&mut self.stream);
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.session {
            None => self.stream.read(buffer),
            Some(session) => rustls::Stream::new(&mut **session, &mut self.stream).read(buffer),
        }
    }

    /// Writes all of `bytes` in as few segments as the system makes of them.
    ///
    /// # Panics
    /// If the peer has closed the connection.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).unwrap_or_else(|error| panic!("send: {error}"));
    }

    /// Like [`RawClient::send`] for a peer that may leave.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.set_write_timeout(Some(DEADLINE))?;
        match &mut self.session {
            None => self.stream.write_all(bytes.as_ref()),
            Some(session) => rustls::Stream::new(&mut **session, &mut self.stream).write_all(bytes.as_ref()),
        }
    }

    /// Writes `bytes` in pieces of `size`, each in its own segment as far as the system allows.
    #[track_caller]
    pub fn send_in_pieces(&mut self, bytes: &[u8], size: usize) {
        for piece in bytes.chunks(size.max(1)) {
            self.send(piece);
        }
    }

    /// Reads one whole response, within the usual deadline.
    pub fn read_response(&mut self) -> Response {
        self.read_response_within(DEADLINE)
    }

    /// Reads one whole response, or what came of it by the deadline.
    pub fn read_response_within(&mut self, deadline: Duration) -> Response {
        let mut response = Response::new(false);
        self.read_into(&mut response, deadline, |_| false);
        response
    }

    /// Reads the response to a `HEAD` request, which has no body whatever its head says.
    pub fn read_head_response(&mut self) -> Response {
        let mut response = Response::new(true);
        self.read_into(&mut response, DEADLINE, |_| false);
        response
    }

    /// Reads until `enough` says so, and gives the response as far as it has come.
    pub fn read_until(&mut self, enough: impl Fn(&Response) -> bool) -> Response {
        let mut response = Response::new(false);
        self.read_into(&mut response, DEADLINE, enough);
        response
    }

    /// Goes on reading a response that [`RawClient::read_until`] has begun.
    pub fn read_on(&mut self, response: &mut Response) {
        self.read_into(response, DEADLINE, |_| false);
    }

    /// Goes on reading a response until `enough` says so.
    pub fn read_on_until(&mut self, response: &mut Response, enough: impl Fn(&Response) -> bool) {
        self.read_into(response, DEADLINE, enough);
    }

    fn read_into(&mut self, response: &mut Response, deadline: Duration, enough: impl Fn(&Response) -> bool) {
        let end = Instant::now() + deadline;
        let mut buffer = vec![0; 256 << 10];
        if !self.unread.is_empty() {
            let unread = std::mem::take(&mut self.unread);
            self.unread = response.feed(&unread, Instant::now());
        }
        while !(response.is_done() || response.has_head() && enough(response)) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                response.closed(End::Deadline);
                return;
            }
            let _ = self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
            match self.read(&mut buffer) {
                Ok(0) => return response.closed(End::Cut),
                Ok(count) => self.unread = response.feed(&buffer[..count], Instant::now()),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return response.closed(End::Reset),
                },
            }
        }
    }

    /// Whether the peer closes the connection within the deadline without sending anything more.
    pub fn is_closed_within(&mut self, deadline: Duration) -> bool {
        let _ = self.stream.set_read_timeout(Some(deadline));
        match self.read(&mut [0]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Leaves in order (FIN), as a client that exits does.
    pub fn close(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Says that nothing more will be sent, and stays to read.
    pub fn finish_sending(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Leaves with a reset.
    pub fn reset(self) {
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// This side's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.stream.local_addr().expect("the address of a connected socket")
    }
}

/// A POST with a JSON body, as bytes.
pub fn post_bytes(path: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    post_bytes_with(path, &[("content-type", "application/json")], body)
}

/// A POST with the given headers besides host and content-length, as bytes.
pub fn post_bytes_with(path: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut text = format!("POST {path} HTTP/1.1\r\nhost: gateway\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let mut wire = text.into_bytes();
    wire.extend_from_slice(body);
    wire
}

/// Sends one POST with a JSON body on a fresh connection and reads the answer.
#[track_caller]
pub fn post_json(addr: SocketAddr, path: &str, body: impl AsRef<[u8]>) -> Response {
    exchange(addr, &post_bytes(path, body))
}

/// Sends one GET on a fresh connection and reads the answer.
#[track_caller]
pub fn get(addr: SocketAddr, path: &str) -> Response {
    exchange(addr, format!("GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n").as_bytes())
}

/// Sends `request` on a fresh connection and reads one answer.
#[track_caller]
pub fn exchange(addr: SocketAddr, request: &[u8]) -> Response {
    let mut client = RawClient::connect(addr);
    client.send(request);
    client.read_response()
}
