//! `/v1/completions`.

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

/// Completes one prompt or several.
pub async fn answer(call: Call, body: Value) -> Result<Response<SimBody>, Refused> {
    let mut fields = Fields::read(&call.replica, &body, &["max_tokens"])?;
    // The API's own default.
    fields.max_tokens = fields.max_tokens.or(Some(16));
    let prompt = body.get("prompt").ok_or_else(|| Refused::bad_field("prompt", "prompt is missing"))?;
    let prompts =
        Prompt::several(prompt).map_err(|reason| Refused::bad_field("prompt", format!("prompt {reason}")))?;
    let Identity { id, created_s } = Identity::of(&call.replica, &prompts);
    let model = quoted(&call.replica.model.name);
    let generation = start(&call, &prompts, &fields)?;
    // Not to be held while the answer is made: a body may have megabytes.
    drop((body, prompts));
    let head = format!(
        r#"{{"id":"cmpl-{id}","object":"text_completion","created":{created_s},"model":{model},"choices":["#
    );
    if fields.stream {
        return Ok(streamed(call, generation, Chunks { head, include_usage: fields.include_usage }));
    }
    Ok(whole(call, generation, |generation, usage| {
        let choices: Vec<String> = generation
            .choices
            .iter()
            .enumerate()
            .map(|(index, choice)| {
                choice_json(index, &choice.answer.text(), Some(choice.answer.finish_reason()))
            })
            .collect();
        format!(r#"{head}{}],"usage":{}}}"#, choices.join(","), usage_json(usage))
    })
    .await)
}

fn choice_json(index: usize, text: &str, reason: Option<&str>) -> String {
    let reason = reason.map_or_else(|| "null".to_owned(), quoted);
    format!(
        r#"{{"index":{index},"text":{},"logprobs":null,"finish_reason":{reason},"stop_reason":null}}"#,
        quoted(text)
    )
}

struct Chunks {
    /// Every chunk up to its choices.
    head: String,
    include_usage: bool,
}

impl Format for Chunks {
    fn token(&mut self, choice: usize, _index: u32, text: &str, events: &mut VecDeque<Bytes>) {
        push_data(events, &format!("{}{}]}}", self.head, choice_json(choice, text, None)));
    }

    fn finished(&mut self, choice: usize, answer: &Answer, events: &mut VecDeque<Bytes>) {
        push_data(
            events,
            &format!("{}{}]}}", self.head, choice_json(choice, "", Some(answer.finish_reason()))),
        );
    }

    fn ended(&mut self, usage: Usage, events: &mut VecDeque<Bytes>) {
        if self.include_usage {
            push_data(events, &format!(r#"{}],"usage":{}}}"#, self.head, usage_json(usage)));
        }
        push_data(events, "[DONE]");
    }
}
