//! Accepting clients and spreading them over the cores.

use std::cell::OnceCell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::{mpsc, watch};

use crate::client::Peer;
use crate::core::{Command, Shared};
use crate::settings::{Level, Notice, Notify};
use crate::vitals::Vitals;

/// Connections that wait to be accepted. A burst of clients is not refused.
const BACKLOG: i32 = 4096;

/// Pause after a failed accept: out of file descriptors, most often, which passes when requests end.
const PAUSE: Duration = Duration::from_millis(50);

/// How often it is looked whether an endpoint has answered, where clients wait for that.
const READY_LOOK: Duration = Duration::from_millis(2);

/// A warning is not repeated within this time: connections that fail and succeed in turn would flood the log.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// Opens a listener. Not with SO_REUSEPORT: a second process on the same port would silently take a share of
/// the traffic.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A second handle on a listener that another process opened.
pub fn adopt(listener: &TcpListener) -> io::Result<TcpListener> {
    let listener = listener.try_clone()?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts on all listeners, each with or without TLS, until told to stop, and gives each client to the core with the
/// fewest. The kernel
/// would spread them by a hash of their addresses: with eight clients, all on one core is not rare.
pub fn run(
    listeners: Vec<(TcpListener, bool)>,
    shared: Arc<Shared>,
    cores: Vec<mpsc::UnboundedSender<Command>>,
    mut stop: watch::Receiver<bool>,
    when_ready: bool,
    notify: Notify,
) -> io::Result<()> {
    crate::local::runtime()?.block_on(async move {
        while when_ready && !shared.ready.load(Relaxed) {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                () = tokio::time::sleep(READY_LOOK) => {}
            }
        }
        for (listener, secure) in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let (shared, cores, notify) = (Arc::clone(&shared), cores.clone(), Arc::clone(&notify));
            tokio::task::spawn_local(accept_all(listener, secure, shared, cores, notify));
        }
        // Every listener closes when the runtime ends.
        let _ = stop.wait_for(|stop| *stop).await;
        Ok(())
    })
}

async fn accept_all(
    listener: tokio::net::TcpListener,
    secure: bool,
    shared: Arc<Shared>,
    cores: Vec<mpsc::UnboundedSender<Command>>,
    notify: Notify,
) {
    let mut turn = 0;
    let mut said_at: Option<Instant> = None;
    loop {
        let accepted = listener.accept().await.and_then(|(stream, address)| {
            stream.set_nodelay(true)?;
            let vitals = Vitals::default();
            Ok((stream.into_std()?, Peer { address, secure, identity: OnceCell::new(), vitals }))
        });
        match accepted {
            Ok((stream, peer)) => {
                turn = (turn + 1) % cores.len();
                let order = (turn..cores.len()).chain(0..turn);
                let core =
                    order.min_by_key(|&core| shared.gauges[core].connections.load(Relaxed)).unwrap_or(0);
                shared.gauges[core].connections.fetch_add(1, Relaxed);
                if cores[core].send(Command::Accept(stream, peer)).is_err() {
                    return; // the core has ended: so does the gateway
                }
            }
            Err(error) if is_clients_fault(&error) => {}
            Err(error) => {
                if said_at.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
                    said_at = Some(Instant::now());
                    let text =
                        format!("cannot accept a connection: {error}; clients wait until it works again");
                    notify(Notice { level: Level::Warning, text });
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn is_clients_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | NotConnected | InvalidInput)
}
