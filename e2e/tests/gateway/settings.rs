//! A mistake in the configuration is named with its place and a remedy, from a file and from a flag alike.

use std::process::{Command, Output};

use rig::ridge_binary;

fn ridge(arguments: &[&str]) -> Output {
    Command::new(ridge_binary()).args(arguments).output().expect("to start ridge")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn check(name: &str, text: &str) -> Output {
    let path = std::env::temp_dir().join(format!("ridge-check-{}-{name}.yaml", std::process::id()));
    std::fs::write(&path, text).expect("to write the test's file");
    let output = ridge(&["config", "check", &path.to_string_lossy()]);
    let _ = std::fs::remove_file(&path);
    output
}

#[test]
fn an_unknown_key_is_refused_by_name_with_the_nearest_one() {
    for (wrong, right) in [("weigth", "weight"), ("nmae", "name"), ("max_inflight", "max_in_flight")] {
        let output = check(wrong, &format!("upstreams:\n  - url: http://127.0.0.1:8000\n    {wrong}: 2\n"));
        let text = said(&output);
        assert!(!output.status.success(), "{text}");
        assert!(text.contains(wrong) && text.contains(right), "{text}");
        assert!(text.contains(":3:5"), "file, line and column: {text}");
    }
}

#[test]
fn a_name_with_dots_is_a_name() {
    let output = check("dots", "upstreams:\n  - url: http://127.0.0.1:8000\n    name: gpu.example.com\n");
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_flag_and_a_file_take_the_same_values() {
    // Each value: accepted or refused, the same at both doors.
    for (key, flag, value, good) in [
        ("attempts: ", "--attempts", "3", true),
        ("attempts: ", "--attempts", "0", false),
        ("attempts: ", "--attempts", "three", false),
        ("limits: {body: ", "--limits-body", "1MiB", true),
        ("limits: {body: ", "--limits-body", "-1", false),
        ("limits: {body: ", "--limits-body", "1.5Zi", false),
        ("timeouts: {drain: ", "--timeouts-drain", "5m", true),
        ("timeouts: {drain: ", "--timeouts-drain", "5 parsecs", false),
        ("signals: {interval: ", "--signals-interval", "100ms", true),
        ("signals: {interval: ", "--signals-interval", "0s", false),
    ] {
        let close = if key.contains('{') { "}" } else { "" };
        let output = check("both", &format!("{key}{value}{close}\n"));
        assert_eq!(output.status.success(), good, "{key}{value}: {}", said(&output));
        // An address that cannot be listened on ends `serve` after its configuration was read.
        let output =
            ridge(&["serve", "--listen", "192.0.2.1:1", "--upstream", "http://127.0.0.1:9", flag, value]);
        let text = said(&output);
        assert!(!output.status.success());
        assert_eq!(text.contains("192.0.2.1"), good, "{flag} {value}: {text}");
        if !good {
            assert!(text.contains(value), "{text}");
        }
    }
}

#[test]
fn a_wrong_flag_is_refused_by_name_with_the_nearest_one() {
    let output = ridge(&["serve", "--upstraem", "http://127.0.0.1:9"]);
    let text = said(&output);
    assert!(!output.status.success());
    assert!(text.contains("--upstraem") && text.contains("--upstream"), "{text}");
}

#[test]
fn a_mistake_inside_a_flag_is_named() {
    let output = ridge(&["serve", "--upstream", "http://127.0.0.1:9,weigth=2"]);
    let text = said(&output);
    assert!(!output.status.success());
    assert!(text.contains("weigth") && text.contains("weight"), "{text}");
}

#[test]
fn every_key_can_be_explained() {
    let output = ridge(&["config", "explain", "limits.body"]);
    assert!(output.status.success() && said(&output).contains("64MiB"), "{}", said(&output));
    let output = ridge(&["config", "schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the schema is JSON");
    assert!(schema["properties"]["upstreams"].is_object(), "{schema}");
}
