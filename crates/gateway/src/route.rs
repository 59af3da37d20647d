//! Which endpoint gets a request, and which one next when that fails.

use std::rc::Rc;
use std::time::Instant;

use api::Dialect;
use http::HeaderMap;
use scheduling::{Ask, EndpointId, PrefixHashes, Refusal, Wanted, pick};
use smallvec::SmallVec;

use crate::caller;
use crate::health;
use crate::receive::Received;
use crate::refuse::Refused;
use crate::ticket::Ticket;
use crate::upstream::{Answer, ExchangeError, Outgoing, send};
use crate::world::World;

/// Model names listed in the refusal of an unknown one.
const MODELS_NAMED: usize = 20;

/// What the choice and the retries depend on.
#[derive(Debug)]
pub struct Routing {
    /// The model it asks for.
    pub wanted: Wanted,
    /// The prompt's blocks.
    pub prefix: PrefixHashes,
    /// Doing it twice does no harm.
    pub repeatable: bool,
    /// The shape of errors.
    pub dialect: Dialect,
}

/// Picks an endpoint and sends, again while that is allowed and useful.
pub async fn route(
    ticket: &mut Ticket,
    headers: &HeaderMap,
    received: Option<&Received>,
    routing: Routing,
) -> Result<Answer, Refused> {
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
                health::note(&core.shared, &core.notify, &member.endpoint, &member.name, Ok(()));
                if matches!(answer.status.as_u16(), 502..=504) {
                    member.endpoint.turned_away(core.shared.ms(Instant::now()));
                }
                if answer.status.is_success() {
                    core.shared.index.record(&routing.prefix, target.id);
                }
                return Ok(answer);
            }
            Err(error) => {
                ticket.attempt_failed();
                let stale = matches!(error, ExchangeError::Closed { reused: true, .. });
                if matches!(error, ExchangeError::Connect(_)) {
                    health::note(&core.shared, &core.notify, &member.endpoint, &member.name, Err(&error));
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

/// Nobody can take it.
pub fn no_endpoint(dialect: Dialect, world: &World) -> Refused {
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

/// Nobody is known to serve it: says who is.
pub fn unknown_model(dialect: Dialect, name: &str, ticket: &Ticket) -> Refused {
    let shown: String = name.chars().take(100).collect();
    let names = ticket.world().fleet.model_names().filter(|name| caller::can_see(ticket, name));
    let mut known: Vec<&str> = names.take(MODELS_NAMED + 1).collect();
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
