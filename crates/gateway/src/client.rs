//! A client's socket, lent to hyper and watched beside it.

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::vitals::Vitals;

/// Who is at the other end of a client's connection.
#[derive(Debug)]
pub struct Peer {
    /// Its address, as the socket tells it.
    pub address: SocketAddr,
    /// What its connection is doing.
    pub vitals: Vitals,
}

/// A handle on a client's socket.
#[derive(Clone, Debug)]
pub struct ClientStream {
    stream: Rc<RefCell<TcpStream>>,
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
    pub fn new(stream: TcpStream) -> Self {
        Self { stream: Rc::new(RefCell::new(stream)) }
    }

    /// Writes what the socket takes at once.
    pub fn write_now(&self, bytes: &[u8]) {
        let _ = self.stream.borrow().try_write(bytes);
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
        let stream = self.client.stream.borrow();
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

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_shutdown(cx)
    }
}
