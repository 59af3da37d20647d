//! The program that was started, to be started again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A program's path and arguments, as it was started by them.
///
/// The path is the one that was asked for, links in it unfollowed: an upgrade puts another file there, or turns a link
/// to another release. The running process's own file may be gone by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Absolute.
    pub path: PathBuf,
    /// Without the program's name.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// This process's. To be asked early, before the working directory changes.
    pub fn current() -> std::io::Result<Self> {
        let mut arguments = std::env::args_os();
        let name = PathBuf::from(arguments.next().unwrap_or_default());
        let path = match name.components().count() {
            0 => std::env::current_exe()?,
            // A bare name was looked up; `./ridge` has two components.
            1 if !name.is_absolute() => {
                let folders = std::env::var_os("PATH").unwrap_or_default();
                match std::env::split_paths(&folders)
                    .map(|folder| folder.join(&name))
                    .find(|path| is_program(path))
                {
                    Some(path) => std::path::absolute(path)?,
                    None => std::env::current_exe()?,
                }
            }
            _ => std::path::absolute(name)?,
        };
        Ok(Self { path, arguments: arguments.collect() })
    }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
