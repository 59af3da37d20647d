//! A request's way: read, understand, route, pass the answer on.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use api::{Dialect, Operation, RequestFields, Routed};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::{HeaderValue, Method, Request, Response};
use hyper::body::Incoming;
use scheduling::{PrefixHashes, Wanted};

use crate::body::ResponseBody;
use crate::caller;
use crate::client::Peer;
use crate::core::Core;
use crate::pages;
use crate::receive::{discard, receive};
use crate::refuse::Refused;
use crate::route::{Routing, no_endpoint, route, unknown_model};
use crate::settings::ExtraPath;
use crate::ticket::Ticket;
use crate::upstream::Answer;
use crate::world::ModelLabel;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_RIDGE_ENDPOINT: HeaderName = HeaderName::from_static("x-ridge-endpoint");
const X_RIDGE_ATTEMPTS: HeaderName = HeaderName::from_static("x-ridge-attempts");

/// Longest request id taken over from a client.
const MAX_REQUEST_ID: usize = 128;

/// Serves one request.
pub async fn serve(core: Rc<Core>, peer: Rc<Peer>, request: Request<Incoming>) -> Response<ResponseBody> {
    // Probes come every second for ever: they are answered before anything is counted or logged.
    if matches!(*request.method(), Method::GET | Method::HEAD)
        && let Some(response) = pages::health(&core, request.uri().path())
    {
        peer.vitals.request_began();
        peer.vitals.request_ended();
        return response.map(ResponseBody::Own);
    }
    let started = Instant::now();
    let (mut parts, incoming) = request.into_parts();
    let id = parts.headers.get(X_REQUEST_ID).filter(|id| is_usable_id(id)).cloned();
    let id = id.unwrap_or_else(|| core.request_id());
    let mut ticket = Ticket::new(&core, peer, started, id, parts.method, parts.uri);
    let http1 = parts.version < http::Version::HTTP_2;
    let http1_1 = parts.version == http::Version::HTTP_11;

    let mut unread = Some(incoming);
    let mut response = match dispatch(&mut ticket, &mut parts.headers, http1_1, &mut unread).await {
        Ok(Outcome::Own(own)) => {
            ticket.answered(own.status().as_u16());
            ticket.complete();
            decorate(&ticket, own.map(ResponseBody::Own))
        }
        Ok(Outcome::Answer(answer)) => {
            let Answer { status, headers, body } = answer;
            ticket.answer_began(status.as_u16(), &headers);
            let mut response = Response::new(());
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            let response = decorate(&ticket, response);
            response.map(|()| ResponseBody::passing(body, ticket))
        }
        Err(refused) => {
            if let Some(incoming) = unread
                && !parts.headers.contains_key(header::EXPECT)
            {
                discard(incoming, ticket.world().policy.body_limit).await;
            }
            let response = refused.response();
            ticket.refused(response.status().as_u16(), refused.code, Some(refused.message.into_owned()));
            decorate(&ticket, response.map(ResponseBody::Own))
        }
    };
    if http1 && core.shared.draining.load(Relaxed) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// What a request comes to, if it is not refused.
enum Outcome {
    /// The gateway's own answer.
    Own(Response<Bytes>),
    /// An endpoint's.
    Answer(Answer),
}

/// Finds out what is asked for, and gets it. A body that is not needed stays in `unread`.
async fn dispatch(
    ticket: &mut Ticket,
    headers: &mut HeaderMap,
    http1_1: bool,
    unread: &mut Option<Incoming>,
) -> Result<Outcome, Refused> {
    let (method, uri) = (ticket.method().clone(), ticket.uri().clone());
    let path = uri.path();
    let routed = api::route(method.as_str(), path);
    let dialect = dialect_of(routed);
    if headers.get_all(header::AUTHORIZATION).into_iter().nth(1).is_some() {
        return Err(Refused::new(
            dialect,
            400,
            "several_authorizations",
            "the request has more than one Authorization header; two readers could believe different ones: send one",
        ));
    }
    if http1_1 && headers.get_all(header::HOST).iter().count() != 1 {
        return Err(Refused::new(
            dialect,
            400,
            "no_single_host",
            "the request has no Host field, or several; HTTP/1.1 wants exactly one",
        ));
    }
    let world = Rc::clone(ticket.world());
    let size = head_size(ticket, headers);
    if size > world.policy.header_bytes {
        let message = format!(
            "the request's line and fields have {size} bytes; the limit is {} (`limits.header_bytes`)",
            world.policy.header_bytes
        );
        return Err(Refused::new(dialect, 431, "head_too_large", message));
    }
    if let Routed::Known(operation) = routed {
        ticket.set_operation(operation);
    }
    caller::admit(ticket, headers, dialect)?;
    match routed {
        Routed::Known(operation) => match operation {
            Operation::ModelList => Ok(Outcome::Own(pages::model_list(ticket))),
            Operation::ModelDetail => pages::model_detail(ticket, path).map(Outcome::Own),
            _ => inference(ticket, headers, unread, operation).await,
        },
        Routed::WrongMethod { allow, operation } => {
            let message = format!("{path} is called with {allow}, not with {method}");
            Err(Refused::new(operation.dialect(), 405, "method_not_allowed", message)
                .with_header(header::ALLOW, HeaderValue::from_static(allow)))
        }
        Routed::Unknown => match world.policy.extra_paths.iter().find(|extra| extra.covers(path)) {
            Some(extra) if extra.methods.contains(&method) => {
                caller::may_pass(ticket, path)?;
                pass_on(ticket, headers, unread).await
            }
            Some(extra) => Err(wrong_extra_method(extra, path, &method)),
            None => Err(unknown_path(dialect, path)),
        },
    }
}

/// The shape of errors that who calls this expects; OpenAI's where it is no call that is known.
fn dialect_of(routed: Routed) -> Dialect {
    match routed {
        Routed::Known(operation) | Routed::WrongMethod { operation, .. } => operation.dialect(),
        Routed::Unknown => Dialect::OpenAi,
    }
}

/// Bytes of a head in HTTP/1.1's form.
fn head_size(ticket: &Ticket, headers: &HeaderMap) -> usize {
    let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    ticket.path_and_query().len() + 16 + fields.sum::<usize>()
}

fn unknown_path(dialect: Dialect, path: &str) -> Refused {
    let shown: String = path.chars().take(200).collect();
    let message = format!(
        "{shown} is not an inference path. Engines have paths that unload models or run commands, so others are \
         passed on only when listed under `allow_paths` in the gateway's configuration"
    );
    Refused::new(dialect, 404, "unknown_path", message)
}

fn wrong_extra_method(extra: &ExtraPath, path: &str, method: &Method) -> Refused {
    let allow: Vec<&str> = extra.methods.iter().map(Method::as_str).collect();
    let allow = allow.join(", ");
    let message = format!("{path} is passed on for {allow}, not for {method} (see `allow_paths`)");
    let refused = Refused::new(Dialect::OpenAi, 405, "method_not_allowed", message);
    match HeaderValue::from_str(&allow) {
        Ok(allow) => refused.with_header(header::ALLOW, allow),
        Err(_) => refused,
    }
}

/// An inference call: understand the body, then route.
async fn inference(
    ticket: &mut Ticket,
    headers: &HeaderMap,
    unread: &mut Option<Incoming>,
    operation: Operation,
) -> Result<Outcome, Refused> {
    let dialect = operation.dialect();
    if let Some(coding) = headers.get(header::CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        let message = format!("the body is encoded as {coding:?}; send it without Content-Encoding");
        return Err(Refused::new(dialect, 415, "unsupported_content_encoding", message));
    }
    let world = Rc::clone(ticket.world());
    let received = receive(ticket.core(), unread, &world.policy, dialect).await?;
    ticket.received(received.body.len());
    let fields = understand(operation, headers, &received.body).map_err(|error| {
        let refused = Refused::new(dialect, 400, error.code.as_str(), error.message.clone());
        match error.param {
            Some(param) => refused.with_param(param),
            None => refused,
        }
    })?;
    let wanted = match &fields.model {
        Some(model) => {
            let name = model.text(&received.body);
            caller::may_use(ticket, dialect, &name)?;
            match world.fleet.model(&name) {
                Some(model) => Wanted::Model(model),
                None if world.fleet.has_unknown_models() => Wanted::UnknownName,
                None if world.fleet.members().is_empty() => return Err(no_endpoint(dialect, &world)),
                None => return Err(unknown_model(dialect, &name, ticket)),
            }
        }
        None => match world.fleet.only_model() {
            Some(model) => {
                caller::may_use(ticket, dialect, world.fleet.model_name(model))?;
                Wanted::Model(model)
            }
            None if world.fleet.model_names().nth(1).is_some() => {
                return Err(Refused::new(dialect, 400, "missing_model",
                    "the body names no `model`, and the endpoints here serve several; name one from GET /v1/models")
                    .with_param("model"));
            }
            None => {
                caller::may_use_all(ticket, dialect)?;
                Wanted::Any
            }
        },
    };
    let label = match wanted {
        Wanted::Model(model) => world.label(Some(model)),
        _ => ModelLabel::OTHER,
    };
    ticket.set_model(label);
    let prefix = match world.policy.prefix_affinity {
        true => PrefixHashes::of(&received.body, &fields.prompt, u64::from(label.0)),
        false => PrefixHashes::default(),
    };
    let repeatable = operation.is_inference() && fields.is_replayable(operation);
    let routing = Routing { wanted, prefix, repeatable, dialect };
    route(ticket, headers, Some(&received), routing).await.map(Outcome::Answer)
}

fn understand(
    operation: Operation,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<RequestFields, api::BodyError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let fields = api::scan_body(operation, kind, body)?;
    fields.require_model(operation)?;
    Ok(fields)
}

/// A path that the configuration lists: passed on as it is.
async fn pass_on(
    ticket: &mut Ticket,
    headers: &HeaderMap,
    unread: &mut Option<Incoming>,
) -> Result<Outcome, Refused> {
    let world = Rc::clone(ticket.world());
    let received = receive(ticket.core(), unread, &world.policy, Dialect::OpenAi).await?;
    ticket.received(received.body.len());
    let has_body = !received.body.is_empty() || headers.contains_key(header::CONTENT_LENGTH);
    let routing = Routing {
        wanted: Wanted::Any,
        prefix: PrefixHashes::default(),
        repeatable: false,
        dialect: Dialect::OpenAi,
    };
    route(ticket, headers, has_body.then_some(&received), routing).await.map(Outcome::Answer)
}

fn is_usable_id(id: &HeaderValue) -> bool {
    !id.is_empty() && id.len() <= MAX_REQUEST_ID && id.as_bytes().iter().all(u8::is_ascii_graphic)
}

/// Adds the gateway's own fields.
fn decorate<B>(ticket: &Ticket, mut response: Response<B>) -> Response<B> {
    let on = ticket.world().policy.headers;
    let headers = response.headers_mut();
    if on.request_id {
        headers.insert(X_REQUEST_ID, ticket.id().clone());
    }
    if on.endpoint
        && let Some(name) = ticket.member().and_then(|member| ticket.world().name_values.get(member))
    {
        headers.insert(X_RIDGE_ENDPOINT, name.clone());
    }
    if on.attempts && ticket.attempts() > 0 {
        let attempts = match ticket.attempts() {
            1 => HeaderValue::from_static("1"),
            attempts => HeaderValue::from(attempts),
        };
        headers.insert(X_RIDGE_ATTEMPTS, attempts);
    }
    response
}
