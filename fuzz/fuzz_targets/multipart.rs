//! `cargo +nightly fuzz run --features libfuzzer multipart`
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz::multipart(input));
