//! The body scan and serde_json agree on what is JSON and on what is in it.

use std::collections::HashMap;
use std::fmt;

use api::{BodyCode, BodyError, Operation, RequestFields, scan_json};
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Top-level members in order, as serde_json reads them.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> serde::de::Visitor<'de> for Visit {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visit)
    }
}

fn is_json(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok())
}

const OPERATION: Operation = Operation::Messages;
const ONCE: [&str; 19] = [
    "model",
    "stream",
    "stream_options",
    "store",
    "background",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "n",
    "priority",
    "session_id",
    "prompt_cache_key",
    "previous_response_id",
    "user",
    "sampling_params",
    "options",
    "tools",
    "system",
    "messages",
];

fn agree(body: &[u8]) -> Result<(), TestCaseError> {
    let scanned = scan_json(OPERATION, body);
    if !is_json(body) {
        prop_assert!(scanned.is_err(), "took what is not JSON: {}", String::from_utf8_lossy(body));
        return Ok(());
    }
    // serde_json keeps no text with half a surrogate pair; then only "it is JSON" can be compared.
    let Ok(Members(members)) = serde_json::from_slice::<Members<'_>>(body) else {
        let is_object = body.trim_ascii_start().starts_with(b"{");
        prop_assert!(is_object || scanned.is_err_and(|error| error.code == BodyCode::InvalidType));
        return Ok(());
    };
    let mut by_key: HashMap<&str, &RawValue> = HashMap::new();
    let mut repeated = false;
    for (key, value) in &members {
        repeated |= by_key.insert(key, value).is_some() && ONCE.contains(&key.as_str());
    }
    match scanned {
        Ok(fields) => {
            prop_assert!(!repeated, "took a repeated key: {}", String::from_utf8_lossy(body));
            same_fields(body, &fields, &by_key)
        }
        Err(error) => has_reason(&error, repeated, &by_key),
    }
}

fn has_reason(
    error: &BodyError,
    repeated: bool,
    by_key: &HashMap<&str, &RawValue>,
) -> Result<(), TestCaseError> {
    match error.code {
        BodyCode::DuplicateKey => {
            prop_assert!(repeated || error.param == Some("stream_options.include_usage"), "{error}");
        }
        BodyCode::InvalidType => {
            // The value that counts for us may be the first of two.
            let value = by_key.get(error.param.unwrap()).unwrap().get();
            let is_good = if error.param == Some("model") {
                value.starts_with('"') || value == "null"
            } else {
                matches!(value, "true" | "false" | "null")
            };
            prop_assert!(!is_good || repeated, "{error}");
        }
        BodyCode::InvalidJson => {
            let is_half = serde_json::from_str::<Value>(by_key["model"].get()).is_err();
            prop_assert!((is_half || repeated) && error.param == Some("model"), "{error}");
        }
        _ => prop_assert!(false, "{error}"),
    }
    Ok(())
}

fn same_fields(
    body: &[u8],
    fields: &RequestFields,
    by_key: &HashMap<&str, &RawValue>,
) -> Result<(), TestCaseError> {
    let value = |key: &str| {
        by_key.get(key).map_or(Value::Null, |raw| serde_json::from_str(raw.get()).unwrap_or(Value::Null))
    };
    let text = |field: &Option<api::StringField>| field.as_ref().map(|field| field.text(body).into_owned());
    let expected_text = |key| value(key).as_str().map(str::to_owned);
    prop_assert_eq!(text(&fields.model), expected_text("model"));
    for (key, field) in [
        ("user", &fields.user),
        ("session_id", &fields.session_id),
        ("prompt_cache_key", &fields.prompt_cache_key),
    ] {
        if let Some(expected) = expected_text(key) {
            prop_assert_eq!(text(field), Some(expected));
        }
    }
    prop_assert_eq!(fields.stream, value("stream").as_bool());
    prop_assert_eq!(fields.store, value("store").as_bool());
    prop_assert_eq!(fields.background, value("background").as_bool());
    prop_assert_eq!(fields.include_usage, value("stream_options")["include_usage"].as_bool());
    prop_assert_eq!(fields.n, value("n").as_u64());
    prop_assert_eq!(fields.priority, value("priority").as_i64());
    let limits = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
    let nested = [
        ("sampling_params", "max_new_tokens"),
        ("sampling_params", "max_tokens"),
        ("options", "num_predict"),
    ];
    let expected = limits.iter().find_map(|key| value(key).as_u64());
    let expected = expected.or_else(|| nested.iter().find_map(|(outer, inner)| value(outer)[inner].as_u64()));
    prop_assert_eq!(fields.max_tokens, expected);

    let parts: Vec<&[u8]> = fields.prompt.iter().map(|part| &body[part.clone()]).collect();
    let expected: Vec<&[u8]> = ["tools", "system", "messages"]
        .iter()
        .filter_map(|key| by_key.get(key))
        .map(|raw| raw.get().as_bytes())
        .filter(|raw| *raw != b"null")
        .collect();
    prop_assert_eq!(parts, expected);
    Ok(())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{0,12}",
        "\\PC{0,8}",
        Just("a \"quoted\" back\\slash\n\ttab\u{1}\u{7f}\u{2028}🦀".to_owned()),
        "[a-z\"\\\\]{60,90}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        text().prop_map(Value::from),
        proptest::collection::vec(0..200_000_u32, 0..40).prop_map(|ids| json!(ids)),
        any::<bool>().prop_map(|on| json!({"x": 1, "include_usage": on})),
        (0..9_u8).prop_map(|n| json!({"max_tokens": n, "num_predict": n})),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::hash_map(text(), inner, 0..5).prop_map(|map| json!(map)),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => proptest::sample::select(&ONCE[..]).prop_map(str::to_owned),
        1 => text(),
    ]
}

/// A JSON string with some letters spelled as escapes.
fn spelled(text: &str, escapes: bool) -> String {
    let printed = serde_json::to_string(text).expect("text prints");
    if !escapes || text.is_empty() || !text.is_ascii() || printed.len() != text.len() + 2 {
        return printed;
    }
    let (head, tail) = text.split_at(text.len() / 2);
    let (middle, tail) = tail.split_at(1);
    format!("\"{head}\\u{:04X}{tail}\"", middle.as_bytes()[0])
}

/// A document as a client might send it: members in any order, maybe repeated, maybe with escapes in keys.
fn document() -> impl Strategy<Value = Vec<u8>> {
    let fitting = prop_oneof![
        text().prop_map(|text| ("model".to_owned(), json!(text))),
        proptest::option::of(any::<bool>()).prop_map(|on| ("stream".to_owned(), json!(on))),
        any::<u32>().prop_map(|max| ("max_tokens".to_owned(), json!(max))),
        value().prop_map(|messages| ("messages".to_owned(), messages)),
    ];
    let member = prop_oneof![3 => fitting, 1 => (key(), value())];
    let members = proptest::collection::vec((member, any::<bool>(), any::<bool>()), 0..7);
    (members, proptest::sample::select(&["", " ", "\n\t", "\r\n  "][..])).prop_map(|(members, gap)| {
        let members: Vec<String> = members
            .iter()
            .map(|((key, value), escapes, is_pretty)| {
                let print = if *is_pretty { serde_json::to_string_pretty } else { serde_json::to_string };
                format!("{gap}{}{gap}:{gap}{}", spelled(key, *escapes), print(value).expect("values print"))
            })
            .collect();
        format!("{gap}{{{}{gap}}}{gap}", members.join(&format!("{gap},"))).into_bytes()
    })
}

/// One small damage: a token put in, bytes cut out, a byte changed, a piece repeated.
fn damage() -> impl Strategy<Value = (u8, prop::sample::Index, prop::sample::Index, &'static [u8], u8)> {
    const TOKENS: [&[u8]; 24] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\\",
        b"\\u",
        b"\\ud800",
        b"0",
        b"-",
        b".",
        b"e",
        b"1",
        b"null",
        b"tru",
        b" ",
        b"\n",
        b"\0",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\"model\":1,",
        b"00,",
    ];
    (
        0..4_u8,
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        proptest::sample::select(&TOKENS[..]),
        any::<u8>(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_documents(body in document()) {
        prop_assert!(is_json(&body), "the generator prints JSON: {}", String::from_utf8_lossy(&body));
        agree(&body)?;
    }

    #[test]
    fn on_damaged_documents(mut body in document(), damages in proptest::collection::vec(damage(), 1..4)) {
        for (kind, from, to, token, byte) in damages {
            let (from, to) = (from.index(body.len() + 1), to.index(body.len() + 1));
            let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 40));
            match kind {
                0 => drop(body.splice(from..from, token.iter().copied())),
                1 => drop(body.drain(from..to)),
                2 if from < body.len() => body[from] = byte,
                _ => {
                    let piece = body[from..to].to_vec();
                    drop(body.splice(to..to, piece));
                }
            }
        }
        agree(&body)?;
    }

    /// Runs of numbers, which have a fast way of their own.
    #[test]
    fn on_arrays_of_numbers(
        numbers in proptest::collection::vec("0|[1-9][0-9]{0,6}|-1|0[0-9]|[0-9]\\.5|1e9| ?", 0..60),
        separator in proptest::sample::select(&[",", ", ", " ,", ",\n", ",  "][..]),
        tail in proptest::sample::select(&["", ",", "x", " "][..]),
    ) {
        agree(format!("{{\"messages\":[{}{tail}]}}", numbers.join(separator)).as_bytes())?;
    }

    #[test]
    fn on_any_bytes(body in proptest::collection::vec(any::<u8>(), 0..64)) {
        agree(&body)?;
    }
}
