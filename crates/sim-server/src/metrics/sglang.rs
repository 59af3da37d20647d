//! The page of SGLang.

use super::{Number, Page};
use crate::replica::Replica;

pub fn page(replica: &Replica) -> String {
    let labels = vec![
        ("engine_type", "unified".to_owned()),
        ("model_name", replica.model.name.clone()),
        ("pp_rank", "0".to_owned()),
        ("tp_rank", "0".to_owned()),
    ];
    let mut page = Page::new(labels, replica.started_s());
    replica.with_engine(|engine, _| {
        let counters = engine.counters();
        let used = engine.pool().referenced() as f64 * f64::from(replica.block_size);
        page.gauge("sglang:num_running_reqs", "The number of running requests.", engine.running() as f64);
        page.gauge(
            "sglang:num_queue_reqs",
            "The number of requests in the waiting queue.",
            engine.waiting() as f64,
        );
        page.gauge("sglang:num_used_tokens", "The number of used tokens.", used);
        page.gauge("sglang:token_usage", "The token usage.", engine.kv_usage());
        let hits = counters.prefix_hits as f64 / counters.prefix_queries.max(1) as f64;
        page.gauge("sglang:cache_hit_rate", "The prefix cache hit rate.", hits);
        let capacity = engine.pool().len() as f64 * f64::from(replica.block_size);
        page.gauge(
            "sglang:max_total_num_tokens",
            "Maximum total number of tokens in the KV cache.",
            capacity,
        );
        page.counter("sglang:prompt_tokens", "Number of prefill tokens processed.", counters.prompt_tokens);
        page.counter(
            "sglang:generation_tokens",
            "Number of generation tokens processed.",
            counters.generation_tokens,
        );
        page.counter("sglang:cached_tokens", "Number of cached prompt tokens.", counters.prefix_hits);
        page.counter("sglang:num_requests", "Number of requests processed.", counters.finished);
        page.counter("sglang:num_aborted_requests", "Number of requests aborted.", counters.cancelled);
        for (name, help, histogram) in [
            ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", &counters.ttft_s),
            ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", &counters.itl_s),
            (
                "e2e_request_latency_seconds",
                "Histogram of end-to-end request latency in seconds.",
                &counters.e2e_s,
            ),
            ("queue_time_seconds", "Histogram of queueing time in seconds.", &counters.queue_s),
        ] {
            page.histogram(&format!("sglang:{name}"), help, histogram);
        }
        let name = "sglang:cache_config_info";
        page.head(name, "gauge", "Information on the KV cache.");
        let (pages, page_size) = (engine.pool().len().to_string(), replica.block_size.to_string());
        page.sample(name, &[("num_pages", &pages), ("page_size", &page_size)], Number(1.0));
    });
    page.text
}
