//! Asking name servers, over UDP and, when an answer does not fit, over TCP.
//!
//! A resolver crate would do this too; hickory's brings sixty crates and tokio's threaded runtime for what is here a
//! question, an answer and a timeout. Messages are read and written by `simple-dns`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::message::{Kind, Record, Reply, question, reply};

/// Why a name could not be looked up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    /// No server answered in time.
    #[error("no answer from {server} within {after:?}")]
    Timeout {
        /// The server.
        server: SocketAddr,
        /// How long it was given.
        after: Duration,
    },
    /// A server cannot tell.
    #[error("{server}: {reason}")]
    Failure {
        /// The server.
        server: SocketAddr,
        /// What it says, or why it cannot be reached.
        reason: String,
    },
    /// The name cannot stand in a question.
    #[error("`{0}` is no DNS name")]
    BadName(String),
    /// There is no server to ask.
    #[error("no name server is configured: check /etc/resolv.conf")]
    NoServer,
}

/// Who is asked, and how patiently.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub servers: Vec<SocketAddr>,
    /// For each try.
    pub timeout: Duration,
    /// Rounds over all servers.
    pub attempts: u32,
}

impl Client {
    /// The records of a name, perhaps none.
    pub(crate) async fn ask(&self, name: &str, kind: Kind) -> Result<Vec<Record>, DnsError> {
        let mut error = DnsError::NoServer;
        for _ in 0..self.attempts {
            for &server in &self.servers {
                let failure = |reason| DnsError::Failure { server, reason };
                // Drawn anew for each try: who cannot see the question cannot answer it.
                let id = random_id();
                let Some(message) = question(id, name, kind) else {
                    return Err(DnsError::BadName(name.to_owned()));
                };
                let try_once = ask_server(server, &message, id, name, kind);
                error = match timeout(self.timeout, try_once).await {
                    Ok(Ok(Reply::Records(records))) => return Ok(records),
                    Ok(Ok(Reply::Failure(reason))) => failure(reason),
                    Ok(Ok(Reply::Truncated)) => failure("a cut answer over TCP".to_owned()),
                    Ok(Ok(Reply::NotOurs)) => failure("a wrong answer over TCP".to_owned()),
                    Ok(Err(error)) => failure(error.to_string()),
                    Err(_) => DnsError::Timeout { server, after: self.timeout },
                };
            }
        }
        Err(error)
    }
}

async fn ask_server(
    server: SocketAddr,
    message: &[u8],
    id: u16,
    name: &str,
    kind: Kind,
) -> io::Result<Reply> {
    let own: SocketAddr =
        if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    // A socket for each question: the port is as hard to guess as the id. Connected: the kernel drops what comes from
    // elsewhere.
    let socket = UdpSocket::bind(own).await?;
    socket.connect(server).await?;
    socket.send(message).await?;
    let mut buffer = vec![0; 4096];
    loop {
        let len = socket.recv(&mut buffer).await?;
        match reply(&buffer[..len], id, name, kind) {
            // Late answers, forged ones and garbage: the right one may still come.
            Reply::NotOurs => {}
            Reply::Truncated => return ask_over_tcp(server, message, id, name, kind).await,
            other => return Ok(other),
        }
    }
}

async fn ask_over_tcp(
    server: SocketAddr,
    message: &[u8],
    id: u16,
    name: &str,
    kind: Kind,
) -> io::Result<Reply> {
    let mut stream = TcpStream::connect(server).await?;
    let len = u16::try_from(message.len()).map_err(io::Error::other)?;
    let mut framed = len.to_be_bytes().to_vec();
    framed.extend_from_slice(message);
    stream.write_all(&framed).await?;
    let len = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(len)];
    stream.read_exact(&mut answer).await?;
    Ok(reply(&answer, id, name, kind))
}

/// Unpredictable: the standard library's hasher has a key from the operating system.
fn random_id() -> u16 {
    let [a, b, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
    u16::from_le_bytes([a, b])
}
