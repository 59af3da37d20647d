//! Who calls, as which *tenant*, and what they may do: API keys with scopes and rates.
//!
//! A decider: keys are texts that others read, the time is an argument, and the answer is a [`Caller`] or a
//! [`Refusal`].
//!
//! ```
//! use access::{Access, Keys, NewKey, Now, Presented};
//!
//! let made = access::make_key(&[7; 40]);
//! let key = NewKey { name: "ci".into(), tenant: "research".into(), ..NewKey::default() };
//! let file = access::key_line(&made, &key).unwrap();
//! let access = Access::new(Keys::read([("keys.jsonl", file.as_bytes())]).unwrap(), false);
//!
//! let header = format!("Bearer {}", made.token());
//! let presented = Presented { authorization: Some(header.as_bytes()), ..Presented::default() };
//! let caller = access.authenticate(&presented, Now { unix_s: 0, ns: 0 }).unwrap();
//! assert_eq!(access.tenant(&caller), "research");
//! ```
//!
//! It is no user directory: a key belongs to a tenant, and a tenant is a name.

mod access;
mod bucket;
mod credential;
mod date;
mod key;
mod keys;
mod made;
mod pattern;
mod refusal;

pub use access::{Access, Caller, Now};
pub use credential::Presented;
pub use date::{parse_date, show_date};
pub use key::{NewKey, key_line, listed_keys};
pub use keys::{Keys, KeysError, without_key};
pub use made::{Made, RANDOM_BYTES, make_key};
pub use refusal::Refusal;

/// The tenant of callers without credentials, where these are let in.
pub const ANONYMOUS: &str = "anonymous";

/// The label of tenants beyond what metrics have room for.
pub const OTHER: &str = "other";
