//! Reading the fields of a request.

use serde_json::Value;

use super::refusal::Refused;
use crate::replica::Replica;

/// Most answers to one prompt; OpenAI's limit.
const MAX_CHOICES: u32 = 128;

/// What matters of a request besides its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    pub stream: bool,
    pub include_usage: bool,
    /// Most tokens of an answer, if stated.
    pub max_tokens: Option<u32>,
    /// Answers to each prompt.
    pub n: u32,
    pub ignore_eos: bool,
}

impl Fields {
    /// Reads them; `limits` are the names under which the API states the longest answer, the first given wins.
    pub fn read(replica: &Replica, body: &Value, limits: &[&'static str]) -> Result<Self, Refused> {
        check_model(replica, body)?;
        let mut max_tokens = None;
        for name in limits {
            max_tokens = max_tokens.or(count(body, name)?);
        }
        let n = count(body, "n")?.unwrap_or(1);
        if n > MAX_CHOICES {
            return Err(Refused::bad_field("n", format!("n is {n}, which must be at most {MAX_CHOICES}")));
        }
        let options = body.get("stream_options").filter(|options| !options.is_null());
        let include_usage =
            options.map(|options| flag(options, "include_usage")).transpose()?.unwrap_or(false);
        Ok(Self {
            stream: flag(body, "stream")?,
            include_usage,
            max_tokens,
            n,
            ignore_eos: replica.ignore_eos || flag(body, "ignore_eos")?,
        })
    }
}

/// Checks that the request is for the served model. Without a model it is: vLLM takes that, too.
pub fn check_model(replica: &Replica, body: &Value) -> Result<(), Refused> {
    if !body.is_object() {
        return Err(Refused::bad_request("the body must be a JSON object"));
    }
    match body.get("model") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(model)) if *model == replica.model.name => Ok(()),
        Some(Value::String(model)) => Err(Refused::no_model(model, &replica.model.name)),
        Some(_) => Err(Refused::bad_field("model", "model must be a string")),
    }
}

/// A boolean; absent and null are false.
pub fn flag(body: &Value, name: &'static str) -> Result<bool, Refused> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(Refused::bad_field(name, format!("{name} must be true or false"))),
    }
}

/// A whole number from 1 on.
fn count(body: &Value, name: &'static str) -> Result<Option<u32>, Refused> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|count| u32::try_from(count).ok()) {
            Some(count) if count > 0 => Ok(Some(count)),
            _ => Err(Refused::bad_field(
                name,
                format!("{name} is {value}, which must be a whole number of at least 1"),
            )),
        },
    }
}
