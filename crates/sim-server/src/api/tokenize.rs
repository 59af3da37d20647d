//! vLLM's `/tokenize` and `/detokenize`: four bytes are a token.

use http::Response;
use serde_json::Value;

use super::Call;
use super::fields::{check_model, flag};
use super::refusal::Refused;
use crate::answer::TOKEN_BYTES;
use crate::body::SimBody;
use crate::http_api::json_response;
use crate::prompt::Prompt;

/// Tokens of a prompt or a chat.
pub fn tokenize(call: &Call, body: &Value) -> Result<Response<SimBody>, Refused> {
    check_model(&call.replica, body)?;
    let prompt = match (body.get("prompt"), body.get("messages")) {
        (Some(Value::String(text)), _) => Prompt::text(text),
        (Some(_), _) => return Err(Refused::bad_field("prompt", "prompt must be a string")),
        (None, Some(messages)) => Prompt::chat(messages, body.get("tools")).map_err(Refused::bad_request)?,
        (None, None) => return Err(Refused::bad_request("give a prompt or messages")),
    };
    let ids: Vec<u32> =
        prompt.bytes.chunks(TOKEN_BYTES).map(|token| id(token, call.replica.model.vocabulary)).collect();
    let strings = if flag(body, "return_token_strs")? {
        let strings: Vec<_> = prompt.bytes.chunks(TOKEN_BYTES).map(String::from_utf8_lossy).collect();
        serde_json::to_string(&strings).unwrap_or_default()
    } else {
        "null".to_owned()
    };
    Ok(json_response(format!(
        r#"{{"count":{},"max_model_len":{},"tokens":{},"token_strs":{strings}}}"#,
        ids.len(),
        call.replica.model.max_len,
        serde_json::to_string(&ids).unwrap_or_default()
    )))
}

/// The text of tokens. With a vocabulary, several texts share an id, and this cannot give them back.
pub fn detokenize(call: &Call, body: &Value) -> Result<Response<SimBody>, Refused> {
    check_model(&call.replica, body)?;
    let ids = body.get("tokens").and_then(Value::as_array);
    let ids = ids.ok_or_else(|| Refused::bad_field("tokens", "tokens must be an array of token ids"))?;
    let mut bytes = Prompt::token_ids(ids).map_err(|reason| Refused::bad_field("tokens", reason))?.bytes;
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    Ok(json_response(format!(r#"{{"prompt":{}}}"#, super::quoted(&String::from_utf8_lossy(&bytes)))))
}

/// A token's four bytes as a number, little end first, folded into the vocabulary if there is one.
fn id(token: &[u8], vocabulary: Option<u32>) -> u32 {
    let mut bytes = [0; TOKEN_BYTES];
    bytes[..token.len()].copy_from_slice(token);
    let id = u32::from_le_bytes(bytes);
    vocabulary.map_or(id, |size| id % size)
}
