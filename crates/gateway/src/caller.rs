//! Who sends a request, and what they may ask for: `access` decides, this asks it.

use std::time::{SystemTime, UNIX_EPOCH};

use access::{Now, Presented, Refusal};
use api::Dialect;
use http::HeaderValue;
use http::header::{self, HeaderMap, HeaderName};

use crate::refuse::Refused;
use crate::ticket::Ticket;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Finds out who sends the request and lets it pass, or refuses it. The client's credentials are for the gateway:
/// they are taken out of what goes on to an engine. Where nobody is asked, nothing changes.
pub fn admit(ticket: &mut Ticket, headers: &mut HeaderMap, dialect: Dialect) -> Result<(), Refused> {
    let Some(access) = ticket.world().policy.access.clone() else { return Ok(()) };
    let several = headers.get_all(X_API_KEY).into_iter().nth(1).is_some();
    let presented = Presented {
        authorization: headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes),
        x_api_key: headers.get(X_API_KEY).map(HeaderValue::as_bytes),
    };
    let now = Now {
        unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        ns: ticket.core().shared.ns(ticket.started()),
    };
    let known = match several {
        true => Err(Refusal::SeveralCredentials),
        false => access.authenticate(&presented, now),
    };
    headers.remove(header::AUTHORIZATION);
    headers.remove(X_API_KEY);
    headers.remove("api-key");
    let caller = known.map_err(|refusal| refused(dialect, &refusal))?;
    let admitted = access.admit(&caller, ticket.uri().path(), now);
    ticket.set_caller(caller);
    admitted.map_err(|refusal| refused(dialect, &refusal))
}

/// Whether the caller is to know of this model.
pub fn can_see(ticket: &Ticket, model: &str) -> bool {
    ticket.caller().is_none_or(|(access, caller)| access.may_use(caller, model))
}

/// Whether the caller is to know of all models.
pub fn can_see_all(ticket: &Ticket) -> bool {
    ticket.caller().is_none_or(|(access, caller)| access.may_use_all(caller))
}

/// Refuses a model that is none of the caller's.
pub fn may_use(ticket: &Ticket, dialect: Dialect, model: &str) -> Result<(), Refused> {
    match can_see(ticket, model) {
        true => Ok(()),
        false => Err(refused(dialect, &Refusal::ModelNotAllowed).with_param("model")),
    }
}

/// Refuses a request of which no model is known, if the caller is kept to some.
pub fn may_use_all(ticket: &Ticket, dialect: Dialect) -> Result<(), Refused> {
    match can_see_all(ticket) {
        true => Ok(()),
        false => Err(refused(dialect, &Refusal::ModelNotAllowed).with_param("model")),
    }
}

/// Refuses a path under `allow_paths`, of which no model is known, if the caller is kept to some models and was not
/// given the path by name.
pub fn may_pass(ticket: &Ticket, path: &str) -> Result<(), Refused> {
    match ticket.caller().is_none_or(|(access, caller)| access.may_pass(caller, path)) {
        true => Ok(()),
        false => Err(refused(Dialect::OpenAi, &Refusal::PathNotAllowed)),
    }
}

fn refused(dialect: Dialect, refusal: &Refusal) -> Refused {
    let refused = Refused::new(dialect, refusal.status(), refusal.code(), refusal.message());
    match (refusal.challenge(), refusal.retry_after_s()) {
        (Some(challenge), _) => {
            refused.with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
        }
        (None, Some(seconds)) => refused.retry_after_s(seconds),
        (None, None) => refused,
    }
}
