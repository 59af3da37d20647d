//! Reading the keys that upstreams are given.

use std::fmt;

use config::{ApiKey, KeySource};

const MAX_BYTES: usize = 8 << 10;

/// A file that is larger holds something else.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// A key. It is not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The key itself, for the header.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A key that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable is not set.
    #[error("the environment variable {0} is not set: set it, or read the key from a file")]
    NotSet(String),
    /// The file cannot be read.
    #[error("{path} cannot be read: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// What was read cannot stand in a header.
    #[error("{0} holds no key: it must be one line of 1 to 8192 printable ASCII characters")]
    NoKey(String),
}

/// Reads a key from where the configuration says it is. White space around it, such as a file's last line break, is no
/// part of it.
pub fn read_api_key(key: &ApiKey) -> Result<Secret, SecretError> {
    let (place, bytes) = match key.source() {
        Some(KeySource::Env(name)) => match std::env::var_os(name.as_str()) {
            Some(value) => (format!("the environment variable {name}"), value.into_encoded_bytes()),
            None => return Err(SecretError::NotSet(name.to_string())),
        },
        Some(KeySource::File(path)) => match crate::read_file(path, MAX_FILE_BYTES) {
            Ok(bytes) => (path.to_string(), bytes),
            Err(error) => {
                let path = path.to_string();
                return Err(SecretError::Unreadable { path, error });
            }
        },
        None => return Err(SecretError::NoKey("api_key".to_owned())),
    };
    let trimmed = bytes.trim_ascii();
    let good = (1..=MAX_BYTES).contains(&trimmed.len())
        && trimmed.iter().all(|b| b.is_ascii_graphic() || *b == b' ');
    match std::str::from_utf8(trimmed) {
        Ok(text) if good => Ok(Secret(text.to_owned())),
        _ => Err(SecretError::NoKey(place)),
    }
}
