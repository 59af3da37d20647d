//! `cargo +nightly fuzz run --features libfuzzer sse_scan`
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::sse_scan(input));
