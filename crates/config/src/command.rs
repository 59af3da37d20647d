//! `ridge config check | schema | explain`: what they print, and how they exit.

use std::path::{Path, PathBuf};

use crate::diagnostics::Diagnostics;
use crate::explain::{explain, key_names, nearest_key};
use crate::settings::Config;

/// The subcommands of `ridge config`.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file and show everything that is wrong with it
    Check {
        /// The file
        #[arg(default_value = "ridge.yaml")]
        file: PathBuf,
    },
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Say what a key does, its type, default, range and flag
    Explain {
        /// A dotted key such as limits.body; without it, all keys are listed
        key: Option<String>,
    },
}

/// What a command prints, and its exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// For standard output.
    pub stdout: String,
    /// For standard error.
    pub stderr: String,
    /// 0 when all is well, 1 when not.
    pub code: u8,
}

impl Output {
    fn good(stdout: String) -> Self {
        Self { stdout, stderr: String::new(), code: 0 }
    }

    fn bad(stderr: String) -> Self {
        Self { stdout: String::new(), stderr, code: 1 }
    }
}

impl ConfigCommand {
    /// Carries the command out. `read` reads a file; with `color`, errors have colours.
    pub fn run(&self, read: impl FnOnce(&Path) -> std::io::Result<Vec<u8>>, color: bool) -> Output {
        match self {
            Self::Check { file } => {
                let name = file.display().to_string();
                match read(file) {
                    Ok(text) => check(&name, &text, color),
                    Err(error) => Output::bad(unreadable(&name, &error).render(color) + "\n"),
                }
            }
            Self::Schema => Output::good(format!("{:#}\n", Config::schema())),
            Self::Explain { key: None } => Output::good(list()),
            Self::Explain { key: Some(key) } => match explain(key) {
                Some(text) => Output::good(text),
                None => {
                    let remedy = match nearest_key(key) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "`ridge config explain` lists all keys".to_owned(),
                    };
                    Output::bad(format!("error: no key `{key}`\n  = help: {remedy}\n"))
                }
            },
        }
    }
}

/// The diagnostics of a file that cannot be opened or read.
pub fn unreadable(name: &str, error: &std::io::Error) -> Diagnostics {
    let remedy = match error.kind() {
        std::io::ErrorKind::NotFound => "check the path; relative ones start at the working directory",
        std::io::ErrorKind::PermissionDenied => "let the user that runs ridge read it",
        _ => "check that it is a file",
    };
    Diagnostics::from_message(name, &error.to_string(), remedy)
}

fn check(name: &str, text: &[u8], color: bool) -> Output {
    match Config::from_yaml(name, text) {
        Ok(config) => {
            let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            Output::good(format!(
                "{name} is valid: {}, {}, {}\n",
                count(config.upstreams.len(), "upstream"),
                count(config.upstream_files.len(), "upstream file"),
                count(config.upstream_dns.len(), "DNS name"),
            ))
        }
        Err(wrong) => {
            let problems = wrong.problems().len();
            let word = if problems == 1 { "problem" } else { "problems" };
            let text = wrong.render(color);
            Output::bad(format!("{text}\n\n{name}: {problems} {word}\n"))
        }
    }
}

fn list() -> String {
    let mut out = String::new();
    for name in key_names() {
        out.push_str(name);
        out.push('\n');
    }
    out
}
