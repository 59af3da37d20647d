//! Whatever JSON comes, it is answered: with 200 or with an error that says why, never by a broken connection.

mod fleet;

use fleet::{Client, fast, until_metric, with_fleet};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use sim_server::{EngineKind, SimOptions};

const PATHS: [&str; 11] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/tokenize",
    "/detokenize",
    "/generate",
];

const FIELDS: [&str; 27] = [
    "model",
    "messages",
    "prompt",
    "input",
    "text",
    "input_ids",
    "tokens",
    "query",
    "documents",
    "text_1",
    "text_2",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "tools",
    "system",
    "instructions",
    "sampling_params",
    "max_new_tokens",
    "ignore_eos",
    "dimensions",
    "encoding_format",
    "role",
    "content",
];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0u32..20).prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        Just(json!("sim")),
        Just(json!("user")),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let field = proptest::sample::select(&FIELDS[..]).prop_map(str::to_owned);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((field, inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A request that is nearly right: the fields that matter, with any values.
fn any_body() -> impl Strategy<Value = Value> {
    let fields = proptest::collection::vec((proptest::sample::select(&FIELDS[..]), any_value()), 0..6);
    let good = json!({
        "messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "input": "hi", "text": "hi", "tokens": [1],
        "query": "hi", "documents": ["a"], "text_1": "a", "text_2": "b", "max_tokens": 3, "max_output_tokens": 3,
    });
    prop_oneof![
        1 => any_value(),
        4 => fields.prop_map(move |fields| {
            let mut body = good.clone();
            for (name, value) in fields {
                body[name] = value;
            }
            body
        }),
    ]
}

#[test]
fn any_json_is_answered() {
    with_fleet(SimOptions { engine_kind: EngineKind::Sglang, speed: 1e6, ..fast() }, async |addresses| {
        let mut runner = TestRunner::deterministic();
        let mut client = Client::connect(addresses[0]).await;
        let mut good = 0;
        for case in 0..600 {
            let body = any_body().new_tree(&mut runner).expect("a body").current().to_string();
            let path = PATHS[case % PATHS.len()];
            let (status, text) = client.text("POST", path, &body).await;
            assert!([200, 400, 404].contains(&status), "{path} {body}: {status} {text}");
            good += u32::from(status == 200);
        }
        assert!((100..500).contains(&good), "{good} of 600 were good: too one-sided to mean anything");
        until_metric(addresses[0], "sglang:num_running_reqs", 0.0).await;
    });
}
