//! Where notices go: lines on standard error, or the live view's list.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use gateway::{Level, Notice, Notify};

/// Notices kept while the live view has the terminal.
const KEPT: usize = 200;

/// Prints notices as they come.
pub fn to_stderr() -> Notify {
    Arc::new(|notice| eprintln!("{}", line(&notice)))
}

/// Keeps notices, for printing once the terminal is free.
pub fn kept() -> (Notify, Arc<Mutex<VecDeque<String>>>) {
    let list = Arc::new(Mutex::new(VecDeque::new()));
    let kept = Arc::clone(&list);
    let notify: Notify = Arc::new(move |notice| {
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
