//! All keys of a gateway: read from files, found by their ids.

use std::collections::HashMap;
use std::sync::Arc;

use subtle::ConstantTimeEq;

use crate::bucket::Bucket;
use crate::key::{Key, Line};
use crate::made::{hash, id_of};

/// A file of more bytes is refused: some thirty thousand keys.
const MAX_FILE_BYTES: usize = 8 << 20;

/// Longest line: a key with full lists.
const MAX_LINE_BYTES: usize = 512 << 10;

/// All keys.
#[derive(Debug, Default)]
pub struct Keys {
    keys: Vec<Key>,
    by_id: HashMap<Box<str>, usize>,
}

/// A file of keys that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// One line.
    #[error("{file}:{line}: {rule}")]
    Line {
        /// The file, as configured.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        rule: String,
    },
    /// The file as a whole.
    #[error("{file}: {rule}")]
    File {
        /// The file, as configured.
        file: String,
        /// What is wrong with it.
        rule: String,
    },
}

impl Keys {
    /// Reads files, each a name and its bytes: JSON lines, one key a line; empty lines and lines that begin with `#`
    /// are left out.
    ///
    /// # Errors
    /// The first line that breaks a rule. No message shows a key or a part of one.
    pub fn read<'f>(files: impl IntoIterator<Item = (&'f str, &'f [u8])>) -> Result<Self, KeysError> {
        let mut all = Self::default();
        for (file, text) in files {
            let whole = |rule: &str| KeysError::File { file: file.into(), rule: rule.into() };
            if text.len() > MAX_FILE_BYTES {
                return Err(whole("it has more than 8 MiB; split it"));
            }
            let text = std::str::from_utf8(text).map_err(|_| whole("it is not UTF-8"))?;
            for (at, line) in text.lines().enumerate() {
                all.add(line).map_err(|rule| KeysError::Line { file: file.into(), line: at + 1, rule })?;
            }
        }
        Ok(all)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if line.len() > MAX_LINE_BYTES {
            return Err("the line has more than 512 KiB".into());
        }
        let line: Line = serde_json::from_str(line).map_err(|error| without_values(&error.to_string()))?;
        let key = line.read()?;
        if self.by_id.insert(key.id.clone(), self.keys.len()).is_some() {
            return Err(format!("the id {} is there already; remove one of the two", key.id));
        }
        self.keys.push(key);
        Ok(())
    }

    /// Goes on with the rates of keys that were there before: a reload fills no bucket.
    pub(crate) fn keep_rates(&mut self, before: &Self) {
        let keep = |new: &mut Option<Arc<Bucket>>, old: &Option<Arc<Bucket>>| {
            if let (Some(new), Some(old)) = (new, old)
                && new.is_like(old)
            {
                *new = Arc::clone(old);
            }
        };
        for key in &mut self.keys {
            if let Some(old) = before.by_id.get(&key.id).map(|&at| &before.keys[at])
                && old.hash == key.hash
            {
                keep(&mut key.requests, &old.requests);
                keep(&mut key.tokens, &old.tokens);
            }
        }
    }

    /// Whose key this is. The time it takes depends neither on how many keys there are nor on how much of a secret
    /// was guessed.
    pub(crate) fn find(&self, token: &[u8]) -> Option<usize> {
        let id = id_of(token)?;
        let found = self.by_id.get(id).copied();
        let expected = found.map_or([0; 32], |at| self.keys[at].hash);
        let same: bool = hash(token).ct_eq(&expected).into();
        found.filter(|_| same)
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Key> {
        self.keys.get(at)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// The tenants, each once or more often.
    pub fn tenants(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| &*key.tenant)
    }
}

/// A file's text without the key of this id; `None`: there is no such key.
pub fn without_key(text: &str, id: &str) -> Option<String> {
    let is_it = |line: &str| serde_json::from_str::<Line>(line).is_ok_and(|line| line.id == id);
    let kept: String = text.split_inclusive('\n').filter(|line| !is_it(line)).collect();
    (kept.len() < text.len()).then_some(kept)
}

/// serde_json shows texts that stand where they should not. One could be a key.
fn without_values(message: &str) -> String {
    let mut out = String::new();
    let mut quotes = message.split('"');
    out.push_str(quotes.next().unwrap_or_default());
    let rest: Vec<&str> = quotes.collect();
    if let Some(last) = rest.last() {
        out.push('…');
        out.push_str(last);
    }
    if out.contains("rdg_") { "this is no key's line; it seems to hold a key itself".into() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewKey, key_line, make_key};

    fn line(seed: u8, key: &NewKey) -> (String, String) {
        let made = make_key(&[seed; 40]);
        (made.token().to_owned(), key_line(&made, key).expect("a key by the rules"))
    }

    fn new_key() -> NewKey {
        NewKey { name: "ci".into(), tenant: "research".into(), ..NewKey::default() }
    }

    #[test]
    fn keys_are_found_and_no_other_text_is() {
        let (one, first) = line(1, &new_key());
        let (two, second) = line(2, &new_key());
        let text = format!("# ours\n\n{first}{second}");
        let keys = Keys::read([("f", text.as_bytes())]).expect("two keys");
        assert_eq!(keys.find(one.as_bytes()), Some(0));
        assert_eq!(keys.find(two.as_bytes()), Some(1));
        let mut wrong = one.clone().into_bytes();
        for at in 0..wrong.len() {
            wrong[at] ^= 1;
            assert_eq!(keys.find(&wrong), None, "byte {at}");
            wrong[at] ^= 1;
        }
        assert_eq!(keys.find(&one.as_bytes()[..one.len() - 1]), None);
        assert!(!text.contains(&one), "the file holds no key");
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_without_values() {
        let (token, good) = line(1, &new_key());
        for (bad, part) in [
            ("{", "EOF"),
            ("[]", "invalid"),
            (r#"{"id":"a","hash":"x","name":"n","tenant":"t"}"#, "`hash`"),
            (&good.replace("ci", "c i"), "`name`"),
            (&good.replace("research", "other"), "`tenant`"),
            (&good.replace("}", r#","models":["*x"]}"#), "`models`"),
            (&good.replace("}", r#","paths":["v1"]}"#), "`paths`"),
            (&good.replace("}", r#","burst":3}"#), "`burst`"),
            (&good.replace("}", r#","requests_per_second":1e9}"#), "`requests_per_second`"),
            (&good.replace("}", r#","expires":"soon"}"#), "`expires`"),
            (&good.replace("}", r#","rate":3}"#), "unknown field `rate`"),
            (&good, "there already"),
            (&good.replace("}", &format!(r#","burst":"{token}"}}"#)), "…"),
            (&token, "expected value"),
        ] {
            let text = format!("{good}\n{bad}\n");
            let error = Keys::read([("f", text.as_bytes())]).expect_err(bad).to_string();
            assert!(error.starts_with("f:3: ") && error.contains(part), "{bad}: {error}");
            assert!(!error.contains(&token), "{error}");
        }
        assert!(Keys::read([("f", &[0xff][..])]).is_err());
        assert!(Keys::read([("f", &vec![b'\n'; MAX_FILE_BYTES + 1][..])]).is_err());
    }

    #[test]
    fn one_key_is_taken_out_and_the_rest_stays_as_it_is() {
        let (_, first) = line(1, &new_key());
        let (_, second) = line(2, &new_key());
        let text = format!("# ours\n{first}\n{second}");
        assert_eq!(without_key(&text, "0101010101010101"), Some(format!("# ours\n\n{second}")));
        assert_eq!(without_key(&text, "03"), None);
    }
}
