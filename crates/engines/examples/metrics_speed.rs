//! What reading a metrics page costs, beside a bare pass over its newlines in the same run.
//!
//! `cargo run --release -p engines --example metrics_speed [PAGE]`. Without a page: 50 KB in the shape of vLLM's,
//! where most lines are buckets of histograms that nobody here reads.

use std::hint::black_box;
use std::time::{Duration, Instant};

use engines::{EngineKind, parse_metrics};

const ROUNDS: usize = 60;
const CALLS: u32 = 500;

fn main() {
    let page = match std::env::args().nth(1) {
        Some(path) => std::fs::read(&path).unwrap_or_else(|error| panic!("cannot read {path}: {error}")),
        None => made_up_page(50 * 1024),
    };
    let mut newlines = Vec::new();
    let mut reads = Vec::new();
    for _ in 0..ROUNDS {
        newlines.push(time(|| memchr::memchr_iter(b'\n', black_box(&page)).fold(0, |sum, at| sum ^ at)));
        reads.push(time(|| parse_metrics(EngineKind::Vllm, black_box(&page))));
    }
    let (newline_us, read_us) = (median_us(newlines), median_us(reads));
    let lines = memchr::memchr_iter(b'\n', &page).count();
    println!("page            {} bytes, {lines} lines", page.len());
    println!("newlines alone  {newline_us:.1} us");
    println!("parse_metrics   {read_us:.1} us, {:.1} times the newlines", read_us / newline_us);
    println!("read            {:?}", parse_metrics(EngineKind::Vllm, &page));
}

fn time<T>(mut call: impl FnMut() -> T) -> Duration {
    let start = Instant::now();
    for _ in 0..CALLS {
        black_box(call());
    }
    start.elapsed() / CALLS
}

fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn made_up_page(bytes: usize) -> Vec<u8> {
    let mut page = String::from(
        "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\n\
         vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 1.0\n\
         vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.5\n\
         vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"6000\"} 1.0\n",
    );
    for le in 0.. {
        if page.len() >= bytes {
            break;
        }
        page.push_str(&format!(
            "vllm:request_queue_time_seconds_bucket{{engine=\"0\",le=\"{le}.0\",model_name=\"m\"}} {le}.0\n"
        ));
    }
    page.into_bytes()
}
