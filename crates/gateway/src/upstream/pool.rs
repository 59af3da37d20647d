//! Idle connections to upstreams. One pool for each core, used by that core's thread alone.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use scheduling::EndpointId;

use super::connection::Connection;
use super::h2c::{H2Connection, H2Stream};

/// Idle connections kept for one endpoint on one core. A fleet's engine rarely takes more than a few hundred
/// requests at once; what is beyond that is closed instead of kept.
const MAX_IDLE: usize = 256;

/// HTTP/2 connections kept for one endpoint on one core. Servers allow 100 requests on one and more; those that do not
/// are given several.
const MAX_H2: usize = 16;

/// An idle connection is closed after this time. Longer than clients' think times, shorter than the idle
/// time-outs of NAT gateways (350 s at the shortest of the large clouds).
const IDLE_TIME: Duration = Duration::from_secs(60);

/// Buffers for request heads kept for later use.
const MAX_BUFFERS: usize = 32;

/// The connections of one core.
#[derive(Debug, Default)]
pub struct Pool {
    idle: RefCell<HashMap<EndpointId, Vec<Connection>>>,
    h2: RefCell<HashMap<EndpointId, Vec<H2Connection>>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    /// The time at the last sweep: close enough for idle times, and costs nothing.
    swept: Cell<Option<Instant>>,
}

impl Pool {
    /// The most recently used idle connection: the others may then rest until they are closed.
    pub fn take(&self, id: EndpointId) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        let connections = idle.get_mut(&id)?;
        while let Some(connection) = connections.pop() {
            if connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection for the next request.
    pub fn put(&self, id: EndpointId, mut connection: Connection) {
        if !connection.is_clean() {
            return; // it said more than it was asked for
        }
        connection.rest(self.swept.get());
        let mut idle = self.idle.borrow_mut();
        let connections = idle.entry(id).or_default();
        if connections.len() < MAX_IDLE {
            connections.push(connection);
        }
    }

    /// Closes the idle connections to an endpoint: one of them was found closed, so the others will be too.
    pub fn forget(&self, id: EndpointId) {
        self.idle.borrow_mut().remove(&id);
        self.h2.borrow_mut().remove(&id);
    }

    /// Closes what has been idle too long, was closed by the other side, or leads to an endpoint that is gone.
    pub fn sweep(&self, now: Instant, is_current: impl Fn(EndpointId) -> bool) {
        self.swept.set(Some(now));
        self.idle.borrow_mut().retain(|&id, connections| {
            connections.retain(|connection| {
                now.saturating_duration_since(connection.idle_since()) < IDLE_TIME && connection.is_quiet()
            });
            is_current(id) && !connections.is_empty()
        });
        self.h2.borrow_mut().retain(|&id, connections| {
            connections.retain(|connection| !connection.is_closed());
            is_current(id) && !connections.is_empty()
        });
    }

    /// Idle connections, of all endpoints.
    pub fn idle_count(&self) -> usize {
        self.idle.borrow().values().map(Vec::len).sum()
    }

    /// A place on an open HTTP/2 connection that has one free. When all are full and there are as many as are kept,
    /// the least full one's queue.
    pub fn h2(&self, id: EndpointId) -> Option<H2Stream> {
        let mut h2 = self.h2.borrow_mut();
        let connections = h2.get_mut(&id)?;
        connections.retain(|connection| !connection.is_closed());
        let free = connections.iter().find(|connection| connection.has_room());
        let queue = || {
            let full = connections.len() >= MAX_H2;
            full.then(|| connections.iter().min_by_key(|connection| connection.streams())).flatten()
        };
        free.or_else(queue).map(H2Connection::stream)
    }

    /// Keeps an HTTP/2 connection, shared by all requests of this core.
    pub fn put_h2(&self, id: EndpointId, connection: H2Connection) {
        let mut h2 = self.h2.borrow_mut();
        let connections = h2.entry(id).or_default();
        if connections.len() < MAX_H2 {
            connections.push(connection);
        }
    }

    /// An empty buffer for a request's head.
    pub fn take_buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(1024))
    }

    /// Gives a buffer back.
    pub fn put_buffer(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < MAX_BUFFERS && buffer.capacity() <= 16 * 1024 {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}
