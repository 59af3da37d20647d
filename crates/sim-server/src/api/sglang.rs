//! SGLang's own paths: `/generate`, `/get_model_info`, `/server_info`.

use std::collections::VecDeque;

use bytes::Bytes;
use http::Response;
use serde_json::Value;

use super::fields::{Fields, flag};
use super::generate::{Identity, push_data, start, streamed, whole};
use super::refusal::Refused;
use super::{Call, quoted};
use crate::answer::Answer;
use crate::body::{Format, SimBody, Usage};
use crate::prompt::Prompt;
use crate::replica::Replica;

/// SGLang's default for `max_new_tokens`.
const DEFAULT_NEW_TOKENS: u32 = 128;

/// `/generate`: a text or token ids in, text out. A stream repeats the whole text so far in each event, as
/// SGLang does.
pub async fn generate(call: Call, body: Value) -> Result<Response<SimBody>, Refused> {
    let (field, input) = ["text", "input_ids"]
        .into_iter()
        .find_map(|name| Some((name, body.get(name).filter(|value| !value.is_null())?)))
        .ok_or_else(|| Refused::bad_request("give text or input_ids"))?;
    let prompts =
        Prompt::several(input).map_err(|reason| Refused::bad_field(field, format!("{field} {reason}")))?;
    let sampling = body.get("sampling_params").filter(|sampling| !sampling.is_null()).cloned();
    let sampling = sampling.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let mut fields = Fields::read(&call.replica, &sampling, &["max_new_tokens"])?;
    fields.max_tokens = fields.max_tokens.or(Some(DEFAULT_NEW_TOKENS));
    let id = Identity::of(&call.replica, &prompts).id;
    let generation = start(&call, &prompts, &fields)?;
    let prompt_tokens: Vec<usize> =
        prompts.iter().flat_map(|prompt| std::iter::repeat_n(prompt.tokens(), fields.n as usize)).collect();
    let is_list = prompt_tokens.len() > 1 || input.get(0).is_some_and(|first| !first.is_number());
    let stream = flag(&body, "stream")?;
    // Not to be held while the answer is made: a body may have megabytes.
    drop((body, prompts));
    if stream {
        let said = vec![String::new(); prompt_tokens.len()];
        return Ok(streamed(call, generation, Events { id, said, prompt_tokens }));
    }
    Ok(whole(call, generation, |generation, _| {
        let answers: Vec<String> = generation
            .choices
            .iter()
            .zip(&prompt_tokens)
            .map(|(choice, prompt_tokens)| {
                let cached = choice.sequence.progress().cached_tokens;
                let reason = finish_json(&choice.answer);
                answer_json(
                    &id,
                    &choice.answer.text(),
                    *prompt_tokens,
                    choice.answer.tokens(),
                    cached,
                    &reason,
                )
            })
            .collect();
        if is_list { format!("[{}]", answers.join(",")) } else { answers.concat() }
    })
    .await)
}

fn finish_json(answer: &Answer) -> String {
    if answer.ends_naturally {
        r#"{"type":"stop","matched":2}"#.to_owned()
    } else {
        format!(r#"{{"type":"length","length":{}}}"#, answer.tokens())
    }
}

fn answer_json(id: &str, text: &str, prompt_tokens: usize, tokens: u32, cached: u32, reason: &str) -> String {
    format!(
        r#"{{"text":{},"meta_info":{{"id":"{id}","finish_reason":{reason},"prompt_tokens":{prompt_tokens},"completion_tokens":{tokens},"cached_tokens":{cached}}}}}"#,
        quoted(text)
    )
}

struct Events {
    id: String,
    said: Vec<String>,
    prompt_tokens: Vec<usize>,
}

impl Events {
    fn push(&mut self, choice: usize, tokens: u32, reason: &str, events: &mut VecDeque<Bytes>) {
        let (Some(said), Some(prompt_tokens)) = (self.said.get(choice), self.prompt_tokens.get(choice))
        else {
            return;
        };
        let mut data = answer_json(&self.id, said, *prompt_tokens, tokens, 0, reason);
        if self.said.len() > 1 {
            data.insert_str(1, &format!(r#""index":{choice},"#));
        }
        push_data(events, &data);
    }
}

impl Format for Events {
    fn token(&mut self, choice: usize, index: u32, text: &str, events: &mut VecDeque<Bytes>) {
        if let Some(said) = self.said.get_mut(choice) {
            said.push_str(text);
        }
        self.push(choice, index + 1, "null", events);
    }

    fn finished(&mut self, choice: usize, answer: &Answer, events: &mut VecDeque<Bytes>) {
        self.push(choice, answer.tokens(), &finish_json(answer), events);
    }

    fn ended(&mut self, _usage: Usage, events: &mut VecDeque<Bytes>) {
        push_data(events, "[DONE]");
    }
}

/// `/get_model_info`.
pub fn model_info(replica: &Replica) -> String {
    let name = quoted(&replica.model.name);
    format!(
        r#"{{"model_path":{name},"tokenizer_path":{name},"is_generation":true,"preferred_sampling_params":null,"weight_version":"default"}}"#
    )
}

/// `/server_info`.
pub fn server_info(replica: &Replica) -> String {
    let name = quoted(&replica.model.name);
    let max_total =
        replica.with_engine(|engine, _| engine.pool().len()) as u64 * u64::from(replica.block_size);
    let running = replica.with_engine(|engine, _| engine.params().max_num_seqs);
    format!(
        r#"{{"model_path":{name},"served_model_name":{name},"context_length":{},"page_size":{},"max_total_num_tokens":{max_total},"max_running_requests":{running},"disaggregation_mode":"null","status":"ready","version":"0.5.6+sim"}}"#,
        replica.model.max_len, replica.block_size
    )
}
