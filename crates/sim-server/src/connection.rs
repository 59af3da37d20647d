//! A client's connection, which a fault can reset.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::http_api;
use crate::replica::Replica;

/// Streams that one HTTP/2 connection may have open. hyper's default of 200 would queue what an engine would run.
const MAX_H2_STREAMS: u32 = 4_096;

/// The handle by which a request under way resets the connection it came on.
#[derive(Default)]
pub struct Conn {
    reset: AtomicBool,
    kill: Notify,
}

impl Conn {
    /// Cuts the connection with a TCP reset, once what was handed over is written. With HTTP/2 all its streams go.
    pub fn reset(&self) {
        self.reset.store(true, Ordering::Release);
        self.kill.notify_one();
    }
}

/// Serves one connection until either side ends it or `crash` completes, which resets it.
pub async fn serve(stream: TcpStream, replica: Arc<Replica>, crash: impl Future<Output = ()>) {
    let conn = Arc::new(Conn::default());
    // Each token is a small write of its own; without this it waits for the acknowledgement of the last one.
    _ = stream.set_nodelay(true);
    let io = TokioIo::new(Resettable { stream, conn: conn.clone() });
    let service =
        hyper::service::service_fn(|request| http_api::answer(replica.clone(), conn.clone(), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(MAX_H2_STREAMS);
    let serving = builder.serve_connection(io, service);
    tokio::select! {
        biased;
        // An error here is the client's way to leave.
        _ = serving => {}
        () = conn.kill.notified() => {}
        () = crash => conn.reset(),
    }
}

/// A TCP stream that closes with a reset if its connection was told to.
struct Resettable {
    stream: TcpStream,
    conn: Arc<Conn>,
}

impl Drop for Resettable {
    fn drop(&mut self) {
        if self.conn.reset.load(Ordering::Acquire) {
            _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Resettable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Resettable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
