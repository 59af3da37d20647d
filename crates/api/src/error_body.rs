//! Errors in the shape of the call that was made.

use crate::operation::Dialect;

/// An error answer's JSON body. `param` names the field at fault, where the dialect has room for it.
///
/// ```
/// use api::{Dialect, error_body};
///
/// let body = error_body(Dialect::Ollama, 404, "model_not_found", "no model \"x\"", None);
/// assert_eq!(body, br#"{"error":"no model \"x\"","code":"model_not_found"}"#);
/// ```
#[must_use]
pub fn error_body(dialect: Dialect, status: u16, code: &str, message: &str, param: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + code.len() + 128);
    match dialect {
        Dialect::OpenAi => {
            out.extend_from_slice(b"{\"error\":{\"message\":");
            push_string(&mut out, message);
            out.extend_from_slice(b",\"type\":");
            push_string(&mut out, openai_type(status));
            out.extend_from_slice(b",\"param\":");
            match param {
                Some(param) => push_string(&mut out, param),
                None => out.extend_from_slice(b"null"),
            }
            out.extend_from_slice(b",\"code\":");
            push_string(&mut out, code);
            out.extend_from_slice(b"}}");
        }
        Dialect::Anthropic => {
            out.extend_from_slice(b"{\"type\":\"error\",\"error\":{\"type\":");
            push_string(&mut out, anthropic_type(status));
            out.extend_from_slice(b",\"message\":");
            push_string(&mut out, message);
            out.extend_from_slice(b",\"code\":");
            push_string(&mut out, code);
            out.extend_from_slice(b"}}");
        }
        Dialect::Ollama => {
            out.extend_from_slice(b"{\"error\":");
            push_string(&mut out, message);
            out.extend_from_slice(b",\"code\":");
            push_string(&mut out, code);
            out.push(b'}');
        }
    }
    out
}

fn openai_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        503 => "service_unavailable",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// Appends `text` as a JSON string. U+2028 and U+2029 are escaped too: some clients split lines there.
fn push_string(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for letter in text.chars() {
        match letter {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\u{2028}' => out.extend_from_slice(b"\\u2028"),
            '\u{2029}' => out.extend_from_slice(b"\\u2029"),
            control if u32::from(control) < 0x20 => {
                let byte = control as usize;
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX[byte >> 4], HEX[byte & 15]]);
            }
            plain => out.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}
