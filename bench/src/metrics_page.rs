//! A /metrics page as a vLLM engine prints it: its families, label order and number spelling, and about its size.

use std::fmt::Write as _;

const LABELS: &str = r#"engine="0",model_name="mock""#;

const LATENCY_BUCKETS: [&str; 22] = [
    "0.3", "0.5", "0.8", "1.0", "1.5", "2.0", "2.5", "5.0", "10.0", "15.0", "20.0", "30.0", "40.0", "50.0",
    "60.0", "120.0", "240.0", "480.0", "960.0", "1920.0", "7680.0", "+Inf",
];
const TOKEN_BUCKETS: [&str; 14] = [
    "1.0", "2.0", "5.0", "10.0", "20.0", "50.0", "100.0", "200.0", "500.0", "1000.0", "2000.0", "5000.0",
    "10000.0", "+Inf",
];
const LATENCIES: [&str; 8] = [
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
];
const SIZES: [&str; 6] = [
    "request_prompt_tokens",
    "request_generation_tokens",
    "iteration_tokens_total",
    "request_max_num_generation_tokens",
    "request_params_max_tokens",
    "request_prefill_kv_computed_tokens",
];
const COUNTERS: [&str; 9] = [
    "prefix_cache_queries",
    "prefix_cache_hits",
    "external_prefix_cache_queries",
    "external_prefix_cache_hits",
    "mm_cache_queries",
    "mm_cache_hits",
    "num_preemptions",
    "prompt_tokens",
    "generation_tokens",
];

/// The page's text with one figure that changes from read to read, so that no reader can skip an unchanged page.
pub struct MetricsPage {
    text: Vec<u8>,
    running_at: usize,
}

impl MetricsPage {
    /// A page of at least `bytes` bytes; the gauges and counters that routers read are always there.
    pub fn new(bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes + 4096);
        gauge(&mut text, "num_requests_running", "Requests in execution batches.", "0.0");
        let running_at = text.len() - "0.0\n".len();
        gauge(&mut text, "num_requests_waiting", "Requests waiting to be processed.", "0.0");
        gauge(&mut text, "kv_cache_usage_perc", "Share of KV cache in use, 1 is all of it.", "0.25");
        let _ = writeln!(
            text,
            "# HELP vllm:cache_config_info Settings of the KV cache.\n# TYPE vllm:cache_config_info gauge\n\
             vllm:cache_config_info{{block_size=\"16\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"0\",\
             gpu_memory_utilization=\"0.9\",num_cpu_blocks=\"None\",num_gpu_blocks=\"27462\",sliding_window=\"None\"}} 1.0"
        );
        for name in COUNTERS {
            counter(&mut text, name);
        }
        // Real pages differ in length by how many HTTP handlers and gauges they list; here the histograms repeat
        // with another engine number, as they do with data parallel ranks.
        let mut engine = 0;
        while text.len() < bytes {
            for (names, buckets) in [(&LATENCIES[..], &LATENCY_BUCKETS[..]), (&SIZES[..], &TOKEN_BUCKETS[..])]
            {
                for name in names.iter().filter(|_| engine < 64) {
                    if text.len() < bytes {
                        histogram(&mut text, name, buckets, engine);
                    }
                }
            }
            engine += 1;
            if engine >= 64 {
                break;
            }
        }
        Self { text: text.into_bytes(), running_at }
    }

    /// The page as the `count`th reader gets it.
    pub fn text(&self, count: u64) -> Vec<u8> {
        let mut text = self.text.clone();
        text[self.running_at] = b'0' + (count % 10) as u8;
        text
    }
}

fn gauge(text: &mut String, name: &str, help: &str, value: &str) {
    let _ = writeln!(
        text,
        "# HELP vllm:{name} {help}\n# TYPE vllm:{name} gauge\nvllm:{name}{{{LABELS}}} {value}"
    );
}

fn counter(text: &mut String, name: &str) {
    let _ = writeln!(
        text,
        "# HELP vllm:{name}_total Count of {name}, in tokens or requests.\n# TYPE vllm:{name}_total counter\n\
         vllm:{name}_total{{{LABELS}}} 123456.0\n\
         # HELP vllm:{name}_created Count of {name}, in tokens or requests.\n# TYPE vllm:{name}_created gauge\n\
         vllm:{name}_created{{{LABELS}}} 1.7672256001234567e+09"
    );
}

fn histogram(text: &mut String, name: &str, buckets: &[&str], engine: u32) {
    if engine == 0 {
        let _ = writeln!(
            text,
            "# HELP vllm:{name} Histogram of {name} of requests.\n# TYPE vllm:{name} histogram"
        );
    }
    for (n, le) in buckets.iter().enumerate() {
        let count = 1000 * (n + 1);
        let _ = writeln!(
            text,
            "vllm:{name}_bucket{{engine=\"{engine}\",le=\"{le}\",model_name=\"mock\"}} {count}.0"
        );
    }
    let count = 1000 * buckets.len();
    let _ = writeln!(
        text,
        "vllm:{name}_count{{engine=\"{engine}\",model_name=\"mock\"}} {count}.0\n\
         vllm:{name}_sum{{engine=\"{engine}\",model_name=\"mock\"}} 1234.5678901234567"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_size_asked_for_and_one_figure_changes() {
        for bytes in [0, 4096, 50_000] {
            let page = MetricsPage::new(bytes);
            let text = String::from_utf8(page.text(7)).unwrap();
            assert!(text.len() >= bytes && text.len() < bytes.max(8192) + 4096, "{} for {bytes}", text.len());
            assert!(text.contains("vllm:num_requests_running{engine=\"0\",model_name=\"mock\"} 7.0\n"));
            assert!(text.contains("vllm:num_requests_waiting{"));
            assert!(text.ends_with('\n'));
        }
    }
}
