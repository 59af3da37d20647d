use super::*;

const CHAT: Operation = Operation::ChatCompletions;

fn refused(operation: Operation, body: &str) -> BodyError {
    scan_json(operation, body.as_bytes()).expect_err(body)
}

fn prompt(operation: Operation, body: &str) -> Vec<&str> {
    let fields = scan_json(operation, body.as_bytes()).expect(body);
    fields.prompt.iter().map(|part| &body[part.clone()]).collect()
}

#[test]
fn finds_the_fields() {
    let body = br#" {"model" : "a\/b", "stream":true, "stream_options":{"x":[1],"include_usage":true},
        "store":false,"background":null,"n":2,"max_tokens":7,"user":"u","session_id":"s\ud800","priority":-3,
        "vendor":{"model":"no","a":1.0},"seed":12345678901234567890123 } "#;
    let fields = scan_json(CHAT, body).unwrap();
    assert_eq!(fields.model.as_ref().unwrap().text(body), "a/b");
    assert_eq!(fields.stream, Some(true));
    assert_eq!(fields.include_usage, Some(true));
    assert_eq!(fields.store, Some(false));
    assert_eq!(fields.background, None);
    assert_eq!((fields.n, fields.max_tokens, fields.priority), (Some(2), Some(7), Some(-3)));
    assert_eq!(fields.user.as_ref().unwrap().text(body), "u");
    assert_eq!(fields.session(body).unwrap(), "s\u{fffd}");
    assert!(fields.is_replayable(CHAT));
    assert!(fields.require_model(CHAT).is_ok());
}

#[test]
fn max_tokens_is_the_first_that_is_a_whole_number() {
    let max = |operation, body: &str| scan_json(operation, body.as_bytes()).unwrap().max_tokens;
    assert_eq!(max(CHAT, r#"{"max_tokens":1,"max_completion_tokens":2}"#), Some(2));
    assert_eq!(max(CHAT, r#"{"max_tokens":1,"max_completion_tokens":null}"#), Some(1));
    assert_eq!(max(CHAT, r#"{"max_tokens":-1}"#), None);
    assert_eq!(max(CHAT, r#"{"max_tokens":1.5}"#), None);
    assert_eq!(max(CHAT, r#"{"max_tokens":"9"}"#), None);
    assert_eq!(max(CHAT, r#"{"max_tokens":99999999999999999999}"#), None);
    assert_eq!(max(Operation::SglangGenerate, r#"{"sampling_params":{"max_new_tokens":5}}"#), Some(5));
    assert_eq!(max(Operation::SglangGenerate, r#"{"sampling_params":[{}]}"#), None);
    assert_eq!(max(Operation::VllmGenerate, r#"{"sampling_params":{"max_tokens":6}}"#), Some(6));
    assert_eq!(max(Operation::OllamaChat, r#"{"options":{"num_predict":8}}"#), Some(8));
}

#[test]
fn prompt_parts_come_in_template_order() {
    assert_eq!(prompt(CHAT, r#"{"messages":[1],"tools":[2]}"#), ["[2]", "[1]"]);
    assert_eq!(
        prompt(Operation::Messages, r#"{"messages":[1],"system":"s","tools":[2]}"#),
        ["[2]", "\"s\"", "[1]"]
    );
    assert_eq!(prompt(Operation::Responses, r#"{"input":"i","instructions":"s"}"#), ["\"s\"", "\"i\""]);
    assert_eq!(prompt(Operation::VllmGenerate, r#"{"token_ids":[1, 2]}"#), ["[1, 2]"]);
    assert_eq!(prompt(Operation::SglangGenerate, r#"{"text":null,"input_ids":[3]}"#), ["[3]"]);
    assert_eq!(prompt(Operation::Rerank, r#"{"documents":["d"],"query":"q"}"#), ["\"q\"", "[\"d\"]"]);
    // Another call's key is not part of this one's prompt.
    assert_eq!(prompt(CHAT, r#"{"prompt":"p"}"#), [""; 0]);
}

#[test]
fn wrong_types_name_field_and_type() {
    let error = refused(CHAT, r#"{"model":7}"#);
    assert_eq!((error.code, error.param, error.offset), (BodyCode::InvalidType, Some("model"), 9));
    assert!(error.message.contains("`model` is a number"), "{error}");
    assert!(error.message.contains("must be a string"), "{error}");
    for body in [r#"{"stream":"true"}"#, r#"{"stream":1}"#, r#"{"store":0}"#, r#"{"background":[]}"#] {
        assert_eq!(refused(CHAT, body).code, BodyCode::InvalidType, "{body}");
    }
    for body in ["[]", "1", "\"x\"", "null", " true "] {
        assert_eq!(refused(CHAT, body).code, BodyCode::InvalidType, "{body}");
    }
}

#[test]
fn repeated_keys_that_are_read_are_refused_however_spelled() {
    for body in [
        r#"{"model":"a","model":"a"}"#,
        r#"{"model":"a","mod\u0065l":"b"}"#,
        r#"{"stream":null,"stream":true}"#,
        r#"{"messages":[],"messages":[]}"#,
        r#"{"stream_options":{"include_usage":true,"include_usage":false}}"#,
    ] {
        let error = refused(CHAT, body);
        assert_eq!(error.code, BodyCode::DuplicateKey, "{body}");
        assert!(error.message.contains(error.param.unwrap()), "{error}");
    }
    assert!(scan_json(CHAT, br#"{"x":1,"x":2,"Model":"a","model":"b"}"#).is_ok());
    assert_eq!(refused(Operation::OllamaChat, r#"{"Model":"a","model":"b"}"#).code, BodyCode::DuplicateKey);
    assert!(scan_json(Operation::OllamaChat, br#"{"MODEL":"a"}"#).unwrap().model.is_some());
}

#[test]
fn not_json_is_refused_with_its_place() {
    let error = refused(CHAT, "{\"a\":1,\n \"b\":tru}");
    assert_eq!((error.code, error.line, error.column, error.offset), (BodyCode::InvalidJson, 2, 6, 13));
    assert!(error.message.contains("line 2, column 6"), "{error}");
    assert_eq!(refused(CHAT, "").code, BodyCode::EmptyBody);
    assert_eq!(refused(CHAT, "  ").code, BodyCode::InvalidJson);
    assert_eq!(refused(CHAT, "{} x").code, BodyCode::InvalidJson);
    assert!(refused(CHAT, "\u{feff}{}").message.contains("byte order mark"));
    assert_eq!(refused(CHAT, r#"{"model":"\ud800"}"#).code, BodyCode::InvalidJson);
    assert_eq!(refused(CHAT, &"{\"a\":".repeat(500)).code, BodyCode::TooDeep);

    let error = scan_json(CHAT, b"{\"a\":\"\xff\"}").unwrap_err();
    assert_eq!((error.code, error.offset), (BodyCode::InvalidUtf8, 6));
    assert!(error.message.contains("0xff"), "{error}");
}

#[test]
fn utf8_is_checked_everywhere_and_told_before_any_other_fault() {
    let long = "x".repeat(200);
    let korean = "한국어".repeat(40);
    for (before, after) in [
        ("{", "}"),
        ("{\"a", "b\":1}"),
        ("{\"a\":{\"b\":[1,\"", "\"]}}"),
        ("{\"model\":\"", "\"}"),
        ("{\"user\":\"a\\n", "\"}"),
        (&format!("{{\"a\":\"{long}"), &format!("{long}\"}}")),
        (&format!("{{\"a\":\"{korean}"), "\"}"),
        (&format!("{{\"a\":\"{korean}"), &format!("{korean}\"}}")),
        ("{\"a\":tru,\"b\":\"", "\"}"),
        ("{\"a\":\"\n\\x", &long),
        ("", ""),
    ] {
        // Half a surrogate pair, a character too long, one cut off, one above the highest, a byte that is never one.
        for wrong in [&b"\xed\xa0\x80"[..], b"\xc1\xbf", b"\xe2\x82", b"\xf4\x90\x80\x80", b"\xff"] {
            let body = [before.as_bytes(), wrong, after.as_bytes()].concat();
            let error = scan_json(CHAT, &body).unwrap_err();
            assert_eq!((error.code, error.offset), (BodyCode::InvalidUtf8, before.len()), "{error}");
        }
    }
}

#[test]
fn a_model_is_required_where_the_call_says_so() {
    for body in ["{}", r#"{"model":null}"#, r#"{"model":""}"#] {
        let fields = scan_json(CHAT, body.as_bytes()).unwrap();
        assert_eq!(fields.require_model(CHAT).unwrap_err().code, BodyCode::MissingModel);
        assert!(fields.require_model(Operation::Tokenize).is_ok());
    }
}

#[test]
fn streaming_defaults_differ_by_call() {
    let fields = scan_json(CHAT, b"{}").unwrap();
    assert!(!fields.streams(CHAT));
    assert!(fields.streams(Operation::OllamaChat));
    let fields = scan_json(Operation::OllamaChat, br#"{"stream":false}"#).unwrap();
    assert!(!fields.streams(Operation::OllamaChat));
}

#[test]
fn stored_and_background_requests_are_not_replayed() {
    for body in [r#"{"store":true}"#, r#"{"background":true}"#] {
        assert!(!scan_json(CHAT, body.as_bytes()).unwrap().is_replayable(CHAT));
    }
}
