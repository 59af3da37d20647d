//! `cargo +nightly fuzz run --features libfuzzer body_scan`
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::body_scan(input));
