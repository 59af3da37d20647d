//! The page of TensorRT-LLM's `trtllm-serve`.

use super::Page;
use crate::replica::Replica;

pub fn page(replica: &Replica) -> String {
    let labels = vec![("engine_type", "undefined".to_owned()), ("model_name", replica.model.name.clone())];
    let mut page = Page::new(labels, replica.started_s());
    replica.with_engine(|engine, ended| {
        let counters = engine.counters();
        page.gauge("trtllm_num_requests_running", "Number of running requests.", engine.running() as f64);
        page.gauge("trtllm_num_requests_waiting", "Number of waiting requests.", engine.waiting() as f64);
        page.gauge("trtllm_kv_cache_utilization", "KV cache utilization.", engine.kv_usage());
        let hits = counters.prefix_hits as f64 / counters.prefix_queries.max(1) as f64;
        page.gauge("trtllm_kv_cache_hit_rate", "KV cache hit rate.", hits);
        page.gauge(
            "trtllm_kv_cache_tokens_per_block",
            "Tokens in a KV block.",
            f64::from(replica.block_size),
        );
        page.gauge("trtllm_kv_cache_max_blocks", "KV blocks in the pool.", engine.pool().len() as f64);
        page.counters(
            "trtllm_request_success",
            "Requests that ended, by reason.",
            "finished_reason",
            &[("stop", ended.stop), ("length", ended.length)],
        );
        page.counter("trtllm_prompt_tokens", "Prompt tokens.", counters.prompt_tokens);
        page.counter(
            "trtllm_prompt_cached_tokens",
            "Prompt tokens found in the cache.",
            counters.prefix_hits,
        );
        page.counter("trtllm_generation_tokens", "Generated tokens.", counters.generation_tokens);
        for (name, help, histogram) in [
            ("time_to_first_token_seconds", "Time to first token in seconds.", &counters.ttft_s),
            ("time_per_output_token_seconds", "Time per output token in seconds.", &counters.tpot_s),
            ("e2e_request_latency_seconds", "Latency of a request in seconds.", &counters.e2e_s),
            ("request_queue_time_seconds", "Time a request waited.", &counters.queue_s),
        ] {
            page.histogram(&format!("trtllm_{name}"), help, histogram);
        }
    });
    page.text
}
