//! Why a request is turned away.

use std::borrow::Cow;

/// Why a request is turned away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Two places hold a credential.
    SeveralCredentials,
    /// No credential.
    MissingKey,
    /// `Authorization` is not of the form `Bearer KEY`.
    NotBearer,
    /// Nobody has this key, or it was revoked.
    InvalidKey,
    /// It was valid until then.
    ExpiredKey,
    /// The path is not among the key's.
    PathNotAllowed,
    /// The model is not among the key's.
    ModelNotAllowed,
    /// Too many requests; the seconds until the next one may come.
    RateLimited(u64),
    /// Too many tokens; the seconds until the next request may come.
    TokensLimited(u64),
}

impl Refusal {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::SeveralCredentials => 400,
            Self::MissingKey | Self::NotBearer | Self::InvalidKey | Self::ExpiredKey => 401,
            Self::PathNotAllowed | Self::ModelNotAllowed => 403,
            Self::RateLimited(_) | Self::TokensLimited(_) => 429,
        }
    }

    /// The stable name.
    pub fn code(&self) -> &'static str {
        match self {
            Self::SeveralCredentials => "several_credentials",
            Self::MissingKey => "missing_key",
            Self::NotBearer | Self::InvalidKey => "invalid_key",
            Self::ExpiredKey => "expired_key",
            Self::PathNotAllowed => "path_not_allowed",
            Self::ModelNotAllowed => "model_not_allowed",
            Self::RateLimited(_) => "rate_limited",
            Self::TokensLimited(_) => "tokens_limited",
        }
    }

    /// What a person reads. Never any part of what the client sent.
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            Self::SeveralCredentials => {
                "the request has keys in Authorization and in x-api-key; two readers could believe different ones: \
                 send one"
                    .into()
            }
            Self::MissingKey => {
                "this gateway wants a key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`".into()
            }
            Self::NotBearer => "Authorization is not of the form `Bearer KEY`".into(),
            Self::InvalidKey => "the key is not known here, or was revoked; ask who runs this gateway for one".into(),
            Self::ExpiredKey => "the key has expired; ask who runs this gateway for a new one".into(),
            Self::PathNotAllowed => "the key may not call this path; see its `paths`".into(),
            Self::ModelNotAllowed => {
                "the key may not use this model; GET /v1/models lists those that it may".into()
            }
            Self::RateLimited(seconds) => {
                format!("the key's requests come faster than its rate; try again in {seconds} s").into()
            }
            Self::TokensLimited(seconds) => {
                format!("the key's tokens of this minute are used up; try again in {seconds} s").into()
            }
        }
    }

    /// When to come again, seconds.
    pub fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::RateLimited(seconds) | Self::TokensLimited(seconds) => Some(*seconds),
            _ => None,
        }
    }

    /// Whether the client is told how to authenticate.
    pub fn challenge(&self) -> Option<&'static str> {
        match self {
            Self::MissingKey => Some("Bearer realm=\"ridge\""),
            _ if self.status() == 401 => Some("Bearer realm=\"ridge\", error=\"invalid_token\""),
            _ => None,
        }
    }
}
