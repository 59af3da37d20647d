//! Who may do what.

use crate::bucket::Bucket;
use crate::credential::Presented;
use crate::key::Key;
use crate::keys::Keys;
use crate::pattern::Pattern;
use crate::refusal::Refusal;

/// The time of a decision, on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Seconds since 1970, for expiry.
    pub unix_s: u64,
    /// Nanoseconds on a clock that never goes back, for rates.
    pub ns: u64,
}

/// Somebody who was let in. It belongs to the [`Access`] that let it in, and to no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// Without credentials.
    Anonymous,
    /// The key at this place.
    Key(usize),
}

/// The rules of who may do what.
#[derive(Debug, Default)]
pub struct Access {
    keys: Keys,
    anonymous: bool,
}

impl Access {
    /// Rules with these keys; with `anonymous`, who shows no credentials is let in too.
    pub fn new(keys: Keys, anonymous: bool) -> Self {
        Self { keys, anonymous }
    }

    /// Goes on with the rates of those who were there before.
    pub fn following(mut self, before: &Self) -> Self {
        self.keys.keep_rates(&before.keys);
        self
    }

    /// All keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Who this is.
    ///
    /// # Errors
    /// Why nobody that is known.
    pub fn authenticate(&self, presented: &Presented<'_>, now: Now) -> Result<Caller, Refusal> {
        let Some(token) = presented.credential()? else {
            return if self.anonymous { Ok(Caller::Anonymous) } else { Err(Refusal::MissingKey) };
        };
        let at = self.keys.find(token).ok_or(Refusal::InvalidKey)?;
        let expires = self.keys.get(at).and_then(|key| key.expires_unix_s);
        match expires.is_some_and(|expires| now.unix_s >= expires) {
            true => Err(Refusal::ExpiredKey),
            false => Ok(Caller::Key(at)),
        }
    }

    /// Lets a request to this path pass, and takes it from the caller's rate.
    ///
    /// # Errors
    /// The path is none of the caller's, or the rate is used up.
    pub fn admit(&self, caller: &Caller, path: &str, now: Now) -> Result<(), Refusal> {
        let Some(key) = self.key(caller) else { return Ok(()) };
        if !is_within(&key.paths, path) {
            return Err(Refusal::PathNotAllowed);
        }
        let look = |bucket: &Bucket| bucket.look(now.ns);
        if let Some(Err(wait_ns)) = key.tokens.as_deref().map(look) {
            return Err(Refusal::TokensLimited(seconds(wait_ns)));
        }
        let take = |bucket: &Bucket| bucket.take(now.ns);
        match key.requests.as_deref().map(take) {
            Some(Err(wait_ns)) => Err(Refusal::RateLimited(seconds(wait_ns))),
            _ => Ok(()),
        }
    }

    /// Whether the caller may use this model.
    pub fn may_use(&self, caller: &Caller, model: &str) -> bool {
        self.key(caller).is_none_or(|key| is_within(&key.models, model))
    }

    /// Whether the caller may use every model.
    pub fn may_use_all(&self, caller: &Caller) -> bool {
        self.key(caller).is_none_or(|key| key.models.is_empty())
    }

    /// Whether the caller may send requests of which no model is known to this path: whoever is kept to some models
    /// must have been given the path by name.
    pub fn may_pass(&self, caller: &Caller, path: &str) -> bool {
        self.key(caller)
            .is_none_or(|key| key.models.is_empty() || (!key.paths.is_empty() && is_within(&key.paths, path)))
    }

    /// Charges tokens that a request used.
    pub fn charge(&self, caller: &Caller, tokens: u64, now_ns: u64) {
        if let Some(bucket) = self.key(caller).and_then(|key| key.tokens.as_deref()) {
            bucket.charge(now_ns, tokens);
        }
    }

    /// All tenants that there are rules for, some of them more than once.
    pub fn tenants(&self) -> impl Iterator<Item = &str> {
        self.keys.tenants().chain(self.anonymous.then_some(crate::ANONYMOUS))
    }

    /// Whose requests the caller's are.
    pub fn tenant<'a>(&'a self, caller: &'a Caller) -> &'a str {
        self.key(caller).map_or(crate::ANONYMOUS, |key| &key.tenant)
    }

    /// What the caller's key is called.
    pub fn key_name(&self, caller: &Caller) -> Option<&str> {
        self.key(caller).map(|key| &*key.name)
    }

    fn key(&self, caller: &Caller) -> Option<&Key> {
        match caller {
            Caller::Anonymous => None,
            Caller::Key(at) => self.keys.get(*at),
        }
    }
}

/// An empty list stands for all.
fn is_within(list: &[Pattern], name: &str) -> bool {
    list.is_empty() || list.iter().any(|pattern| pattern.covers(name))
}

fn seconds(ns: u64) -> u64 {
    ns.div_ceil(1_000_000_000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewKey, key_line, make_key};

    const NOW: Now = Now { unix_s: 1_000_000, ns: 5_000_000_000 };

    fn with(key: NewKey) -> (String, Access) {
        let made = make_key(&[9; 40]);
        let key = NewKey { name: "ci".into(), tenant: "research".into(), ..key };
        let line = key_line(&made, &key).expect("a key by the rules");
        let keys = Keys::read([("f", line.as_bytes())]).expect("one key");
        (made.token().to_owned(), Access::new(keys, false))
    }

    fn bearer(access: &Access, value: &str, now: Now) -> Result<Caller, Refusal> {
        let presented = Presented { authorization: Some(value.as_bytes()), x_api_key: None };
        access.authenticate(&presented, now)
    }

    #[test]
    fn a_key_is_taken_from_either_place_but_not_from_both() {
        let (token, access) = with(NewKey::default());
        let value = format!("bearer  {token}");
        assert_eq!(bearer(&access, &value, NOW), Ok(Caller::Key(0)));
        let presented = Presented { authorization: None, x_api_key: Some(token.as_bytes()) };
        assert_eq!(access.authenticate(&presented, NOW), Ok(Caller::Key(0)));
        let both = Presented { authorization: Some(value.as_bytes()), ..presented };
        assert_eq!(access.authenticate(&both, NOW), Err(Refusal::SeveralCredentials));
        assert_eq!(bearer(&access, &token, NOW), Err(Refusal::NotBearer));
        assert_eq!(bearer(&access, "Bearer x", NOW), Err(Refusal::InvalidKey));
        assert_eq!(access.authenticate(&Presented::default(), NOW), Err(Refusal::MissingKey));
    }

    #[test]
    fn a_wrong_key_is_refused_where_none_would_do() {
        let (token, access) = with(NewKey::default());
        let access = Access { anonymous: true, ..access };
        assert_eq!(access.authenticate(&Presented::default(), NOW), Ok(Caller::Anonymous));
        assert_eq!(access.tenant(&Caller::Anonymous), "anonymous");
        assert_eq!(bearer(&access, "Bearer rdg_aa_bb", NOW), Err(Refusal::InvalidKey));
        assert!(bearer(&access, &format!("Bearer {token}"), NOW).is_ok());
    }

    #[test]
    fn a_key_expires_at_its_second() {
        let (token, access) = with(NewKey { expires_unix_s: Some(NOW.unix_s), ..NewKey::default() });
        let value = format!("Bearer {token}");
        assert!(bearer(&access, &value, Now { unix_s: NOW.unix_s - 1, ..NOW }).is_ok());
        assert_eq!(bearer(&access, &value, NOW), Err(Refusal::ExpiredKey));
    }

    #[test]
    fn scopes_hold() {
        let (_, access) = with(NewKey {
            models: vec!["llama*".into()],
            paths: vec!["/v1/chat/completions".into(), "/v1/files/*".into()],
            ..NewKey::default()
        });
        let key = Caller::Key(0);
        assert_eq!(access.admit(&key, "/v1/chat/completions", NOW), Ok(()));
        assert_eq!(access.admit(&key, "/v1/embeddings", NOW), Err(Refusal::PathNotAllowed));
        assert!(access.may_use(&key, "llama-8b") && !access.may_use(&key, "qwen"));
        assert!(access.may_pass(&key, "/v1/files/x") && !access.may_use_all(&key));
        let (_, only_models) = with(NewKey { models: vec!["llama*".into()], ..NewKey::default() });
        assert!(!only_models.may_pass(&key, "/v1/files/x"));
    }

    #[test]
    fn rates_hold_across_a_reload() {
        let limited =
            || NewKey { requests_per_second: Some(1.0), tokens_per_minute: Some(60), ..NewKey::default() };
        let (_, access) = with(limited());
        let key = Caller::Key(0);
        assert_eq!(access.admit(&key, "/", NOW), Ok(()));
        let (_, same) = with(limited());
        let same = same.following(&access);
        assert_eq!(same.admit(&key, "/", NOW), Err(Refusal::RateLimited(1)));
        let later = Now { ns: NOW.ns + 1_000_000_000, ..NOW };
        assert_eq!(same.admit(&key, "/", later), Ok(()));
        same.charge(&key, 70, later.ns);
        assert_eq!(same.admit(&key, "/", later), Err(Refusal::TokensLimited(11)));
        let (_, other_rate) = with(NewKey { requests_per_second: Some(2.0), ..NewKey::default() });
        assert_eq!(other_rate.following(&same).admit(&key, "/", later), Ok(()));
    }
}
