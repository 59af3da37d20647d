//! Refusals: the gateway's own errors, in the shape of the API that was called.

use std::borrow::Cow;

use api::Dialect;
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderValue, Response, StatusCode};

/// The whole answer to an HTTP/1.1 client whose request's head did not come in time: there is no request that hyper
/// could answer.
pub fn head_too_slow() -> Vec<u8> {
    let message = "the request's line and fields did not come in time (`timeouts.header`): send them at once";
    let refused = Refused::new(Dialect::OpenAi, 408, "head_too_slow", message);
    let body = api::error_body(refused.dialect, refused.status, refused.code, &refused.message, None);
    let mut answer = format!(
        "HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body.as_ref());
    answer
}

/// A request that is not passed on, and why.
#[derive(Debug)]
pub struct Refused {
    /// The stable name of the reason.
    pub code: &'static str,
    /// What a person reads.
    pub message: Cow<'static, str>,
    dialect: Dialect,
    status: u16,
    param: Option<&'static str>,
    /// Boxed: most refusals have none, and every step of a request carries room for a refusal.
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl Refused {
    /// A refusal with this status, code and message.
    pub fn new(
        dialect: Dialect,
        status: u16,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { code, message: message.into(), dialect, status, param: None, header: None }
    }

    /// Names the field at fault.
    pub fn with_param(mut self, param: &'static str) -> Self {
        self.param = Some(param);
        self
    }

    /// Adds a header field.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some(Box::new((name, value)));
        self
    }

    /// Says when to try again.
    pub fn retry_after_s(self, seconds: u64) -> Self {
        self.with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
    }

    /// The answer to the client.
    pub fn response(&self) -> Response<Bytes> {
        let body = api::error_body(self.dialect, self.status, self.code, &self.message, self.param);
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(field) = &self.header {
            headers.insert(field.0.clone(), field.1.clone());
        }
        response
    }
}
