//! `cargo +nightly fuzz run --features libfuzzer metrics_text`
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::metrics_text(input));
