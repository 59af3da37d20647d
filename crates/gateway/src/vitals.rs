//! What a client's connection is doing, and when that has lasted too long.
//!
//! Nothing here asks the clock: the connection notes what happens, and the core's housekeeping, which looks at every
//! connection a few times a second, stamps what is new and says what is overdue. So a limit on time costs a request
//! no timer and no system call, and is kept to within one such look.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Waker;

use crate::settings::Patience;

/// What an HTTP/2 client sends first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection that was asked to finish and has nothing to do is cut after this time: an HTTP/2 client may not
/// answer the farewell.
const FAREWELL_MS: u64 = 2_000;

/// Why the gateway ended a client's connection, or an HTTP/2 stream of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// A request's head did not come in time.
    HeadTooSlow,
    /// Nothing was asked for a long time.
    Idle,
    /// A request's body paused for too long, or came too slowly.
    BodyTooSlow,
    /// The client did not take its answer.
    ClientTooSlow,
}

impl Closed {
    /// All of them, in the order of [`Closures`].
    pub const ALL: [Self; 4] = [Self::HeadTooSlow, Self::Idle, Self::BodyTooSlow, Self::ClientTooSlow];

    /// Its name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HeadTooSlow => "head_too_slow",
            Self::Idle => "idle",
            Self::BodyTooSlow => "body_too_slow",
            Self::ClientTooSlow => "client_too_slow",
        }
    }
}

/// Connections and streams that the gateway ended, by reason, over all cores.
#[derive(Debug, Default)]
pub struct Closures([AtomicU64; Closed::ALL.len()]);

impl Closures {
    /// Counts one.
    pub fn add(&self, why: Closed) {
        self.0[why as usize].fetch_add(1, Relaxed);
    }

    /// The counts so far.
    pub fn counts(&self) -> [(Closed, u64); Closed::ALL.len()] {
        Closed::ALL.map(|why| (why, self.0[why as usize].load(Relaxed)))
    }
}

/// What a connection without a running request is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// It was accepted, and has not asked for anything yet.
    #[default]
    Opening,
    /// Waiting for a next request.
    Idle,
    /// A head has begun.
    Head,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// So many bytes came, all of them as HTTP/2 begins.
    Unknown(usize),
    Http1,
    Http2,
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As soon as its running requests are done.
    Finish,
    /// Now.
    Cut,
}

/// A time that is noted at the next look.
#[derive(Debug, Default)]
struct Since(Cell<Option<u64>>);

impl Since {
    fn restart(&self) {
        self.0.set(None);
    }

    /// How long it has lasted.
    fn lasted_ms(&self, now_ms: u64) -> u64 {
        let since = self.0.get().unwrap_or(now_ms);
        self.0.set(Some(since));
        now_ms.saturating_sub(since)
    }
}

/// One connection's state. Its core's thread is the only one that touches it.
#[derive(Debug)]
pub struct Vitals {
    phase: Cell<Phase>,
    since: Since,
    protocol: Cell<Protocol>,
    requests: Cell<u32>,
    /// Bytes wait, and the client's side takes none.
    held: Cell<bool>,
    held_since: Since,
    end: Cell<Option<(End, Closed)>>,
    waker: RefCell<Option<Waker>>,
}

impl Default for Vitals {
    fn default() -> Self {
        Self {
            phase: Cell::default(),
            since: Since::default(),
            protocol: Cell::new(Protocol::Unknown(0)),
            requests: Cell::default(),
            held: Cell::default(),
            held_since: Since::default(),
            end: Cell::default(),
            waker: RefCell::default(),
        }
    }
}

impl Vitals {
    /// The TLS handshake is done: now the first head is waited for.
    pub fn secured(&self) {
        self.since.restart();
    }

    /// These bytes came.
    pub fn read(&self, bytes: &[u8]) {
        match self.protocol.get() {
            Protocol::Http1 => {
                if self.requests.get() == 0 && self.phase.get() == Phase::Idle {
                    self.enter(Phase::Head);
                }
            }
            Protocol::Http2 => {}
            Protocol::Unknown(seen) => {
                let expected = &PREFACE[seen..];
                let common = bytes.len().min(expected.len());
                self.protocol.set(if bytes[..common] != expected[..common] {
                    Protocol::Http1
                } else if common == expected.len() {
                    self.enter(Phase::Idle);
                    Protocol::Http2
                } else {
                    Protocol::Unknown(seen + common)
                });
            }
        }
    }

    /// The client's side took bytes, or all are sent.
    pub fn took(&self) {
        self.held.set(false);
    }

    /// Bytes wait for the client's side.
    pub fn held(&self) {
        if !self.held.replace(true) {
            self.held_since.restart();
        }
    }

    /// A request has begun.
    pub fn request_began(&self) {
        self.requests.set(self.requests.get() + 1);
    }

    /// A request has ended.
    pub fn request_ended(&self) {
        self.requests.set(self.requests.get().saturating_sub(1));
        if self.requests.get() == 0 {
            self.enter(Phase::Idle);
        }
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.restart();
    }

    /// Notes how to wake the connection's task.
    pub fn set_waker(&self, waker: Waker) {
        *self.waker.borrow_mut() = Some(waker);
    }

    /// Wakes the connection's task.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// How it is to end, and why.
    pub fn end(&self) -> Option<(End, Closed)> {
        self.end.get()
    }

    /// The client speaks HTTP/1.1 and has sent the beginning of a head, so that it can be told why it is cut off.
    /// One that has sent nothing might take such an answer for that to a request just sent.
    pub fn has_part_of_a_head(&self) -> bool {
        self.protocol.get() == Protocol::Http1 && self.requests.get() == 0 && self.phase.get() != Phase::Idle
    }

    /// Looks whether it must end. Tells each reason once.
    pub fn look(&self, now_ms: u64, patience: &Patience) -> Option<Closed> {
        let (end, why) = match self.end.get() {
            Some((End::Cut, _)) => return None,
            Some((End::Finish, why)) => {
                if self.requests.get() == 0 && self.since.lasted_ms(now_ms) >= FAREWELL_MS {
                    self.end.set(Some((End::Cut, why)));
                    self.wake();
                }
                return None;
            }
            None => self.overdue(now_ms, patience)?,
        };
        self.since.restart();
        self.since.lasted_ms(now_ms);
        self.end.set(Some((end, why)));
        self.wake();
        Some(why)
    }

    fn overdue(&self, now_ms: u64, patience: &Patience) -> Option<(End, Closed)> {
        if self.held.get() && self.held_since.lasted_ms(now_ms) >= patience.send_ms {
            return Some((End::Cut, Closed::ClientTooSlow));
        }
        if self.requests.get() > 0 {
            return None;
        }
        let lasted_ms = self.since.lasted_ms(now_ms);
        match self.phase.get() {
            Phase::Opening | Phase::Head if lasted_ms >= patience.header_ms => {
                Some((End::Cut, Closed::HeadTooSlow))
            }
            Phase::Idle if lasted_ms >= patience.idle_ms => Some((End::Finish, Closed::Idle)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience =
        Patience { header_ms: 1_000, idle_ms: 10_000, body_ms: 1_000, body_rate: 1, send_ms: 3_000 };

    /// When a connection to which nothing more happens is ended, looked at every 250 ms.
    fn ends(vitals: &Vitals, from_ms: u64) -> Option<(u64, Closed)> {
        let mut looks = (0..100).map(|look| from_ms + look * 250);
        looks.find_map(|now_ms| vitals.look(now_ms, &PATIENCE).map(|why| (now_ms - from_ms, why)))
    }

    #[test]
    fn a_head_must_come_in_time_from_the_first_byte_on_or_from_the_beginning() {
        let vitals = Vitals::default();
        assert_eq!(ends(&vitals, 5), Some((1_000, Closed::HeadTooSlow)));
        assert!(!vitals.has_part_of_a_head());

        let vitals = Vitals::default();
        vitals.look(5, &PATIENCE);
        vitals.read(b"P");
        vitals.look(605, &PATIENCE);
        vitals.read(b"OST / HTTP/1.1\r\n");
        assert_eq!(ends(&vitals, 755), Some((250, Closed::HeadTooSlow)));
        assert!(vitals.has_part_of_a_head());

        let vitals = Vitals::default();
        vitals.read(b"GET / HTTP/1.1\r\n\r\n");
        vitals.request_began();
        vitals.request_ended();
        vitals.look(5, &PATIENCE);
        vitals.read(b"G");
        vitals.look(9_005, &PATIENCE);
        vitals.read(b"E");
        assert_eq!(ends(&vitals, 9_755), Some((250, Closed::HeadTooSlow)));
    }

    #[test]
    fn an_idle_connection_is_asked_to_finish_and_cut_if_it_does_not() {
        let vitals = Vitals::default();
        vitals.read(b"GET / HTTP/1.1\r\n\r\n");
        vitals.request_began();
        assert_eq!(ends(&vitals, 5), None);
        vitals.request_ended();
        assert_eq!(ends(&vitals, 5), Some((10_000, Closed::Idle)));
        assert_eq!(vitals.end(), Some((End::Finish, Closed::Idle)));
        assert_eq!(ends(&vitals, 10_255), None);
        assert_eq!(vitals.end(), Some((End::Cut, Closed::Idle)));
    }

    #[test]
    fn http2_is_idle_from_its_preface_on_however_it_is_cut_and_pings_do_not_count() {
        for size in 1..=PREFACE.len() {
            let vitals = Vitals::default();
            PREFACE.chunks(size).for_each(|piece| vitals.read(piece));
            vitals.look(5, &PATIENCE);
            vitals.read(b"\0\0\x08\x06\0\0\0\0\0........");
            assert_eq!(ends(&vitals, 5_005), Some((5_000, Closed::Idle)), "{size}");
        }
        let vitals = Vitals::default();
        vitals.read(&PREFACE[..10]);
        assert_eq!(ends(&vitals, 5), Some((1_000, Closed::HeadTooSlow)));
    }

    #[test]
    fn a_client_that_takes_nothing_is_cut_and_one_that_takes_a_little_is_not() {
        let vitals = Vitals::default();
        vitals.read(b"GET / HTTP/1.1\r\n\r\n");
        vitals.request_began();
        for now_s in 0..20 {
            vitals.held();
            assert_eq!(vitals.look(now_s * 2_000, &PATIENCE), None);
            vitals.took();
        }
        vitals.held();
        vitals.look(50_000, &PATIENCE);
        vitals.held();
        assert_eq!(ends(&vitals, 52_000), Some((1_000, Closed::ClientTooSlow)));
    }
}
