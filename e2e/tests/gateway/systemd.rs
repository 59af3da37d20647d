//! Started by systemd: sockets that it opened, and what it is told.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use rig::client;
use rig::script;
use rig::{DEADLINE, ScriptedEngine, eventually, ridge_binary, wait_until};

/// What systemd would hear.
struct Systemd {
    path: std::path::PathBuf,
    socket: UnixDatagram,
}

impl Systemd {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("ridge-test-{}-notify", std::process::id()));
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        Self { path, socket }
    }

    /// Waits for a message that begins so, and gives its rest.
    #[track_caller]
    fn hears(&self, begin: &str) -> String {
        let mut rest = None;
        eventually(DEADLINE, || {
            let mut buffer = [0; 256];
            let count = self.socket.recv(&mut buffer).unwrap_or(0);
            let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
            rest = text.strip_prefix(begin).map(str::to_owned);
            rest.is_some()
        });
        rest.unwrap_or_else(|| panic!("systemd does not hear {begin}"))
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Killed(u32);

impl Drop for Killed {
    fn drop(&mut self) {
        signal("KILL", self.0);
    }
}

fn signal(name: &str, id: u32) {
    let _ = Command::new("kill").args(["-s", name, &id.to_string()]).stderr(Stdio::null()).status();
}

#[test]
fn it_serves_on_systemds_socket_and_says_how_it_is() {
    let engine = ScriptedEngine::answering(script::json(200, "{}"));
    let systemd = Systemd::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("its address");
    // The socket becomes descriptor 3, and the shell's process the program's.
    let script = r#"exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_FDNAMES=ridge LISTEN_PID=$$ exec "$0" "$@""#;
    let mut child = Command::new("sh")
        .args(["-c", script])
        .arg(ridge_binary())
        .args(["serve", "--listen", "127.0.0.1:9", "--admin", "off", "--upstream", &engine.url()])
        .env("NOTIFY_SOCKET", &systemd.path)
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("to start ridge");
    let first = Killed(child.id());
    systemd.hears("READY=1");
    wait_until("it is ready", || client::get(addr, "/readyz").status() == 200);
    signal("USR2", first.0);
    let id = systemd.hears("MAINPID=").trim().parse().expect("a process id");
    let second = Killed(id);
    assert_ne!(first.0, second.0);
    assert!(child.wait().expect("to wait").success());
    assert_eq!(client::get(addr, "/readyz").status(), 200);
    signal("TERM", second.0);
    systemd.hears("STOPPING=1");
    wait_until("it has ended", || std::net::TcpStream::connect(addr).is_err());
}
