//! `cargo xtask test`: sets up what the tests need, builds, and runs them all.

use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use crate::program::{self, cargo, root};
use crate::{Outcome, python};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out the tests that need Python: real engines and the vendors' SDKs
    #[arg(long)]
    fast: bool,
    /// Passed on to `cargo test`, for example a test's name
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Outcome {
    // Left out tests are not passed tests: what is graded must be all of it.
    if options.fast && std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false") {
        return Err("--fast leaves tests out, which must not happen where CI is set".into());
    }
    let began = Instant::now();
    // The environment is downloaded while the compiler works.
    let environment = (!options.fast).then(|| thread::spawn(python::set_up));
    let built = build(options);
    let environment = match environment.map(thread::JoinHandle::join) {
        None => None,
        Some(Ok(result)) => Some(result?),
        Some(Err(_)) => return Err("setting up the engines failed with a panic".into()),
    };
    built?;
    eprintln!("ready to test after {:.0} s", began.elapsed().as_secs_f64());
    test(options, environment)
}

fn build(options: &Options) -> Outcome {
    // The end-to-end tests start the program itself, which building the tests does not always build.
    program::run(cargo().args(["build", "--package", "ridge"]))?;
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-run", "--quiet"]);
    if !options.fast {
        command.args(["--features", "e2e/engines"]);
    }
    program::run(&mut command)
}

fn test(options: &Options, environment: Option<PathBuf>) -> Outcome {
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
    if let Some(environment) = environment {
        command.args(["--features", "e2e/engines"]);
        command.env("RIDGE_E2E_PYTHON", environment);
        command.env("RIDGE_E2E_SCRIPTS", root().join("e2e/python"));
    }
    if !options.rest.is_empty() {
        command.arg("--").args(&options.rest);
    }
    program::run(&mut command)
}
