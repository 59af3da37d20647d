//! `cargo xtask soak`: everything at once for a while, and the table of what came of it.

use std::path::PathBuf;

use crate::Outcome;
use crate::program::{self, cargo, root, target};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Build for speed; takes minutes more
    #[arg(long)]
    release: bool,
    /// Where the table goes
    #[arg(long, default_value = "docs/benchmarks/soak.md")]
    output: PathBuf,
    /// Passed on, for example `--seed 7` or `--upgrade-every 15`
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Outcome {
    let profile: &[&str] = if options.release { &["--release"] } else { &[] };
    program::run(cargo().args(["build", "--package", "ridge"]).args(profile))?;
    let ridge = target().join(if options.release { "release/ridge" } else { "debug/ridge" });
    program::run(
        cargo()
            .args(["run", "--quiet", "--package", "e2e", "--bin", "soak", "--"])
            .args(["--minutes", &options.minutes.to_string()])
            .arg("--output")
            .arg(root().join(&options.output))
            .args(&options.rest)
            .env("RIDGE_BIN", ridge),
    )
}
