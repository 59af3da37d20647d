//! From prompts to answers, whichever API asked.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use super::Call;
use super::fields::Fields;
use super::refusal::Refused;
use crate::answer::{Answer, Length, fingerprint, next};
use crate::body::{Choice, Cut, Format, Generation, SimBody, TokenStream, Usage};
use crate::http_api::json_response;
use crate::prompt::Prompt;
use crate::replica::{Replica, Work, unix_s};

/// Most prompts in one request.
const MAX_PROMPTS: usize = 4_096;
/// The beginning of 2026: answers without a time of their own come from that year.
const CREATED_FROM_S: u64 = 1_767_225_600;
const YEAR_S: u64 = 31_536_000;

/// What tells an answer apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// 32 hexadecimal digits.
    pub id: String,
    /// Seconds since the epoch.
    pub created_s: u64,
}

impl Identity {
    /// That of the answer to these prompts: the same for the same, unless the replica gives real ones.
    pub fn of(replica: &Replica, prompts: &[Prompt]) -> Self {
        if replica.real_ids {
            let mut state =
                replica.real_id() ^ replica.started_s().to_bits().rotate_left(17) ^ replica.index as u64;
            let id = format!("{:016x}{:016x}", next(&mut state), next(&mut state));
            return Self { id, created_s: unix_s() as u64 };
        }
        let print =
            prompts.iter().fold(0u128, |print, prompt| print.rotate_left(1) ^ fingerprint(&prompt.bytes));
        Self { id: format!("{print:032x}"), created_s: CREATED_FROM_S + (print as u64) % YEAR_S }
    }
}

/// Puts all prompts into the engine, `fields.n` times each.
pub fn start(call: &Call, prompts: &[Prompt], fields: &Fields) -> Result<Generation, Refused> {
    if prompts.len() > MAX_PROMPTS {
        return Err(Refused::bad_request(format!("{} prompts are more than {MAX_PROMPTS}", prompts.len())));
    }
    let replica = &call.replica;
    let mut work = Vec::with_capacity(prompts.len() * fields.n as usize);
    let mut choices = Vec::with_capacity(work.capacity());
    let mut total_tokens = 0;
    for prompt in prompts {
        let tokens = prompt.tokens();
        let length = answer_length(replica, tokens, fields)?;
        total_tokens += tokens as u64;
        for index in 0..fields.n {
            let answer = Answer::to(&prompt.bytes, index, length);
            let block_hashes = prompt.block_hashes(&answer, replica.block_size);
            work.push(Work { prompt_tokens: tokens as u32, answer, block_hashes });
            choices.push((answer, index == 0));
        }
    }
    let sequences = replica.submit(work).map_err(Refused::engine)?;
    let choices = sequences
        .into_iter()
        .zip(choices)
        .map(|(sequence, (answer, counts_prompt))| Choice { sequence, answer, counts_prompt })
        .collect();
    Ok(Generation { choices, prompt_tokens: total_tokens })
}

fn answer_length(replica: &Replica, prompt_tokens: usize, fields: &Fields) -> Result<Length, Refused> {
    let max_len = replica.model.max_len as usize;
    if prompt_tokens == 0 {
        return Err(Refused::bad_request("the prompt is empty; give at least one token"));
    }
    let asked = fields.max_tokens.unwrap_or(1) as usize;
    if prompt_tokens.saturating_add(asked) > max_len {
        return Err(Refused::bad_request(format!(
            "This model's maximum context length is {max_len} tokens. However, you requested {asked} output tokens \
             and your prompt contains {prompt_tokens} tokens. Please shorten the prompt or ask for fewer output \
             tokens."
        )));
    }
    // The engine cannot hold an answer longer than its cache; without a stated length, take what there is.
    let room = max_len - prompt_tokens;
    let max_tokens = fields.max_tokens.unwrap_or_else(|| {
        let held = replica.with_engine(|engine, _| engine.pool().len()) * replica.block_size as usize;
        room.min(held.saturating_sub(prompt_tokens)).max(1) as u32
    });
    Ok(Length { max_tokens, ignore_eos: fields.ignore_eos && fields.max_tokens.is_some() })
}

/// Answers with a stream of events.
pub fn streamed(call: Call, generation: Generation, format: impl Format + 'static) -> Response<SimBody> {
    let stream = TokenStream::new(generation, Box::new(format), call.cut);
    let mut response = Response::new(SimBody::Stream(Box::new(stream)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, http::HeaderValue::from_static("no-cache"));
    response
}

/// Answers with one JSON text, once everything is there.
pub async fn whole(
    call: Call,
    generation: Generation,
    print: impl FnOnce(&Generation, Usage) -> String,
) -> Response<SimBody> {
    let Some(mut cut) = call.cut else {
        generation.end().await;
        let usage = generation.usage();
        return json_response(print(&generation, usage));
    };
    if cut_before_end(&mut cut, &generation).await {
        if !cut.is_stall() {
            // The connection is being reset under this very request.
            return std::future::pending().await;
        }
        generation.end().await;
        let text = print(&generation, generation.usage());
        return json_response(Bytes::new()).map(|_| SimBody::stalled(text));
    }
    let usage = generation.usage();
    json_response(print(&generation, usage))
}

/// Waits for the end or the cut, whichever is first; whether it was the cut.
async fn cut_before_end(cut: &mut Cut, generation: &Generation) -> bool {
    let mut end = pin!(generation.end());
    let mut due = pin!(cut.due(generation));
    poll_fn(|cx| {
        if due.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        end.as_mut().poll(cx).map(|()| false)
    })
    .await
}

/// Appends one server-sent event without a name.
pub fn push_data(events: &mut VecDeque<Bytes>, data: &str) {
    events.push_back(Bytes::from(["data: ", data, "\n\n"].concat()));
}

/// Appends one server-sent event with a name.
pub fn push_event(events: &mut VecDeque<Bytes>, name: &str, data: &str) {
    events.push_back(Bytes::from(["event: ", name, "\ndata: ", data, "\n\n"].concat()));
}

/// Usage as OpenAI's chat and completions say it.
pub fn usage_json(usage: Usage) -> String {
    format!(
        r#"{{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}}}}"#,
        usage.prompt_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        usage.completion_tokens,
        usage.cached_tokens
    )
}
