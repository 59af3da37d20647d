//! Telling systemd how the service is (`sd_notify(3)`): datagrams to the socket that `NOTIFY_SOCKET` names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where systemd listens, if it started the process and wants to know.
#[derive(Debug, Default)]
pub struct Systemd {
    to: Option<(UnixDatagram, SocketAddr)>,
}

impl Systemd {
    /// From the environment.
    pub fn from_environment() -> Self {
        let name = std::env::var_os("NOTIFY_SOCKET").unwrap_or_default();
        Self { to: Self::open(name.as_bytes()) }
    }

    fn open(name: &[u8]) -> Option<(UnixDatagram, SocketAddr)> {
        let address = match name.split_first()? {
            (b'@', name) => SocketAddr::from_abstract_name(name).ok()?,
            (b'/', _) => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)).ok()?,
            _ => return None,
        };
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some((socket, address))
    }

    /// Sends lines such as `READY=1`. Without systemd nothing happens, and a datagram that does not go through is no
    /// reason to stop serving.
    pub fn tell(&self, lines: &str) {
        if let Some((socket, address)) = &self.to {
            let _ = socket.send_to_addr(lines.as_bytes(), address);
        }
    }
}

/// Microseconds on the clock that systemd compares reloads by.
pub fn monotonic_us() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_reach_a_socket_with_a_path_and_one_without() {
        let name = format!("ridge-notify-test-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let on_disk = UnixDatagram::bind(&path).expect("a socket");
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let hidden = UnixDatagram::bind_addr(&address).expect("a socket");
        for (socket, named) in [(on_disk, path.display().to_string()), (hidden, format!("@{name}"))] {
            Systemd { to: Systemd::open(named.as_bytes()) }.tell("READY=1\nMAINPID=7\n");
            let mut got = [0; 64];
            let count = socket.recv(&mut got).expect("a datagram");
            assert_eq!(&got[..count], b"READY=1\nMAINPID=7\n");
        }
        let _ = std::fs::remove_file(path);
    }

    #[test]
    fn without_systemd_nothing_happens() {
        for name in ["", "relative", "/nowhere/at/all"] {
            Systemd { to: Systemd::open(name.as_bytes()) }.tell("READY=1");
        }
    }
}
