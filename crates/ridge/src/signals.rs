//! Signals of the operating system.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGINT or SIGTERM; one that comes between this call and the wait counts.
pub fn ended() -> impl Future<Output = ()> {
    let (mut interrupt, mut terminate) = (open(SignalKind::interrupt()), open(SignalKind::terminate()));
    async move {
        tokio::select! {
            () = next(&mut interrupt) => {}
            () = next(&mut terminate) => {}
        }
    }
}

/// Set at the first SIGINT, SIGTERM or SIGHUP, from now on. A second one ends the process at once: whatever waits may
/// not look at the flag for a while.
pub fn flag() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&ended);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let wait = move || {
        let Ok(runtime) = crate::local_runtime() else { return };
        runtime.block_on(async {
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let [mut interrupt, mut terminate, mut hangup] = kinds.map(open);
            drop(ready); // from here on no signal is missed
            loop {
                tokio::select! {
                    () = next(&mut interrupt) => {}
                    () = next(&mut terminate) => {}
                    () = next(&mut hangup) => {}
                }
                if set.swap(true, Ordering::AcqRel) {
                    std::process::exit(130);
                }
            }
        });
    };
    drop(std::thread::Builder::new().name("signals".into()).spawn(wait));
    let _: Result<(), _> = is_ready.recv();
    ended
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
