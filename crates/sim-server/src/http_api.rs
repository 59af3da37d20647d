//! Paths, bodies and faults: from an HTTP request to a response.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::Value;

use crate::api::refusal::Refused;
use crate::api::{Call, chat, completions, embeddings, info, messages, rerank, responses, sglang, tokenize};
use crate::body::{Cut, SimBody};
use crate::connection::Conn;
use crate::fault::{Fault, FaultKind};
use crate::metrics;
use crate::options::EngineKind;
use crate::replica::Replica;

/// Largest request body; the same as the gateway's default.
const MAX_BODY_BYTES: usize = 64 << 20;

/// Answers one request; never fails.
pub async fn answer(
    replica: Arc<Replica>,
    conn: Arc<Conn>,
    request: Request<Incoming>,
) -> Result<Response<SimBody>, Infallible> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    if path == "/sim/fault" {
        return Ok(fault_control(&replica, &head, body).await.unwrap_or_else(Refused::into_response));
    }
    let route = Route::find(&head.method, path, replica.kind);
    let fault = replica.faults.due(path, matches!(route, Some(Route::Inference(_))));
    let cut = match fault {
        None => None,
        Some(fault) => match fault.kind {
            FaultKind::Reset | FaultKind::Stall => Some(Cut::new(&fault, conn, replica.clone())),
            _ => return Ok(whole_fault(&fault, &replica).await),
        },
    };
    let mut call = Call { replica, cut };
    Ok(match route {
        Some(Route::Inference(handler)) => infer(handler, call, body).await,
        Some(Route::Page(page)) => {
            let response = serve_page(page, &call.replica);
            match call.cut.take() {
                Some(cut) => cut_page(cut, response).await,
                None => response,
            }
        }
        None => Refused::no_path(&head.method, path).into_response(),
    })
}

/// What takes a JSON body.
#[derive(Clone, Copy)]
enum Handler {
    Chat,
    Completions,
    Responses,
    Messages,
    CountTokens,
    Embeddings,
    Rerank,
    Score,
    Tokenize,
    Detokenize,
    SglangGenerate,
}

/// What needs no body.
#[derive(Clone, Copy)]
enum Page {
    Models,
    Version,
    Health,
    Metrics,
    SglangModelInfo,
    SglangServerInfo,
}

enum Route {
    Inference(Handler),
    Page(Page),
}

impl Route {
    fn find(method: &Method, path: &str, kind: EngineKind) -> Option<Self> {
        let is_sglang = kind == EngineKind::Sglang;
        if *method == Method::POST {
            return Some(Self::Inference(match path {
                "/v1/chat/completions" => Handler::Chat,
                "/v1/completions" => Handler::Completions,
                "/v1/responses" => Handler::Responses,
                "/v1/messages" => Handler::Messages,
                "/v1/messages/count_tokens" => Handler::CountTokens,
                "/v1/embeddings" => Handler::Embeddings,
                "/v1/rerank" | "/rerank" => Handler::Rerank,
                "/v1/score" | "/score" => Handler::Score,
                "/tokenize" => Handler::Tokenize,
                "/detokenize" => Handler::Detokenize,
                "/generate" if is_sglang => Handler::SglangGenerate,
                "/ping" => return Some(Self::Page(Page::Health)),
                _ => return None,
            }));
        }
        if *method != Method::GET && *method != Method::HEAD {
            return None;
        }
        Some(Self::Page(match path {
            "/v1/models" => Page::Models,
            "/version" => Page::Version,
            "/health" | "/ping" => Page::Health,
            "/metrics" => Page::Metrics,
            "/prometheus/metrics" if kind == EngineKind::Trtllm => Page::Metrics,
            "/get_model_info" | "/model_info" if is_sglang => Page::SglangModelInfo,
            "/server_info" | "/get_server_info" if is_sglang => Page::SglangServerInfo,
            "/health_generate" if is_sglang => Page::Health,
            _ => return None,
        }))
    }
}

async fn infer(handler: Handler, call: Call, body: Incoming) -> Response<SimBody> {
    let answered = async {
        let mut call = call;
        let body = read_json(body).await?;
        let response = match handler {
            Handler::Chat => return chat::answer(call, body).await,
            Handler::Completions => return completions::answer(call, body).await,
            Handler::Responses => return responses::answer(call, body).await,
            Handler::Messages => return messages::answer(call, body).await,
            Handler::Embeddings => return embeddings::answer(call, body).await,
            Handler::Rerank => return rerank::rerank(call, body).await,
            Handler::Score => return rerank::score_pairs(call, body).await,
            Handler::SglangGenerate => return sglang::generate(call, body).await,
            Handler::CountTokens => messages::count_tokens(&call, &body)?,
            Handler::Tokenize => tokenize::tokenize(&call, &body)?,
            Handler::Detokenize => tokenize::detokenize(&call, &body)?,
        };
        Ok(match call.cut.take() {
            Some(cut) => cut_page(cut, response).await,
            None => response,
        })
    };
    let anthropic = matches!(handler, Handler::Messages | Handler::CountTokens);
    match answered.await {
        Ok(response) => response,
        Err(refused) if anthropic => refused.into_anthropic_response(),
        Err(refused) => refused.into_response(),
    }
}

fn serve_page(page: Page, replica: &Replica) -> Response<SimBody> {
    match page {
        Page::Models => json_response(info::models(replica)),
        Page::Version => json_response(info::version(replica)),
        Page::Health => Response::new(SimBody::full(Bytes::new())),
        Page::Metrics => {
            let mut response = Response::new(SimBody::full(metrics::page(replica)));
            let plain = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
            response
        }
        Page::SglangModelInfo => json_response(sglang::model_info(replica)),
        Page::SglangServerInfo => json_response(sglang::server_info(replica)),
    }
}

/// A 200 with a JSON body.
pub fn json_response(body: impl Into<Bytes>) -> Response<SimBody> {
    let mut response = Response::new(SimBody::full(body));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

async fn read_json(body: Incoming) -> Result<Value, Refused> {
    let bytes = read_body(body).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refused::bad_request(format!("the body is not JSON: {error}")))
}

async fn read_body(body: Incoming) -> Result<Bytes, Refused> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refused::too_large(MAX_BODY_BYTES)),
        Err(error) => Err(Refused::bad_request(format!("the body broke off: {error}"))),
    }
}

/// A fault that stands in for the whole answer.
async fn whole_fault(fault: &Fault, replica: &Replica) -> Response<SimBody> {
    tokio::time::sleep(fault.after()).await;
    replica.faults.count(fault.kind);
    if fault.kind == FaultKind::Hang {
        std::future::pending::<()>().await;
    }
    let status = fault.status.and_then(|status| StatusCode::from_u16(status).ok());
    Refused::injected(status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE)).into_response()
}

/// A page such as the metrics, cut off: reset before it, or half of it.
async fn cut_page(mut cut: Cut, response: Response<SimBody>) -> Response<SimBody> {
    let nothing = crate::body::Generation { choices: Vec::new(), prompt_tokens: 0 };
    cut.due(&nothing).await;
    if !cut.is_stall() {
        return std::future::pending().await;
    }
    response.map(|body| match body {
        SimBody::Full(Some(bytes)) => SimBody::stalled(bytes),
        other => other,
    })
}

/// `/sim/fault`: POST a fault, DELETE all, GET what is active.
async fn fault_control(
    replica: &Arc<Replica>,
    head: &http::request::Parts,
    body: Incoming,
) -> Result<Response<SimBody>, Refused> {
    let target = |index: Option<usize>| match index {
        None => Ok(replica.clone()),
        Some(index) => replica.other(index).ok_or_else(|| {
            Refused::bad_request(format!("replica is {index}, and this process has no such replica"))
        }),
    };
    let asked = match head.uri.query().unwrap_or("") {
        "" => None,
        query => match query.strip_prefix("replica=").map(str::parse) {
            Some(Ok(index)) => Some(index),
            _ => {
                return Err(Refused::bad_request(format!(
                    "the query is {query:?}; only replica=INDEX is known"
                )));
            }
        },
    };
    match head.method {
        Method::POST => {
            let fault = Fault::read(&read_body(body).await?).map_err(Refused::bad_request)?;
            let target = target(fault.replica.or(asked))?;
            target.faults.add(fault).map_err(Refused::bad_request)?;
            Ok(json_response(target.faults.describe().to_string()))
        }
        Method::DELETE => {
            let target = target(asked)?;
            target.faults.clear();
            Ok(json_response(target.faults.describe().to_string()))
        }
        Method::GET => Ok(json_response(target(asked)?.faults.describe().to_string())),
        _ => Err(Refused::no_path(&head.method, "/sim/fault")),
    }
}
