//! A real llama.cpp server's own words.

use engines::{Answer, EngineKind, classify, merge_models, parse_models};

const MODELS: &[u8] = include_bytes!("data/llamacpp-models.json");

#[test]
fn it_is_recognised_by_its_model_list_alone() {
    let answer = Answer { path: "/v1/models", status: 200, server: None, body: MODELS };
    assert_eq!(classify(&answer), Some(EngineKind::LlamaCpp));
}

#[test]
fn its_list_goes_through_byte_for_byte() {
    let models = parse_models(MODELS).unwrap();
    assert_eq!(models.len(), 1);
    assert_eq!(models[0].id, "smol");
    let merged = merge_models([&models, &models]);
    let inside = merged.strip_prefix(br#"{"object":"list","data":["#).unwrap().strip_suffix(b"]}").unwrap();
    assert!(memchr::memmem::find(MODELS, inside).is_some());
}
