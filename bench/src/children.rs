//! Child processes that never outlive the bench, however it ends.
//!
//! Every proxy runs below a `bench hold` process, which ends the proxy's process group as soon as its standard input
//! ends. The kernel closes that pipe when the bench exits, is interrupted or is killed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Nothing here has anything to lose; some peers need half a minute to end by themselves.
const TERMINATE_PATIENCE: Duration = Duration::from_secs(1);

/// Runs a program and ends it when standard input ends.
#[derive(clap::Args, Debug)]
pub struct HoldArgs {
    /// Where the program's output goes.
    #[arg(long)]
    log: PathBuf,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs `bench hold`.
pub fn run_hold(args: &HoldArgs) -> io::Result<()> {
    let log = File::create(&args.log)?;
    let mut child = Command::new(&args.command[0])
        .args(&args.command[1..])
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    println!("{}", child.id());
    io::stdout().flush()?;
    let group = Pid::from_child(&child);
    let released = Arc::new(AtomicBool::new(false));
    let releasing = released.clone();
    std::thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        releasing.store(true, Relaxed);
        let _ = kill_process_group(group, Signal::TERM);
        std::thread::sleep(TERMINATE_PATIENCE);
        let _ = kill_process_group(group, Signal::KILL);
    });
    let status = child.wait()?;
    let _ = kill_process_group(group, Signal::KILL);
    if !released.load(Relaxed) && !status.success() {
        return Err(io::Error::other(format!("{}: {status}", args.command[0].display())));
    }
    Ok(())
}

/// A child process of this same binary; it ends when this value is dropped.
pub struct OwnChild {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl OwnChild {
    /// Starts `bench ARGUMENTS`.
    pub fn start<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> io::Result<Self> {
        // Not this binary's path: a build that replaces the file during a run would start another bench.
        let mut child = Command::new("/proc/self/exe")
            .args(arguments)
            // An interrupt from the terminal goes to the bench alone; the child follows when its input ends.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or_else(|| io::Error::other("no output pipe"))?);
        Ok(Self { child, lines })
    }

    /// The next line of its output.
    pub fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a child of the bench ended early"));
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    /// Sends it an empty line.
    pub fn go(&mut self) -> io::Result<()> {
        self.tell("")
    }

    /// Sends it a line.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        let input = self.child.stdin.as_mut().ok_or_else(|| io::Error::other("no input pipe"))?;
        input.write_all(format!("{line}\n").as_bytes())
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let end = Instant::now() + 2 * TERMINATE_PATIENCE;
        while Instant::now() < end {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A foreign program held by a `bench hold`; it ends when this value is dropped.
pub struct Held {
    hold: OwnChild,
    /// The program's process id.
    pub pid: u32,
    log: PathBuf,
}

impl Held {
    /// Starts a program; its output goes to `log`.
    pub fn start(command: &[OsString], log: &Path) -> io::Result<Self> {
        let mut arguments: Vec<OsString> = vec!["hold".into(), "--log".into(), log.into(), "--".into()];
        arguments.extend_from_slice(command);
        let mut hold = OwnChild::start(arguments)?;
        let pid = hold.line()?.parse().map_err(io::Error::other)?;
        Ok(Self { hold, pid, log: log.to_owned() })
    }

    /// An error with the end of the program's output, if it has ended.
    pub fn check(&mut self) -> io::Result<()> {
        if !self.hold.has_ended() {
            return Ok(());
        }
        Err(io::Error::other(format!("it ended; {}", self.log_end())))
    }

    /// The last lines of the program's output.
    pub fn log_end(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(8).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        format!("{} ends with:\n{}", self.log.display(), lines.join("\n"))
    }
}

/// Fails when something listens on one of the ports already.
///
/// A program left over from an earlier run would share the port by SO_REUSEPORT and take part of the traffic,
/// unseen.
pub fn require_free_ports(ports: impl IntoIterator<Item = u16>) -> io::Result<()> {
    for port in ports {
        if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return Err(io::Error::new(
                error.kind(),
                format!(
                    "port {port} on 127.0.0.1 is not free ({error}): another program would share the traffic; end it \
                     (`ss -ltnp 'sport = :{port}'` names it) or choose other ports with --base-port"
                ),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_served_port_is_refused_by_number() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = require_free_ports([port]).unwrap_err().to_string();
        assert!(error.contains(&port.to_string()), "{error}");
        drop(listener);
        require_free_ports([port]).unwrap();
    }
}
