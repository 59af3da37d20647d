//! Anthropic's `/v1/messages`.

use std::collections::VecDeque;

use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::fields::{Fields, check_model};
use super::generate::{Identity, push_event, start, streamed, whole};
use super::refusal::Refused;
use super::{Call, quoted};
use crate::answer::Answer;
use crate::body::{Format, SimBody, Usage};
use crate::http_api::json_response;
use crate::prompt::{Prompt, push_content};

/// Answers a conversation.
pub async fn answer(call: Call, body: Value) -> Result<Response<SimBody>, Refused> {
    let fields = Fields::read(&call.replica, &body, &["max_tokens"])?;
    if fields.max_tokens.is_none() {
        return Err(Refused::bad_field("max_tokens", "max_tokens: Field required"));
    }
    let prompts = [prompt(&body)?];
    let id = Identity::of(&call.replica, &prompts).id;
    let model = quoted(&call.replica.model.name);
    let generation = start(&call, &prompts, &Fields { n: 1, ..fields })?;
    // Not to be held while the answer is made: a body may have megabytes.
    drop((body, prompts));
    if fields.stream {
        let prompt_tokens = generation.prompt_tokens;
        return Ok(streamed(call, generation, Events { id, model, prompt_tokens, stop_reason: "end_turn" }));
    }
    Ok(whole(call, generation, |generation, usage| {
        let (text, reason) = generation
            .choices
            .first()
            .map_or((String::new(), "end_turn"), |choice| (quoted(&choice.answer.text()), stop_reason(&choice.answer)));
        format!(
            r#"{{"id":"msg_{id}","type":"message","role":"assistant","model":{model},"content":[{{"type":"text","text":{text}}}],"stop_reason":"{reason}","stop_sequence":null,"usage":{}}}"#,
            usage_json(usage)
        )
    })
    .await)
}

/// `/v1/messages/count_tokens`.
pub fn count_tokens(call: &Call, body: &Value) -> Result<Response<SimBody>, Refused> {
    check_model(&call.replica, body)?;
    Ok(json_response(format!(r#"{{"input_tokens":{}}}"#, prompt(body)?.tokens())))
}

fn prompt(body: &Value) -> Result<Prompt, Refused> {
    let messages =
        body.get("messages").ok_or_else(|| Refused::bad_field("messages", "messages: Field required"))?;
    let chat = Prompt::chat(messages, None).map_err(|reason| Refused::bad_field("messages", reason))?;
    let mut bytes = Vec::new();
    if let Some(tools) = body.get("tools").filter(|tools| !tools.is_null()) {
        bytes.extend_from_slice(tools.to_string().as_bytes());
    }
    if let Some(system) = body.get("system").filter(|system| !system.is_null()) {
        bytes.extend_from_slice(b"system");
        push_content(&mut bytes, system).map_err(|reason| Refused::bad_field("system", reason))?;
    }
    bytes.extend_from_slice(&chat.bytes);
    Ok(Prompt { bytes, ..chat })
}

fn stop_reason(answer: &Answer) -> &'static str {
    if answer.ends_naturally { "end_turn" } else { "max_tokens" }
}

/// Anthropic's input tokens are those that were not read from the cache.
fn usage_json(usage: Usage) -> String {
    format!(
        r#"{{"input_tokens":{},"cache_creation_input_tokens":0,"cache_read_input_tokens":{},"output_tokens":{}}}"#,
        usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        usage.cached_tokens,
        usage.completion_tokens
    )
}

struct Events {
    id: String,
    model: String,
    prompt_tokens: u64,
    stop_reason: &'static str,
}

impl Format for Events {
    fn accepted(&mut self, events: &mut VecDeque<Bytes>) {
        let Self { id, model, prompt_tokens, .. } = self;
        push_event(
            events,
            "message_start",
            &format!(
                r#"{{"type":"message_start","message":{{"id":"msg_{id}","type":"message","role":"assistant","model":{model},"content":[],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":{prompt_tokens},"output_tokens":0}}}}}}"#
            ),
        );
    }

    fn token(&mut self, _choice: usize, index: u32, text: &str, events: &mut VecDeque<Bytes>) {
        if index == 0 {
            let start =
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
            push_event(events, "content_block_start", start);
        }
        let text = quoted(text);
        let delta = format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":{text}}}}}"#
        );
        push_event(events, "content_block_delta", &delta);
    }

    fn finished(&mut self, _choice: usize, answer: &Answer, events: &mut VecDeque<Bytes>) {
        self.stop_reason = stop_reason(answer);
        push_event(events, "content_block_stop", r#"{"type":"content_block_stop","index":0}"#);
    }

    fn ended(&mut self, usage: Usage, events: &mut VecDeque<Bytes>) {
        let (reason, usage) = (self.stop_reason, usage_json(usage));
        let delta = format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{usage}}}"#
        );
        push_event(events, "message_delta", &delta);
        push_event(events, "message_stop", r#"{"type":"message_stop"}"#);
    }
}
