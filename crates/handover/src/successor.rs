//! The old process's side.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::message::{self, Socket};
use crate::predecessor::{READY, VARIABLE};
use crate::program::Program;

/// How long a program that has let go of the connection is given to end, so that its exit code can be told.
const END_TIME: Duration = Duration::from_millis(500);

/// How often it is looked whether it has ended.
const END_LOOK: Duration = Duration::from_millis(10);

/// Why the new process does not take over.
#[derive(Debug, Error)]
pub enum Refused {
    /// It was never there.
    #[error("{path} cannot be started: {source}")]
    Start {
        /// The program.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// It did not get the sockets.
    #[error("the listening sockets cannot be handed over: {0}")]
    Sockets(io::Error),
    /// It ended by itself.
    #[error("the new process ended ({0}) before it was ready; what it said is above")]
    Ended(ExitStatus),
    /// It went on without being ready.
    #[error("the new process gave up before it was ready")]
    LetGo,
    /// It took too long.
    #[error("the new process was not ready within {0:?}")]
    Late(Duration),
}

/// A started program that has yet to say it is ready. Killed when dropped before.
#[derive(Debug)]
pub struct Successor {
    child: Child,
    connection: UnixStream,
    bound: Duration,
    deadline: Instant,
    ready: bool,
}

impl Successor {
    /// Starts the program with these sockets. It has `bound` to be ready.
    pub fn start(program: &Program, sockets: &[Socket], bound: Duration) -> Result<Self, Refused> {
        let (here, there) = std::os::unix::net::UnixStream::pair().map_err(Refused::Sockets)?;
        // Before it is started: the message waits in the connection.
        message::send(here.as_fd(), sockets).map_err(Refused::Sockets)?;
        here.set_nonblocking(true).map_err(Refused::Sockets)?;
        let connection = UnixStream::from_std(here).map_err(Refused::Sockets)?;
        let child = Command::new(&program.path)
            .args(&program.arguments)
            .env(VARIABLE, "stdin")
            // What systemd wrote for this process.
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .stdin(Stdio::from(OwnedFd::from(there)))
            .spawn()
            .map_err(|source| Refused::Start { path: program.path.display().to_string(), source })?;
        Ok(Self { child, connection, bound, deadline: Instant::now() + bound, ready: false })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it is ready. When it is not in time, it should be dropped, which ends it. The wait may be dropped
    /// and begun again.
    pub async fn ready(&mut self) -> Result<(), Refused> {
        // The word comes whole: it is written at once.
        let mut word = [0; 2 * READY.len()];
        match tokio::time::timeout_at(self.deadline, self.connection.read(&mut word)).await {
            Ok(Ok(count)) if word[..count] == *READY => {
                self.ready = true;
                Ok(())
            }
            Ok(_) => match self.end().await {
                Some(status) => Err(Refused::Ended(status)),
                None => Err(Refused::LetGo),
            },
            Err(_) => Err(Refused::Late(self.bound)),
        }
    }

    async fn end(&mut self) -> Option<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < END_TIME {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            tokio::time::sleep(END_LOOK).await;
        }
        None
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.ready {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program { path: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()] }
    }

    fn outcome(script: &str, bound: Duration) -> Result<(), Refused> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime
            .block_on(async { Successor::start(&shell(script), &[], bound).expect("to start").ready().await })
    }

    #[test]
    fn a_program_is_taken_for_ready_when_it_says_so_and_not_before() {
        let long = Duration::from_secs(20);
        assert!(outcome("printf 'ready\\n' >&0; exec sleep 60 <&-", long).is_ok());
        let ended = outcome("exit 7", long);
        assert!(matches!(&ended, Err(Refused::Ended(status)) if status.code() == Some(7)), "{ended:?}");
        let wrong = outcome("printf 'raedy\\n' >&0; exit 3", long);
        assert!(matches!(wrong, Err(Refused::Ended(_))), "{wrong:?}");
        let late = outcome("exec sleep 60", Duration::from_millis(50));
        assert!(matches!(late, Err(Refused::Late(_))), "{late:?}");
        let missing = Program { path: "/nowhere/ridge".into(), arguments: Vec::new() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let missing = runtime.block_on(async { Successor::start(&missing, &[], Duration::ZERO).map(drop) });
        assert!(missing.is_err_and(|error| error.to_string().contains("/nowhere/ridge")));
    }
}
