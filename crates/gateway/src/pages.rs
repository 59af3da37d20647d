//! What the gateway answers itself.

use std::sync::atomic::Ordering::Relaxed;

use api::Dialect;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::caller;
use crate::core::Core;
use crate::refuse::Refused;
use crate::route::unknown_model;
use crate::ticket::Ticket;

/// Liveness and readiness, if the path asks for one of them.
pub fn health(core: &Core, path: &str) -> Option<Response<Bytes>> {
    match path {
        "/livez" => Some(live()),
        "/readyz" => Some(ready(core)),
        _ => None,
    }
}

/// The models that the caller may use.
pub fn model_list(ticket: &Ticket) -> Response<Bytes> {
    let world = ticket.world();
    if caller::can_see_all(ticket) {
        return json(world.models_json.clone());
    }
    let mut out = b"{\"object\":\"list\",\"data\":[".to_vec();
    let seen = world.model_objects.iter().filter(|(id, _)| caller::can_see(ticket, id));
    for (place, (_, object)) in seen.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(object);
    }
    out.extend_from_slice(b"]}");
    json(out.into())
}

/// One model's object, as its engine gave it.
pub fn model_detail(ticket: &Ticket, path: &str) -> Result<Response<Bytes>, Refused> {
    let world = ticket.world();
    let name = path.strip_prefix("/v1/models/").unwrap_or_default();
    let name = percent_decoded(name);
    caller::may_use(ticket, Dialect::OpenAi, &name)?;
    match world.model_objects.binary_search_by(|(id, _)| (**id).cmp(&*name)) {
        Ok(found) => Ok(json(world.model_objects[found].1.clone())),
        Err(_) => Err(unknown_model(Dialect::OpenAi, &name, ticket)),
    }
}

/// Percent-encoding taken off; what is not valid stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let decoded = (byte == b'%' && after.len() >= 2)
            .then(|| {
                Some((char::from(after[0]).to_digit(16)? << 4 | char::from(after[1]).to_digit(16)?) as u8)
            })
            .flatten();
        match decoded {
            Some(decoded) => {
                out.push(decoded);
                rest = &after[2..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// An answer of the gateway's own.
pub fn json(body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn live() -> Response<Bytes> {
    json(Bytes::from_static(
        concat!("{\"status\":\"ok\",\"ridge\":\"", env!("CARGO_PKG_VERSION"), "\"}\n").as_bytes(),
    ))
}

fn ready(core: &Core) -> Response<Bytes> {
    let (status, body) = if core.shared.draining.load(Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, &b"{\"status\":\"draining\"}\n"[..])
    } else if core.shared.ready.load(Relaxed) {
        (StatusCode::OK, &b"{\"status\":\"ready\"}\n"[..])
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, &b"{\"status\":\"no endpoint has answered yet\"}\n"[..])
    };
    let mut response = json(Bytes::from_static(body));
    *response.status_mut() = status;
    response
}
