//! The tasks that watch the sources, and the list that comes of them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use config::{Config, FilePath, Host, Upstream, UpstreamDns, UpstreamList, UpstreamUrl};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::dns::{Located, Lookup, Nameservers, Question};
use crate::event::{Event, Report};
use crate::file::FileWatch;
use crate::merge::{Endpoint, Names, Offer, Origin, merge};

/// SRV weights may be 0; an upstream's may not.
const MIN_WEIGHT: f64 = 0.001;

/// How sources are watched.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often files are looked at.
    pub poll: Duration,
    /// Who is asked for names.
    pub nameservers: Nameservers,
    /// How long the start, or a reload, waits for the first answers of sources that are new.
    pub first_wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            poll: Duration::from_millis(500),
            nameservers: Nameservers::default(),
            first_wait: Duration::from_secs(5),
        }
    }
}

/// The running sources. Dropping it ends them.
#[derive(Debug)]
pub struct Sources {
    reloads: mpsc::Sender<Reload>,
    endpoints: watch::Receiver<Arc<Vec<Endpoint>>>,
    task: JoinHandle<()>,
}

struct Reload {
    config: Arc<Config>,
    done: oneshot::Sender<()>,
}

impl Sources {
    /// Starts watching, on the current tokio runtime, and waits until every source has answered or failed once, but no
    /// longer than [`Options::first_wait`].
    pub async fn start(config: &Config, options: Options, report: Report) -> Self {
        let (sender, endpoints) = watch::channel(Arc::new(Vec::new()));
        let (reloads, reload_receiver) = mpsc::channel(1);
        let keeper = Keeper::new(options, report, sender);
        let task = tokio::spawn(keeper.run(reload_receiver));
        let sources = Self { reloads, endpoints, task };
        sources.reload(config).await;
        sources
    }

    /// Takes a new configuration in and waits for its new sources as at the start. Sources that are in the old and the
    /// new one keep running, and until the new ones have answered the old list stays.
    pub async fn reload(&self, config: &Config) {
        let (done, finished) = oneshot::channel();
        let config = Arc::new(config.clone());
        if self.reloads.send(Reload { config, done }).await.is_ok() {
            // An error means that the task has ended, with the runtime.
            let _ = finished.await;
        }
    }

    /// The list of endpoints, and its changes.
    pub fn endpoints(&self) -> watch::Receiver<Arc<Vec<Endpoint>>> {
        self.endpoints.clone()
    }
}

impl Drop for Sources {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What one task watches. Attributes are no part of it: a change of theirs restarts nothing.
#[derive(Debug, Clone, PartialEq)]
enum Watched {
    File(FilePath),
    Dns(Question, Duration),
}

/// What a task found.
#[derive(Debug, Clone)]
enum Found {
    List(Vec<Upstream>),
    Located(Vec<Located>),
}

struct Source {
    id: u64,
    watched: Watched,
    found: Option<Found>,
    task: JoinHandle<()>,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Owns the sources and publishes what comes of them.
struct Keeper {
    options: Options,
    report: Report,
    sender: watch::Sender<Arc<Vec<Endpoint>>>,
    config: Arc<Config>,
    sources: Vec<Source>,
    next_id: u64,
    names: Names,
    /// What has been told and still holds.
    told: HashSet<String>,
    found_sender: mpsc::Sender<(u64, Found)>,
    found_receiver: mpsc::Receiver<(u64, Found)>,
}

impl Keeper {
    fn new(options: Options, report: Report, sender: watch::Sender<Arc<Vec<Endpoint>>>) -> Self {
        let (found_sender, found_receiver) = mpsc::channel(16);
        Self {
            options,
            report,
            sender,
            config: Arc::new(Config::default()),
            sources: Vec::new(),
            next_id: 0,
            names: Names::default(),
            told: HashSet::new(),
            found_sender,
            found_receiver,
        }
    }

    async fn run(mut self, mut reloads: mpsc::Receiver<Reload>) {
        // While it waits for first answers: until when, and who is told.
        let mut waiting: Option<(Instant, oneshot::Sender<()>)> = None;
        loop {
            let deadline = waiting.as_ref().map(|(deadline, _)| *deadline);
            tokio::select! {
                reload = reloads.recv() => {
                    let Some(Reload { config, done }) = reload else { return };
                    self.change(config);
                    waiting = Some((Instant::now() + self.options.first_wait, done));
                }
                Some((id, found)) = self.found_receiver.recv() => {
                    // None when the task has been stopped since.
                    if let Some(source) = self.sources.iter_mut().find(|source| source.id == id) {
                        source.found = Some(found);
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.publish();
                    waiting = None;
                    continue;
                }
            }
            let complete = self.sources.iter().all(|source| source.found.is_some());
            if complete || waiting.is_none() {
                self.publish();
                // Dropping the sender tells that it is done.
                waiting = None;
            }
        }
    }

    /// Starts and stops tasks for a new configuration.
    fn change(&mut self, config: Arc<Config>) {
        let files = config.upstream_files.iter().cloned().map(Watched::File);
        let names = config.upstream_dns.iter().map(|dns| Watched::Dns(question(dns), dns.refresh));
        let mut old = std::mem::take(&mut self.sources);
        for watched in files.chain(names) {
            let kept = old.iter().position(|source| source.watched == watched);
            let source = match kept {
                Some(at) => old.swap_remove(at),
                None => self.start(watched),
            };
            self.sources.push(source);
        }
        self.config = config;
    }

    fn start(&mut self, watched: Watched) -> Source {
        let id = self.next_id;
        self.next_id += 1;
        let out = Out { id, sender: self.found_sender.clone(), report: self.report.clone() };
        let task = match watched.clone() {
            Watched::File(path) => tokio::spawn(watch_file(path, self.options.poll, out)),
            Watched::Dns(question, refresh) => {
                let nameservers = self.options.nameservers.clone();
                tokio::spawn(watch_name(question, refresh, nameservers, out))
            }
        };
        Source { id, watched, found: None, task }
    }

    fn publish(&mut self) {
        let mut offers =
            vec![Offer { origin: Origin::Config, prefix: None, upstreams: self.config.upstreams.clone() }];
        // Sources stand in the order of the configuration: files, then names.
        let (files, names) = self.sources.split_at(self.config.upstream_files.len());
        for source in files {
            if let (Watched::File(path), Some(Found::List(list))) = (&source.watched, &source.found) {
                offers.push(Offer {
                    origin: Origin::File(path.to_string()),
                    prefix: None,
                    upstreams: list.clone(),
                });
            }
        }
        for (source, dns) in names.iter().zip(&self.config.upstream_dns) {
            if let Some(Found::Located(located)) = &source.found {
                offers.push(Offer {
                    origin: Origin::Dns(dns.host.to_string()),
                    prefix: dns.name.as_ref().map(ToString::to_string),
                    upstreams: located.iter().map(|located| upstream(dns, located)).collect(),
                });
            }
        }
        let (endpoints, events) = merge(offers, &mut self.names);
        let mut now = HashSet::new();
        for event in events {
            let text = event.to_string();
            if !self.told.contains(&text) && now.insert(text.clone()) {
                (self.report)(event);
            }
            now.insert(text);
        }
        self.told = now;
        let changed = self.sender.send_if_modified(|published| {
            let changed = **published != endpoints;
            if changed {
                *published = Arc::new(endpoints);
            }
            changed
        });
        if changed {
            let endpoints = self.sender.borrow().len();
            (self.report)(Event::Changed { endpoints });
        }
    }
}

fn question(dns: &UpstreamDns) -> Question {
    Question {
        host: dns.host.to_string(),
        records: dns.records,
        family: dns.family,
        // SRV records bring their own; the configuration is refused when an address has none.
        port: dns.port.unwrap_or(0),
    }
}

fn upstream(dns: &UpstreamDns, located: &Located) -> Upstream {
    let url = UpstreamUrl::new(Host::Ip(located.addr.ip()), located.addr.port());
    let mut upstream = Upstream { url, name: None, attributes: dns.attributes.clone() };
    let attributes = &mut upstream.attributes;
    attributes.weight = (attributes.weight * located.share).max(MIN_WEIGHT);
    upstream
}

/// A task's way out.
struct Out {
    id: u64,
    sender: mpsc::Sender<(u64, Found)>,
    report: Report,
}

impl Out {
    async fn send(&self, found: Found) {
        // An error means that nobody is interested any more; the task is about to be stopped.
        let _ = self.sender.send((self.id, found)).await;
    }

    fn tell(&self, event: Event) {
        (self.report)(event);
    }
}

async fn watch_file(file: FilePath, poll: Duration, out: Out) {
    let mut watch = FileWatch::new(&file, poll);
    let mut first = true;
    loop {
        let path = file.to_string();
        let list = match watch.changed().await {
            Ok(contents) => UpstreamList::from_yaml(&path, &contents),
            Err(error) => Err(config::unreadable(&path, &error)),
        };
        match list {
            Ok(list) => {
                let upstreams = list.upstreams.len();
                out.send(Found::List(list.upstreams)).await;
                out.tell(Event::FileRead { path, upstreams });
            }
            Err(diagnostics) => {
                if first {
                    // Nobody waits for a file that may stay wrong for long.
                    out.send(Found::List(Vec::new())).await;
                }
                out.tell(Event::FileRefused { path, diagnostics });
            }
        }
        first = false;
    }
}

/// What was last told about a name.
#[derive(PartialEq)]
enum Told {
    Nothing,
    Works,
    Empty,
    Failed,
}

async fn watch_name(question: Question, refresh: Duration, nameservers: Nameservers, out: Out) {
    let mut lookup = Lookup::new(question.clone());
    let mut told = Told::Nothing;
    let mut told_cut = false;
    loop {
        let started = Instant::now();
        let outcome = lookup.run(&nameservers).await;
        let addresses = outcome.located.len();
        out.send(Found::Located(outcome.located)).await;
        let host = question.host.clone();
        if outcome.cut && !told_cut {
            let host = host.clone();
            out.tell(Event::LookupCut { host, used: addresses });
        }
        told_cut = outcome.cut;
        let (now, event) = match outcome.error {
            Some(error) => (Told::Failed, Event::LookupFailed { host, error }),
            None if addresses == 0 => (Told::Empty, Event::LookupEmpty { host }),
            None => (Told::Works, Event::LookupWorks { host, addresses }),
        };
        if now != told {
            out.tell(event);
            told = now;
        }
        sleep_until(started + refresh).await;
    }
}
