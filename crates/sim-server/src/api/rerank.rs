//! `/v1/rerank` and `/v1/score`: how well texts fit together, as far as their hash can tell.

use std::fmt::Write;

use http::Response;
use serde_json::Value;

use super::fields::{Fields, flag};
use super::generate::{Identity, start, whole};
use super::refusal::Refused;
use super::{Call, quoted};
use crate::answer::fingerprint;
use crate::body::SimBody;
use crate::prompt::Prompt;

/// Sorts documents by how well they fit a query.
pub async fn rerank(call: Call, body: Value) -> Result<Response<SimBody>, Refused> {
    let fields = Fields::read(&call.replica, &body, &[])?;
    let Some(query) = body.get("query").and_then(Value::as_str) else {
        return Err(Refused::bad_field("query", "query must be a string"));
    };
    let documents = texts(&body, "documents")?;
    let keep = match body.get("top_n") {
        None | Some(Value::Null) => documents.len(),
        Some(value) => match value.as_u64() {
            // vLLM's default of 0 means all.
            Some(0) => documents.len(),
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
            None => return Err(Refused::bad_field("top_n", "top_n must be a whole number")),
        },
    };
    let with_text = body.get("return_documents").is_none() || flag(&body, "return_documents")?;
    let prompts: Vec<Prompt> = documents.iter().map(|document| pair(query, document)).collect();
    let id = Identity::of(&call.replica, &prompts).id;
    let model = quoted(&call.replica.model.name);
    let generation = start(&call, &prompts, &Fields { n: 1, max_tokens: Some(0), ..fields })?;
    Ok(whole(call, generation, |_, usage| {
        let mut ranked: Vec<(usize, f64)> = prompts.iter().map(score).enumerate().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut results = String::new();
        for (index, score) in ranked.into_iter().take(keep) {
            let comma = if results.is_empty() { "" } else { "," };
            let document =
                if with_text { format!(r#""document":{{"text":{}}},"#, quoted(&documents[index])) } else { String::new() };
            // Writing to a string cannot fail.
            _ = write!(results, r#"{comma}{{"index":{index},{document}"relevance_score":{score}}}"#);
        }
        let tokens = usage.prompt_tokens;
        format!(
            r#"{{"id":"rerank-{id}","model":{model},"usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}},"results":[{results}]}}"#
        )
    })
    .await)
}

/// Scores pairs of texts: one with one, one with each of several, or each with its counterpart.
pub async fn score_pairs(call: Call, body: Value) -> Result<Response<SimBody>, Refused> {
    let fields = Fields::read(&call.replica, &body, &[])?;
    let (left, right) = (texts(&body, "text_1")?, texts(&body, "text_2")?);
    if left.len() != 1 && left.len() != right.len() {
        let reason =
            format!("text_1 has {} texts and text_2 {}; give one, or as many", left.len(), right.len());
        return Err(Refused::bad_field("text_1", reason));
    }
    let prompts: Vec<Prompt> =
        left.iter().cycle().zip(&right).map(|(left, right)| pair(left, right)).collect();
    let Identity { id, created_s } = Identity::of(&call.replica, &prompts);
    let model = quoted(&call.replica.model.name);
    let generation = start(&call, &prompts, &Fields { n: 1, max_tokens: Some(0), ..fields })?;
    Ok(whole(call, generation, |_, usage| {
        let data: Vec<String> = prompts
            .iter()
            .map(score)
            .enumerate()
            .map(|(index, score)| format!(r#"{{"index":{index},"object":"score","score":{score}}}"#))
            .collect();
        let tokens = usage.prompt_tokens;
        format!(
            r#"{{"id":"score-{id}","object":"list","created":{created_s},"model":{model},"data":[{}],"usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens},"completion_tokens":0,"prompt_tokens_details":null}}}}"#,
            data.join(",")
        )
    })
    .await)
}

/// A text or several, each a string or an object with a text.
fn texts(body: &Value, name: &'static str) -> Result<Vec<String>, Refused> {
    let bad =
        || Refused::bad_field(name, format!("{name} must be a string or an array of strings, not empty"));
    let text = |value: &Value| {
        value
            .as_str()
            .or_else(|| value.get("text").and_then(Value::as_str))
            .map(str::to_owned)
            .ok_or_else(bad)
    };
    match body.get(name).ok_or_else(bad)? {
        Value::Array(items) if !items.is_empty() => items.iter().map(text).collect(),
        Value::Array(_) => Err(bad()),
        one => Ok(vec![text(one)?]),
    }
}

fn pair(left: &str, right: &str) -> Prompt {
    Prompt::text(&[left, "\n", right].concat())
}

/// From 0 to 1, with four digits.
fn score(prompt: &Prompt) -> f64 {
    (fingerprint(&prompt.bytes) % 10_000) as f64 / 10_000.0
}
