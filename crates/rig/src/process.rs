//! The `ridge` program as a child process that ends with the test.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
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

/// A running `ridge`, killed when dropped.
pub struct RidgeProcess {
    child: Child,
    output: Arc<Mutex<String>>,
    arguments: Vec<String>,
    /// Where clients connect.
    pub gateway: SocketAddr,
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
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut process = Self {
            child: spawn(arguments, environment),
            output: Arc::new(Mutex::new(String::new())),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            gateway: nowhere,
            admin: nowhere,
        };
        if let Some(stdout) = process.child.stdout.take() {
            collect(stdout, process.output.clone());
        }
        if let Some(stderr) = process.child.stderr.take() {
            collect(stderr, process.output.clone());
        }
        let mut ready = None;
        let mut ended = None;
        eventually(DEADLINE, || {
            ready = ready_line(&process.output());
            ended = process.child.try_wait().ok().flatten();
            ready.is_some() || ended.is_some()
        });
        let Some((gateway, admin)) = ready.or_else(|| ready_line(&process.output())) else {
            panic!("ridge {:?} is not ready (ended: {ended:?}); it said:\n{}", arguments, process.output())
        };
        process.gateway = gateway;
        process.admin = admin;
        process
    }

    /// What it has written so far, both outputs together.
    pub fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
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
        let id = self.child.id().to_string();
        let sent = Command::new("sh").args(["-c", r#"kill -s "$0" "$1""#, name, &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -s {name} {id}");
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually(DEADLINE, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        status.unwrap_or_else(|| panic!("ridge does not end; it said:\n{}", self.output()))
    }
}

impl Drop for RidgeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let arguments = self.arguments.join(" ");
            let output = self.output();
            eprintln!("--- ridge {arguments} said:\n{}\n---", last_lines(&output, 60));
        }
    }
}

fn spawn(arguments: &[&str], environment: &[(&str, &str)]) -> Child {
    let binary = ridge_binary();
    Command::new(&binary)
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

/// Finds `ready gateway=URL admin=URL`, wherever it stands in a line.
fn ready_line(output: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line = output.lines().find(|line| line.contains("ready gateway="))?;
    let value = |key: &str| -> Option<SocketAddr> {
        let from = line.find(key)? + key.len();
        let url = line[from..].split([' ', '"']).next()?;
        url.trim_start_matches("http://").trim_end_matches('/').parse().ok()
    };
    Some((value("gateway=")?, value("admin=")?))
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
        let (gateway, admin) = ready_line(said).expect("both addresses");
        assert_eq!((gateway.port(), admin.port()), (8080, 9090));
        assert!(ready_line("ready gateway=http://127.0.0.1:1").is_none());
    }
}
