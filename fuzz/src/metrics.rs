//! Engines' Prometheus pages.

use engines::{EngineKind, Signals, parse_metrics};

pub(crate) const TOKENS: &[&[u8]] = &[
    b"\n",
    b"\r\n",
    b"# HELP ",
    b"# TYPE vllm:num_requests_running gauge\n",
    b"vllm:num_requests_running",
    b"vllm:",
    b"sglang:num_queue_reqs",
    b"vllm:kv_cache_usage_perc",
    b"{",
    b"}",
    b"{engine=\"0\"}",
    b"{engine=\"1\",",
    b"=\"",
    b"\"",
    b"\\\"",
    b"\\",
    b",",
    b" ",
    b"\t",
    b"NaN",
    b"+Inf",
    b"-Inf",
    b"1e308",
    b"1e400",
    b"-1",
    b"0.5",
    b"4294967296",
    b" 1700000000000",
    b"block_size=\"16\"",
    b"num_gpu_blocks=\"-1\"",
    b"\0",
    b"\xff",
];

/// The first byte chooses the engine, the rest is its page. What is read is a usable number, and comments and empty
/// lines around the page change nothing.
pub fn metrics_text(input: &[u8]) {
    let Some((choice, page)) = input.split_first() else { return };
    let kind = EngineKind::ALL[usize::from(*choice) % EngineKind::ALL.len()];
    let Signals { running, waiting, kv_usage, block_size, num_blocks } = parse_metrics(kind, page);
    assert!(kv_usage.is_none_or(|share| share.is_finite() && share >= 0.0), "{kv_usage:?} is no share");
    let framed = [b"# a comment\n\n".as_slice(), page, b"\n# another".as_slice()].concat();
    let again = parse_metrics(kind, &framed);
    assert_eq!(again, Signals { running, waiting, kv_usage, block_size, num_blocks });
}
