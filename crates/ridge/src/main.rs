//! The command line: wires what decides to what does, and nothing else.

mod auth;
mod certificates;
mod keys;
mod notices;
mod serve;
mod settings;
mod signals;
mod status;
mod up;
mod upgrade;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A proxy allocates and frees a few small things for every request; mimalloc does that for less than glibc.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Serve open models well: one binary that routes requests to inference engines
#[derive(Debug, Parser)]
#[command(name = "ridge", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Try it: a gateway in front of this machine's engines, or of simulated ones
    Up(up::UpFlags),
    /// The production gateway in front of your engines
    Serve(config::ServeFlags),
    /// Make, list and revoke the keys of clients
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Simulated engines that need no accelerator
    Sim(sim_server::SimOptions),
    /// Check, describe and explain the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Up(flags) => up::run(&flags),
        Command::Serve(flags) => serve::run(&flags),
        Command::Keys(command) => keys::run(&command),
        Command::Sim(options) => sim(options),
        Command::Config(command) => return configuration(&command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// What a command says when it fails, ready to print.
type Outcome = Result<(), String>;

fn sim(options: sim_server::SimOptions) -> Outcome {
    let runtime = local_runtime()?;
    runtime.block_on(async {
        let sim = sim_server::Sim::bind(options).await.map_err(|error| format!("error: {error}"))?;
        for (replica, address) in sim.addresses().iter().enumerate() {
            notices::say(&format!("replica {replica} http://{address}"));
        }
        notices::say("ready");
        sim.run(signals::ended()).await;
        Ok(())
    })
}

fn configuration(command: &config::ConfigCommand) -> ExitCode {
    use std::io::{IsTerminal, Write};
    let output = command
        .run(|path| discovery::read_file(path, serve::MAX_FILE_BYTES), std::io::stderr().is_terminal());
    // A closed pipe (`| head`) is no error of ours.
    let _ = std::io::stdout().write_all(output.stdout.as_bytes());
    let _ = std::io::stderr().write_all(output.stderr.as_bytes());
    ExitCode::from(output.code)
}

/// A runtime for waiting and for what is off the request path.
fn local_runtime() -> Result<tokio::runtime::LocalRuntime, String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .map_err(|error| format!("error: cannot start the runtime: {error}"))
}
