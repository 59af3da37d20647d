//! What a key looks like: `rdg_<id>_<secret>`.
//!
//! The id is public: it is looked up, listed and logged. The secret is 256 random bits, and what is kept is the
//! SHA-256 of the whole key. A slow, salted hash (as for passwords) would buy nothing: it defends texts that can be
//! guessed, while nobody tries 2^256 secrets at any speed, and no two keys are the same, so that there is no table of
//! hashes to be made beforehand. It would cost every request milliseconds instead of a microsecond.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Random bytes that a key is made of: 8 for the id, 32 for the secret.
pub const RANDOM_BYTES: usize = 40;

const PREFIX: &str = "rdg_";

/// Longer texts are no key and are not hashed.
const MAX_BYTES: usize = 256;

/// Longest id.
pub const MAX_ID: usize = 32;

/// A new key. It is shown once, to who asked for it, and not by `Debug`.
pub struct Made {
    id: String,
    token: String,
}

impl Made {
    /// Its public name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The key itself.
    pub fn token(&self) -> &str {
        &self.token
    }
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Made({})", self.id)
    }
}

/// Makes a key of random bytes, which must come from the system's generator.
pub fn make_key(random: &[u8; RANDOM_BYTES]) -> Made {
    let (id, secret) = random.split_at(8);
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let token = format!("{PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(secret));
    Made { id, token }
}

/// The id in a key, if it looks like one.
pub fn id_of(token: &[u8]) -> Option<&str> {
    if token.len() > MAX_BYTES {
        return None;
    }
    let rest = std::str::from_utf8(token).ok()?.strip_prefix(PREFIX)?;
    rest.split_once('_').map(|(id, _)| id).filter(|id| is_id(id))
}

/// Whether a text can be a key's id.
pub fn is_id(text: &str) -> bool {
    (1..=MAX_ID).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// What is kept of a key.
pub fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_id_and_hides_its_secret() {
        let made = make_key(&[0xab; RANDOM_BYTES]);
        assert_eq!(made.id(), "abababababababab");
        assert_eq!(made.token().len(), 4 + 16 + 1 + 43);
        assert_eq!(id_of(made.token().as_bytes()), Some(made.id()));
        assert_eq!(format!("{made:?}"), "Made(abababababababab)");
    }

    #[test]
    fn other_texts_have_no_id() {
        for text in ["", "rdg_", "rdg__x", "rdg_AB_x", "sk-abc_def", "rdg_ab", "rdg_a b_x"] {
            assert_eq!(id_of(text.as_bytes()), None, "{text}");
        }
        assert_eq!(id_of(&[b'r', b'd', b'g', b'_', 0xff, b'_']), None);
        assert_eq!(id_of(format!("rdg_ab_{}", "x".repeat(MAX_BYTES)).as_bytes()), None);
    }
}
