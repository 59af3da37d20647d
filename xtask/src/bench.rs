//! `cargo xtask bench`: runs the bench program, built for speed, against a `ridge` built for speed.

use crate::Outcome;
use crate::program::{self, cargo, target};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// What to measure and how; `cargo xtask bench -- --help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Outcome {
    program::run(cargo().args(["build", "--release", "--package", "ridge", "--package", "bench"]))?;
    program::run(
        cargo()
            .args(["run", "--quiet", "--release", "--package", "bench", "--"])
            .args(&options.arguments)
            .env("RIDGE_BIN", target().join("release/ridge")),
    )
}
