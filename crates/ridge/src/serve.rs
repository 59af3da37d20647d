//! `ridge serve`: the production gateway.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use config::{Config, ServeFlags};
use discovery::{FileWatch, Sources};
use gateway::{Gateway, Notify, Startup};
use handover::{Program, Successor, Systemd};
use tokio::signal::unix::SignalKind;

use crate::auth::Auth;
use crate::upgrade::{self, Upgrades};
use crate::{Outcome, certificates, local_runtime, notices, settings, signals, status};

/// How often files are looked at.
pub const POLL: Duration = Duration::from_millis(500);

/// More than the configuration's own bound on a file, which has the better message.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// Runs the gateway until SIGINT or SIGTERM.
pub fn run(flags: &ServeFlags) -> Outcome {
    let program = handover::Program::current();
    let (config, text) = load(flags)?;
    let (notify, flush) = notices::to_stderr();
    let outcome = serve(flags, config, &text, notify, program);
    flush();
    outcome
}

fn serve(
    flags: &ServeFlags,
    config: Config,
    text: &[u8],
    notify: Notify,
    program: std::io::Result<Program>,
) -> Outcome {
    // Whoever sends SIGTERM right after the start must find it handled.
    local_runtime()?.block_on(async {
        let mut hangup = signals::open(SignalKind::hangup());
        let mut upgrade_wanted = signals::open(SignalKind::user_defined2());
        let mut ended = std::pin::pin!(signals::ended());
        let systemd = Systemd::from_environment();
        let inherited = handover::inherited().map_err(|error| format!("error: {error}"))?;
        let mut listeners = upgrade::sort(inherited.sockets, &config)?;
        let mut upgrades = Upgrades::new(program, &listeners);
        let sources = Sources::start(&config, discovery::Options::default(), report(&notify)).await;
        let upstreams = settings::upstreams(&sources.endpoints().borrow(), config.limits.max_in_flight)
            .map_err(|error| format!("error: {error}"))?;
        let auth = Auth::open(&config.auth).map_err(|error| format!("error: {error}"))?;
        let (tls, tls_files) = certificates::serving(&config).map_err(|error| format!("error: {error}"))?.unzip();
        let startup = Startup {
            listen: std::mem::take(&mut listeners.listen),
            inherited: std::mem::take(&mut listeners.inherited),
            accept_when_ready: inherited.predecessor.is_some(),
            listen_tls: config.listen_tls.clone(),
            tls,
            cores: settings::cores(&config),
            seed: config.routing.seed.unwrap_or_else(random_seed),
            access_log: settings::access_log(&config),
            notify: Arc::clone(&notify),
        };
        let gateway = Gateway::start(startup, settings::policy(&config, auth.access()), upstreams)
            .map_err(|error| format!("error: {error}"))?;
        if inherited.predecessor.is_some() {
            // Until then the old process answers, also whoever asks how things are.
            let gateway = gateway.observer();
            tokio::select! {
                () = &mut ended => return Ok(()),
                () = upgrade::ready(&gateway) => {}
            }
        }
        let admin = match config.admin_addr() {
            Some(address) => Some(
                listeners
                    .admin
                    .take()
                    .map_or_else(|| TcpListener::bind(address), Ok)
                    .and_then(|listener| {
                        upgrades.admin(address, &listener)?;
                        admin::start(listener, Arc::new(status::Status::new(gateway.observer())))
                    })
                    .map_err(|error| {
                        format!("error: cannot listen on {address} for the admin page: {error}")
                    })?,
            ),
            None => None,
        };
        if sources.endpoints().borrow().is_empty() {
            let text =
                "there are no upstreams: requests get 503 until the configuration names one (--upstream URL)";
            notices::warn(&notify, text.into());
        }
        notices::say(&ready_line(&gateway, admin.as_ref()));
        match inherited.predecessor {
            Some(predecessor) => {
                if let Err(error) = predecessor.ready() {
                    notices::warn(&notify, format!("the old process has gone before it was told to: {error}"));
                }
            }
            None => systemd.tell("READY=1"),
        }

        let mut certificates = certificates::Watch::new();
        certificates.replace(tls_files.unwrap_or_default());
        let mut running = Running { flags, config, gateway, sources, certificates, auth, notify, systemd };
        let mut successor: Option<Successor> = None;
        let mut endpoints = running.sources.endpoints();
        let mut file = flags.config.as_ref().map(|path| FileWatch::known(path, text, POLL));
        let end = loop {
            tokio::select! {
                () = &mut ended => break End::Told,
                () = signals::next(&mut hangup) => {
                    // A reload waits for new sources; the end does not wait for a reload.
                    tokio::select! {
                        () = &mut ended => break End::Told,
                        () = running.reload_from_disk() => {}
                    }
                }
                changed = changed(&mut file) => {
                    tokio::select! {
                        () = &mut ended => break End::Told,
                        () = running.reload(changed) => {}
                    }
                }
                () = running.auth.changed() => running.reload_keys(),
                () = running.certificates.changed() => running.reload_certificates(),
                Ok(()) = endpoints.changed() => running.take_endpoints(&endpoints.borrow_and_update()),
                () = signals::next(&mut upgrade_wanted) => {
                    if let Some(under_way) = &successor {
                        let id = under_way.id();
                        let text = format!("SIGUSR2: process {id} is taking over already, this one is ignored");
                        notices::warn(&running.notify, text);
                    } else {
                        successor = running.start_successor(&upgrades);
                    }
                }
                outcome = upgrade::outcome(&mut successor) => match outcome {
                    Ok(id) => break End::HandedOver(id),
                    Err(error) => {
                        successor = None;
                        notices::warn(&running.notify, format!("no upgrade, this process goes on: {error}"));
                    }
                },
            }
        };
        let Running { config, gateway, notify, systemd, .. } = running;
        let linger = settings::linger(&config);
        let (accept, admin) = match end {
            End::Told => {
                // A process that was about to take over is ended as well.
                drop(successor.take());
                systemd.tell("STOPPING=1");
                notices::info(&notify, "draining: running requests finish, readiness is off".into());
                (linger, admin)
            }
            End::HandedOver(id) => {
                systemd.tell(&format!("MAINPID={id}"));
                notices::info(&notify, format!("process {id} has taken over: running requests finish here"));
                if let Some(admin) = admin {
                    admin.stop();
                }
                (Duration::ZERO, None)
            }
        };
        drop(upgrades);
        let cut = tokio::select! {
            cut = gateway.shutdown(accept, linger, config.timeouts.drain) => cut,
            () = signals::ended() => return Err("ended at once by a second signal".into()),
        };
        if cut > 0 {
            notices::warn(&notify, format!("{cut} requests were cut off after {:?}", config.timeouts.drain));
        }
        if let Some(admin) = admin {
            admin.stop();
        }
        Ok(())
    })
}

/// A gateway with what it was started from.
struct Running<'f> {
    flags: &'f ServeFlags,
    config: Config,
    gateway: Gateway,
    sources: Sources,
    certificates: certificates::Watch,
    auth: Auth,
    notify: Notify,
    systemd: Systemd,
}

/// Why it stops serving.
enum End {
    /// By a signal.
    Told,
    /// To a process that serves in its place.
    HandedOver(u32),
}

impl Running<'_> {
    fn start_successor(&self, upgrades: &Upgrades) -> Option<Successor> {
        match upgrades.start(&self.gateway, self.config.timeouts.upgrade) {
            Ok(successor) => {
                let id = successor.id();
                notices::info(&self.notify, format!("SIGUSR2: process {id} was started to take over"));
                Some(successor)
            }
            Err(error) => {
                notices::warn(&self.notify, format!("no upgrade, this process goes on: {error}"));
                None
            }
        }
    }

    async fn reload_from_disk(&mut self) {
        if self.config.auth.is_on() {
            self.reload_keys();
        }
        match &self.flags.config {
            Some(path) => {
                let text = discovery::read_file(path, MAX_FILE_BYTES);
                self.reload(text).await;
            }
            None => {
                notices::info(&self.notify, "SIGHUP: there is no configuration file to read again".into());
                self.reload_certificates();
            }
        }
    }

    /// Takes changed certificates in. A file that is half written, or a key that does not belong to its certificate,
    /// changes nothing.
    fn reload_certificates(&mut self) {
        match certificates::serving(&self.config) {
            Ok(None) => {}
            Ok(Some((tls, files))) => {
                self.gateway.set_tls(tls);
                self.certificates.replace(files);
                notices::info(&self.notify, "certificates are taken in".into());
            }
            Err(error) => notices::warn(&self.notify, format!("{error}; the certificates stay as they were")),
        }
    }

    /// Takes a changed file in; one with an error changes nothing.
    async fn reload(&mut self, text: std::io::Result<Vec<u8>>) {
        self.systemd.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", handover::monotonic_us()));
        self.take_file(text).await;
        self.systemd.tell("READY=1");
    }

    async fn take_file(&mut self, text: std::io::Result<Vec<u8>>) {
        let Some(path) = &self.flags.config else { return };
        let name = path.display().to_string();
        if text.as_ref().is_ok_and(|text| text.trim_ascii().is_empty()) {
            let text = format!(
                "{name} is empty, as files are that are being written: the configuration stays as it was"
            );
            return notices::warn(&self.notify, text);
        }
        let loaded = text
            .map_err(|error| config::unreadable(&name, &error))
            .and_then(|text| Config::load(Some((&name, &text)), self.flags));
        let config = match loaded {
            Ok(config) => config,
            Err(diagnostics) => {
                let text = format!("{name} is refused, the configuration stays as it was\n{diagnostics}");
                return notices::warn(&self.notify, text);
            }
        };
        // Nothing is taken in by halves: a key that cannot be read refuses the whole file.
        for upstream in &config.upstreams {
            if let Err(error) = settings::authorization(upstream) {
                let text = format!(
                    "{name} is refused, the configuration stays as it was: {}: {error}",
                    upstream.url
                );
                return notices::warn(&self.notify, text);
            }
        }
        let tls = match certificates::serving(&config) {
            Ok(tls) => tls,
            Err(error) => {
                let text = format!("{name} is refused, the configuration stays as it was: {error}");
                return notices::warn(&self.notify, text);
            }
        };
        let waiting = Config::changed_needing_restart(&self.config, &config);
        if !waiting.is_empty() {
            let keys = waiting.join(", ");
            notices::warn(&self.notify, format!("{name}: {keys} take effect after a restart"));
        }
        if let Err(error) = self.auth.reload(&config.auth) {
            let text = format!("{name} is refused, the configuration stays as it was: {error}");
            return notices::warn(&self.notify, text);
        }
        self.gateway.set_policy(settings::policy(&config, self.auth.access()));
        if let Some((tls, files)) = tls {
            self.gateway.set_tls(tls);
            self.certificates.replace(files);
        }
        self.config = config;
        self.sources.reload(&self.config).await;
        let endpoints = self.sources.endpoints();
        self.take_endpoints(&endpoints.borrow());
        notices::info(&self.notify, format!("{name} is taken in"));
    }

    /// Takes changed keys in; a file with an error changes nothing.
    fn reload_keys(&mut self) {
        match self.auth.reread(&self.config.auth) {
            Ok(()) => {
                let access = self.auth.access();
                let count = access.as_ref().map_or(0, |access| access.keys().count());
                self.gateway.set_policy(settings::policy(&self.config, access));
                notices::info(&self.notify, format!("{count} keys are taken in"));
            }
            Err(error) => notices::warn(&self.notify, format!("{error}; the keys stay as they were")),
        }
    }

    fn take_endpoints(&self, endpoints: &[discovery::Endpoint]) {
        match settings::upstreams(endpoints, self.config.limits.max_in_flight) {
            Ok(upstreams) => self.gateway.set_upstreams(upstreams),
            Err(error) => notices::warn(&self.notify, format!("{error}; the upstreams stay as they were")),
        }
    }
}

async fn changed(file: &mut Option<FileWatch>) -> std::io::Result<Vec<u8>> {
    match file {
        Some(file) => file.changed().await,
        None => std::future::pending().await,
    }
}

/// What happens to sources, told as notices.
pub fn report(notify: &Notify) -> discovery::Report {
    use discovery::Event::{Changed, FileRead, LookupWorks};
    let notify = Arc::clone(notify);
    Arc::new(move |event| match &event {
        Changed { .. } => {}
        FileRead { .. } | LookupWorks { .. } => notices::info(&notify, event.to_string()),
        _ => notices::warn(&notify, event.to_string()),
    })
}

/// `ready gateway=URL tls=URL admin=URL`: what a script waits for.
pub fn ready_line(gateway: &Gateway, admin: Option<&admin::Server>) -> String {
    let urls = |key: &str, scheme: &str, addresses: &[SocketAddr]| {
        let urls: Vec<String> = addresses.iter().map(|address| format!("{scheme}://{address}")).collect();
        if urls.is_empty() { String::new() } else { format!(" {key}={}", urls.join(",")) }
    };
    let admin: Vec<SocketAddr> = admin.iter().map(|admin| admin.address()).collect();
    format!(
        "ready{}{}{}",
        urls("gateway", "http", gateway.addresses()),
        urls("tls", "https", gateway.tls_addresses()),
        urls("admin", "http", &admin)
    )
}

/// A seed from the system's randomness, by way of the standard hash maps' keys.
pub fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// The configuration, and the text of its file.
fn load(flags: &ServeFlags) -> Result<(Config, Vec<u8>), String> {
    use std::io::IsTerminal;
    let color = std::io::stderr().is_terminal();
    let (name, text) = match flags.config.as_deref().map(read) {
        Some(read) => read.map_err(|diagnostics| diagnostics.render(color))?,
        None => (String::new(), Vec::new()),
    };
    let file = flags.config.is_some().then_some((name.as_str(), text.as_slice()));
    let config = Config::load(file, flags).map_err(|diagnostics| diagnostics.render(color))?;
    Ok((config, text))
}

fn read(path: &Path) -> Result<(String, Vec<u8>), config::Diagnostics> {
    let name = path.display().to_string();
    let text =
        discovery::read_file(path, MAX_FILE_BYTES).map_err(|error| config::unreadable(&name, &error))?;
    Ok((name, text))
}
