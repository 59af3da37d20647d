//! The user's guide beside the program: what one names and the other does not is a mistake in one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rig::{RidgeProcess, SimProcess, client, ridge_binary, wait_until};
use serde_json::Value;

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The part of a page below a heading, up to the next heading of the same rank or above.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let rank = heading.split(' ').next().unwrap_or_default().len();
    let start = page.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no `{heading}`"));
    let rest = &page[start + heading.len() + 2..];
    let ends = |line: &str| line.starts_with('#') && line.find(' ').is_some_and(|marks| marks <= rank);
    let end = rest.lines().take_while(|line| !ends(line)).map(|line| line.len() + 1).sum::<usize>();
    &rest[..end.min(rest.len())]
}

/// The rows of the tables in a text, as cells.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    lines.map(|line| line.split('|').map(str::trim).collect())
}

/// What stands in backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A gateway before a simulated engine that has answered, streamed and refused, to a key and to nobody in particular.
fn used() -> (SimProcess, RidgeProcess) {
    let sim = SimProcess::start(1, &["--speed", "100"]);
    let file = std::env::temp_dir()
        .join(format!("ridge-documented-{}.jsonl", sim.urls()[0].replace([':', '/'], "-")));
    let path = file.to_str().expect("a plain path");
    let arguments = ["keys", "create", "--file", path, "--name", "ci", "--tenant", "research"];
    let made = Command::new(ridge_binary()).args(arguments).output().expect("to make a key");
    let key = format!("Bearer {}", String::from_utf8_lossy(&made.stdout).trim());
    let url = sim.urls()[0].clone();
    let folder = rig::certificates::Folder::new();
    let (chain, private) = folder.write_pair("gw", &rig::Authority::new().issue(&["gw.example"]));
    let tls = ["--listen-tls", "127.0.0.1:0", "--tls-certificate", &chain, "--tls-key", &private];
    let auth = ["--upstream", &url, "--auth-keys", path, "--auth-anonymous", "true"];
    let ridge = RidgeProcess::serve(auth.into_iter().chain(tls));
    fs::remove_file(&file).expect("to remove the keys, which are in");
    wait_until("the model is known", || client::get(ridge.gateway, "/v1/models").text().contains("\"sim\""));
    let body = r#"{"model":"sim","max_tokens":4,"stream":true,"stream_options":{"include_usage":true},
        "messages":[{"role":"user","content":"Hello"}]}"#;
    let request = client::post_bytes_with("/v1/chat/completions", &[("authorization", &key)], body);
    assert_eq!(client::exchange(ridge.gateway, &request).status(), 200);
    assert_eq!(client::post_json(ridge.gateway, "/v1/completions", "{}").status(), 400);
    ridge.wait_for_metric("ridge_requests_total", &[("endpoint", "engine-1"), ("status", "200")], 1.0);
    ridge.wait_for_metric("ridge_requests_total", &[("status", "400")], 1.0);
    wait_until("the engine's page was read", || {
        ridge.metrics().sum("ridge_endpoint_kv_usage", &[]).is_some()
    });
    (sim, ridge)
}

#[test]
fn every_metric_with_its_type_and_labels() {
    let (_sim, ridge) = used();
    let page = client::get(ridge.admin, "/metrics").text();
    let types: BTreeMap<&str, &str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let metrics = ridge.metrics();
    let shown: BTreeMap<String, (String, BTreeSet<String>)> = types
        .iter()
        .map(|(&name, &kind)| {
            let series = match kind {
                "histogram" => metrics.series(&format!("{name}_count")),
                _ => metrics.series(name),
            };
            let labels = series.into_iter().flat_map(|(labels, _)| labels.into_keys()).collect();
            (name.to_owned(), (kind.to_owned(), labels))
        })
        .collect();
    let guide = read("docs/metrics.md");
    let told: BTreeMap<String, (String, BTreeSet<String>)> = rows(&guide)
        .filter(|cells| cells[0].starts_with("`ridge_"))
        .map(|cells| {
            let labels = quoted(cells[2]).into_iter().collect();
            (quoted(cells[0]).concat(), (cells[1].to_owned(), labels))
        })
        .collect();
    assert_eq!(shown, told, "left: /metrics, right: docs/metrics.md");
}

#[test]
fn the_buckets() {
    let (_sim, ridge) = used();
    let guide = read("docs/metrics.md");
    let words = section(&guide, "## Buckets").split_whitespace().collect::<Vec<_>>().join(" ");
    for name in ["ridge_ttft_seconds", "ridge_itl_seconds", "ridge_e2e_seconds"] {
        let page = client::get(ridge.admin, "/metrics").text();
        let bounds: Vec<String> = page
            .lines()
            .filter(|line| line.starts_with(&format!("{name}_bucket{{endpoint=\"engine-1\"")))
            .filter_map(|line| Some(line.split_once("le=\"")?.1.split_once('"')?.0.to_owned()))
            .filter(|bound| bound != "+Inf")
            .collect();
        assert!(words.contains(&format!(": {}.", bounds.join(", "))), "{name}: {bounds:?} in {words}");
    }
}

#[test]
fn every_field_of_the_access_log() {
    let (_sim, ridge) = used();
    let objects = || -> Vec<Value> {
        ridge.output().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    wait_until("a request and a refusal are logged", || {
        let of = |path: &str| objects().iter().any(|line| line["path"] == path);
        of("/v1/chat/completions") && of("/v1/completions")
    });
    let written: BTreeSet<String> =
        objects().iter().filter_map(Value::as_object).flat_map(|line| line.keys().cloned()).collect();
    let guide = read("docs/serving.md");
    let told: BTreeSet<String> =
        rows(section(&guide, "## The access log")).flat_map(|cells| quoted(cells[0])).collect();
    assert_eq!(written, told, "left: the log, right: docs/serving.md");
}

#[test]
fn every_path_is_served() {
    let (_sim, ridge) = used();
    let guide = read("docs/serving.md");
    let paths: Vec<String> = rows(section(&guide, "## What is served"))
        .flat_map(|cells| quoted(cells[0]))
        .filter(|path| path.starts_with('/') && !path.ends_with('/') && !path.contains('{'))
        .collect();
    assert!(paths.len() > 20, "{paths:?}");
    for path in paths {
        let answer = match path.as_str() {
            "/livez" | "/readyz" | "/v1/models" => client::get(ridge.gateway, &path),
            _ => client::post_json(ridge.gateway, &path, r#"{"model":"sim"}"#),
        };
        assert!(!answer.text().contains("unknown_path"), "{path}: {}", answer.text());
    }
}

#[test]
fn every_error_code() {
    // In the sources a refusal's code is the first text after its status, a body's fault has it after an arrow.
    let mut given = BTreeSet::new();
    for file in ["service", "receive", "refuse", "route", "pages"] {
        let source = read(&format!("crates/gateway/src/{file}.rs"));
        for call in source.split("Refused::new(").skip(1) {
            let first: String = call.split('"').nth(1).unwrap_or_default().to_owned();
            given.extend(is_code(&first).then_some(first));
        }
    }
    for line in read("crates/api/src/body_error.rs").lines() {
        let code = line.split_once("=> \"").and_then(|(_, rest)| rest.split('"').next());
        given.extend(code.map(str::to_owned));
    }
    for line in read("crates/access/src/refusal.rs").lines() {
        let code = line.split_once("=> \"").and_then(|(_, rest)| rest.split('"').next());
        given.extend(code.filter(|code| is_code(code)).map(str::to_owned));
    }
    let guide = read("docs/serving.md");
    let told: BTreeSet<String> = rows(section(&guide, "## Errors"))
        .filter(|cells| cells.len() == 4 && cells[0].parse::<u16>().is_ok())
        .flat_map(|cells| quoted(cells[1]))
        .collect();
    assert_eq!(given, told, "left: the sources, right: docs/serving.md");
}

#[test]
fn every_crate_is_on_the_map() {
    let map = read("ARCHITECTURE.md");
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates");
    for entry in fs::read_dir(&crates).expect("the crates") {
        let name = entry.expect("a crate").file_name();
        let named = format!("**`crates/{}`**", name.to_string_lossy());
        assert!(map.contains(&named), "ARCHITECTURE.md does not have {named}");
    }
}

#[test]
fn every_link_leads_to_a_file() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let guide = fs::read_dir(root.join("docs")).expect("the guide");
    let pages = guide.map(|entry| entry.expect("a page").path()).chain(
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|page| root.join(page)),
    );
    for page in pages.filter(|page| page.extension().is_some_and(|kind| kind == "md")) {
        let text = fs::read_to_string(&page).expect("a page");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            let to = page.with_file_name(file);
            assert!(
                file.is_empty() || file.starts_with("http") || to.exists(),
                "{}: {link} leads nowhere",
                page.display()
            );
        }
    }
}

fn is_code(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}
