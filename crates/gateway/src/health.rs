//! Whether an endpoint could be reached: noted by requests and by the control thread alike.

use std::fmt::Display;
use std::sync::atomic::Ordering::Relaxed;

use scheduling::{Endpoint, Health};

use crate::core::Shared;
use crate::settings::{Level, Notice, Notify};

/// Notes that an endpoint was reached, or why it was not, and tells it if that is news.
pub fn note(
    shared: &Shared,
    notify: &Notify,
    endpoint: &Endpoint,
    name: &str,
    reached: Result<(), &dyn Display>,
) {
    let health = if reached.is_ok() { Health::Up } else { Health::Down };
    if !endpoint.set_health(health) {
        return;
    }
    match reached {
        Ok(()) => {
            shared.ready.store(true, Relaxed);
            notify(Notice { level: Level::Info, text: format!("endpoint {name} is up") });
        }
        Err(error) => {
            let text =
                format!("endpoint {name} is down: {error}; it is tried again at each reading of its signals");
            notify(Notice { level: Level::Warning, text });
        }
    }
}
