//! A client's socket, lent to hyper and watched beside it.

use std::cell::{OnceCell, RefCell};
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::server::TlsStream;

use crate::vitals::Vitals;

/// Who is at the other end of a client's connection.
#[derive(Debug)]
pub struct Peer {
    /// Its address, as the socket tells it.
    pub address: SocketAddr,
    /// It came to a listener with TLS.
    pub secure: bool,
    /// The names in its certificate (`dns:…`, `uri:…`, `email:…`), if the listener asks for one and it was verified.
    pub identity: OnceCell<Box<[String]>>,
    /// What its connection is doing.
    pub vitals: Vitals,
}

/// A handle on a client's socket.
#[derive(Clone, Debug)]
pub struct ClientStream {
    socket: Rc<RefCell<Socket>>,
}

/// A client's socket, with or without TLS. The TLS state is some KiB, which a plain connection does not carry.
#[derive(Debug)]
pub enum Socket {
    /// Bytes go as they are.
    Plain(TcpStream),
    /// Bytes go through a session.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    fn tcp(&self) -> &TcpStream {
        match self {
            Socket::Plain(stream) => stream,
            Socket::Tls(stream) => stream.get_ref().0,
        }
    }
}

/// While bytes of a client wait unread, its going is looked for this often: the socket stays readable, so that
/// nothing would wake its task.
const LOOK: Duration = Duration::from_millis(50);

/// Watches for a client's going.
#[derive(Debug)]
pub struct Watch {
    client: ClientStream,
    look: Option<Pin<Box<Sleep>>>,
}

impl ClientStream {
    /// A first handle.
    pub fn new(socket: Socket) -> Self {
        Self { socket: Rc::new(RefCell::new(socket)) }
    }

    /// Writes what the socket takes at once.
    pub fn write_now(&self, bytes: &[u8]) {
        let stream = &mut *self.socket.borrow_mut();
        match stream {
            Socket::Plain(stream) => drop(stream.try_write(bytes)),
            Socket::Tls(stream) => {
                let mut once = Context::from_waker(Waker::noop());
                let mut stream = Pin::new(&mut **stream);
                let _ = stream.as_mut().poll_write(&mut once, bytes);
                let _ = stream.poll_flush(&mut once);
            }
        }
    }

    /// A watch over it.
    pub fn watch(&self) -> Watch {
        Watch { client: self.clone(), look: None }
    }
}

impl Watch {
    /// Whether the client has closed its side, though nobody has read that far: hyper stops reading when it
    /// holds the beginning of a next request, and would not see the client go while this one is answered.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> bool {
        // With TLS, too, the end shows on the socket below: who leaves closes it, whether or not the session was
        // closed first.
        let socket = self.client.socket.borrow();
        let stream = socket.tcp();
        if stream.poll_read_ready(cx).is_pending() {
            self.look = None;
            return false; // hyper has read all there is, and this task is woken when more comes
        }
        let ready = pin!(stream.ready(Interest::READABLE));
        if matches!(ready.poll(cx), Poll::Ready(Ok(ready)) if ready.is_read_closed()) {
            return true;
        }
        let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK)));
        if look.as_mut().poll(cx).is_ready() {
            look.as_mut().reset(Instant::now() + LOOK);
            let _ = look.as_mut().poll(cx);
        }
        false
    }
}

/// The same call on whichever socket it is.
macro_rules! on_socket {
    ($client:expr, $stream:ident => $call:expr) => {
        match &mut *$client.socket.borrow_mut() {
            Socket::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Socket::Tls(stream) => {
                let $stream = Pin::new(&mut **stream);
                $call
            }
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on_socket!(self, stream => stream.poll_read(cx, buffer))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        on_socket!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_socket!(self, stream => stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_socket!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_socket!(self, stream => stream.poll_shutdown(cx))
    }
}
