//! The new process's side.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::{FdFlags, fcntl_setfd};
use thiserror::Error;

use crate::message::{self, From, Role, SOCKETS_MAX, Socket};

/// The environment variable that says that standard input is the connection to the old process.
pub const VARIABLE: &str = "RIDGE_HANDOVER";

/// What the new process says when it can take over.
pub const READY: &[u8; 6] = b"ready\n";

/// Sockets that were there before the process.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The sockets.
    pub sockets: Vec<Socket>,
    /// The process that handed them over, unless systemd did.
    pub predecessor: Option<Predecessor>,
}

/// The process that still serves, and waits.
#[derive(Debug)]
pub struct Predecessor {
    connection: UnixStream,
}

/// Why sockets that should be there are not.
#[derive(Debug, Error)]
pub enum TakeError {
    /// From a process.
    #[error("{VARIABLE} is set, which says that standard input hands over sockets, but: {0}; unset it")]
    Process(io::Error),
    /// From systemd.
    #[error("LISTEN_FDS says that systemd hands over sockets, but: {0}")]
    Systemd(io::Error),
}

/// Receives the sockets that this process was started with, if any. To be called once, at the start.
pub fn inherited() -> Result<Inherited, TakeError> {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "stdin") {
        from_process().map_err(TakeError::Process)
    } else {
        let sockets = from_systemd().map_err(TakeError::Systemd)?;
        Ok(Inherited { sockets, predecessor: None })
    }
}

fn from_process() -> io::Result<Inherited> {
    let connection: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    let sockets = message::receive(connection.as_fd())?;
    // The old process waits for the last holder of the connection to go.
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(Inherited { sockets, predecessor: Some(Predecessor { connection: connection.into() }) })
}

/// The sockets of `LISTEN_FDS`; those named `admin` are the admin listener's.
fn from_systemd() -> io::Result<Vec<Socket>> {
    // Read before listenfd takes the variables out of the environment.
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut opened = listenfd::ListenFd::from_env();
    let mut sockets = Vec::new();
    for place in 0..opened.len().min(SOCKETS_MAX) {
        let role = match names.next() {
            Some("admin") => Role::Admin,
            _ => Role::Data,
        };
        if let Some(listener) = opened.take_tcp_listener(place)? {
            let socket = OwnedFd::from(listener);
            // systemd opens them for one program, and programs that this one starts are not it.
            fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
            sockets.push(Socket { role, from: From::Systemd, socket });
        }
    }
    Ok(sockets)
}

impl Predecessor {
    /// Tells it that this process serves, so that it goes.
    pub fn ready(mut self) -> io::Result<()> {
        self.connection.write_all(READY)
    }
}
