//! An engine for long runs: it keeps nothing of what it was asked, fails on command, and its answers can be checked.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::content;

/// What is wrong with an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process is gone: its port refuses, its connections are closed.
    Killed,
    /// Requests get no answer until it is over.
    Stalled,
    /// Requests get 503.
    Unavailable,
    /// Connections are reset in the middle of an answer's head.
    ResetInHead,
    /// Each event of a stream, each whole answer, takes a tenth of a second.
    Slow,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Killed, Self::Stalled, Self::Unavailable, Self::ResetInHead, Self::Slow];

    /// For the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed and restarted",
            Self::Stalled => "no answer",
            Self::Unavailable => "503",
            Self::ResetInHead => "reset in the head",
            Self::Slow => "slow",
        }
    }
}

#[derive(Default)]
struct State {
    fault: Option<Fault>,
    /// Counts kills: connections of before are closed.
    life: u64,
    kills: Vec<Instant>,
    next: u64,
    open: HashMap<u64, TcpStream>,
}

/// A running engine.
#[derive(Clone)]
pub struct Engine {
    /// Where it listens.
    pub addr: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Engine {
    /// Starts it.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("its address");
        let engine = Self { addr, state: Arc::default() };
        engine.accept(listener, 0);
        engine
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wrong with it now.
    pub fn fault(&self) -> Option<Fault> {
        self.lock().fault
    }

    /// Whether it was killed between the two.
    pub fn was_killed(&self, from: Instant, until: Instant) -> bool {
        self.lock().kills.iter().any(|at| (from..=until).contains(at))
    }

    /// Begins or ends a fault.
    pub fn set(&self, fault: Option<Fault>) {
        let before = std::mem::replace(&mut self.lock().fault, fault);
        if fault == Some(Fault::Killed) {
            let mut state = self.lock();
            state.life += 1;
            state.kills.push(Instant::now());
            for (_, stream) in state.open.drain() {
                let _ = stream.shutdown(Shutdown::Both);
            }
            drop(state);
            let _ = TcpStream::connect(self.addr); // wakes the acceptor, which lets go of the port
        } else if before == Some(Fault::Killed) {
            let life = self.lock().life;
            let mut listener = TcpListener::bind(self.addr);
            for _ in 0..200 {
                if listener.is_ok() {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
                listener = TcpListener::bind(self.addr);
            }
            self.accept(listener.expect("the engine's own port is free again"), life);
        }
    }

    fn accept(&self, listener: TcpListener, life: u64) {
        let engine = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut state = engine.lock();
                if state.life != life {
                    return;
                }
                let _ = stream.set_nodelay(true);
                state.next += 1;
                let id = state.next;
                state.open.extend(stream.try_clone().map(|stream| (id, stream)));
                drop(state);
                let engine = engine.clone();
                thread::spawn(move || {
                    let _ = engine.serve(&stream, life);
                    engine.lock().open.remove(&id);
                });
            }
        });
    }

    fn serve(&self, stream: &TcpStream, life: u64) -> std::io::Result<()> {
        let mut reader = BufReader::with_capacity(64 << 10, stream);
        loop {
            let mut first = String::new();
            if reader.read_line(&mut first)? == 0 {
                return Ok(());
            }
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                if line.trim_end().is_empty() {
                    break;
                }
                if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse().unwrap_or(0);
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let path = first.split(' ').nth(1).unwrap_or_default();
            while self.fault() == Some(Fault::Stalled) && self.lock().life == life {
                thread::sleep(Duration::from_millis(10));
            }
            match self.fault() {
                Some(Fault::ResetInHead) => {
                    (&mut &*stream).write_all(b"HTTP/1.1 200 O")?;
                    return reset(stream);
                }
                Some(Fault::Unavailable) => {
                    whole(stream, 503, r#"{"error":{"message":"not now"}}"#)?;
                    continue;
                }
                Some(Fault::Slow) => thread::sleep(Duration::from_millis(100)),
                _ => {}
            }
            if first.starts_with("GET") {
                whole(stream, 200, page(path))?;
            } else if content::streams(&body) {
                self.stream(stream, &body)?;
            } else {
                whole(stream, 200, &content::answer(&body))?;
            }
        }
    }

    fn stream(&self, mut stream: &TcpStream, body: &[u8]) -> std::io::Result<()> {
        stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )?;
        for event in content::events(body) {
            let slow = self.fault() == Some(Fault::Slow);
            thread::sleep(Duration::from_millis(if slow { 100 } else { 5 }));
            stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())?;
        }
        stream.write_all(b"0\r\n\r\n")
    }
}

fn reset(stream: &TcpStream) -> std::io::Result<()> {
    // Unread bytes make the system answer a close with a reset; a linger of zero does so always.
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
    Ok(())
}

fn whole(mut stream: &TcpStream, status: u16, body: &str) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes())
}

fn page(path: &str) -> &'static str {
    match path {
        "/v1/models" => r#"{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm"}]}"#,
        "/version" => r#"{"version":"0.32.0"}"#,
        "/metrics" => {
            "vllm:num_requests_running{model_name=\"m\"} 0.0\nvllm:num_requests_waiting{model_name=\"m\"} 0.0\n"
        }
        _ => "{}",
    }
}
