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

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "\"quotes\" \\ \n\r\t\0\u{1f}\u{7f} \u{2028}\u{2029} 안녕 🦀 </script>";

    fn read(dialect: Dialect, status: u16) -> serde_json::Value {
        let body = error_body(dialect, status, "some_code", HOSTILE, Some("model"));
        serde_json::from_slice(&body).expect("error bodies are JSON")
    }

    #[test]
    fn each_shape_keeps_the_text() {
        let openai = read(Dialect::OpenAi, 400);
        assert_eq!(
            openai,
            serde_json::json!({"error": {
                "message": HOSTILE, "type": "invalid_request_error", "param": "model", "code": "some_code",
            }})
        );
        let anthropic = read(Dialect::Anthropic, 503);
        assert_eq!(
            anthropic,
            serde_json::json!({"type": "error", "error": {
                "type": "overloaded_error", "message": HOSTILE, "code": "some_code",
            }})
        );
        let ollama = read(Dialect::Ollama, 500);
        assert_eq!(ollama, serde_json::json!({"error": HOSTILE, "code": "some_code"}));
    }

    #[test]
    fn no_param_is_null() {
        let body = error_body(Dialect::OpenAi, 404, "unknown_path", "no", None);
        assert_eq!(
            body,
            br#"{"error":{"message":"no","type":"not_found_error","param":null,"code":"unknown_path"}}"#
        );
    }

    #[test]
    fn types_follow_the_status() {
        for (status, openai, anthropic) in [
            (400, "invalid_request_error", "invalid_request_error"),
            (404, "not_found_error", "not_found_error"),
            (405, "invalid_request_error", "invalid_request_error"),
            (413, "invalid_request_error", "request_too_large"),
            (429, "rate_limit_error", "rate_limit_error"),
            (500, "server_error", "api_error"),
            (502, "server_error", "api_error"),
            (503, "service_unavailable", "overloaded_error"),
            (504, "server_error", "timeout_error"),
        ] {
            assert_eq!(openai_type(status), openai, "{status}");
            assert_eq!(anthropic_type(status), anthropic, "{status}");
        }
    }

    #[test]
    fn one_line_so_that_it_fits_in_an_event() {
        for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Ollama] {
            let body = error_body(dialect, 502, "code", HOSTILE, None);
            assert!(!body.iter().any(|byte| *byte < 0x20));
        }
    }
}
