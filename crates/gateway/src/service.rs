//! A request's way: read, understand, pick, send, pass the answer on.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use api::{Dialect, Operation, RequestFields, Routed};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use scheduling::{Ask, EndpointId, Health, PrefixHashes, Refusal, Wanted, pick};
use smallvec::SmallVec;

use crate::body::ResponseBody;
use crate::core::Core;
use crate::receive::{Received, discard, receive};
use crate::refuse::Refused;
use crate::settings::{ExtraPath, Level, Notice};
use crate::ticket::Ticket;
use crate::upstream::{Answer, ExchangeError, Outgoing, send};
use crate::world::{ModelLabel, World};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_RIDGE_ENDPOINT: HeaderName = HeaderName::from_static("x-ridge-endpoint");
const X_RIDGE_ATTEMPTS: HeaderName = HeaderName::from_static("x-ridge-attempts");

/// Longest request id taken over from a client.
const MAX_REQUEST_ID: usize = 128;

/// Model names listed in the refusal of an unknown one.
const MODELS_NAMED: usize = 20;

/// Serves one request.
pub async fn serve(core: Rc<Core>, request: Request<Incoming>) -> Response<ResponseBody> {
    // Probes come every second for ever: they are answered before anything is counted or logged.
    if matches!(*request.method(), Method::GET | Method::HEAD)
        && let Some(response) = health(&core, request.uri().path())
    {
        return response.map(ResponseBody::Own);
    }
    let started = Instant::now();
    let (parts, incoming) = request.into_parts();
    let id = parts.headers.get(X_REQUEST_ID).filter(|id| is_usable_id(id)).cloned();
    let id = id.unwrap_or_else(|| core.request_id());
    let mut ticket = Ticket::new(&core, started, id, parts.method, parts.uri);
    let http1 = parts.version < http::Version::HTTP_2;
    let http1_1 = parts.version == http::Version::HTTP_11;

    let mut unread = Some(incoming);
    let mut response = match dispatch(&mut ticket, &parts.headers, http1_1, &mut unread).await {
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
    headers: &HeaderMap,
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
    match routed {
        Routed::Known(operation) => {
            ticket.set_operation(operation);
            match operation {
                Operation::ModelList => Ok(Outcome::Own(json(world.models_json.clone()))),
                Operation::ModelDetail => model_detail(&world, path),
                _ => inference(ticket, headers, unread, operation).await,
            }
        }
        Routed::WrongMethod { allow, operation } => {
            let message = format!("{path} is called with {allow}, not with {method}");
            Err(Refused::new(operation.dialect(), 405, "method_not_allowed", message)
                .with_header(header::ALLOW, HeaderValue::from_static(allow)))
        }
        Routed::Unknown => match world.policy.extra_paths.iter().find(|extra| extra.covers(path)) {
            Some(extra) if extra.methods.contains(&method) => pass_on(ticket, headers, unread).await,
            Some(extra) => Err(wrong_extra_method(extra, path, &method)),
            None => Err(unknown_path(dialect, path)),
        },
    }
}

fn health(core: &Core, path: &str) -> Option<Response<Bytes>> {
    match path {
        "/livez" => Some(live()),
        "/readyz" => Some(ready(core)),
        _ => None,
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
    let received = receive(&ticket.core().bodies, unread, &world.policy, dialect).await?;
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
            match world.fleet.model(&name) {
                Some(model) => Wanted::Model(model),
                None if world.fleet.has_unknown_models() => Wanted::UnknownName,
                None if world.fleet.members().is_empty() => return Err(no_endpoint(dialect, &world)),
                None => return Err(unknown_model(dialect, &name, &world)),
            }
        }
        None => match world.fleet.only_model() {
            Some(model) => Wanted::Model(model),
            None if world.fleet.model_names().nth(1).is_some() => {
                return Err(Refused::new(dialect, 400, "missing_model",
                    "the body names no `model`, and the endpoints here serve several; name one from GET /v1/models")
                    .with_param("model"));
            }
            None => Wanted::Any,
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
    route(ticket, headers, Some(&received), routing).await
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
    let received = receive(&ticket.core().bodies, unread, &world.policy, Dialect::OpenAi).await?;
    ticket.received(received.body.len());
    let has_body = !received.body.is_empty() || headers.contains_key(header::CONTENT_LENGTH);
    let routing = Routing {
        wanted: Wanted::Any,
        prefix: PrefixHashes::default(),
        repeatable: false,
        dialect: Dialect::OpenAi,
    };
    route(ticket, headers, has_body.then_some(&received), routing).await
}

/// What the choice and the retries depend on.
struct Routing {
    wanted: Wanted,
    prefix: PrefixHashes,
    repeatable: bool,
    dialect: Dialect,
}

/// Picks an endpoint and sends, again while that is allowed and useful.
async fn route(
    ticket: &mut Ticket,
    headers: &HeaderMap,
    received: Option<&Received>,
    routing: Routing,
) -> Result<Outcome, Refused> {
    let core = Rc::clone(ticket.core());
    let world = Rc::clone(ticket.world());
    let (method, id) = (ticket.method().clone(), ticket.id().clone());
    let mut tried: SmallVec<[EndpointId; 4]> = SmallVec::new();
    let mut last: Option<(usize, ExchangeError)> = None;
    // A reused connection that was closed meanwhile says nothing about its endpoint: one more try on a new
    // connection is not counted against the bound, and may go to the same endpoint.
    let mut fresh = false;
    let mut stale_pardoned = false;
    loop {
        // Asking the clock has its price too: a first choice is made at the time the request came.
        let at = if ticket.attempts() == 0 { ticket.started() } else { Instant::now() };
        let ask = Ask {
            model: routing.wanted,
            prefix: &routing.prefix,
            tried: &tried,
            now_ms: core.shared.ms(at),
            fresh_ms: world.policy.signals_fresh_ms(),
            seed: core.random(),
        };
        let decision = match pick(&world.fleet, &core.shared.index, &ask) {
            Ok(decision) => decision,
            Err(Refusal::NoEndpoint) if fresh && !stale_pardoned && !tried.is_empty() => {
                stale_pardoned = true;
                tried.clear();
                continue;
            }
            Err(refusal) => {
                return Err(match last {
                    Some((member, error)) => failed(routing.dialect, &world, member, &error),
                    None if refusal == Refusal::AllFull => all_full(routing.dialect),
                    None => no_endpoint(routing.dialect, &world),
                });
            }
        };
        let member = &world.fleet.members()[decision.member];
        let Some(in_flight) = member.endpoint.enter() else {
            // Another core took the last place between the look and the step: it is full, and the next look sees
            // that.
            continue;
        };
        ticket.placed(decision, in_flight);
        let target = &world.targets[decision.member];
        let outgoing = Outgoing {
            method: &method,
            path_and_query: ticket.path_and_query(),
            headers,
            request_id: &id,
            body: received.map(|received| &received.body),
            trailers: received.and_then(|received| received.trailers.as_ref()),
        };
        match send(&core.pool, target, &outgoing, fresh).await {
            Ok(answer) => {
                note_health(&core, &world, decision.member, Health::Up, None);
                if matches!(answer.status.as_u16(), 502..=504) {
                    member.endpoint.turned_away(core.shared.ms(Instant::now()));
                }
                if answer.status.is_success() {
                    core.shared.index.record(&routing.prefix, target.id);
                }
                return Ok(Outcome::Answer(answer));
            }
            Err(error) => {
                ticket.attempt_failed();
                let stale = matches!(error, ExchangeError::Closed { reused: true, .. });
                if matches!(error, ExchangeError::Connect(_)) {
                    note_health(&core, &world, decision.member, Health::Down, Some(&error));
                }
                if matches!(error, ExchangeError::Closed { reused: false, .. }) {
                    member.endpoint.turned_away(core.shared.ms(Instant::now()));
                }
                if stale {
                    core.pool.forget(target.id);
                    fresh = true;
                }
                let bound = world.policy.attempts + u32::from(fresh);
                if !error.may_retry(routing.repeatable) || ticket.attempts() >= bound {
                    return Err(failed(routing.dialect, &world, decision.member, &error));
                }
                tried.push(target.id);
                last = Some((decision.member, error));
            }
        }
    }
}

fn note_health(core: &Core, world: &World, member: usize, health: Health, error: Option<&ExchangeError>) {
    let endpoint = &world.fleet.members()[member].endpoint;
    if !endpoint.set_health(health) {
        return;
    }
    let name = &world.fleet.members()[member].name;
    match (health, error) {
        (Health::Down, Some(error)) => (core.notify)(Notice {
            level: Level::Warning,
            text: format!("endpoint {name} is down: {error}; it is tried again each second"),
        }),
        _ => {
            core.shared.ready.store(true, Relaxed);
            (core.notify)(Notice { level: Level::Info, text: format!("endpoint {name} is up") });
        }
    }
}

fn no_endpoint(dialect: Dialect, world: &World) -> Refused {
    let message = match world.fleet.members().len() {
        0 => "the gateway has no endpoints; add one under `upstreams`".to_owned(),
        count => format!("none of the {count} endpoints can take this request now; try again"),
    };
    Refused::new(dialect, 503, "no_endpoint", message).retry_after_s(1)
}

fn all_full(dialect: Dialect) -> Refused {
    let message = "every endpoint for this model is at its `max_in_flight`; try again";
    Refused::new(dialect, 429, "all_endpoints_full", message).retry_after_s(1)
}

fn unknown_model(dialect: Dialect, name: &str, world: &World) -> Refused {
    let shown: String = name.chars().take(100).collect();
    let mut known: Vec<&str> = world.fleet.model_names().take(MODELS_NAMED + 1).collect();
    let more = known.len() > MODELS_NAMED;
    known.truncate(MODELS_NAMED);
    let more = if more { ", …" } else { "" };
    let message = format!("the model `{shown}` is not served here; known: {}{more}", known.join(", "));
    Refused::new(dialect, 404, "unknown_model", message).with_param("model")
}

/// No endpoint could be reached, or the last one tried broke off: named, without its address.
fn failed(dialect: Dialect, world: &World, member: usize, error: &ExchangeError) -> Refused {
    let name = &world.fleet.members()[member].name;
    match error {
        ExchangeError::Connect(_) => {
            let message = format!("endpoint {name} cannot be reached: {error}; try again");
            Refused::new(dialect, 503, "upstream_unreachable", message).retry_after_s(1)
        }
        ExchangeError::TooLong => Refused::new(
            dialect,
            414,
            "uri_too_long",
            "the path and query are too long for HTTP/2: shorten them",
        ),
        ExchangeError::Local(_) => {
            Refused::new(dialect, 503, "gateway_exhausted", format!("{error}; try again")).retry_after_s(1)
        }
        _ => {
            let message = format!("endpoint {name} gave no answer: {error}");
            Refused::new(dialect, 502, "upstream_failed", message)
        }
    }
}

fn model_detail(world: &World, path: &str) -> Result<Outcome, Refused> {
    let name = path.strip_prefix("/v1/models/").unwrap_or_default();
    let name = percent_decoded(name);
    match world.model_objects.binary_search_by(|(id, _)| (**id).cmp(&*name)) {
        Ok(found) => Ok(Outcome::Own(json(world.model_objects[found].1.clone()))),
        Err(_) => Err(unknown_model(Dialect::OpenAi, &name, world)),
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

fn json(body: Bytes) -> Response<Bytes> {
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
