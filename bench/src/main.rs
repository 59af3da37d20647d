//! Side-by-side benchmarks: the gateway and its peers under the same load, in the same run, as ratios.
//!
//! See `README.md` beside this crate for how to run it, what is measured and how to read it.

mod exchange;
mod histogram;
mod http1;
mod load;
mod metrics_page;
mod mock;
mod traffic;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "bench", about = "Side-by-side benchmarks against peers", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Mock engines, until standard input ends.
    #[command(hide = true)]
    Mock(mock::MockArgs),
    /// Load against one address.
    #[command(hide = true)]
    Load(load::LoadArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Mock(args) => mock::run(&args),
        Command::Load(args) => load::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
