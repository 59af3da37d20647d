//! The page of vLLM 0.32.

use super::{Number, Page};
use crate::replica::Replica;

pub fn page(replica: &Replica) -> String {
    let labels = vec![("engine", "0".to_owned()), ("model_name", replica.model.name.clone())];
    let mut page = Page::new(labels, replica.started_s());
    replica.with_engine(|engine, ended| {
        let counters = engine.counters();
        page.gauge(
            "vllm:num_requests_running",
            "Number of requests in model execution batches.",
            engine.running() as f64,
        );
        page.gauge(
            "vllm:num_requests_waiting",
            "Number of requests waiting to be processed.",
            engine.waiting() as f64,
        );
        let name = "vllm:num_requests_waiting_by_reason";
        page.head(name, "gauge", "Number of waiting requests, by why they wait.");
        page.sample(name, &[("reason", "capacity")], Number(engine.waiting() as f64));
        page.sample(name, &[("reason", "deferred")], Number(0.0));
        let name = "vllm:engine_sleep_state";
        page.head(name, "gauge", "Engine sleep state: awake, weights_offloaded or discard_all.");
        for (state, value) in [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)] {
            page.sample(name, &[("sleep_state", state)], Number(value));
        }
        page.gauge(
            "vllm:kv_cache_usage_perc",
            "KV-cache usage. 1 means 100 percent usage.",
            engine.kv_usage(),
        );
        page.counter(
            "vllm:prefix_cache_queries",
            "Tokens looked up in the prefix cache.",
            counters.prefix_queries,
        );
        page.counter("vllm:prefix_cache_hits", "Tokens found in the prefix cache.", counters.prefix_hits);
        for name in ["external_prefix_cache", "mm_cache"] {
            page.counter(&format!("vllm:{name}_queries"), "Lookups in a cache that is not simulated.", 0);
            page.counter(&format!("vllm:{name}_hits"), "Hits in a cache that is not simulated.", 0);
        }
        page.counter("vllm:num_preemptions", "Preemptions; the simulated engine has none.", 0);
        page.counter("vllm:prompt_tokens", "Prefill tokens processed.", counters.prompt_tokens);
        page.counters(
            "vllm:prompt_tokens_by_source",
            "Prompt tokens, by where they came from.",
            "source",
            &[
                ("local_compute", counters.prompt_tokens - counters.prefix_hits),
                ("local_cache_hit", counters.prefix_hits),
                ("external_kv_transfer", 0),
            ],
        );
        page.counter("vllm:prompt_tokens_cached", "Prompt tokens found in a cache.", counters.prefix_hits);
        page.counter("vllm:generation_tokens", "Generation tokens processed.", counters.generation_tokens);
        page.counters(
            "vllm:request_success",
            "Requests that ended, by reason.",
            "finished_reason",
            &[("stop", ended.stop), ("length", ended.length), ("abort", 0), ("error", 0)],
        );
        for (name, help, histogram) in [
            ("request_prompt_tokens", "Prompt tokens of a request.", &counters.request_prompt_tokens),
            (
                "request_generation_tokens",
                "Generated tokens of a request.",
                &counters.request_generation_tokens,
            ),
            ("iteration_tokens_total", "Tokens in an engine step.", &counters.step_tokens),
            ("time_to_first_token_seconds", "Time to first token in seconds.", &counters.ttft_s),
            ("inter_token_latency_seconds", "Time between tokens in seconds.", &counters.itl_s),
            ("request_time_per_output_token_seconds", "Mean time per output token.", &counters.tpot_s),
            ("e2e_request_latency_seconds", "Latency of a request in seconds.", &counters.e2e_s),
            ("request_queue_time_seconds", "Time a request waited.", &counters.queue_s),
            ("request_prefill_time_seconds", "Time from admission to first token.", &counters.prefill_s),
            ("request_decode_time_seconds", "Time from first to last token.", &counters.decode_s),
        ] {
            page.histogram(&format!("vllm:{name}"), help, histogram);
        }
        let name = "vllm:cache_config_info";
        page.head(name, "gauge", "Information of the LLMEngine CacheConfig");
        let (blocks, block_size) = (engine.pool().len(), replica.block_size);
        let tokens = blocks as u64 * u64::from(block_size);
        let concurrency = tokens as f64 / f64::from(replica.model.max_len);
        // The one series that does not name the model.
        page.labels.retain(|(label, _)| *label == "engine");
        page.sample(
            name,
            &[
                ("block_size", &block_size.to_string()),
                ("cache_dtype", "auto"),
                ("enable_prefix_caching", "True"),
                ("kv_cache_max_concurrency", &concurrency.to_string()),
                ("kv_cache_size_tokens", &tokens.to_string()),
                ("num_gpu_blocks", &blocks.to_string()),
            ],
            Number(1.0),
        );
    });
    page.text
}
