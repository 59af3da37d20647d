//! `cargo xtask fuzz`: feeds random and mutated bytes to the scanners for a while.

use crate::Outcome;
use crate::program::{self, cargo};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long, for each target
    #[arg(long, default_value_t = 20)]
    seconds: u32,
}

pub(crate) fn run(options: &Options) -> Outcome {
    program::run(
        cargo()
            .args([
                "run",
                "--release",
                "--manifest-path",
                "fuzz/Cargo.toml",
                "--bin",
                "smoke",
                "--",
                "--seconds",
            ])
            .arg(options.seconds.to_string()),
    )
}
