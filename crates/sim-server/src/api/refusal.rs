//! Errors in the shape of the API that was called.

use http::{Method, Response, StatusCode};
use simulation::Refusal;

use super::quoted;
use crate::body::SimBody;
use crate::http_api::json_response;

/// Why a request is not answered.
#[derive(Debug)]
pub struct Refused {
    status: StatusCode,
    kind: &'static str,
    message: String,
    param: Option<&'static str>,
}

impl Refused {
    /// Something in the request is wrong.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "BadRequestError",
            message: message.into(),
            param: None,
        }
    }

    /// The named field is wrong.
    pub fn bad_field(param: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(param), ..Self::bad_request(message) }
    }

    /// Another model is served here.
    pub fn no_model(asked: &str, served: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            kind: "NotFoundError",
            message: format!("The model `{asked}` does not exist; this engine serves `{served}`."),
            param: Some("model"),
        }
    }

    /// Nothing is served under that path.
    pub fn no_path(method: &Method, path: &str) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            kind: "NotFoundError",
            message: format!("There is nothing at {method} {path}."),
            param: None,
        }
    }

    /// The body passes the limit.
    pub fn too_large(limit: usize) -> Self {
        Self {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            kind: "BadRequestError",
            message: format!("The body is longer than {limit} bytes, which is the most."),
            param: None,
        }
    }

    /// A fault asked for this.
    pub fn injected(status: StatusCode) -> Self {
        let message = format!("A fault was asked for: status {}.", status.as_u16());
        Self { status, kind: "InjectedFault", message, param: None }
    }

    /// The engine does not take it.
    pub fn engine(refusal: Refusal) -> Self {
        let (status, kind) = match refusal {
            Refusal::QueueFull { .. } => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError"),
            _ => (StatusCode::BAD_REQUEST, "BadRequestError"),
        };
        Self { status, kind, message: refusal.to_string(), param: None }
    }

    /// As vLLM says it.
    pub fn into_response(self) -> Response<SimBody> {
        let param = self.param.map_or_else(|| "null".to_owned(), quoted);
        let body = format!(
            r#"{{"error":{{"message":{},"type":"{}","param":{param},"code":{}}}}}"#,
            quoted(&self.message),
            self.kind,
            self.status.as_u16()
        );
        let mut response = json_response(body);
        *response.status_mut() = self.status;
        response
    }

    /// As Anthropic says it.
    pub fn into_anthropic_response(self) -> Response<SimBody> {
        let kind = match self.status {
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            status if status.is_server_error() => "api_error",
            _ => "invalid_request_error",
        };
        let body =
            format!(r#"{{"type":"error","error":{{"type":"{kind}","message":{}}}}}"#, quoted(&self.message));
        let mut response = json_response(body);
        *response.status_mut() = self.status;
        response
    }
}
