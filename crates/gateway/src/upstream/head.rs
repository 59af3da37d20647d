//! The heads of HTTP/1.1 messages to and from an upstream.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use thiserror::Error;

use super::framing::{Chunked, Framing};

/// Header fields an upstream may send.
const MAX_FIELDS: usize = 128;

/// What is wrong with a response's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeadError {
    /// Not an HTTP/1.x response head.
    #[error("the answer is not HTTP/1.1 (is this port another protocol's?)")]
    NotHttp,
    /// Larger than the limit.
    #[error("the answer's head has more than 128 fields or more bytes than the limit")]
    TooLarge,
    /// A transfer coding other than `chunked` alone, which was not asked for; or any from HTTP/1.0.
    #[error("the answer has a Transfer-Encoding other than chunked")]
    Coding,
    /// More informational answers than anyone needs.
    #[error("the answer is preceded by too many informational ones")]
    Interim,
    /// Another protocol from here on, which was not asked for.
    #[error("the answer switches protocols unasked")]
    Switch,
    /// Content-Length that is not one number.
    #[error("the answer's Content-Length is not one number")]
    Length,
}

/// A response's head.
#[derive(Debug)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// The end-to-end fields: those that are for this connection only are taken out.
    pub headers: HeaderMap,
    /// How the body ends; `None` for a response without one.
    pub framing: Option<Framing>,
    /// The connection can carry another request after this body.
    pub keep_alive: bool,
    /// Bytes of input that the head took.
    pub length: usize,
}

/// Parses a head; `None` if it is not complete yet.
pub fn parse_response(input: &[u8], method: &Method) -> Result<Option<ResponseHead>, HeadError> {
    let mut fields = [const { std::mem::MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        input,
        &mut fields,
    );
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLarge),
        Err(_) => return Err(HeadError::NotHttp),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(HeadError::NotHttp)?;
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(HeadError::Switch);
    }
    let version_1_1 = response.version == Some(1);

    // One copy of the head; every value is a slice of it.
    let block = Bytes::copy_from_slice(&input[..length]);
    let base = input.as_ptr() as usize;
    let mut headers = HeaderMap::with_capacity(response.headers.len());
    let mut chunked = false;
    let mut content_length: Option<u64> = None;
    let (mut close, mut keep) = (false, false);
    // What `Connection` names must be known before the fields, which it may follow.
    let mut named: Vec<&[u8]> = Vec::new();
    for field in response.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("connection")) {
        for token in tokens(field.value) {
            if token.eq_ignore_ascii_case(b"close") {
                close = true;
            } else if token.eq_ignore_ascii_case(b"keep-alive") {
                keep = true;
            } else {
                named.push(token);
            }
        }
    }
    for field in response.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| HeadError::NotHttp)?;
        if name == header::TRANSFER_ENCODING {
            for token in tokens(field.value) {
                if chunked || !version_1_1 || !token.eq_ignore_ascii_case(b"chunked") {
                    return Err(HeadError::Coding);
                }
                chunked = true;
            }
            continue;
        }
        if name == header::CONTENT_LENGTH {
            let value = parse_length(field.value).ok_or(HeadError::Length)?;
            if content_length.is_some_and(|before| before != value) {
                return Err(HeadError::Length);
            }
            if content_length.replace(value).is_none() {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(value));
            }
            continue; // the same again: once is enough
        }
        if is_hop_by_hop(&name) || named.iter().any(|token| token.eq_ignore_ascii_case(field.name.as_bytes()))
        {
            continue;
        }
        let start = field.value.as_ptr() as usize - base;
        let value = block.slice(start..start + field.value.len());
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| HeadError::NotHttp)?;
        headers.append(name, value);
    }
    let bodyless = method == Method::HEAD
        || status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED;
    let mut keep_alive = if version_1_1 { !close } else { keep && !close };
    let framing = if chunked {
        headers.remove(header::CONTENT_LENGTH);
        if content_length.is_some() {
            keep_alive = false; // two lengths: believe the coding, and do not use the connection again
        }
        Framing::Chunked(Chunked::default())
    } else {
        content_length.map_or(Framing::UntilClose, Framing::Length)
    };
    let framing = (!bodyless).then_some(framing);
    if matches!(framing, Some(Framing::UntilClose)) {
        keep_alive = false;
    }
    Ok(Some(ResponseHead { status, headers, framing, keep_alive, length }))
}

/// Fields that are for one connection only (RFC 9110 section 7.6.1), besides those that `Connection` names.
/// `Trailer` is not among them: it announces trailers, which are passed on.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        *name,
        header::CONNECTION
            | header::TE
            | header::TRANSFER_ENCODING
            | header::UPGRADE
            | header::PROXY_AUTHENTICATE
            | header::PROXY_AUTHORIZATION
    ) || matches!(name.as_str(), "keep-alive" | "proxy-connection" | "http2-settings")
}

/// Trailers that may go on. Fields that frame, route, authenticate or describe a message have no place there
/// (RFC 9110 section 6.5.1): a server that adds trailers to the head would take them for the head's own.
pub fn clean_trailers(mut trailers: HeaderMap) -> Option<HeaderMap> {
    let refused: Vec<HeaderName> = trailers.keys().filter(|name| !is_trailer(name)).cloned().collect();
    for name in refused {
        trailers.remove(name);
    }
    (!trailers.is_empty()).then_some(trailers)
}

fn is_trailer(name: &HeaderName) -> bool {
    let text = name.as_str();
    !(is_hop_by_hop(name)
        || matches!(
            *name,
            header::AUTHORIZATION
                | header::HOST
                | header::CONTENT_LENGTH
                | header::CONTENT_TYPE
                | header::CONTENT_ENCODING
                | header::CONTENT_RANGE
                | header::TRAILER
                | header::COOKIE
                | header::SET_COOKIE
                | header::WWW_AUTHENTICATE
                | header::CACHE_CONTROL
                | header::EXPECT
                | header::MAX_FORWARDS
                | header::PRAGMA
                | header::RANGE
                | header::AGE
                | header::EXPIRES
                | header::DATE
                | header::LOCATION
                | header::RETRY_AFTER
                | header::VARY
                | header::WARNING
        )
        || text.starts_with("x-ridge-")
        || text.starts_with("x-forwarded-")
        || text.starts_with("if-")
        || text.starts_with("authentication-")
        || matches!(text, "x-request-id" | "forwarded" | "via"))
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

/// Digits only, as RFC 9110 section 8.6 has it; a list of equal values is taken as one.
fn parse_length(value: &[u8]) -> Option<u64> {
    let mut found = None;
    for token in value.split(|&byte| byte == b',') {
        let token = token.trim_ascii();
        if token.is_empty() || !token.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let number: u64 = std::str::from_utf8(token).ok()?.parse().ok()?;
        if found.is_some_and(|before| before != number) {
            return None;
        }
        found = Some(number);
    }
    found
}

/// The client's fields that go on to an upstream: end-to-end ones only, without those that the gateway
/// writes itself. `replace_authorization` leaves the client's credentials out.
pub fn forwarded(
    headers: &HeaderMap,
    replace_authorization: bool,
) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    // Almost always there is no Connection field, or one that says keep-alive or close.
    let named: Vec<&[u8]> = headers
        .get_all(header::CONNECTION)
        .into_iter()
        .flat_map(|value| tokens(value.as_bytes()))
        .filter(|token| !token.eq_ignore_ascii_case(b"keep-alive") && !token.eq_ignore_ascii_case(b"close"))
        .collect();
    headers.iter().filter(move |(name, _)| {
        !(is_hop_by_hop(name)
            || matches!(**name, header::HOST | header::CONTENT_LENGTH | header::EXPECT)
            || (replace_authorization && is_credential(name))
            || name.as_str().starts_with("x-ridge-")
            || name.as_str() == "x-request-id"
            || named.iter().any(|token| token.eq_ignore_ascii_case(name.as_str().as_bytes())))
    })
}

/// Where clients put keys. One that is meant for the gateway does not go to an engine that gets its own.
fn is_credential(name: &HeaderName) -> bool {
    *name == header::AUTHORIZATION || matches!(name.as_str(), "x-api-key" | "api-key")
}

/// Everything a request head to an upstream is made of.
#[derive(Debug)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// The upstream's base path, without a slash at its end.
    pub base: &'a str,
    /// The client's path and query, as sent.
    pub path_and_query: &'a str,
    /// The upstream's `Host`.
    pub host: &'a str,
    /// The client's fields.
    pub headers: &'a HeaderMap,
    /// Credentials of the upstream, instead of the client's.
    pub authorization: Option<&'a HeaderValue>,
    /// The request's id.
    pub request_id: &'a HeaderValue,
    /// Length of the body; `None`: no body.
    pub body_length: Option<usize>,
    /// Send the body in chunks, since trailers follow.
    pub chunked: bool,
}

impl RequestHead<'_> {
    /// Writes the head in HTTP/1.1's form.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.base.as_bytes());
        out.extend_from_slice(self.path_and_query.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
        out.extend_from_slice(self.host.as_bytes());
        out.extend_from_slice(b"\r\n");
        for (name, value) in forwarded(self.headers, self.authorization.is_some()) {
            field(out, name.as_str(), value.as_bytes());
        }
        if let Some(value) = self.authorization {
            field(out, "authorization", value.as_bytes());
        }
        field(out, "x-request-id", self.request_id.as_bytes());
        if self.chunked {
            field(out, "transfer-encoding", b"chunked");
        } else if let Some(length) = self.body_length {
            out.extend_from_slice(b"content-length: ");
            decimal(out, length);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes a field's line.
pub fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes a number in decimal, without the formatting machinery.
pub fn decimal(out: &mut Vec<u8>, mut number: usize) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &str) -> Result<Option<ResponseHead>, HeadError> {
        parse_response(head.as_bytes(), &Method::POST)
    }

    #[test]
    fn fields_for_one_connection_stay_behind() {
        let head = parse(
            "HTTP/1.1 200 OK\r\nConnection: x-secret, keep-alive\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\n\
             Content-Length: 2\r\nX-Kept: yes\r\nTrailer: x-sum\r\n\r\n",
        )
        .unwrap()
        .unwrap();
        let names: Vec<_> = head.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["content-length", "x-kept", "trailer"]);
        assert!(head.keep_alive);
        assert!(matches!(head.framing, Some(Framing::Length(2))));
    }

    #[test]
    fn framing_by_the_book() {
        let framing = |head: &str| parse(head).map(|head| head.unwrap().framing);
        let chunked = framing("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        assert!(matches!(chunked, Some(Framing::Chunked(_))));
        for bad in [
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        ] {
            assert_eq!(framing(bad).unwrap_err(), HeadError::Coding, "{bad:?} was taken");
        }
        assert_eq!(framing("HTTP/1.1 101 Switch\r\n\r\n").unwrap_err(), HeadError::Switch);
        assert!(matches!(framing("HTTP/1.1 200 OK\r\n\r\n").unwrap(), Some(Framing::UntilClose)));
        assert!(framing("HTTP/1.1 204 OK\r\ncontent-length: 5\r\n\r\n").unwrap().is_none());
        for bad in ["1\r\ncontent-length: 2", "+1", "1, 2", "", "0x1", "99999999999999999999"] {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bad}\r\n\r\n");
            assert_eq!(framing(&head).unwrap_err(), HeadError::Length, "{bad:?} was taken");
        }
        let both = parse("HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n");
        let both = both.unwrap().unwrap();
        assert!(!both.keep_alive && !both.headers.contains_key("content-length"));
    }

    #[test]
    fn a_connection_is_kept_only_when_both_sides_know_where_the_body_ends() {
        let keep = |head: &str| parse(head).unwrap().unwrap().keep_alive;
        assert!(keep("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
        assert!(!keep("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: Close\r\n\r\n"));
        assert!(!keep("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"));
        assert!(keep("HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\n\r\n"));
        assert!(!keep("HTTP/1.1 200 OK\r\n\r\n"));
    }

    #[test]
    fn trailers_hold_nothing_that_belongs_to_a_head() {
        let mut trailers = HeaderMap::new();
        for name in [
            "authorization",
            "host",
            "content-length",
            "transfer-encoding",
            "x-ridge-tenant",
            "x-request-id",
            "x-sum",
        ] {
            trailers.append(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        let clean = clean_trailers(trailers).unwrap();
        assert_eq!(clean.keys().collect::<Vec<_>>(), ["x-sum"]);
    }

    #[test]
    fn garbage_is_an_error_and_a_beginning_is_not() {
        assert_eq!(parse("SSH-2.0-OpenSSH_9.2\r\n").unwrap_err(), HeadError::NotHttp);
        assert!(parse("HTTP/1.1 200 OK\r\ncontent-le").unwrap().is_none());
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(200));
        assert_eq!(parse(&many).unwrap_err(), HeadError::TooLarge);
    }

    #[test]
    fn a_request_head_has_one_host_one_length_and_one_authorization() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "gateway"),
            ("content-length", "999"),
            ("connection", "x-hop, close"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("proxy-authorization", "secret"),
            ("authorization", "Bearer client"),
            ("x-api-key", "client"),
            ("x-ridge-tenant", "evil"),
            ("x-kept", "1"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let mut out = Vec::new();
        RequestHead {
            method: &Method::POST,
            base: "/base",
            path_and_query: "/v1/completions?x=1",
            host: "engine:8000",
            headers: &headers,
            authorization: Some(&HeaderValue::from_static("Bearer upstream")),
            request_id: &HeaderValue::from_static("id-1"),
            body_length: Some(1200),
            chunked: false,
        }
        .write(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "POST /base/v1/completions?x=1 HTTP/1.1\r\nhost: engine:8000\r\nx-kept: 1\r\n\
             authorization: Bearer upstream\r\nx-request-id: id-1\r\ncontent-length: 1200\r\n\r\n"
        );
    }
}
