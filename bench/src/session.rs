//! What all subcommands share: options, the mock engines, the proxies, and where the measurements were made.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::children::{OwnChild, require_free_ports};
use crate::peers::{self, Peer, Running, Setup};

/// Options of every subcommand.
#[derive(clap::Args, Clone, Debug)]
pub struct Common {
    /// The gateway's binary [default: `ridge` beside this binary].
    #[arg(long)]
    pub ridge: Option<PathBuf>,
    /// An argument added to `ridge serve`; may be given again.
    #[arg(long, allow_hyphen_values = true)]
    pub ridge_arg: Vec<String>,
    /// First of the ports on 127.0.0.1 that are used.
    #[arg(long, default_value_t = 21000)]
    pub base_port: u16,
    /// Proxies to compare, by comma [default: all that are here].
    #[arg(long, value_delimiter = ',')]
    pub peers: Vec<Peer>,
    /// Priority of everything the bench starts, -20 (first) to 19; below 0 needs the right to it. On a machine where
    /// other work runs, -5 keeps that work out of the latencies.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub nice: i32,
    /// One JSON object a line instead of the Markdown report.
    #[arg(long)]
    pub json: bool,
    /// Few and short rounds: to see that it works, not to publish.
    #[arg(long)]
    pub quick: bool,
}

/// Mock engines and proxies, all running; they end when this is dropped.
pub struct Session {
    /// The proxies.
    pub running: Vec<Running>,
    /// The first engine's address.
    pub engines: SocketAddr,
    mock: OwnChild,
    _priority: Option<Priority>,
}

impl Session {
    /// Starts mock engines and proxies. Peers not named by the user may be missing only if they are `optional`.
    pub fn start(
        common: &Common,
        default_peers: &[Peer],
        optional: &[Peer],
        engines: u16,
        metrics_bytes: usize,
    ) -> io::Result<Self> {
        let setup = setup(common, &target_dir()?, engines);
        Self::start_with(common, default_peers, optional, &setup, metrics_bytes)
    }

    /// Starts one proxy, set up to live with engines that fail, before so many mock engines.
    pub fn start_recovering(common: &Common, peer: Peer, engines: u16) -> io::Result<Self> {
        let mut setup = setup(common, &target_dir()?, engines);
        setup.recovers = true;
        let only = Common { peers: vec![peer], ..common.clone() };
        Self::start_with(&only, &[], &[], &setup, 4096)
    }

    fn start_with(
        common: &Common,
        default_peers: &[Peer],
        optional: &[Peer],
        setup: &Setup,
        metrics_bytes: usize,
    ) -> io::Result<Self> {
        let priority = Priority::set(common.nice)?;
        let engines = setup.engines.len() as u16;
        let first_proxy = common.base_port + engines;
        let (wanted, optional) = if common.peers.is_empty() {
            (default_peers, optional)
        } else {
            (common.peers.as_slice(), [].as_slice())
        };
        let mut wanted = peers::prepare(wanted, setup, optional)?;
        wanted.sort();
        wanted.dedup();
        require_free_ports(common.base_port..first_proxy + 2 * wanted.len() as u16)?;
        let mut mock = OwnChild::start([
            "mock".to_owned(),
            format!("--first-port={}", common.base_port),
            format!("--engines={engines}"),
            format!("--metrics-bytes={metrics_bytes}"),
        ])?;
        mock.line()?;
        let mut running = Vec::new();
        for (n, peer) in wanted.into_iter().enumerate() {
            eprintln!("starting {}", peer.name());
            running.push(peers::start(peer, first_proxy + 2 * n as u16, setup)?);
        }
        Ok(Self { running, engines: setup.engines[0], mock, _priority: priority })
    }

    /// An error if one of the peers is missing; nothing is started.
    pub fn check(common: &Common, peers: &[Peer]) -> io::Result<()> {
        peers::prepare(peers, &setup(common, &target_dir()?, 1), &[]).map(|_| ())
    }

    /// The one proxy of a session that has only one, and the means to trouble its last engine.
    pub fn only(&mut self) -> (&mut Running, &mut OwnChild) {
        (&mut self.running[0], &mut self.mock)
    }

    /// The proxies and their versions, in words.
    pub fn versions(&self) -> String {
        let named = self.running.iter().filter(|running| running.peer != Peer::Direct);
        named
            .map(|running| format!("{} {}", running.peer.name(), running.version))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// The priority of the bench and its children; the terminal session's own comes back when this is dropped.
///
/// Where the kernel groups processes by session (autogroup), priorities only count within the session, and the session
/// as a whole needs one to stand against other work.
struct Priority {
    session_before: Option<String>,
}

const SESSION_PRIORITY: &str = "/proc/self/autogroup";

impl Priority {
    fn set(nice: i32) -> io::Result<Option<Self>> {
        if nice == 0 {
            return Ok(None);
        }
        rustix::process::setpriority_process(None, nice)
            .map_err(|error| io::Error::other(format!("--nice {nice}: {error}")))?;
        // "/autogroup-12 nice 0"; absent on kernels without it.
        let before = std::fs::read_to_string(SESSION_PRIORITY).unwrap_or_default();
        let session_before = before.split_whitespace().last().map(str::to_owned);
        if session_before.is_some() {
            std::fs::write(SESSION_PRIORITY, nice.to_string())?;
        }
        Ok(Some(Self { session_before }))
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(before) = &self.session_before {
            let _ = std::fs::write(SESSION_PRIORITY, before);
        }
    }
}

fn setup(common: &Common, target: &Path, engines: u16) -> Setup {
    Setup {
        run_dir: target.join("bench-run"),
        venv_dir: target.join("bench-venv"),
        ridge: common.ridge.clone().unwrap_or_else(|| target.join("release/ridge")),
        ridge_args: common.ridge_arg.clone(),
        engines: (0..engines)
            .map(|n| SocketAddr::from((Ipv4Addr::LOCALHOST, common.base_port + n)))
            .collect(),
        recovers: false,
    }
}

/// The build's target directory: two above this binary.
fn target_dir() -> io::Result<PathBuf> {
    let binary = std::env::current_exe()?;
    let target = binary.parent().and_then(|profile| profile.parent());
    target.map(PathBuf::from).ok_or_else(|| io::Error::other("this binary lies in no target directory"))
}

/// The day and the machine, in words.
pub fn place() -> String {
    let day = Command::new("date")
        .args(["-u", "+%Y-%m-%d"])
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{}; {} × {}; Linux {}",
        String::from_utf8_lossy(&day).trim(),
        std::thread::available_parallelism().map_or(0, usize::from),
        model.trim_start_matches([' ', '\t', ':']),
        kernel.trim().split('-').next().unwrap_or_default()
    )
}
