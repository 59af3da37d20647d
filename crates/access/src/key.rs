//! A key's line in the file, and what it means.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bucket::Bucket;
use crate::date::{parse_date, show_date};
use crate::made::{Made, hash, is_id};
use crate::pattern::Pattern;

/// Models or paths that one key may list.
const MAX_PATTERNS: usize = 256;

/// Longest model or path in a list.
const MAX_PATTERN_BYTES: usize = 512;

/// Longest name of a key or a tenant: they are labels of metrics and fields of logs.
const MAX_NAME: usize = 63;

const HASH_PREFIX: &str = "sha256:";

/// A key as it stands in the file: one JSON object in one line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub id: String,
    hash: String,
    name: String,
    tenant: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    models: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requests_per_second: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens_per_minute: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
}

/// What a key is given when it is made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewKey {
    /// What people call it, in logs.
    pub name: String,
    /// Whose requests they are.
    pub tenant: String,
    /// Models, exact or `beginning*`; empty: all.
    pub models: Vec<String>,
    /// Paths, exact or `/beginning*`; empty: all.
    pub paths: Vec<String>,
    /// Requests a second.
    pub requests_per_second: Option<f64>,
    /// Requests that may come at once; unset: a second's.
    pub burst: Option<u32>,
    /// Prompt and output tokens a minute.
    pub tokens_per_minute: Option<u64>,
    /// Seconds since 1970 from when on it is refused.
    pub expires_unix_s: Option<u64>,
}

/// A key, ready to be asked for.
#[derive(Debug)]
pub struct Key {
    pub id: Box<str>,
    pub hash: [u8; 32],
    pub name: Box<str>,
    pub tenant: Arc<str>,
    pub models: Vec<Pattern>,
    pub paths: Vec<Pattern>,
    pub requests: Option<Arc<Bucket>>,
    pub tokens: Option<Arc<Bucket>>,
    pub expires_unix_s: Option<u64>,
}

/// The line of a new key, with its line end.
///
/// # Errors
/// The first rule that it breaks.
pub fn key_line(made: &Made, key: &NewKey) -> Result<String, String> {
    let line = Line {
        id: made.id().to_owned(),
        hash: format!("{HASH_PREFIX}{}", hex(&hash(made.token().as_bytes()))),
        name: key.name.clone(),
        tenant: key.tenant.clone(),
        models: key.models.clone(),
        paths: key.paths.clone(),
        requests_per_second: key.requests_per_second,
        burst: key.burst,
        tokens_per_minute: key.tokens_per_minute,
        expires: key.expires_unix_s.map(show_date),
    };
    line.read()?;
    Ok(serde_json::to_string(&line).map_err(|error| error.to_string())? + "\n")
}

/// The keys of a file, one line of text each, for people. Lines with mistakes are left out.
pub fn listed_keys(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines.map(|line| line.shown()).collect()
}

impl Line {
    fn shown(&self) -> String {
        use std::fmt::Write;
        let mut out = format!("{}  {}  tenant={}", self.id, self.name, self.tenant);
        for (what, list) in [("models", &self.models), ("paths", &self.paths)] {
            if !list.is_empty() {
                let _ = write!(out, "  {what}={}", list.join(","));
            }
        }
        if let Some(rate) = self.requests_per_second {
            let _ = write!(out, "  requests_per_second={rate}");
        }
        if let Some(tokens) = self.tokens_per_minute {
            let _ = write!(out, "  tokens_per_minute={tokens}");
        }
        if let Some(expires) = &self.expires {
            let _ = write!(out, "  expires={expires}");
        }
        out
    }

    /// What it means, or the rule that it breaks.
    pub fn read(&self) -> Result<Key, String> {
        if !is_id(&self.id) {
            return Err("`id` is not 1 to 32 small letters and digits".into());
        }
        let hash = self.hash.strip_prefix(HASH_PREFIX).and_then(unhex);
        let hash =
            hash.ok_or("`hash` is not `sha256:` and 64 hexadecimal digits; `ridge keys create` writes it")?;
        for (what, name) in [("name", &self.name), ("tenant", &self.tenant)] {
            if !is_name(name) {
                return Err(format!(
                    "`{what}` is not 1 to {MAX_NAME} letters, digits, dots, hyphens and underscores"
                ));
            }
        }
        if [crate::ANONYMOUS, crate::OTHER].contains(&self.tenant.as_str()) {
            return Err(format!("`tenant` cannot be `{}`, which has a meaning of its own", self.tenant));
        }
        let paths = patterns("paths", &self.paths)?;
        if self.paths.iter().any(|path| !path.starts_with('/')) {
            return Err("an entry of `paths` does not begin with `/`".into());
        }
        let rate = self.requests_per_second;
        if rate.is_some_and(|rate| !(0.001..=1e6).contains(&rate)) {
            return Err("`requests_per_second` is not within 0.001 and 1000000".into());
        }
        let burst = match (self.burst, rate) {
            (Some(_), None) => return Err("`burst` means nothing without `requests_per_second`".into()),
            (Some(0), _) => return Err("`burst` is 0: nothing would ever pass; write 1 or more".into()),
            (Some(burst), _) => f64::from(burst),
            (None, rate) => rate.unwrap_or(1.0).ceil(),
        };
        if self.tokens_per_minute.is_some_and(|tokens| !(1..=1_000_000_000_000).contains(&tokens)) {
            return Err("`tokens_per_minute` is not within 1 and 1000000000000".into());
        }
        let expires_unix_s = match self.expires.as_deref().map(parse_date) {
            Some(None) => {
                return Err("`expires` is not a date such as 2027-01-31 or 2027-01-31T12:00:00Z".into());
            }
            date => date.flatten(),
        };
        Ok(Key {
            id: self.id.as_str().into(),
            hash,
            name: self.name.as_str().into(),
            tenant: self.tenant.as_str().into(),
            models: patterns("models", &self.models)?,
            paths,
            requests: rate.map(|rate| Arc::new(Bucket::new(rate, burst))),
            tokens: self.tokens_per_minute.map(|a_minute| {
                let a_minute = a_minute as f64;
                Arc::new(Bucket::new(a_minute / 60.0, a_minute))
            }),
            expires_unix_s,
        })
    }
}

fn patterns(what: &str, list: &[String]) -> Result<Vec<Pattern>, String> {
    if list.len() > MAX_PATTERNS {
        return Err(format!("`{what}` has more than {MAX_PATTERNS} entries"));
    }
    let read = |text: &String| match (1..=MAX_PATTERN_BYTES).contains(&text.len()) {
        true => Pattern::parse(text)
            .ok_or_else(|| format!("an entry of `{what}` has a `*` elsewhere than at its end")),
        false => Err(format!("an entry of `{what}` has not 1 to {MAX_PATTERN_BYTES} bytes")),
    };
    list.iter().map(read).collect()
}

/// Whether a text can be the name of a key or a tenant.
pub fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric();
    (1..=MAX_NAME).contains(&text.len())
        && text.bytes().all(|byte| is_plain(byte) || matches!(byte, b'.' | b'-' | b'_'))
        && text.bytes().next().is_some_and(is_plain)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(out)
}
