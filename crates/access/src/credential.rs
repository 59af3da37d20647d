//! Where a request carries its credentials.

use crate::refusal::Refusal;

/// What a request's head shows of its sender.
#[derive(Debug, Clone, Copy, Default)]
pub struct Presented<'a> {
    /// The value of `Authorization`.
    pub authorization: Option<&'a [u8]>,
    /// The value of `x-api-key`, where Anthropic's clients put keys.
    pub x_api_key: Option<&'a [u8]>,
}

impl<'a> Presented<'a> {
    /// The one credential, if there is any.
    pub(crate) fn credential(&self) -> Result<Option<&'a [u8]>, Refusal> {
        match (self.authorization, self.x_api_key) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(Refusal::SeveralCredentials),
            (None, Some(key)) => Ok(Some(key.trim_ascii())),
            (Some(value), None) => match value.split_at_checked(7) {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => {
                    Ok(Some(token.trim_ascii()))
                }
                _ => Err(Refusal::NotBearer),
            },
        }
    }
}
