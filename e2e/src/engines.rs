//! Real engines and Python programs, from the environment that `cargo xtask test` makes.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rig::{RawClient, eventually};

/// From nothing to ready: about 30 s on two quiet cores, several times that while other tests run.
const START_DEADLINE: Duration = Duration::from_secs(400);

/// The name under which every real engine here serves its model.
pub const MODEL: &str = "smol";

/// The environment's folder.
///
/// # Panics
/// If there is none: a test that cannot run has not passed.
#[track_caller]
fn environment() -> PathBuf {
    let folder = std::env::var_os("RIDGE_E2E_PYTHON").map(PathBuf::from);
    folder.unwrap_or_else(|| panic!("RIDGE_E2E_PYTHON is not set; run these tests with `cargo xtask test`"))
}

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("python").join(name)
}

/// The environment's interpreter, ready for arguments.
#[track_caller]
fn python(name: &str) -> Command {
    let mut command = Command::new(environment().join("bin/python"));
    command
        .arg(script(name))
        // Without compiled files every start compiles everything again.
        .env_remove("PYTHONDONTWRITEBYTECODE")
        .env("PYTHONHASHSEED", "0")
        .env("PYTHONUNBUFFERED", "1")
        .env("HF_HUB_OFFLINE", "1")
        .env("VLLM_NO_USAGE_STATS", "1")
        // GiB, the least there is.
        .env("VLLM_CPU_KVCACHE_SPACE", "1");
    command
}

/// Runs a Python program of `e2e/python` to its end.
///
/// # Panics
/// If it fails, with what it said.
#[track_caller]
pub fn run_python(name: &str, arguments: &[&str]) -> String {
    let output: Output = python(name).args(arguments).stdin(Stdio::null()).output().expect("to start Python");
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} {arguments:?}: {}\n{said}", output.status);
    said
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
    listener.local_addr().expect("the address of a bound socket").port()
}

/// Two real vLLM servers with SmolLM2, started once for all tests of a program. They end when the program does,
/// since their starter's standard input ends then.
pub struct VllmPair {
    starter: Mutex<(Child, ChildStdin)>,
    ports: [u16; 2],
    logs: PathBuf,
}

impl VllmPair {
    /// Starts both and waits until they answer.
    #[track_caller]
    pub fn start() -> Self {
        let logs = environment().join("logs");
        fs::create_dir_all(&logs).expect("a folder for the engines' logs");
        let ports = [free_port(), free_port()];
        let mut command = python("vllm_servers.py");
        command.arg(&logs);
        for (at, port) in ports.iter().enumerate() {
            let _ = fs::remove_file(logs.join(format!("vllm-{at}.log")));
            command.arg("--").arg(environment().join("models/smol")).args([
                "--host",
                "127.0.0.1",
                "--port",
                &port.to_string(),
                "--served-model-name",
                MODEL,
                // These machines have no bf16 instructions, and in bf16 the first words of an answer are a near tie.
                "--dtype",
                "float32",
                // Compiling takes four minutes.
                "--enforce-eager",
                "--distributed-executor-backend",
                "uni",
                "--max-model-len",
                "2048",
                "--max-num-seqs",
                "16",
                "--block-size",
                "32",
                "--enable-prompt-tokens-details",
                "--enable-auto-tool-choice",
                "--tool-call-parser",
                "hermes",
            ]);
        }
        let log = fs::File::create(logs.join("vllm-starter.log")).expect("the starter's log");
        let errors = log.try_clone().expect("the starter's log");
        let mut child =
            command.stdin(Stdio::piped()).stdout(log).stderr(errors).spawn().expect("to start Python");
        let input = child.stdin.take().expect("a pipe that was asked for");
        let pair = Self { starter: Mutex::new((child, input)), ports, logs };
        for at in 0..2 {
            pair.wait_until_ready(at);
        }
        pair
    }

    /// Where server `at` listens.
    pub fn addr(&self, at: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports[at]))
    }

    /// Server `at`, as a URL.
    pub fn url(&self, at: usize) -> String {
        format!("http://{}", self.addr(at))
    }

    /// Kills server `at` and its engine at once, as the kernel would.
    pub fn kill(&self, at: usize) {
        self.order(&format!("kill {at}"));
    }

    /// Starts server `at` again on the same port and waits until it answers.
    #[track_caller]
    pub fn restart(&self, at: usize) {
        self.order(&format!("start {at}"));
        self.wait_until_ready(at);
    }

    fn order(&self, order: &str) {
        let mut starter = self.starter.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        writeln!(starter.1, "{order}").expect("the starter listens");
    }

    #[track_caller]
    fn wait_until_ready(&self, at: usize) {
        let mut ended = None;
        let ready = eventually(START_DEADLINE, || {
            ended = self
                .starter
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0
                .try_wait()
                .ok()
                .flatten();
            ended.is_some() || is_healthy(self.addr(at))
        });
        if !ready || ended.is_some() {
            let log = |name: &str| fs::read_to_string(self.logs.join(name)).unwrap_or_default();
            let logs = log("vllm-starter.log") + &log(&format!("vllm-{at}.log"));
            panic!("vLLM {at} is not ready ({ended:?}):\n{}", &logs[logs.len().saturating_sub(4000)..]);
        }
    }

    /// Requests that server `at` says it is working on.
    #[track_caller]
    pub fn running(&self, at: usize) -> f64 {
        let page = rig::MetricsText::parse(&rig::client::get(self.addr(at), "/metrics").text());
        page.sum("vllm:num_requests_running", &[]).expect("vLLM tells what is running")
    }
}

/// A real llama.cpp server with the same model.
pub struct Llama {
    child: Child,
    port: u16,
}

impl Llama {
    /// Starts it and waits until it answers.
    #[track_caller]
    pub fn start() -> Self {
        let port = free_port();
        let log = fs::File::create(environment().join("llama.log")).expect("the server's log");
        let errors = log.try_clone().expect("the server's log");
        let child = python("llama_server.py")
            .arg(environment().join("models/smol.gguf"))
            .args([&port.to_string(), MODEL])
            .stdin(Stdio::piped())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .expect("to start Python");
        let llama = Self { child, port };
        let ready = eventually(START_DEADLINE, || is_healthy(llama.addr()));
        assert!(ready, "{}", fs::read_to_string(environment().join("llama.log")).unwrap_or_default());
        llama
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Where it listens, as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_healthy(addr: SocketAddr) -> bool {
    let Ok(mut client) = RawClient::try_connect(addr) else { return false };
    client.try_send("GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").is_ok()
        && client.read_response_within(Duration::from_secs(5)).status() == 200
}
