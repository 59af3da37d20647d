//! The `ridge` program as a child process that ends with the test: the gateway, or simulated engines.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::client;
use crate::metrics_text::MetricsText;
use crate::wait::{DEADLINE, eventually};

/// Where the `ridge` program is: `RIDGE_BIN`, or beside the running test's own folder.
///
/// # Panics
/// If it is not there, saying how to build it.
#[track_caller]
pub fn ridge_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("RIDGE_BIN") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "RIDGE_BIN names {}, which is not a file", path.display());
        return path;
    }
    let exe = std::env::current_exe().expect("the path of the running test");
    // target/debug/deps/a_test-0123 -> target/debug/ridge
    let found =
        exe.ancestors().skip(1).take(3).map(|folder| folder.join("ridge")).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("no `ridge` near {}; run `cargo build -p ridge`, or set RIDGE_BIN", exe.display())
    })
}

/// A running `ridge serve` or `ridge up`, killed when dropped.
pub struct RidgeProcess {
    program: Program,
    /// Where clients connect.
    pub gateway: SocketAddr,
    /// Where clients connect with TLS, if anywhere.
    pub tls: Option<SocketAddr>,
    /// Where operators connect.
    pub admin: SocketAddr,
}

impl RidgeProcess {
    /// Starts `ridge serve` on free ports with `arguments` added, and waits until it is ready.
    #[track_caller]
    pub fn serve<T: AsRef<str>>(arguments: impl IntoIterator<Item = T>) -> Self {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let arguments: Vec<String> =
            arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        all.extend(arguments.iter().map(String::as_str));
        Self::start(&all, &[])
    }

    /// Starts `ridge` with exactly `arguments` and these environment variables, and waits for its line
    /// `ready gateway=URL admin=URL`.
    ///
    /// # Panics
    /// If it ends, or says nothing of the kind in time; shows what it said.
    #[track_caller]
    pub fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut program = Program::start(arguments, environment);
        let Ready { gateway, tls, admin } = program.wait_for("its ready line", ready_line);
        Self { program, gateway, tls, admin }
    }

    /// What it has written so far, both outputs together.
    pub fn output(&self) -> String {
        self.program.output()
    }

    /// Its process id: after an upgrade, that of the process that serves now.
    pub fn id(&self) -> u32 {
        self.program.id()
    }

    /// Starts the program at `binary`, in place of the one that was built, with exactly `arguments`.
    #[track_caller]
    pub fn start_at(binary: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut program = Program::start_at(binary, arguments, environment);
        let Ready { gateway, tls, admin } = program.wait_for("its ready line", ready_line);
        Self { program, gateway, tls, admin }
    }

    /// Has it replaced by a new process (SIGUSR2), and waits until that one has taken over. Signals go to the new one
    /// from then on, which ends with this as well.
    ///
    /// # Panics
    /// If no process has taken over in time; shows what was said.
    #[track_caller]
    pub fn upgrade(&mut self) -> u32 {
        let before = taken_over(&self.output()).len();
        self.signal("USR2");
        let id = self
            .program
            .wait_for("that another process has taken over", |said| taken_over(said).get(before).copied());
        self.program.successors.push(id);
        id
    }

    /// The metrics page of its admin listener, as it is now.
    #[track_caller]
    pub fn metrics(&self) -> MetricsText {
        let page = client::get(self.admin, "/metrics");
        assert_eq!(page.status(), 200, "{}", page.text());
        MetricsText::parse(&page.text())
    }

    /// Waits until a metric's sum over all series with `labels` is `value`.
    #[track_caller]
    pub fn wait_for_metric(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        let mut last = None;
        let came = eventually(Duration::from_secs(10), || {
            last = self.metrics().sum(name, labels);
            last == Some(value)
        });
        assert!(came, "{name}{labels:?} is {last:?}, not {value}; ridge said:\n{}", self.output());
    }

    /// Sends a signal by its name, for example `TERM`.
    pub fn signal(&self, name: &str) {
        self.program.signal(name);
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.program.wait()
    }
}

/// A running `ridge sim`, killed when dropped.
pub struct SimProcess {
    program: Program,
    /// Where each replica listens.
    pub replicas: Vec<SocketAddr>,
}

impl SimProcess {
    /// Starts `ridge sim` with so many replicas on free ports and `arguments` added, and waits until all listen.
    ///
    /// # Panics
    /// If it ends, or does not listen in time; shows what it said.
    #[track_caller]
    pub fn start(replicas: usize, arguments: &[&str]) -> Self {
        let count = replicas.to_string();
        let mut all = vec!["sim", "--listen", "127.0.0.1:0", "--replicas", &count];
        all.extend(arguments);
        let mut program = Program::start(&all, &[]);
        let replicas = program.wait_for("the address of each replica", |said| {
            let found: Vec<SocketAddr> = said.lines().filter_map(replica_line).collect();
            (found.len() == replicas && said.lines().any(|line| line.contains("ready"))).then_some(found)
        });
        Self { program, replicas }
    }

    /// Where each replica listens, as URLs.
    pub fn urls(&self) -> Vec<String> {
        self.replicas.iter().map(|addr| format!("http://{addr}")).collect()
    }

    /// What it has written so far.
    pub fn output(&self) -> String {
        self.program.output()
    }

    /// Sends a signal by its name, for example `TERM`.
    pub fn signal(&self, name: &str) {
        self.program.signal(name);
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.program.wait()
    }
}

/// A child process whose output is kept, shown when a test fails, and which ends with its owner.
struct Program {
    child: Child,
    /// Processes that took over from it, one after the other.
    successors: Vec<u32>,
    output: Arc<Mutex<String>>,
    arguments: String,
}

impl Program {
    fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_at(&ridge_binary(), arguments, environment)
    }

    fn start_at(binary: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = spawn(binary, arguments, environment);
        let output = Arc::new(Mutex::new(String::new()));
        if let Some(stdout) = child.stdout.take() {
            collect(stdout, output.clone());
        }
        if let Some(stderr) = child.stderr.take() {
            collect(stderr, output.clone());
        }
        Self { child, successors: Vec::new(), output, arguments: arguments.join(" ") }
    }

    fn id(&self) -> u32 {
        self.successors.last().copied().unwrap_or_else(|| self.child.id())
    }

    fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until `find` finds something in what the program has written.
    #[track_caller]
    fn wait_for<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        let mut found = None;
        let mut ended = None;
        eventually(DEADLINE, || {
            found = find(&self.output());
            ended = self.child.try_wait().ok().flatten();
            found.is_some() || ended.is_some() && self.successors.is_empty()
        });
        found.or_else(|| find(&self.output())).unwrap_or_else(|| {
            panic!(
                "ridge {} did not say {what} (ended: {ended:?}); it said:\n{}",
                self.arguments,
                self.output()
            )
        })
    }

    fn signal(&self, name: &str) {
        let id = self.id();
        assert!(send_signal(name, id), "kill -s {name} {id}");
    }

    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(DEADLINE, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some() && self.successors.iter().all(|&id| !is_ridge(id))
        });
        status
            .filter(|_| self.successors.iter().all(|&id| !is_ridge(id)))
            .unwrap_or_else(|| panic!("ridge does not end; it said:\n{}", self.output()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for &id in &self.successors {
            // It may have ended, and its number then belongs to nobody, or to a process that is not ridge.
            if is_ridge(id) {
                send_signal("KILL", id);
            }
        }
        if thread::panicking() {
            let output = self.output();
            eprintln!("--- ridge {} said:\n{}\n---", self.arguments, last_lines(&output, 60));
        }
    }
}

fn send_signal(name: &str, id: u32) -> bool {
    let sent =
        Command::new("sh").args(["-c", r#"kill -s "$0" "$1" 2>/dev/null"#, name, &id.to_string()]).status();
    sent.is_ok_and(|status| status.success())
}

fn is_ridge(id: u32) -> bool {
    // `7 (ridge) S 1 …`; with Z it has ended, and nobody has asked yet how.
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.split_once('(').is_some_and(|(_, rest)| rest.starts_with("ridge") && !rest.contains(") Z "))
}

/// The ids in lines `process ID has taken over`, in order.
fn taken_over(output: &str) -> Vec<u32> {
    let lines = output.lines().filter_map(|line| line.split_once(" has taken over"));
    lines.filter_map(|(before, _)| before.rsplit(' ').next()?.parse().ok()).collect()
}

fn spawn(binary: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Child {
    Command::new(binary)
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("start {}: {error}", binary.display()))
}

fn collect(from: impl Read + Send + 'static, output: Arc<Mutex<String>>) {
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            output.push_str(&line);
            output.push('\n');
        }
    });
}

struct Ready {
    gateway: SocketAddr,
    tls: Option<SocketAddr>,
    admin: SocketAddr,
}

/// Finds `ready gateway=URL tls=URL admin=URL`, of which `tls` may lack, wherever it stands in a line.
fn ready_line(output: &str) -> Option<Ready> {
    let line = output.lines().find(|line| line.contains("ready gateway="))?;
    let value = |key: &str| -> Option<SocketAddr> {
        let from = line.find(key)? + key.len();
        let url = line[from..].split([' ', '"']).next()?;
        url.trim_start_matches("http://").trim_start_matches("https://").trim_end_matches('/').parse().ok()
    };
    Some(Ready { gateway: value("gateway=")?, tls: value(" tls="), admin: value("admin=")? })
}

/// Reads `replica N URL`.
fn replica_line(line: &str) -> Option<SocketAddr> {
    let url = line.strip_prefix("replica ")?.split(' ').nth(1)?;
    url.trim_start_matches("http://").parse().ok()
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_addresses_in_the_ready_line() {
        let said = "starting\n2026 INFO ready gateway=http://127.0.0.1:8080 admin=http://127.0.0.1:9090/\n";
        let found = ready_line(said).expect("both addresses");
        assert_eq!((found.gateway.port(), found.tls, found.admin.port()), (8080, None, 9090));
        let found = ready_line("ready gateway=http://[::1]:1 tls=https://[::1]:2 admin=http://[::1]:3");
        assert_eq!(found.and_then(|found| found.tls).map(|addr| addr.port()), Some(2));
        assert!(ready_line("ready gateway=http://127.0.0.1:1").is_none());
    }
}
