//! Developer commands: `cargo xtask test`, `bench`, `fuzz`, `soak`, `check-deciders`.

mod bench;
mod deciders;
mod fuzz;
mod program;
mod python;
mod soak;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every test: unit, property, end to end, and against real engines
    Test(test::Options),
    /// Measure against peers, side by side
    Bench(bench::Options),
    /// Feed random bytes to the scanners for a while
    Fuzz(fuzz::Options),
    /// Mixed traffic with faults, reloads and upgrades for a while
    Soak(soak::Options),
    /// Check that the crates that decide do no input or output
    CheckDeciders,
    /// Set up the Python environment with the real engines, as `test` does
    Engines,
}

/// What went wrong, in words for the person at the terminal.
type Outcome = Result<(), String>;

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::CheckDeciders => deciders::run(),
        Command::Engines => python::set_up().map(|environment| println!("{}", environment.display())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
