//! From a request's fields to the text that the engine would see.

use serde_json::Value;

use crate::answer::{Answer, TOKEN_BYTES};

/// The text of a prompt; four bytes are a token. A token given as a number is its four bytes, little end first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompt {
    /// The text.
    pub bytes: Vec<u8>,
    /// Stands between the prompt and its answer when both come back in the next turn.
    pub answer_role: &'static str,
}

impl Prompt {
    /// A prompt that is plain text.
    pub fn text(text: &str) -> Self {
        Self { bytes: text.as_bytes().to_vec(), answer_role: "" }
    }

    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.bytes.len().div_ceil(TOKEN_BYTES)
    }

    /// Chained hashes of the blocks of prompt and answer.
    pub fn block_hashes(&self, answer: &Answer, block_size: u32) -> Vec<u64> {
        let block_bytes = block_size as usize * TOKEN_BYTES;
        if self.tokens() + (answer.tokens() as usize) < block_size as usize {
            return Vec::new();
        }
        let answer = answer.text();
        let mut all = Vec::with_capacity(self.bytes.len() + self.answer_role.len() + answer.len());
        all.extend_from_slice(&self.bytes);
        all.extend_from_slice(self.answer_role.as_bytes());
        all.extend_from_slice(answer.as_bytes());
        simulation::prefix_hashes(&all, block_bytes)
    }

    /// A chat: the tools if any, then role and content of each message.
    ///
    /// # Errors
    /// What is wrong with the messages, for the client.
    pub fn chat(messages: &Value, tools: Option<&Value>) -> Result<Self, String> {
        let messages = messages.as_array().ok_or("messages must be an array")?;
        if messages.is_empty() {
            return Err("messages is empty; give at least one message".to_owned());
        }
        let mut bytes = Vec::new();
        if let Some(tools) = tools.filter(|tools| !tools.is_null()) {
            push_json(&mut bytes, tools);
        }
        for (index, message) in messages.iter().enumerate() {
            push_message(&mut bytes, message).map_err(|reason| format!("messages[{index}]: {reason}"))?;
        }
        Ok(Self { bytes, answer_role: "assistant" })
    }

    /// One prompt or several: a string, an array of strings, an array of token ids, or an array of such arrays.
    ///
    /// # Errors
    /// What is wrong with it, for the client.
    pub fn several(value: &Value) -> Result<Vec<Self>, String> {
        const SHAPE: &str =
            "must be a string, an array of strings, an array of token ids, or an array of such arrays";
        match value {
            Value::String(text) => Ok(vec![Self::text(text)]),
            Value::Array(items) => match items.first() {
                None => Err("is empty".to_owned()),
                Some(Value::Number(_)) => Ok(vec![Self::token_ids(items)?]),
                Some(Value::String(_)) => items
                    .iter()
                    .map(|item| item.as_str().map(Self::text).ok_or_else(|| SHAPE.to_owned()))
                    .collect(),
                Some(Value::Array(_)) => items
                    .iter()
                    .map(|item| Self::token_ids(item.as_array().ok_or_else(|| SHAPE.to_owned())?))
                    .collect(),
                Some(_) => Err(SHAPE.to_owned()),
            },
            _ => Err(SHAPE.to_owned()),
        }
    }

    /// A prompt of token ids.
    ///
    /// # Errors
    /// An item that is not a token id.
    pub fn token_ids(ids: &[Value]) -> Result<Self, String> {
        let mut bytes = Vec::with_capacity(ids.len() * TOKEN_BYTES);
        for id in ids {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let id = id.ok_or("a token id must be an integer from 0 to 4294967295")?;
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        Ok(Self { bytes, answer_role: "" })
    }
}

fn push_message(bytes: &mut Vec<u8>, message: &Value) -> Result<(), String> {
    let message = message.as_object().ok_or("must be an object")?;
    // The Responses API has items without a role, such as the output of a tool.
    match message.get("role").or_else(|| message.get("type")) {
        Some(Value::String(role)) => bytes.extend_from_slice(role.as_bytes()),
        Some(_) => return Err("role must be a string".to_owned()),
        None => return Err("role is missing".to_owned()),
    }
    push_content(bytes, message.get("content").unwrap_or(&Value::Null))?;
    for key in ["tool_calls", "arguments", "output"] {
        if let Some(value) = message.get(key).filter(|value| !value.is_null()) {
            push_json(bytes, value);
        }
    }
    Ok(())
}

/// A string, an array of parts, or nothing.
pub fn push_content(bytes: &mut Vec<u8>, content: &Value) -> Result<(), String> {
    match content {
        Value::Null => Ok(()),
        Value::String(text) => {
            bytes.extend_from_slice(text.as_bytes());
            Ok(())
        }
        Value::Array(parts) => {
            for part in parts {
                match part.get("text").and_then(Value::as_str).or_else(|| part.as_str()) {
                    Some(text) => bytes.extend_from_slice(text.as_bytes()),
                    None if part.is_object() => push_json(bytes, part),
                    None => return Err("a part of content must be an object or a string".to_owned()),
                }
            }
            Ok(())
        }
        _ => Err("content must be a string or an array of parts".to_owned()),
    }
}

fn push_json(bytes: &mut Vec<u8>, value: &Value) {
    // Writing to memory fails for no value that was read from JSON.
    _ = serde_json::to_writer(bytes, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_chat_is_its_tools_roles_and_contents() {
        let messages = json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {}}]},
        ]);
        let prompt = Prompt::chat(&messages, Some(&json!([1]))).unwrap();
        assert_eq!(
            String::from_utf8(prompt.bytes).unwrap(),
            r#"[1]systemBe brief.userHi{"image_url":{},"type":"image_url"}"#
        );
    }

    #[test]
    fn wrong_shapes_are_refused_with_their_place() {
        for (messages, reason) in [
            (json!("hi"), "messages must be an array"),
            (json!([]), "messages is empty; give at least one message"),
            (json!([{"role": "user"}, 5]), "messages[1]: must be an object"),
            (json!([{"content": "x"}]), "messages[0]: role is missing"),
            (
                json!([{"role": "user", "content": 5}]),
                "messages[0]: content must be a string or an array of parts",
            ),
        ] {
            assert_eq!(Prompt::chat(&messages, None).unwrap_err(), reason);
        }
        assert!(Prompt::several(&json!(["a", 5])).is_err());
        assert!(Prompt::several(&json!([1, -5])).is_err());
    }

    #[test]
    fn tokens_are_four_bytes() {
        assert_eq!(Prompt::text("").tokens(), 0);
        assert_eq!(Prompt::text("abcde").tokens(), 2);
        let prompts = Prompt::several(&json!([[1, 2, 3], [4]])).unwrap();
        assert_eq!(prompts.iter().map(Prompt::tokens).collect::<Vec<_>>(), [3, 1]);
    }
}
