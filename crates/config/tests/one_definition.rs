//! For every key: what the file accepts the flag accepts, and the other way round, with the same result or the same
//! refusal.

use config::{Config, ServeFlags};
use proptest::prelude::*;

/// Dotted keys with one value, and whether they are lists.
fn keys() -> Vec<(String, bool)> {
    let schema = Config::schema();
    let mut out = Vec::new();
    walk(&schema, "", &mut out);
    assert!(out.len() > 20, "{out:?}");
    out
}

fn walk(schema: &serde_json::Value, above: &str, out: &mut Vec<(String, bool)>) {
    for (key, property) in schema["properties"].as_object().unwrap() {
        let path = format!("{above}{key}");
        if property["properties"].is_object() {
            walk(property, &format!("{path}."), out);
        } else {
            let list = property["type"] == "array" || property["anyOf"][0]["type"] == "array";
            out.push((path, list));
        }
    }
}

/// The file that says `key: value`, the value in single quotes when it would not be read as it stands.
fn file(key: &str, list: bool, value: &str) -> String {
    let plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'/' | b'_'));
    let value = if plain && !value.is_empty() {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', "''"))
    };
    let value = if list { format!("[{value}]") } else { value };
    let parts: Vec<_> = key.split('.').collect();
    let open: String = parts.iter().map(|part| format!("{{{part}: ")).collect();
    format!("{open}{value}{}", "}".repeat(parts.len()))
}

/// The configuration, or the titles and remedies of the refusal.
type Verdict = Result<Config, Vec<(String, String)>>;

fn verdict(result: Result<Config, config::Diagnostics>) -> Verdict {
    result.map_err(|wrong| {
        wrong
            .problems()
            .iter()
            .map(|problem| (problem.rule().to_owned(), problem.remedy().to_owned()))
            .collect()
    })
}

fn both(key: &str, list: bool, value: &str) -> (Verdict, Verdict) {
    let text = file(key, list, value);
    let from_file = Config::from_yaml("ridge.yaml", text.as_bytes());
    let mut flags = ServeFlags::default();
    assert!(flags.set(key, &[value]), "{key} has no flag");
    (verdict(from_file), verdict(Config::load(None, &flags)))
}

#[test]
fn every_key_has_a_flag() {
    for (key, _) in keys() {
        assert!(ServeFlags::default().set(&key, &["x"]), "{key}");
    }
}

/// Whole items are written differently in the two; their parts are compared below.
const ITEMS: [&str; 4] = ["tls.more_certificates", "upstreams", "upstream_dns", "allow_paths"];

fn value() -> impl Strategy<Value = String> {
    let words = [
        "true",
        "false",
        "yes",
        "off",
        "stdout",
        "stderr",
        "0",
        "1",
        "3",
        "10",
        "11",
        "64",
        "128",
        "1.5",
        "010",
        "64KiB",
        "64MiB",
        "64Mi",
        "1GB",
        "250ms",
        "3s",
        "5m",
        "1h",
        "3 s",
        "1.5h",
        "/var/log/a",
        "a.example.com",
        "127.0.0.1:8080",
        "[::1]:8080",
        "8080",
        "::1",
        "",
        "null",
        "it's",
        "é",
        "-1",
        "+1",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999h",
    ];
    prop_oneof![
        8 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned),
        2 => ("[0-9]{1,6}", "(B|KiB|MiB|GiB|KB|ms|s|m|h|)").prop_map(|(n, unit)| n + &unit),
        1 => "[ -~]{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_flag_and_a_file_agree(which in any::<proptest::sample::Index>(), value in value()) {
        let keys: Vec<_> = keys().into_iter().filter(|(key, _)| !ITEMS.contains(&key.as_str())).collect();
        let (key, list) = which.get(&keys);
        let (from_file, from_flag) = both(key, *list, &value);
        // In quotes a number is a text in a file; a flag has no quotes to tell them apart.
        let quoted_number = matches!(&from_file, Err(wrong) if wrong.iter().any(|(_, remedy)| remedy == "remove the quotes"));
        let empty = value.is_empty() || matches!(value.as_str(), "null" | "~");
        if !quoted_number && !empty {
            prop_assert_eq!(from_file, from_flag, "{} {}", key, value);
        }
    }

    #[test]
    fn an_attribute_agrees_too(
        which in any::<proptest::sample::Index>(),
        value in value(),
    ) {
        prop_assume!(!value.contains([',', '=']) && !value.is_empty() && value != "null");
        let attributes = ["name", "role", "engine", "revision", "weight", "max_in_flight", "protocol"];
        let key = which.get(&attributes);
        let quoted = format!("'{}'", value.replace('\'', "''"));
        let number = matches!(*key, "weight" | "max_in_flight");
        let written = if number { value.clone() } else { quoted };
        let plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
        prop_assume!(!number || plain);
        let text = format!("upstreams: [{{url: http://a:1, {key}: {written}}}]");
        let mut flags = ServeFlags::default();
        let flag = format!("http://a:1,{key}={value}");
        flags.set("upstreams", &[&flag]);
        prop_assert_eq!(
            verdict(Config::from_yaml("ridge.yaml", text.as_bytes())),
            verdict(Config::load(None, &flags)),
            "{} {}", key, value
        );
    }

    /// Whatever the text, reading it ends with a value or with diagnostics that can be shown.
    #[test]
    fn no_text_breaks_the_reader(text in "([a-z_]{1,9}: |[-\\[\\]{},:&*#!|>'\"%@`~ ]|\\n {0,4}|\\t|é|listen|upstreams:|url: http://a:1){0,40}") {
        if let Err(wrong) = Config::from_yaml("ridge.yaml", text.as_bytes()) {
            prop_assert!(!wrong.to_string().is_empty());
            for problem in wrong.problems() {
                prop_assert!(wrong.place(problem).is_some());
            }
        }
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Err(wrong) = Config::from_yaml("ridge.yaml", &bytes) {
            prop_assert!(!wrong.to_string().is_empty());
        }
    }
}
