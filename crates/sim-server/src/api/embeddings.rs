//! `/v1/embeddings`.

use http::Response;
use serde_json::Value;

use super::fields::Fields;
use super::generate::{Identity, start, whole};
use super::refusal::Refused;
use super::{Call, quoted};
use crate::answer::next;
use crate::body::SimBody;
use crate::prompt::Prompt;

/// Embeds one input or several: a vector of length 1 that follows from the input alone.
pub async fn answer(call: Call, body: Value) -> Result<Response<SimBody>, Refused> {
    let fields = Fields::read(&call.replica, &body, &[])?;
    let bad = |reason: String| Refused::bad_field("input", format!("input {reason}"));
    let prompts =
        Prompt::several(body.get("input").ok_or_else(|| bad("is missing".to_owned()))?).map_err(bad)?;
    let base64 = match body.get("encoding_format") {
        None | Some(Value::Null) => false,
        Some(Value::String(format)) if format == "float" => false,
        Some(Value::String(format)) if format == "base64" => true,
        Some(_) => {
            return Err(Refused::bad_field(
                "encoding_format",
                "encoding_format must be \"float\" or \"base64\"",
            ));
        }
    };
    let full = call.replica.model.embedding_len;
    let len = match body.get("dimensions") {
        None | Some(Value::Null) => full,
        Some(value) => match value.as_u64() {
            Some(len) if (1..=full as u64).contains(&len) => len as usize,
            _ => {
                let reason = format!("dimensions is {value}, which must be from 1 to {full}");
                return Err(Refused::bad_field("dimensions", reason));
            }
        },
    };
    let Identity { id, created_s } = Identity::of(&call.replica, &prompts);
    let model = quoted(&call.replica.model.name);
    let generation = start(&call, &prompts, &Fields { n: 1, max_tokens: Some(0), ..fields })?;
    Ok(whole(call, generation, |_, usage| {
        let mut data = String::new();
        for (index, prompt) in prompts.iter().enumerate() {
            if index > 0 {
                data.push(',');
            }
            let vector = embedding(&prompt.bytes, len);
            data.push_str(&format!(r#"{{"index":{index},"object":"embedding","embedding":"#));
            data.push_str(&if base64 { quoted(&base64_of(&vector)) } else { floats(&vector) });
            data.push('}');
        }
        let tokens = usage.prompt_tokens;
        format!(
            r#"{{"id":"embd-{id}","object":"list","created":{created_s},"model":{model},"data":[{data}],"usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens},"completion_tokens":0,"prompt_tokens_details":null}}}}"#
        )
    })
    .await)
}

/// Texts that begin alike get vectors that point alike: each eighth of the text adds a direction of its own.
fn embedding(text: &[u8], len: usize) -> Vec<f32> {
    let mut vector = vec![0f32; len];
    for part in text.chunks(text.len().div_ceil(8).max(1)) {
        let mut state = xxhash_rust::xxh3::xxh3_64(part);
        for number in &mut vector {
            *number += (next(&mut state) >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        }
    }
    let norm = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    if norm > 0.0 {
        vector.iter_mut().for_each(|number| *number /= norm);
    }
    vector
}

fn floats(vector: &[f32]) -> String {
    serde_json::to_string(vector).unwrap_or_default()
}

/// The vector's little-endian bytes as base64 (RFC 4648).
fn base64_of(vector: &[f32]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = (at(0) << 16) | (at(1) << 8) | at(2);
        for digit in 0..4 {
            if digit <= group.len() {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads() {
        assert_eq!(base64_of(&[1.0]), "AACAPw==");
        assert_eq!(base64_of(&[1.0, 1.0]), "AACAPwAAgD8=");
        assert_eq!(base64_of(&[1.0, 1.0, 1.0]), "AACAPwAAgD8AAIA/");
    }

    #[test]
    fn vectors_have_length_one_and_follow_from_the_text() {
        let vector = embedding(b"hello", 64);
        assert!((vector.iter().map(|number| number * number).sum::<f32>() - 1.0).abs() < 1e-5);
        assert_eq!(vector, embedding(b"hello", 64));
        assert_ne!(vector, embedding(b"hellp", 64));
    }
}
