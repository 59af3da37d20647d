//! What the tests share: a folder that goes away, sources with everything they tell, and waiting with a deadline.

#![allow(dead_code)] // Each test file uses its part.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::Config;
use discovery::{Endpoint, Event, Options, Sources};
use tokio::sync::watch;

/// Far more than anything here takes.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A folder of one test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(test: &str) -> Self {
        let name = format!("ridge-discovery-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes beside the file and renames over it, as it should be done.
    pub fn replace(&self, name: &str, text: &str) {
        let new = self.path(&format!("{name}.new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path(name)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn config(text: &str) -> Config {
    Config::from_yaml("test.yaml", text.as_bytes()).unwrap_or_else(|wrong| panic!("{wrong}"))
}

pub fn quick() -> Options {
    Options { poll: Duration::from_millis(5), ..Options::default() }
}

/// Running sources, and what they told.
pub struct Run {
    pub sources: Sources,
    pub endpoints: watch::Receiver<Arc<Vec<Endpoint>>>,
    told: Arc<Mutex<Vec<Event>>>,
    told_signal: watch::Receiver<usize>,
}

impl Run {
    pub async fn start(text: &str, options: Options) -> Self {
        let told = Arc::new(Mutex::new(Vec::new()));
        let (signal, told_signal) = watch::channel(0);
        let events = told.clone();
        let report = Arc::new(move |event| {
            events.lock().unwrap().push(event);
            signal.send_modify(|count| *count += 1);
        });
        let sources = Sources::start(&config(text), options, report).await;
        let endpoints = sources.endpoints();
        Self { sources, endpoints, told, told_signal }
    }

    /// `name=url` of each endpoint now.
    pub fn now(&self) -> Vec<String> {
        show(&self.endpoints.borrow())
    }

    /// Waits until the list is this one.
    pub async fn until(&mut self, wanted: &[&str]) {
        let wait = self.endpoints.wait_for(|endpoints| show(endpoints) == wanted);
        let arrived = matches!(tokio::time::timeout(DEADLINE, wait).await, Ok(Ok(_)));
        assert!(arrived, "{:?} is not {wanted:?}; told: {}", self.now(), self.told());
    }

    /// Waits until an event was told whose text has this in it.
    pub async fn until_told(&mut self, part: &str) {
        let told = self.told.clone();
        let has = |_: &usize| told.lock().unwrap().iter().any(|e| e.to_string().contains(part));
        let wait = self.told_signal.wait_for(has);
        let arrived = matches!(tokio::time::timeout(DEADLINE, wait).await, Ok(Ok(_)));
        assert!(arrived, "not told: {part}; told: {}", self.told());
    }

    pub fn told(&self) -> String {
        let told = self.told.lock().unwrap();
        told.iter().map(|event| format!("{event}\n")).collect()
    }

    pub fn told_count(&self, part: &str) -> usize {
        let told = self.told.lock().unwrap();
        told.iter().filter(|event| event.to_string().contains(part)).count()
    }
}

fn show(endpoints: &[Endpoint]) -> Vec<String> {
    endpoints
        .iter()
        .map(|endpoint| {
            let url = endpoint.upstream.url.to_string();
            format!("{}={}", endpoint.name, url.trim_start_matches("http://"))
        })
        .collect()
}

pub fn link(to: &str, at: &Path) {
    std::os::unix::fs::symlink(to, at).unwrap();
}
