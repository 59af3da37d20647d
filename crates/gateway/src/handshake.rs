//! TLS handshakes with clients.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::header;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, HandshakeKind};
use tokio_rustls::server::TlsStream;

use crate::client::{Peer, Socket};
use crate::core::Core;
use crate::refuse::Refused;
use crate::settings::{Level, Notice, Tls};

/// Failed handshakes are told of once in this time, by the last of them. All are counted.
const SAY_AGAIN_MS: u64 = 60_000;

/// A client that is refused is given this time to read why.
const LINGER: Duration = Duration::from_secs(1);

/// Bytes of such a client that are read away, lest the system answer them with a reset that overtakes the reason.
const LINGER_BYTES: usize = 64 << 10;

/// What became of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// It was done in full.
    Full,
    /// It took an earlier session up again.
    Resumed,
    /// The client sent an HTTP request without TLS.
    PlainHttp,
    /// It took too long.
    TimedOut,
    /// There were too many at one time.
    TooMany,
    /// The client went away.
    Closed,
    /// The client showed no certificate.
    NoClientCertificate,
    /// The client's certificate is not accepted.
    ClientCertificateRefused,
    /// The client said that something is wrong, most often with the server's certificate.
    ClientAlert,
    /// Nothing that both sides support.
    Incompatible,
    /// What the client sent is not TLS.
    Malformed,
}

impl Handshake {
    /// All there are, in the order of the counts.
    pub const ALL: [Handshake; 11] = [
        Handshake::Full,
        Handshake::Resumed,
        Handshake::PlainHttp,
        Handshake::TimedOut,
        Handshake::TooMany,
        Handshake::Closed,
        Handshake::NoClientCertificate,
        Handshake::ClientCertificateRefused,
        Handshake::ClientAlert,
        Handshake::Incompatible,
        Handshake::Malformed,
    ];

    /// Its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Handshake::Full => "full",
            Handshake::Resumed => "resumed",
            Handshake::PlainHttp => "plain_http",
            Handshake::TimedOut => "timeout",
            Handshake::TooMany => "too_many",
            Handshake::Closed => "closed",
            Handshake::NoClientCertificate => "no_client_certificate",
            Handshake::ClientCertificateRefused => "client_certificate_refused",
            Handshake::ClientAlert => "client_alert",
            Handshake::Incompatible => "incompatible",
            Handshake::Malformed => "malformed",
        }
    }

    fn of(error: &io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            None => Handshake::Closed,
            Some(rustls::Error::NoCertificatesPresented) => Handshake::NoClientCertificate,
            Some(rustls::Error::InvalidCertificate(_)) => Handshake::ClientCertificateRefused,
            Some(rustls::Error::AlertReceived(_)) => Handshake::ClientAlert,
            Some(rustls::Error::PeerIncompatible(_) | rustls::Error::NoApplicationProtocol) => {
                Handshake::Incompatible
            }
            Some(_) => Handshake::Malformed,
        }
    }
}

/// The handshakes that are under way on a core.
#[derive(Debug, Default)]
pub struct Handshakes(Rc<Cell<usize>>);

impl Handshakes {
    /// How many there are.
    pub fn open(&self) -> usize {
        self.0.get()
    }

    fn enter(&self, max: usize) -> Option<UnderWay> {
        let open = self.0.get();
        (open < max).then(|| {
            self.0.set(open + 1);
            UnderWay(Rc::clone(&self.0))
        })
    }
}

struct UnderWay(Rc<Cell<usize>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A handshake that came to nothing.
struct Failed {
    what: Handshake,
    why: String,
}

/// Does the handshake and notes who the client is, unless `wants_end` comes first. `None`: the client was refused or
/// left, which has been counted.
pub async fn accept(
    core: &Core,
    stream: TcpStream,
    peer: &Peer,
    wants_end: impl Future<Output = ()>,
) -> Option<Socket> {
    let tls = core.shared.tls.load_full()?;
    // Each core has its share: a count of all cores together would be one cache line that all write to.
    let share = tls.max_handshakes.div_ceil(core.shared.gauges.len());
    let outcome = match core.handshakes.enter(share) {
        None => Err(Failed { what: Handshake::TooMany, why: format!("{share} are under way on its core") }),
        Some(_under_way) => tokio::select! {
            outcome = negotiate(&tls, stream, peer) => outcome,
            () = sleep(tls.handshake_timeout) => Err(Failed {
                what: Handshake::TimedOut,
                why: format!("not done within {:?}", tls.handshake_timeout),
            }),
            () = wants_end => {
                Err(Failed { what: Handshake::TimedOut, why: "not done when its connection had to end".into() })
            }
        },
    };
    let (what, socket) = match outcome {
        Ok((what, stream)) => {
            peer.vitals.secured();
            (what, Some(Socket::Tls(Box::new(stream))))
        }
        Err(Failed { what, why }) => {
            tell(core, peer, what, &why);
            (what, None)
        }
    };
    core.ledger.borrow_mut().handshakes[what as usize] += 1;
    socket
}

async fn negotiate(
    tls: &Tls,
    stream: TcpStream,
    peer: &Peer,
) -> Result<(Handshake, TlsStream<TcpStream>), Failed> {
    let mut first = [0];
    if stream.peek(&mut first).await.is_ok_and(|read| read == 1) && first[0].is_ascii_uppercase() {
        answer_plain(stream).await;
        let why = "an HTTP request without TLS; its address is https://…".into();
        return Err(Failed { what: Handshake::PlainHttp, why });
    }
    let config = std::sync::Arc::clone(&tls.serving.config);
    let stream = match TlsAcceptor::from(config).accept(stream).into_fallible().await {
        Ok(stream) => stream,
        Err((error, stream)) => {
            linger(stream).await;
            return Err(Failed { what: Handshake::of(&error), why: error.to_string() });
        }
    };
    let session = stream.get_ref().1;
    if let Some(certificate) = session.peer_certificates().and_then(<[_]>::first) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let Some(client) = tls.serving.client(certificate, now.as_secs()) else {
            let why = "its certificate has ended since its session began".into();
            return Err(Failed { what: Handshake::ClientCertificateRefused, why });
        };
        let _ = peer.identity.set(client.names.into());
    }
    let resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
    Ok((if resumed { Handshake::Resumed } else { Handshake::Full }, stream))
}

/// Tells a client that speaks HTTP what is wrong, in HTTP.
async fn answer_plain(mut stream: TcpStream) {
    let refused = Refused::new(
        api::Dialect::OpenAi,
        400,
        "tls_required",
        "this port speaks TLS and the request came without: use https:// for the address",
    );
    let (parts, body) = refused.response().into_parts();
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        kind.unwrap_or("application/json"),
        body.len()
    );
    if stream.write_all(&[head.as_bytes(), &body].concat()).await.is_ok() {
        linger(stream).await;
    }
}

/// Closes our side and reads the client's rest away, within bounds.
async fn linger(mut stream: TcpStream) {
    let read_rest = async {
        stream.shutdown().await?;
        let mut buffer = [0; 4096];
        let mut left = LINGER_BYTES;
        while left > 0 {
            match stream.read(&mut buffer).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        io::Result::Ok(())
    };
    let _ = timeout(LINGER, read_rest).await;
}

/// Says that handshakes fail, seldom: anybody can make them fail. Clients that just leave are not worth a line.
fn tell(core: &Core, peer: &Peer, what: Handshake, why: &str) {
    let now = core.shared.ms(Instant::now()) + SAY_AGAIN_MS; // 0 stands for never
    let told = core.shared.handshake_told_ms.load(Relaxed);
    if what == Handshake::Closed || now < told + SAY_AGAIN_MS {
        return;
    }
    if core.shared.handshake_told_ms.compare_exchange(told, now, Relaxed, Relaxed).is_ok() {
        let text = format!(
            "TLS handshakes with clients fail, one from {} ({}: {why}); ridge_tls_handshakes_total counts them",
            peer.address.ip(),
            what.as_str()
        );
        (core.notify)(Notice { level: Level::Warning, text });
    }
}
