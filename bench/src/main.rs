//! Side-by-side benchmarks: the gateway and its peers under the same load, in the same run, as ratios.
//!
//! See `README.md` beside this crate for how to run it, what is measured and how to read it.

mod arrivals;
mod children;
mod exchange;
mod faults;
mod figures;
mod histogram;
mod http1;
mod idle;
mod load;
mod measure;
mod metrics_page;
mod mock;
mod peers;
mod process;
mod recovery;
mod router;
mod session;
mod soak;
mod traffic;
mod trouble;

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
    /// CPU, throughput and latency beside peers.
    Router(router::RouterArgs),
    /// CPU and memory with many engines and no requests.
    Idle(idle::IdleArgs),
    /// Errors and time to the first byte while one of eight engines is in trouble.
    Faults(faults::FaultsArgs),
    /// Errors and memory over millions of requests.
    SoakCount(soak::SoakArgs),
    /// A program that ends when standard input ends.
    #[command(hide = true)]
    Hold(children::HoldArgs),
    /// Mock engines, until standard input ends.
    #[command(hide = true)]
    Mock(mock::MockArgs),
    /// Load against one address.
    #[command(hide = true)]
    Load(load::LoadArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Router(args) => router::run(&args),
        Command::Idle(args) => idle::run(&args),
        Command::Faults(args) => faults::run(&args),
        Command::SoakCount(args) => soak::run(&args),
        Command::Hold(args) => children::run_hold(&args),
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
