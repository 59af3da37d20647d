//! `ridge up`: a gateway in front of the engines of this machine, or of simulated ones, in one command.

use std::io::{IsTerminal, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::UpstreamUrl;
use gateway::{EngineKind, Gateway, Notify, Policy, StartError, Startup, Upstream};

use crate::serve::{random_seed, ready_line};
use crate::{Outcome, local_runtime, notices, settings, signals, status};

/// Ports tried after one that is taken.
const PORTS_TRIED: u16 = 50;

/// Simulated engines, when nothing else is there.
const SIMULATED: u16 = 3;

/// Longest wait for an answer while looking around on this machine.
const LOOK_TIME: Duration = Duration::from_millis(700);

/// Longest wait for an engine's first sign of life.
const READY_TIME: Duration = Duration::from_secs(10);

/// Longest wait for the first request's answer.
const FIRST_REQUEST_TIME: Duration = Duration::from_secs(60);

/// How long running requests may take to finish at the end.
const DRAIN: Duration = Duration::from_secs(3);

/// The flags of `ridge up`.
#[derive(Debug, clap::Args)]
pub struct UpFlags {
    /// Where clients send requests; a taken port gives way to the next free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The admin page; a taken port gives way to the next free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9090")]
    admin: SocketAddr,
    /// An engine of yours; may be given again. Nothing is then looked for or simulated
    #[arg(long = "engine", value_name = "URL", value_parser = parse_url)]
    engines: Vec<UpstreamUrl>,
    /// Simulate this many engines, whatever runs on this machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    sim: Option<u16>,
    /// Do not look for engines on this machine
    #[arg(long)]
    no_detect: bool,
}

fn parse_url(text: &str) -> Result<UpstreamUrl, String> {
    text.parse().map_err(|error: config::UrlError| error.to_string())
}

/// Runs until Ctrl-C.
pub fn run(flags: &UpFlags) -> Outcome {
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if terminal {
        let (notify, kept) = notices::kept();
        let outcome = bring_up(flags, terminal, &notify);
        let kept = kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        kept.iter().for_each(|line| eprintln!("{line}"));
        outcome
    } else {
        let (notify, flush) = notices::to_stderr();
        let outcome = bring_up(flags, terminal, &notify);
        flush();
        outcome
    }
}

fn bring_up(flags: &UpFlags, terminal: bool, notify: &Notify) -> Outcome {
    let ended = signals::flag();
    let mut notes = Vec::new();
    let mut upstreams = find(flags, &mut notes)?;
    let simulated = match upstreams.is_empty() || flags.sim.is_some() {
        true => Some(simulate(flags.sim.unwrap_or(SIMULATED), &mut upstreams, &mut notes)?),
        false => None,
    };
    let outcome = front(flags, terminal, notify, upstreams, notes, &ended);
    if let Some(simulated) = simulated {
        simulated.end();
    }
    outcome
}

/// The user's engines, or those that run on this machine.
fn find(flags: &UpFlags, notes: &mut Vec<String>) -> Result<Vec<Upstream>, String> {
    if !flags.engines.is_empty() {
        let named = flags.engines.iter().enumerate();
        return Ok(named.map(|(place, url)| upstream(&format!("engine-{}", place + 1), url)).collect());
    }
    if flags.no_detect || flags.sim.is_some() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    local_runtime()?.block_on(async {
        for &(usual, port) in engines::usual_ports() {
            let Some(met) = gateway::identify("127.0.0.1", port, LOOK_TIME).await else { continue };
            match met.engine {
                EngineKind::Ridge => notes.push(format!("port {port}: another ridge, left alone")),
                EngineKind::Unknown if met.models.is_empty() => {
                    notes.push(format!(
                        "port {port} (usual for {usual}): not an engine that I know, left alone"
                    ));
                }
                engine => {
                    let models = match met.models.is_empty() {
                        true => "no models".to_owned(),
                        false => met.models.join(", "),
                    };
                    notes.push(format!("port {port}: {engine} with {models}"));
                    let url = UpstreamUrl::new(config::Host::Ip([127, 0, 0, 1].into()), port);
                    found.push(Upstream { engine, ..upstream(&format!("{engine}-{port}"), &url) });
                }
            }
        }
    });
    Ok(found)
}

fn upstream(name: &str, url: &UpstreamUrl) -> Upstream {
    let endpoint = discovery::Endpoint {
        name: name.to_owned(),
        origin: discovery::Origin::Config,
        upstream: config::Upstream::at(url.clone()),
    };
    // Without a key to read this cannot fail.
    settings::upstreams(&[endpoint], None)
        .ok()
        .and_then(|mut list| list.pop())
        .unwrap_or_else(|| unreachable!("an upstream without a key is always usable"))
}

/// Simulated engines on a thread of their own.
struct Simulated {
    stop: tokio::sync::oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Simulated {
    fn end(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

fn simulate(count: u16, upstreams: &mut Vec<Upstream>, notes: &mut Vec<String>) -> Result<Simulated, String> {
    let options = sim_server::SimOptions {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        replicas: count,
        ..sim_server::SimOptions::default()
    };
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (bound, addresses) = std::sync::mpsc::channel();
    let run = move || {
        let runtime = match local_runtime() {
            Ok(runtime) => runtime,
            Err(error) => return drop(bound.send(Err(error))),
        };
        runtime.block_on(async {
            match sim_server::Sim::bind(options).await {
                Ok(sim) => {
                    let _ = bound.send(Ok(sim.addresses()));
                    sim.run(async { drop(stopped.await) }).await;
                }
                Err(error) => drop(bound.send(Err(format!("error: simulated engines: {error}")))),
            }
        });
    };
    let thread = std::thread::Builder::new()
        .name("simulation".into())
        .spawn(run)
        .map_err(|error| format!("error: cannot start a thread: {error}"))?;
    let addresses = addresses.recv().unwrap_or_else(|_| Err("error: the simulated engines ended".into()))?;
    for (place, address) in addresses.iter().enumerate() {
        let url = UpstreamUrl::new(config::Host::Ip(address.ip()), address.port());
        upstreams
            .push(Upstream { engine: EngineKind::Vllm, ..upstream(&format!("sim-{}", place + 1), &url) });
    }
    notes.push(match count {
        1 => "1 simulated engine (no accelerator needed; bring your own with --engine URL)".into(),
        count => {
            format!("{count} simulated engines (no accelerator needed; bring your own with --engine URL)")
        }
    });
    Ok(Simulated { stop, thread })
}

/// Starts the gateway in front of the engines and shows it until the end.
fn front(
    flags: &UpFlags,
    terminal: bool,
    notify: &Notify,
    upstreams: Vec<Upstream>,
    mut notes: Vec<String>,
    ended: &AtomicBool,
) -> Outcome {
    let gateway = start_gateway(flags.listen, terminal, notify, upstreams, &mut notes)?;
    let (listener, address) = free_listener(flags.admin)?;
    if address.port() != flags.admin.port() && flags.admin.port() != 0 {
        notes.push(format!("admin port {} is taken: using {}", flags.admin.port(), address.port()));
    }
    let source: Arc<dyn admin::Source> = Arc::new(status::Status::new(gateway.observer()));
    let admin = admin::start(listener, Arc::clone(&source))
        .map_err(|error| format!("error: cannot start the admin page: {error}"))?;
    let runtime = local_runtime()?;
    let model = runtime.block_on(async {
        let began = Instant::now();
        loop {
            let snapshot = source.snapshot().await;
            let model = snapshot.endpoints.iter().flat_map(|endpoint| &endpoint.models).next().cloned();
            if model.is_some() || began.elapsed() > READY_TIME || ended.load(Ordering::Acquire) {
                return model;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let gateway_url =
        gateway.addresses().first().map(|address| format!("http://{address}")).unwrap_or_default();
    match (&model, gateway.addresses().first()) {
        _ if ended.load(Ordering::Acquire) => {}
        (Some(model), Some(&address)) => notes.push(first_request(address, model)),
        _ => notes.push("no engine has named a model yet: requests will get 503 until one does".into()),
    }
    let admin_url = Some(format!("http://{}", admin.address()));
    let info = live::UpInfo { gateway_url, admin_url, model, notes };
    if terminal && !ended.load(Ordering::Acquire) {
        if let Err(error) = live::run_live(&*source, &info, ended) {
            notices::say(&ready_line(&gateway, Some(&admin)));
            notices::warn(notify, format!("no live view: {error}"));
            wait_for(ended);
        }
    } else {
        for note in &info.notes {
            notices::info(notify, note.clone());
        }
        notices::say(&ready_line(&gateway, Some(&admin)));
        wait_for(ended);
    }
    runtime.block_on(gateway.shutdown(Duration::ZERO, Duration::ZERO, DRAIN));
    admin.stop();
    Ok(())
}

fn wait_for(ended: &AtomicBool) {
    while !ended.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn start_gateway(
    wanted: SocketAddr,
    terminal: bool,
    notify: &Notify,
    upstreams: Vec<Upstream>,
    notes: &mut Vec<String>,
) -> Result<Gateway, String> {
    let mut address = wanted;
    loop {
        let startup = Startup {
            inherited: Vec::new(),
            accept_when_ready: false,
            listen: vec![address],
            listen_tls: Vec::new(),
            tls: None,
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            seed: random_seed(),
            access_log: (!terminal).then_some(gateway::AccessLog::Stdout),
            notify: Arc::clone(notify),
        };
        match Gateway::start(startup, Policy::default(), upstreams.clone()) {
            Ok(gateway) => {
                if address != wanted {
                    notes.push(format!("port {} is taken: using {}", wanted.port(), address.port()));
                }
                return Ok(gateway);
            }
            Err(StartError::Listen { source, .. }) if is_taken(&source) && may_try(wanted, address) => {
                address.set_port(address.port() + 1);
            }
            Err(error) => return Err(format!("error: {error}")),
        }
    }
}

fn free_listener(wanted: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    let mut address = wanted;
    loop {
        match TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener))) {
            Ok((bound, listener)) => return Ok((listener, bound)),
            Err(error) if is_taken(&error) && may_try(wanted, address) => {
                address.set_port(address.port() + 1)
            }
            Err(error) => {
                return Err(format!("error: cannot listen on {address} for the admin page: {error}"));
            }
        }
    }
}

fn is_taken(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::AddrInUse
}

fn may_try(wanted: SocketAddr, last: SocketAddr) -> bool {
    last.port() < u16::MAX && last.port() - wanted.port() < PORTS_TRIED
}

/// Sends one small request through the gateway, so that what is shown has been seen to work.
fn first_request(gateway: SocketAddr, model: &str) -> String {
    let began = Instant::now();
    let asked = ask(gateway, model);
    let ms = began.elapsed().as_millis();
    match asked {
        Ok((200, Some(endpoint))) => format!("first request answered by {endpoint} in {ms} ms"),
        Ok((status, _)) => format!("a first chat request got status {status} after {ms} ms"),
        Err(error) => format!("a first chat request got no answer: {error}"),
    }
}

/// Status, and the name of the endpoint that answered.
fn ask(gateway: SocketAddr, model: &str) -> std::io::Result<(u16, Option<String>)> {
    let model: String = model.chars().flat_map(char::escape_default).collect();
    let body = format!(
        "{{\"model\":\"{model}\",\"max_tokens\":8,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}"
    );
    let mut stream = TcpStream::connect_timeout(&gateway, Duration::from_secs(3))?;
    stream.set_read_timeout(Some(FIRST_REQUEST_TIME))?;
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {gateway}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.take(1 << 20).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other("the answer is not HTTP"))?;
    let endpoint = answer.lines().find_map(|line| line.strip_prefix("x-ridge-endpoint: "));
    Ok((status, endpoint.map(str::to_owned)))
}
