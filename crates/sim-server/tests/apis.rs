//! The APIs over loopback: shapes, streams, usage, errors.

mod fleet;

use std::collections::HashMap;

use fleet::{Client, connect_h2, data_of, fast, metric, request, text, until_metric, with_fleet};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sim_server::SimOptions;

fn chat(stream: bool, max_tokens: u32) -> Value {
    json!({
        "model": "sim", "stream": stream, "max_tokens": max_tokens, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "Tell me of the sea."}],
    })
}

#[test]
fn a_stream_says_the_same_as_the_whole_answer() {
    with_fleet(fast(), async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let whole = client.post("/v1/chat/completions", chat(false, 12)).await;
        let content = whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
        assert_eq!(whole["choices"][0]["finish_reason"], "length");
        // "user" and 19 bytes are 23: six tokens.
        assert_eq!(whole["usage"]["prompt_tokens"], 6);
        assert_eq!(whole["usage"]["completion_tokens"], 12);

        let (status, stream) = client.text("POST", "/v1/chat/completions", &chat(true, 12).to_string()).await;
        assert_eq!(status, 200);
        let data = data_of(&stream);
        assert_eq!(data.len(), 1 + 12 + 1 + 1 + 1, "role, tokens, finish, usage, [DONE]");
        assert_eq!(data.last(), Some(&"[DONE]"));
        let chunks: Vec<Value> =
            data[..data.len() - 1].iter().map(|data| serde_json::from_str(data).unwrap()).collect();
        let said: String =
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(said, content);
        assert_eq!(chunks[13]["choices"][0]["finish_reason"], "length");
        assert_eq!(chunks[14]["usage"], whole["usage"]);
        assert!(
            chunks.iter().all(|chunk| chunk["id"] == whole["id"] && chunk["created"] == whole["created"])
        );
    });
}

#[test]
fn equal_prompts_have_equal_answers_on_every_replica_and_over_h2() {
    with_fleet(SimOptions { replicas: 2, ..fast() }, async |addresses| {
        let body = chat(true, 40).to_string();
        let (_, first) = text(addresses[0], "POST", "/v1/chat/completions", &body).await;
        let (_, second) = text(addresses[1], "POST", "/v1/chat/completions", &body).await;
        assert_eq!(first, second);

        let mut h2 = connect_h2(addresses[0]).await;
        let h2_request = request("POST", &format!("http://{}/v1/chat/completions", addresses[0]), &body);
        let response = h2.send_request(h2_request).await.unwrap();
        assert_eq!(response.version(), http::Version::HTTP_2);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), first);
    });
}

#[test]
fn real_ids_differ() {
    with_fleet(SimOptions { real_ids: true, ..fast() }, async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let first = client.post("/v1/chat/completions", chat(false, 2)).await;
        let second = client.post("/v1/chat/completions", chat(false, 2)).await;
        assert_ne!(first["id"], second["id"]);
        assert_eq!(first["choices"], second["choices"]);
    });
}

#[test]
fn an_answer_without_a_limit_ends_by_itself_and_ignore_eos_goes_on() {
    with_fleet(fast(), async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let messages = json!([{"role": "user", "content": "hi"}]);
        let free = client.post("/v1/chat/completions", json!({"messages": messages})).await;
        assert_eq!(free["choices"][0]["finish_reason"], "stop");
        let forced = json!({"messages": messages, "max_completion_tokens": 300, "ignore_eos": true});
        let forced = client.post("/v1/chat/completions", forced).await;
        assert_eq!(forced["usage"]["completion_tokens"], 300);
    });
}

#[test]
fn several_prompts_and_several_choices() {
    with_fleet(fast(), async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let body = json!({"model": "sim", "prompt": ["one", "two"], "n": 2, "max_tokens": 3});
        let whole = client.post("/v1/completions", body.clone()).await;
        let texts: Vec<&str> =
            whole["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
        assert_eq!(texts.len(), 4);
        assert_ne!(texts[0], texts[1]);
        assert_eq!(
            whole["usage"],
            json!({
                "prompt_tokens": 2, "completion_tokens": 12, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 0},
            })
        );

        let mut streamed = body;
        streamed["stream"] = json!(true);
        let (_, stream) = client.text("POST", "/v1/completions", &streamed.to_string()).await;
        let mut said = vec![String::new(); 4];
        for data in data_of(&stream).into_iter().filter(|data| *data != "[DONE]") {
            let chunk: Value = serde_json::from_str(data).unwrap();
            let choice = &chunk["choices"][0];
            said[choice["index"].as_u64().unwrap() as usize] += choice["text"].as_str().unwrap();
        }
        assert_eq!(said, texts);
        let tokens =
            client.post("/v1/completions", json!({"prompt": [[1, 2, 3], [4]], "max_tokens": 1})).await;
        assert_eq!(tokens["usage"]["prompt_tokens"], 4);
    });
}

#[test]
fn a_repeated_prompt_is_cached_but_for_its_last_block() {
    with_fleet(SimOptions { block_size: 16, ..fast() }, async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let prompt = "x".repeat(4 * 100);
        let body = json!({"prompt": prompt, "max_tokens": 2});
        let cold = client.post("/v1/completions", body.clone()).await;
        let warm = client.post("/v1/completions", body).await;
        assert_eq!(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
        assert_eq!(warm["usage"]["prompt_tokens_details"]["cached_tokens"], 96);
        assert_eq!(metric(addresses[0], "vllm:prefix_cache_hits_total").await, 96.0);
        assert_eq!(metric(addresses[0], "vllm:prefix_cache_queries_total").await, 200.0);
        assert_eq!(metric(addresses[0], "vllm:time_to_first_token_seconds_count").await, 2.0);
    });
}

#[test]
fn a_second_turn_finds_prompt_and_answer() {
    with_fleet(SimOptions { block_size: 4, ..fast() }, async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let first = json!([{"role": "user", "content": "hi there"}]);
        let answer = client
            .post("/v1/chat/completions", json!({"messages": first, "max_tokens": 60, "ignore_eos": true}))
            .await;
        let said = &answer["choices"][0]["message"]["content"];
        let second =
            json!([first[0], {"role": "assistant", "content": said}, {"role": "user", "content": "go on"}]);
        let answer = client.post("/v1/chat/completions", json!({"messages": second, "max_tokens": 1})).await;
        // 12 bytes, "assistant" and 60 tokens: what was computed of it, in whole blocks.
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
        assert!((56..=64).contains(&cached), "{cached}");
    });
}

#[test]
fn responses_stream_in_order() {
    with_fleet(fast(), async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let whole = client
            .post(
                "/v1/responses",
                json!({"input": "hi", "max_output_tokens": 3, "instructions": "Be brief."}),
            )
            .await;
        assert_eq!((&whole["object"], &whole["status"]), (&json!("response"), &json!("incomplete")));
        let text = whole["output"][0]["content"][0]["text"].as_str().unwrap();

        let body =
            json!({"input": "hi", "max_output_tokens": 3, "instructions": "Be brief.", "stream": true});
        let (_, stream) = client.text("POST", "/v1/responses", &body.to_string()).await;
        let names: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        let delta = "response.output_text.delta";
        assert_eq!(
            names,
            [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.content_part.added",
                delta,
                delta,
                delta,
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
                "response.incomplete",
            ]
        );
        for (number, (name, data)) in names.iter().zip(data_of(&stream)).enumerate() {
            let event: Value = serde_json::from_str(data).unwrap();
            assert_eq!((&event["type"], &event["sequence_number"]), (&json!(name), &json!(number)));
        }
        let last: Value = serde_json::from_str(data_of(&stream).last().unwrap()).unwrap();
        assert_eq!(last["response"], whole);
        assert_eq!(last["response"]["output"][0]["content"][0]["text"], text);

        let complete = client
            .post(
                "/v1/responses",
                json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]}),
            )
            .await;
        assert_eq!(complete["status"], "completed");
    });
}

#[test]
fn messages_stream_in_order() {
    with_fleet(fast(), async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let mut body = json!({"model": "sim", "max_tokens": 2, "system": "Be brief.", "messages": [{"role": "user", "content": "hi"}]});
        let whole = client.post("/v1/messages", body.clone()).await;
        assert_eq!(
            (&whole["stop_reason"], &whole["usage"]["output_tokens"]),
            (&json!("max_tokens"), &json!(2))
        );
        let count = client.post("/v1/messages/count_tokens", body.clone()).await;
        assert_eq!(count["input_tokens"], whole["usage"]["input_tokens"]);
        body["stream"] = json!(true);
        let (_, stream) = client.text("POST", "/v1/messages", &body.to_string()).await;
        let names: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        let delta = "content_block_delta";
        assert_eq!(
            names,
            [
                "message_start",
                "content_block_start",
                delta,
                delta,
                "content_block_stop",
                "message_delta",
                "message_stop"
            ]
        );
        let (status, error) = client
            .text("POST", "/v1/messages", r#"{"model": "other", "max_tokens": 1, "messages": []}"#)
            .await;
        assert_eq!(status, 404);
        assert!(error.starts_with(r#"{"type":"error","error":{"type":"not_found_error""#), "{error}");
    });
}

#[test]
fn embeddings_and_tokens() {
    with_fleet(fast(), async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let two = client
            .post("/v1/embeddings", json!({"model": "sim", "input": ["a", "b"], "dimensions": 8}))
            .await;
        assert_eq!(two["data"][1]["embedding"].as_array().unwrap().len(), 8);
        assert_eq!(two["usage"]["prompt_tokens"], 2);
        let packed = client.post("/v1/embeddings", json!({"input": "a", "encoding_format": "base64"})).await;
        assert_eq!(packed["data"][0]["embedding"].as_str().unwrap().len(), (64 * 4_usize).div_ceil(3) * 4);

        let tokens = client.post("/tokenize", json!({"prompt": "hello wörld"})).await;
        assert_eq!(tokens["count"], 3);
        let text = client.post("/detokenize", json!({"tokens": tokens["tokens"]})).await;
        assert_eq!(text["prompt"], "hello wörld");
    });
}

#[test]
fn rerank_and_score() {
    with_fleet(fast(), async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let body =
            json!({"model": "sim", "query": "sea", "documents": ["a", {"text": "b"}, "c"], "top_n": 2});
        let ranked = client.post("/v1/rerank", body).await;
        let results = ranked["results"].as_array().unwrap();
        assert_eq!(results.len(), 2);
        assert!(results[0]["relevance_score"].as_f64() >= results[1]["relevance_score"].as_f64());
        let scores = client.post("/v1/score", json!({"text_1": "a", "text_2": ["b", "c"]})).await;
        assert_eq!(
            (scores["data"].as_array().unwrap().len(), &scores["usage"]["prompt_tokens"]),
            (2, &json!(2))
        );
        let uneven = r#"{"text_1": ["a", "b"], "text_2": "c"}"#;
        assert_eq!(client.text("POST", "/v1/score", uneven).await.0, 400);
    });
}

#[test]
fn errors_are_in_the_engines_shape() {
    with_fleet(SimOptions { max_model_len: Some(50), ..fast() }, async |addresses| {
        let mut client = Client::connect(addresses[0]).await;
        let long = "x".repeat(4 * 45);
        for (path, body, status, kind, message) in [
            ("/v1/chat/completions", "{", 400, "BadRequestError", "the body is not JSON"),
            ("/v1/chat/completions", "[]", 400, "BadRequestError", "the body must be a JSON object"),
            ("/v1/chat/completions", "\u{0}\u{ff}", 400, "BadRequestError", "the body is not JSON"),
            ("/v1/chat/completions", "{}", 400, "BadRequestError", "messages is missing"),
            (
                "/v1/chat/completions",
                r#"{"model": "gpt", "messages": []}"#,
                404,
                "NotFoundError",
                "The model `gpt` does not",
            ),
            ("/v1/completions", r#"{"prompt": ""}"#, 400, "BadRequestError", "the prompt is empty"),
            ("/v1/completions", r#"{"prompt": {}}"#, 400, "BadRequestError", "prompt must be a string"),
            (
                "/v1/completions",
                r#"{"prompt": "x", "max_tokens": -1}"#,
                400,
                "BadRequestError",
                "max_tokens is -1",
            ),
            ("/v1/completions", r#"{"prompt": "x", "n": 1000}"#, 400, "BadRequestError", "n is 1000"),
            (
                "/v1/completions",
                r#"{"prompt": "x", "stream": 1}"#,
                400,
                "BadRequestError",
                "stream must be true",
            ),
            (
                "/v1/completions",
                &format!(r#"{{"prompt": "{long}"}}"#),
                400,
                "BadRequestError",
                "This model's maximum context length is 50",
            ),
            ("/v1/embeddings", r#"{"input": []}"#, 400, "BadRequestError", "input is empty"),
            ("/v1/rubbish", "{}", 404, "NotFoundError", "There is nothing at POST /v1/rubbish"),
        ] {
            let (got, text) = client.text("POST", path, body).await;
            let error: Value = serde_json::from_str(&text).unwrap();
            assert_eq!((got, &error["error"]["code"]), (status, &json!(status)), "{path} {body}");
            assert_eq!(error["error"]["type"], kind);
            assert!(error["error"]["message"].as_str().unwrap().starts_with(message), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(client.text("POST", "/v1/completions", &deep).await.0, 400);
    });
}

#[test]
fn a_request_that_no_cache_can_hold_is_refused() {
    with_fleet(SimOptions { kv_tokens: 512, ..fast() }, async |addresses| {
        let (status, error) = text(
            addresses[0],
            "POST",
            "/v1/completions",
            r#"{"prompt": "x", "max_tokens": 600, "ignore_eos": true}"#,
        )
        .await;
        assert_eq!(status, 400);
        assert!(error.contains("needs 2 KV blocks and the engine has 1"), "{error}");

        // One of several prompts is enough, and none of them is left in the engine.
        let body =
            json!({"prompt": ["x", "y".repeat(4 * 512)], "max_tokens": 500, "ignore_eos": true}).to_string();
        assert_eq!(text(addresses[0], "POST", "/v1/completions", &body).await.0, 400);
        until_metric(addresses[0], "vllm:num_requests_waiting", 0.0).await;
        assert_eq!(metric(addresses[0], "vllm:num_requests_running").await, 0.0);
    });
}

#[test]
fn each_kind_of_engine_has_its_own_names() {
    let overrides = ["1:engine-kind=sglang", "2:engine-kind=trtllm,model=other"];
    let replica_overrides = overrides.iter().map(|text| text.parse().unwrap()).collect();
    with_fleet(SimOptions { replicas: 3, replica_overrides, ..fast() }, async |addresses| {
        for (index, owner, model, names) in [
            (
                0,
                "vllm",
                "sim",
                ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"],
            ),
            (1, "sglang", "sim", ["sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"]),
            (
                2,
                "tensorrt_llm",
                "other",
                ["trtllm_num_requests_running", "trtllm_num_requests_waiting", "trtllm_kv_cache_utilization"],
            ),
        ] {
            let mut client = Client::connect(addresses[index]).await;
            let (_, models) = client.text("GET", "/v1/models", "").await;
            let models: Value = serde_json::from_str(&models).unwrap();
            assert_eq!(
                (&models["data"][0]["owned_by"], &models["data"][0]["id"]),
                (&json!(owner), &json!(model))
            );
            for name in names {
                assert_eq!(metric(addresses[index], name).await, 0.0);
            }
            assert_eq!(client.text("GET", "/health", "").await.0, 200);
            assert_eq!(client.text("GET", "/get_model_info", "").await.0, if index == 1 { 200 } else { 404 });
        }
        let mut sglang = Client::connect(addresses[1]).await;
        let answer =
            sglang.post("/generate", json!({"text": "hi", "sampling_params": {"max_new_tokens": 3}})).await;
        assert_eq!(answer["meta_info"]["completion_tokens"], 3);
    });
}

/// Every series of the simulated page is one of the real page, with the same labels.
#[test]
fn the_vllm_page_has_the_real_names_and_labels() {
    let real: HashMap<&str, Vec<&str>> = include_str!("vllm-0.32-series.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut words = line.split(' ');
            (words.next().unwrap(), words.collect())
        })
        .collect();
    with_fleet(fast(), async |addresses| {
        let (_, page) = text(addresses[0], "GET", "/metrics", "").await;
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let (name, labels) = series.split_once('{').unwrap();
            let labels: Vec<&str> =
                labels.split("\",").map(|label| label.split_once('=').unwrap().0).collect();
            let expected = real.get(name).unwrap_or_else(|| panic!("vLLM has no {name}"));
            if name == "vllm:cache_config_info" {
                assert!(labels.is_sorted() && labels.iter().all(|label| expected.contains(label)), "{line}");
            } else {
                assert_eq!(&labels, expected, "{line}");
            }
        }
    });
}
