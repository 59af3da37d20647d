//! Signals of the operating system.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGINT or SIGTERM.
pub async fn ended() {
    let (mut interrupt, mut terminate) = (open(SignalKind::interrupt()), open(SignalKind::terminate()));
    tokio::select! {
        () = next(&mut interrupt) => {}
        () = next(&mut terminate) => {}
    }
}

/// Opens a signal's stream; `None` where that is not possible.
pub fn open(kind: SignalKind) -> Option<Signal> {
    signal(kind).ok()
}

/// Waits for a signal; forever for one that could not be opened.
pub async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}
