//! Model lists: `GET /v1/models` of one engine, and of all of them as one.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Most models one engine may list. An engine lists its base model and its adapters: dozens, not thousands.
pub const MODELS_MAX: usize = 10_000;

/// Longest model name, in bytes. Names become metrics labels and route keys, so their length is bounded.
pub const MODEL_ID_MAX_BYTES: usize = 512;

/// One entry of a model list.
#[derive(Debug, Clone)]
pub struct Model {
    /// The name that requests use.
    pub id: String,
    /// The whole entry as the engine wrote it, unknown fields and number spelling included.
    pub raw: Box<RawValue>,
}

/// Why a model list was refused.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// Not JSON, or not the shape `{"data": [{"id": …}, …]}`.
    #[error("the model list is not of the form {{\"data\":[{{\"id\":…}}]}}: {0}")]
    Malformed(#[from] serde_json::Error),
    /// More than [`MODELS_MAX`] entries.
    #[error(
        "the model list has more than {MODELS_MAX} entries; name the endpoint's models in the configuration"
    )]
    TooMany,
}

/// Reads the body of `GET /v1/models`.
///
/// Entries without a usable name (none, empty, longer than [`MODEL_ID_MAX_BYTES`]) are left out, so that one odd
/// entry does not hide the others. `"data": null` is an empty list: Ollama writes that when it has no models.
///
/// # Errors
/// When the body is no model list, or lists more than [`MODELS_MAX`].
pub fn parse_models(body: &[u8]) -> Result<Vec<Model>, ModelsError> {
    let list: List = serde_json::from_slice(body)?;
    let entries = list.data.unwrap_or_default();
    if entries.cut {
        return Err(ModelsError::TooMany);
    }
    Ok(entries.models)
}

#[derive(Deserialize)]
struct List {
    data: Option<Entries>,
}

#[derive(Default)]
struct Entries {
    models: Vec<Model>,
    cut: bool,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bounded;
        impl<'de> Visitor<'de> for Bounded {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of models")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Entries, A::Error> {
                let mut models = Vec::new();
                for _ in 0..MODELS_MAX {
                    let Some(raw) = entries.next_element::<&RawValue>()? else {
                        return Ok(Entries { models, cut: false });
                    };
                    let Ok(named) = serde_json::from_str::<Named<'_>>(raw.get()) else { continue };
                    if !named.id.is_empty() && named.id.len() <= MODEL_ID_MAX_BYTES {
                        models.push(Model { id: named.id.into_owned(), raw: raw.to_owned() });
                    }
                }
                let mut cut = false;
                while entries.next_element::<IgnoredAny>()?.is_some() {
                    cut = true;
                }
                Ok(Entries { models, cut })
            }
        }
        deserializer.deserialize_seq(Bounded)
    }
}

/// One list from many: `{"object":"list","data":[…]}`.
///
/// Each name once, with the entry of the first list that has it, byte for byte; names keep the order in which they
/// are first met, so that the same lists give the same bytes.
pub fn merge_models<'a, L>(lists: impl IntoIterator<Item = L>) -> Vec<u8>
where
    L: IntoIterator<Item = &'a Model>,
{
    #[derive(Serialize)]
    struct Merged<'a> {
        object: &'static str,
        data: Vec<&'a RawValue>,
    }
    let mut known = HashSet::new();
    let mut data = Vec::new();
    for model in lists.into_iter().flatten() {
        if known.insert(model.id.as_str()) {
            data.push(&*model.raw);
        }
    }
    // Raw values are valid JSON already, and writing to memory does not fail.
    serde_json::to_vec(&Merged { object: "list", data })
        .unwrap_or_else(|_| br#"{"object":"list","data":[]}"#.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(models: &[Model]) -> Vec<&str> {
        models.iter().map(|model| model.id.as_str()).collect()
    }

    #[test]
    fn entries_keep_their_bytes() {
        let models = parse_models(
            br#"{"object":"list","data":[{"id":"a","created":1.0,"x":[1e2, null]},{"id":"b"}]}"#,
        )
        .unwrap();
        assert_eq!(ids(&models), ["a", "b"]);
        assert_eq!(models[0].raw.get(), r#"{"id":"a","created":1.0,"x":[1e2, null]}"#);
    }

    #[test]
    fn odd_entries_do_not_hide_the_others() {
        let long = "x".repeat(MODEL_ID_MAX_BYTES + 1);
        let body = format!(
            r#"{{"data":[{{"id":"a"}},7,{{}},{{"id":null}},{{"id":""}},{{"id":"{long}"}},{{"id":"b\"\u00e9"}}]}}"#
        );
        assert_eq!(ids(&parse_models(body.as_bytes()).unwrap()), ["a", "b\"é"]);
    }

    #[test]
    fn no_models_is_an_empty_list_and_no_list_is_an_error() {
        for empty in [r#"{"data":[]}"#, r#"{"object":"list","data":null}"#, "{}"] {
            assert!(parse_models(empty.as_bytes()).unwrap().is_empty(), "{empty}");
        }
        for wrong in ["", "nope", "[]", r#"{"data":{}}"#, r#"{"data":[}"#, "\u{0}", r#"{"data":[]"#] {
            assert!(matches!(parse_models(wrong.as_bytes()), Err(ModelsError::Malformed(_))), "{wrong}");
        }
        let deep = format!(r#"{{"data":[{{"id":"a","x":{}}}]}}"#, "[".repeat(1_000_000));
        assert!(parse_models(deep.as_bytes()).is_err());
    }

    #[test]
    fn the_count_is_bounded() {
        let body = |count: usize| format!(r#"{{"data":[{}]}}"#, vec![r#"{"id":"m"}"#; count].join(","));
        assert_eq!(parse_models(body(MODELS_MAX).as_bytes()).unwrap().len(), MODELS_MAX);
        assert!(matches!(parse_models(body(MODELS_MAX + 1).as_bytes()), Err(ModelsError::TooMany)));
    }

    #[test]
    fn a_merge_keeps_the_first_entry_and_the_order() {
        let one = parse_models(br#"{"data":[{"id":"b","n":1},{"id":"a"}]}"#).unwrap();
        let two = parse_models(br#"{"data":[{"id":"c"},{"id":"b","n":2}]}"#).unwrap();
        let merged = merge_models([&one, &two]);
        assert_eq!(
            String::from_utf8(merged).unwrap(),
            r#"{"object":"list","data":[{"id":"b","n":1},{"id":"a"},{"id":"c"}]}"#
        );
        assert_eq!(merge_models(Vec::<&Vec<Model>>::new()), br#"{"object":"list","data":[]}"#);
    }
}
