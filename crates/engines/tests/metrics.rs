//! Metrics pages of real engines and of broken ones.

use std::time::{Duration, Instant};

use engines::{EngineKind, Signals, metrics_path, parse_metrics};
use proptest::prelude::*;

const VLLM_PAGE: &str = include_str!("data/vllm-0.32.0.prom");

const KINDS_WITH_METRICS: [EngineKind; 6] = [
    EngineKind::Vllm,
    EngineKind::Sglang,
    EngineKind::TrtLlm,
    EngineKind::Triton,
    EngineKind::LlamaCpp,
    EngineKind::Tgi,
];

fn vllm(page: &str) -> Signals {
    parse_metrics(EngineKind::Vllm, page.as_bytes())
}

#[test]
fn a_real_vllm_page() {
    let signals = Signals {
        running: Some(0),
        waiting: Some(0),
        kv_usage: Some(0.0),
        block_size: Some(32),
        num_blocks: Some(60),
    };
    assert_eq!(vllm(VLLM_PAGE), signals);
    assert_eq!(vllm(&VLLM_PAGE.replace('\n', "\r\n")), signals);
    assert_eq!(vllm(VLLM_PAGE.trim_end()), signals, "no newline at the end");
}

#[test]
fn several_data_parallel_engines_count_together() {
    let page = r#"
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="1",model_name="m",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="80"} 1.0
"#;
    assert_eq!(
        vllm(page),
        Signals {
            running: Some(7),
            waiting: Some(2),
            kv_usage: Some(0.5),
            block_size: Some(16),
            num_blocks: Some(180)
        }
    );
}

#[test]
fn engines_with_other_block_sizes_have_no_common_one() {
    let page = "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1\n\
                vllm:cache_config_info{block_size=\"32\",num_gpu_blocks=\"50\"} 1\n";
    assert_eq!((vllm(page).block_size, vllm(page).num_blocks), (None, Some(150)));
}

#[test]
fn an_older_vllm_calls_the_cache_gauge_otherwise() {
    assert_eq!(vllm("vllm:gpu_cache_usage_perc 0.5\n").kv_usage, Some(0.5));
    assert_eq!(vllm("vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.25\n").kv_usage, Some(0.25));
    assert_eq!(vllm("vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc NaN\n").kv_usage, None);
}

#[test]
fn sglang() {
    let page = br#"# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="q",tp_rank="0"} 5.0
sglang:num_queue_reqs{model_name="q",tp_rank="0"} 1.0
sglang:token_usage{model_name="q",tp_rank="0"} 0.28
sglang:cache_config_info{model_name="q",page_size="64",num_pages="11147"} 1.0
sglang:num_running_reqs_offline_batch{model_name="q"} 9.0
"#;
    let signals = parse_metrics(EngineKind::Sglang, page);
    assert_eq!((signals.running, signals.waiting, signals.kv_usage), (Some(5), Some(1), Some(0.28)));
    assert_eq!((signals.block_size, signals.num_blocks), (Some(64), Some(11147)));

    let gauges = parse_metrics(EngineKind::Sglang, b"sglang:page_size 64\nsglang:num_pages 10\n");
    assert_eq!((gauges.block_size, gauges.num_blocks), (Some(64), Some(10)));
}

#[test]
fn sglang_ranks_that_repeat_one_another_count_once() {
    let page = br#"sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 5
sglang:num_running_reqs{dp_rank="0",tp_rank="1"} 5
sglang:num_running_reqs{dp_rank="1",tp_rank="2"} 3
sglang:num_running_reqs{dp_rank="1",tp_rank="3"} 3
sglang:num_queue_reqs{tp_rank="0"} 2
sglang:num_queue_reqs{tp_rank="1"} 2
"#;
    let signals = parse_metrics(EngineKind::Sglang, page);
    assert_eq!((signals.running, signals.waiting), (Some(8), Some(2)));
}

#[test]
fn tensorrt_llm() {
    let page = b"trtllm_num_requests_running{model_name=\"m\"} 3.0
trtllm_num_requests_waiting{model_name=\"m\"} 1.0
trtllm_kv_cache_utilization{model_name=\"m\"} 0.5
trtllm_kv_cache_tokens_per_block{model_name=\"m\"} 32
trtllm_kv_cache_max_blocks{model_name=\"m\"} 1000
trtllm_kv_cache_hit_rate{model_name=\"m\"} 0.9
";
    assert_eq!(
        parse_metrics(EngineKind::TrtLlm, page),
        Signals {
            running: Some(3),
            waiting: Some(1),
            kv_usage: Some(0.5),
            block_size: Some(32),
            num_blocks: Some(1000)
        }
    );
}

#[test]
fn triton_tells_kinds_of_requests_apart_by_label() {
    let page = br#"nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 3
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 4
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 7
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.4875
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="tensorrt_llm",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 1
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 6239
"#;
    assert_eq!(
        parse_metrics(EngineKind::Triton, page),
        Signals {
            running: Some(4),
            waiting: Some(3),
            kv_usage: Some(0.4875),
            block_size: Some(64),
            num_blocks: Some(6239)
        }
    );
}

#[test]
fn a_real_llama_cpp_page_has_no_cache_gauge() {
    let page = include_bytes!("data/llamacpp.prom");
    assert_eq!(
        parse_metrics(EngineKind::LlamaCpp, page),
        Signals { running: Some(2), waiting: Some(1), ..Signals::default() }
    );
}

#[test]
fn tgi() {
    let page = b"tgi_batch_current_size 4\ntgi_queue_size 7\ntgi_batch_current_max_tokens 9\n";
    assert_eq!(
        parse_metrics(EngineKind::Tgi, page),
        Signals { running: Some(4), waiting: Some(7), ..Signals::default() }
    );
}

#[test]
fn engines_without_metrics_have_no_signals() {
    for kind in [EngineKind::Ollama, EngineKind::Ridge, EngineKind::Unknown] {
        assert_eq!(metrics_path(kind), None);
        assert!(parse_metrics(kind, VLLM_PAGE.as_bytes()).is_empty());
    }
    for kind in KINDS_WITH_METRICS {
        assert!(metrics_path(kind).is_some());
    }
}

#[test]
fn an_absent_family_is_unknown_and_leaves_the_others_alone() {
    let without =
        |family: &str| VLLM_PAGE.lines().filter(|line| !line.contains(family)).collect::<Vec<_>>().join("\n");
    let whole = vllm(VLLM_PAGE);
    assert_eq!(vllm(&without("lora")), whole);
    assert_eq!(vllm(&without("kv_cache_usage_perc")), Signals { kv_usage: None, ..whole });
    assert_eq!(vllm(&without("num_requests_waiting")), Signals { waiting: None, ..whole });
    assert_eq!(vllm(&without("cache_config_info")), Signals { block_size: None, num_blocks: None, ..whole });
    assert!(vllm("").is_empty());
}

#[test]
fn a_value_that_is_no_quantity_is_unknown_not_zero() {
    for value in ["NaN", "-1", "+Inf", "-Inf", "None", "", "1e300", "4294967296"] {
        let page = format!("vllm:num_requests_running {value}\nvllm:num_requests_waiting 1\n");
        let signals = vllm(&page);
        assert_eq!((signals.running, signals.waiting), (None, Some(1)), "{value:?}");
    }
    for value in ["NaN", "-0.1", "35.0", "1.1", "Inf"] {
        assert_eq!(vllm(&format!("vllm:kv_cache_usage_perc {value}\n")).kv_usage, None, "{value:?}");
    }
    assert_eq!(vllm("vllm:kv_cache_usage_perc 1.0000000002\n").kv_usage, Some(1.0));
    assert_eq!(vllm("vllm:cache_config_info{block_size=\"None\",num_gpu_blocks=\"0\"} 1\n").block_size, None);
}

#[test]
fn one_unusable_series_makes_the_sum_unknown() {
    let page = "vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"1\"} NaN\n";
    assert_eq!(vllm(page).running, None);
    let cut = "vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_running{engine=\"1";
    assert_eq!(vllm(cut).running, None);
}

#[test]
fn labels_timestamps_and_exemplars_of_other_writers() {
    let page = r#"vllm:num_requests_running { model_name="a\"b}c{\\" , engine="0" , } 3 1795953786000
vllm:num_requests_waiting{model_name="x"} 2.0 # {trace_id="1"} 9.0 1795953786.5
vllm:kv_cache_usage_perc	0.5"#;
    let signals = vllm(page);
    assert_eq!((signals.running, signals.waiting, signals.kv_usage), (Some(3), Some(2), Some(0.5)));
}

#[test]
fn a_huge_hostile_page_takes_linear_time() {
    // Under a second in all, unless some part is quadratic: then minutes.
    let (size, started) = (2 << 20, Instant::now());
    for unit in
        ["vllm:num_requests_running{", "vllm:num_requests_running{a=\"", "\\\"", "{", "\n", "\0", "a=\"b\","]
    {
        let mut page = String::from("vllm:num_requests_running{");
        page.extend(std::iter::repeat_n(unit, size / unit.len()));
        for kind in KINDS_WITH_METRICS {
            let _ = parse_metrics(kind, page.as_bytes());
        }
    }
    let labels = "x=\"y\",".repeat(size / 6);
    let page = format!("vllm:cache_config_info{{{labels}block_size=\"16\",num_gpu_blocks=\"9\"}} 1\n");
    assert_eq!(vllm(&page).block_size, Some(16));
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        for kind in EngineKind::ALL {
            let signals = parse_metrics(kind, &bytes);
            prop_assert!(signals.kv_usage.is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
    }

    #[test]
    fn pieces_of_the_format_in_any_order_do_not_panic(
        pieces in proptest::collection::vec(
            prop_oneof![
                Just("vllm:"), Just("num_requests_running"), Just("cache_config_info"), Just("{"), Just("}"),
                Just("\""), Just("\\"), Just("block_size"), Just("="), Just(","), Just(" "), Just("1"), Just("NaN"),
                Just("\n"), Just("#"), Just("é"), Just("nv_trt_llm_request_metrics"), Just("request_type"),
                Just("sglang:"), Just("dp_rank")
            ],
            0..64,
        )
    ) {
        let text: String = pieces.concat();
        for kind in EngineKind::ALL {
            let _ = parse_metrics(kind, text.as_bytes());
        }
    }

    #[test]
    fn foreign_lines_change_nothing(
        lines in proptest::collection::vec(("[^\n]{0,80}", 0usize..64), 0..32),
    ) {
        let mut page: Vec<&str> = VLLM_PAGE.lines().collect();
        for (line, at) in &lines {
            prop_assume!(!line.starts_with("vllm:"));
            page.insert((*at).min(page.len()), line);
        }
        prop_assert_eq!(vllm(&page.join("\n")), vllm(VLLM_PAGE));
    }

    #[test]
    fn counts_are_summed(counts in proptest::collection::vec(0u32..1000, 1..20)) {
        let page: String = counts
            .iter()
            .enumerate()
            .map(|(engine, count)| format!("vllm:num_requests_running{{engine=\"{engine}\"}} {count}.0\n"))
            .collect();
        prop_assert_eq!(vllm(&page).running, Some(counts.iter().sum()));
    }
}
