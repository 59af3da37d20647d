//! Where notices go: lines on standard error, or the live view's list.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway::{Level, Notice, Notify};

/// Longest wait for the last notices at the end.
const FLUSH_TIME: Duration = Duration::from_secs(1);

/// Notices kept while the live view has the terminal.
const KEPT: usize = 200;

/// Notices that may wait to be printed. Who reads standard error slowly, or not at all, misses some and holds up
/// nothing.
const WAITING: usize = 1024;

/// Prints notices as they come, from a thread of its own. The second value waits until all so far are printed.
pub fn to_stderr() -> (Notify, impl Fn()) {
    enum Item {
        Line(String),
        Flush(SyncSender<()>),
    }
    let (sender, items) = sync_channel::<Item>(WAITING);
    let print = move || {
        for item in items {
            match item {
                // In one write, so that nothing comes between a line and its end where the streams are joined.
                Item::Line(line) => drop(std::io::stderr().lock().write_all(format!("{line}\n").as_bytes())),
                Item::Flush(done) => drop(done.send(())),
            }
        }
    };
    // Without the thread every send fails and nothing is printed; a process that cannot have one more thread
    // does not get as far as serving.
    drop(std::thread::Builder::new().name("notices".into()).spawn(print));
    let flush = sender.clone();
    let notify: Notify = Arc::new(move |notice| drop(sender.try_send(Item::Line(line(&notice)))));
    let flush = move || {
        let (done, printed) = sync_channel(1);
        if flush.try_send(Item::Flush(done)).is_ok() {
            let _ = printed.recv_timeout(FLUSH_TIME);
        }
    };
    (notify, flush)
}

/// A line on standard output; nobody reading it is no error.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Keeps warnings, for printing once the terminal is free; the live view shows the rest.
pub fn kept() -> (Notify, Arc<Mutex<VecDeque<String>>>) {
    let list = Arc::new(Mutex::new(VecDeque::new()));
    let kept = Arc::clone(&list);
    let notify: Notify = Arc::new(move |notice| {
        if notice.level == Level::Info {
            return;
        }
        let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() == KEPT {
            list.pop_front();
        }
        list.push_back(line(&notice));
    });
    (notify, kept)
}

/// Something good to know.
pub fn info(notify: &Notify, text: String) {
    notify(Notice { level: Level::Info, text });
}

/// Something that works less well.
pub fn warn(notify: &Notify, text: String) {
    notify(Notice { level: Level::Warning, text });
}

fn line(notice: &Notice) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let level = match notice.level {
        Level::Info => "info",
        Level::Warning => "warn",
    };
    // Texts can hold names that engines chose: no control character reaches the terminal. Lines stay lines, for
    // the diagnostics of a configuration.
    let printable = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    let text: String = notice.text.chars().map(printable).collect();
    format!("{}.{:03} {level} {text}", now.as_secs(), now.subsec_millis())
}
