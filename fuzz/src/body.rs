//! JSON request bodies and answers.

use api::{BodyCode, Operation, StringField, scan_json, usage_of_json};

pub(crate) const TOKENS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\\"",
    b"\\u",
    b"\\u0065",
    b"\\ud83e\\udd80",
    b"\\ud800",
    b"0",
    b"-",
    b".5",
    b"e+",
    b"1234567",
    b"1,2,3,",
    b"00",
    b"null",
    b"true",
    b"false",
    b" ",
    b"\n",
    b"\r",
    b"\t",
    b"\0",
    b"\x7f",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\xed\x95\x9c",
    b"\xf0\x9f\xa6\x80",
    b"\\\\\\\\\\",
    b"half a block of text, 32 bytes..",
    b"\"model\":\"m\",",
    b"\"mod\\u0065l\":1,",
    b"\"stream\":true,",
    b"\"messages\":[],",
    b"\"stream_options\":{",
    b"\"include_usage\":true",
    b"\"usage\":{\"prompt_tokens\":1}",
    b"\"max_tokens\":9,",
];

/// The first byte chooses the call, the rest is the body. Agrees with serde_json on what is JSON, and every place
/// that is handed out is inside the body and holds what it should.
pub fn body_scan(input: &[u8]) {
    let Some((choice, body)) = input.split_first() else { return };
    let operation = Operation::ALL[usize::from(*choice) % Operation::ALL.len()];
    let text = std::str::from_utf8(body);
    let is_json = text.is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
    match scan_json(operation, body) {
        Ok(fields) => {
            assert!(is_json, "took what is not JSON");
            assert!(body.trim_ascii().starts_with(b"{"), "took what is no object");
            let hints =
                [&fields.session_id, &fields.prompt_cache_key, &fields.previous_response_id, &fields.user];
            for hint in hints.into_iter().flatten() {
                assert_eq!((body[hint.inside.start - 1], body[hint.inside.end]), (b'"', b'"'));
                _ = hint.text(body);
            }
            if let Some(model) = &fields.model {
                let StringField { inside, .. } = model.clone();
                let quoted = &body[inside.start - 1..inside.end + 1];
                let expected: String = serde_json::from_slice(quoted).expect("the model is a JSON string");
                assert_eq!(model.text(body), expected);
            }
            for part in &fields.prompt {
                let part = &body[part.clone()];
                assert!(
                    serde_json::from_slice::<serde::de::IgnoredAny>(part).is_ok(),
                    "a prompt part is a value"
                );
            }
            _ = fields.session(body);
            assert_eq!(
                fields.require_model(operation).is_err(),
                operation.model_required() && {
                    fields.model.as_ref().is_none_or(|model| model.inside.is_empty())
                }
            );
        }
        Err(error) => {
            assert!(error.offset <= body.len() && error.line >= 1 && error.column >= 1);
            assert!(error.message.len() < 512, "an error repeats too much of the body: {error}");
            if error.code == BodyCode::InvalidJson && error.param.is_none() {
                assert!(!is_json, "refused JSON: {error}");
            }
            if error.code == BodyCode::InvalidUtf8 {
                assert!(text.is_err(), "refused UTF-8: {error}");
            }
        }
    }
    if let Some(usage) = usage_of_json(body) {
        _ = usage.prompt_tokens;
        let answer = serde_json::from_slice::<serde::de::IgnoredAny>(body);
        // Answers are not checked for UTF-8, nor is their text.
        assert!(text.is_err() || answer.is_ok(), "found usage in what is not JSON");
    }
}
