//! `/v1/chat/completions`.

use std::collections::VecDeque;

use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::fields::Fields;
use super::generate::{Identity, push_data, start, streamed, usage_json, whole};
use super::refusal::Refused;
use super::{Call, quoted};
use crate::answer::Answer;
use crate::body::{Format, SimBody, Usage};
use crate::prompt::Prompt;

/// Answers a chat.
pub async fn answer(call: Call, body: Value) -> Result<Response<SimBody>, Refused> {
    let fields = Fields::read(&call.replica, &body, &["max_completion_tokens", "max_tokens"])?;
    let messages =
        body.get("messages").ok_or_else(|| Refused::bad_field("messages", "messages is missing"))?;
    let prompt =
        Prompt::chat(messages, body.get("tools")).map_err(|reason| Refused::bad_field("messages", reason))?;
    let prompts = [prompt];
    let Identity { id, created_s } = Identity::of(&call.replica, &prompts);
    let model = quoted(&call.replica.model.name);
    let generation = start(&call, &prompts, &fields)?;
    // Not to be held while the answer is made: a body may have megabytes.
    drop((body, prompts));
    if fields.stream {
        let head = format!(
            r#"{{"id":"chatcmpl-{id}","object":"chat.completion.chunk","created":{created_s},"model":{model},"choices":["#
        );
        return Ok(streamed(call, generation, Chunks { head, include_usage: fields.include_usage }));
    }
    Ok(whole(call, generation, |generation, usage| {
        let choices: Vec<String> = generation
            .choices
            .iter()
            .enumerate()
            .map(|(index, choice)| {
                format!(
                    r#"{{"index":{index},"message":{{"role":"assistant","content":{},"refusal":null,"tool_calls":[]}},"logprobs":null,"finish_reason":"{}","stop_reason":null}}"#,
                    quoted(&choice.answer.text()),
                    choice.answer.finish_reason()
                )
            })
            .collect();
        format!(
            r#"{{"id":"chatcmpl-{id}","object":"chat.completion","created":{created_s},"model":{model},"choices":[{}],"usage":{}}}"#,
            choices.join(","),
            usage_json(usage)
        )
    })
    .await)
}

struct Chunks {
    /// Every chunk up to its choices.
    head: String,
    include_usage: bool,
}

impl Format for Chunks {
    fn token(&mut self, choice: usize, index: u32, text: &str, events: &mut VecDeque<Bytes>) {
        let head = &self.head;
        if index == 0 {
            push_data(
                events,
                &format!(
                    r#"{head}{{"index":{choice},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}]}}"#
                ),
            );
        }
        push_data(
            events,
            &format!(
                r#"{head}{{"index":{choice},"delta":{{"content":{}}},"logprobs":null,"finish_reason":null}}]}}"#,
                quoted(text)
            ),
        );
    }

    fn finished(&mut self, choice: usize, answer: &Answer, events: &mut VecDeque<Bytes>) {
        let (head, reason) = (&self.head, answer.finish_reason());
        push_data(
            events,
            &format!(
                r#"{head}{{"index":{choice},"delta":{{}},"logprobs":null,"finish_reason":"{reason}","stop_reason":null}}]}}"#
            ),
        );
    }

    fn ended(&mut self, usage: Usage, events: &mut VecDeque<Bytes>) {
        if self.include_usage {
            push_data(events, &format!(r#"{}],"usage":{}}}"#, self.head, usage_json(usage)));
        }
        push_data(events, "[DONE]");
    }
}
