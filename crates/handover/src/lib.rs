//! Listening sockets that outlive a process: handed from a running process to the next one, or opened by systemd.
//!
//! [`Successor::start`] starts a program with these sockets, and says when it is ready to take over. In the new
//! process [`inherited`] receives them, and [`Predecessor::ready`] tells the old one that it may go. The sockets are
//! the same ones in both, with one queue of waiting clients, so that none is refused or lost between the two.
//!
//! They go as a message over a Unix socket that is the new process's standard input. (systemd's own protocol names
//! process ids and file descriptors by number: a parent does not know the id of a child that has yet to start, and
//! adopting a descriptor by its number is `unsafe`.) What systemd opened is received by [`inherited`] all the same.
//!
//! It knows nothing of what is served on the sockets, and keeps nothing: who hands over decides when to stop.

mod message;
mod notify;
mod predecessor;
mod program;
mod successor;

pub use message::{From, Role, Socket};
pub use notify::{Systemd, monotonic_us};
pub use predecessor::{Inherited, Predecessor, TakeError, inherited};
pub use program::Program;
pub use successor::{Refused, Successor};
