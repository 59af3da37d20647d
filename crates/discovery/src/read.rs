//! Reading a file that somebody else may have put there.

use std::io::{self, Read};
use std::path::Path;

/// Reads a regular file of at most `limit` bytes. A pipe would hold up whoever reads it, and a device never ends.
///
/// # Errors
/// What the system says; that it is no regular file, or larger.
pub fn read_file(path: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
    // Asked before it is opened: opening a pipe waits for its other end.
    if !std::fs::metadata(&path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut contents = Vec::new();
    std::fs::File::open(path)?.take(limit + 1).read_to_end(&mut contents)?;
    match contents.len() as u64 > limit {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit} bytes"))),
        false => Ok(contents),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_folders_and_large_files_are_refused() {
        for path in ["/dev/zero", "/"] {
            let error = read_file(path, 100).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
        let path = std::env::temp_dir().join(format!("ridge-read-{}", std::process::id()));
        std::fs::write(&path, [b'x'; 101]).unwrap();
        assert_eq!(read_file(&path, 100).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_file(&path, 101).unwrap().len(), 101);
        std::fs::remove_file(&path).unwrap();
    }
}
