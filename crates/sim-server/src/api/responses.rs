//! `/v1/responses`.

use std::collections::VecDeque;

use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::fields::Fields;
use super::generate::{Identity, push_event, start, streamed, whole};
use super::refusal::Refused;
use super::{Call, quoted};
use crate::answer::Answer;
use crate::body::{Format, SimBody, Usage};
use crate::prompt::{Prompt, push_content};

/// Answers a request of the Responses API. Nothing is stored, whatever `store` says.
pub async fn answer(call: Call, body: Value) -> Result<Response<SimBody>, Refused> {
    let fields = Fields::read(&call.replica, &body, &["max_output_tokens"])?;
    let prompts = [prompt(&body)?];
    let identity = Identity::of(&call.replica, &prompts);
    let generation = start(&call, &prompts, &Fields { n: 1, ..fields })?;
    // Not to be held while the answer is made: a body may have megabytes.
    drop((body, prompts));
    let shape = Shape {
        model: quoted(&call.replica.model.name),
        max_output_tokens: fields.max_tokens.map_or_else(|| "null".to_owned(), |count| count.to_string()),
        identity,
    };
    if fields.stream {
        return Ok(streamed(
            call,
            generation,
            Events { shape, sequence: 0, said: String::new(), ended_naturally: true },
        ));
    }
    Ok(whole(call, generation, |generation, usage| match generation.choices.first() {
        Some(choice) => shape.complete(&choice.answer.text(), choice.answer.ends_naturally, usage),
        None => shape.response("in_progress", "null", "[]", "null"),
    })
    .await)
}

fn prompt(body: &Value) -> Result<Prompt, Refused> {
    let bad = |reason: String| Refused::bad_field("input", reason);
    let input = body.get("input").ok_or_else(|| bad("input is missing".to_owned()))?;
    let rest = match input {
        Value::String(text) => {
            Prompt { bytes: ["user", text].concat().into_bytes(), answer_role: "assistant" }
        }
        Value::Array(_) => {
            Prompt::chat(input, None).map_err(|reason| bad(reason.replace("messages", "input")))?
        }
        _ => return Err(bad("input must be a string or an array of items".to_owned())),
    };
    let mut bytes = Vec::new();
    for name in ["tools", "instructions"] {
        match body.get(name) {
            None | Some(Value::Null) => {}
            Some(value) if name == "tools" => bytes.extend_from_slice(value.to_string().as_bytes()),
            Some(value) => {
                bytes.extend_from_slice(b"system");
                push_content(&mut bytes, value)
                    .map_err(|reason| Refused::bad_field("instructions", reason))?;
            }
        }
    }
    bytes.extend_from_slice(&rest.bytes);
    Ok(Prompt { bytes, ..rest })
}

/// The response object, at each stage of its life.
struct Shape {
    identity: Identity,
    model: String,
    max_output_tokens: String,
}

impl Shape {
    fn response(&self, status: &str, incomplete: &str, output: &str, usage: &str) -> String {
        let Self { identity: Identity { id, created_s }, model, max_output_tokens } = self;
        format!(
            r#"{{"id":"resp_{id}","object":"response","created_at":{created_s},"status":"{status}","background":false,"error":null,"incomplete_details":{incomplete},"instructions":null,"max_output_tokens":{max_output_tokens},"model":{model},"output":{output},"parallel_tool_calls":true,"previous_response_id":null,"temperature":1.0,"text":{{"format":{{"type":"text"}}}},"tool_choice":"auto","tools":[],"top_p":1.0,"truncation":"disabled","usage":{usage},"metadata":{{}}}}"#
        )
    }

    fn part(text: &str) -> String {
        format!(r#"{{"type":"output_text","text":{},"annotations":[],"logprobs":[]}}"#, quoted(text))
    }

    fn item(&self, status: &str, content: &str) -> String {
        let id = &self.identity.id;
        format!(
            r#"{{"id":"msg_{id}","type":"message","status":"{status}","role":"assistant","content":[{content}]}}"#
        )
    }

    fn complete(&self, text: &str, ended_naturally: bool, usage: Usage) -> String {
        let (status, incomplete) = if ended_naturally {
            ("completed", "null")
        } else {
            ("incomplete", r#"{"reason":"max_output_tokens"}"#)
        };
        let item = self.item(status, &Self::part(text));
        let usage = format!(
            r#"{{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{}}},"output_tokens":{},"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{}}}"#,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            usage.prompt_tokens + usage.completion_tokens
        );
        self.response(status, incomplete, &format!("[{item}]"), &usage)
    }
}

struct Events {
    shape: Shape,
    sequence: u64,
    said: String,
    ended_naturally: bool,
}

impl Events {
    fn push(&mut self, events: &mut VecDeque<Bytes>, name: &str, rest: &str) {
        let data = format!(r#"{{"type":"{name}","sequence_number":{},{rest}}}"#, self.sequence);
        self.sequence += 1;
        push_event(events, name, &data);
    }

    fn place(&self) -> String {
        format!(r#""item_id":"msg_{}","output_index":0,"content_index":0"#, self.shape.identity.id)
    }
}

impl Format for Events {
    fn accepted(&mut self, events: &mut VecDeque<Bytes>) {
        let response = self.shape.response("in_progress", "null", "[]", "null");
        self.push(events, "response.created", &format!(r#""response":{response}"#));
        self.push(events, "response.in_progress", &format!(r#""response":{response}"#));
    }

    fn token(&mut self, _choice: usize, index: u32, text: &str, events: &mut VecDeque<Bytes>) {
        let place = self.place();
        if index == 0 {
            let item = self.shape.item("in_progress", "");
            self.push(events, "response.output_item.added", &format!(r#""output_index":0,"item":{item}"#));
            let part = Shape::part("");
            self.push(events, "response.content_part.added", &format!(r#"{place},"part":{part}"#));
        }
        self.said.push_str(text);
        let delta = quoted(text);
        self.push(events, "response.output_text.delta", &format!(r#"{place},"delta":{delta},"logprobs":[]"#));
    }

    fn finished(&mut self, _choice: usize, answer: &Answer, events: &mut VecDeque<Bytes>) {
        let place = self.place();
        let text = quoted(&self.said);
        self.push(events, "response.output_text.done", &format!(r#"{place},"text":{text},"logprobs":[]"#));
        let part = Shape::part(&self.said);
        self.push(events, "response.content_part.done", &format!(r#"{place},"part":{part}"#));
        let status = if answer.ends_naturally { "completed" } else { "incomplete" };
        let item = self.shape.item(status, &part);
        self.push(events, "response.output_item.done", &format!(r#""output_index":0,"item":{item}"#));
        self.ended_naturally = answer.ends_naturally;
    }

    fn ended(&mut self, usage: Usage, events: &mut VecDeque<Bytes>) {
        let name = if self.ended_naturally { "response.completed" } else { "response.incomplete" };
        let response = self.shape.complete(&self.said, self.ended_naturally, usage);
        self.push(events, name, &format!(r#""response":{response}"#));
    }
}
