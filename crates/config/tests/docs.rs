//! The documentation knows every key, and its example is valid.

use std::path::PathBuf;

use config::{Config, ConfigCommand, Output};

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[test]
fn the_reference_is_the_definition() {
    let path = docs().join("configuration.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("<!-- keys -->\n").unwrap();
    let (written, after) = rest.split_once("<!-- /keys -->").unwrap();
    let made = format!("\n{}\n", config::markdown());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{before}<!-- keys -->\n{made}<!-- /keys -->{after}");
        std::fs::write(&path, text).unwrap();
        return;
    }
    assert_eq!(
        written, made,
        "docs/configuration.md is behind: UPDATE_DOCS=1 cargo test -p config --test docs"
    );
}

#[test]
fn every_key_is_in_the_reference() {
    let made = config::markdown();
    for name in config::key_names() {
        let last = name.rsplit('.').next().unwrap();
        assert!(made.contains(&format!("`{last}`")), "{name}");
    }
}

#[test]
fn the_example_is_valid() {
    let path = docs().join("examples/ridge.yaml");
    let text = std::fs::read(path).unwrap();
    let config = Config::from_yaml("ridge.yaml", &text).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(config.upstreams.len(), 2);
    assert_eq!(config.upstream_dns.len(), 2);
}

fn explain(key: &str) -> Output {
    let key = Some(key.to_owned());
    ConfigCommand::Explain { key }.run(|_| unreachable!(), false)
}

#[test]
fn a_key_is_explained_however_it_is_written() {
    insta::assert_snapshot!(explain("limits.body").stdout);
    for same in ["--limits-body", "limits-body"] {
        assert_eq!(explain(same), explain("limits.body"));
    }
    insta::assert_snapshot!(explain("upstreams[3].labels").stdout);
    assert_eq!(explain("upstreams.labels"), explain("upstreams[].labels"));
    insta::assert_snapshot!(explain("upstream_dns").stdout);
}

#[test]
fn every_key_is_explained() {
    for name in config::key_names() {
        let text = config::explain(name).unwrap();
        assert!(text.starts_with(name) && text.contains("type "), "{text}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_one() {
    let output = explain("limit.body");
    assert_eq!((output.code, output.stdout.as_str()), (1, ""));
    assert!(output.stderr.contains("did you mean `limits.body`?"), "{}", output.stderr);
    assert!(explain("weigth").stderr.contains("weight"), "{}", explain("weigth").stderr);
    assert_eq!(explain("colour").code, 1);
}

#[test]
fn check_says_what_it_found() {
    let check = |text: &str| {
        let file = "ridge.yaml".into();
        let text = text.as_bytes().to_vec();
        ConfigCommand::Check { file }.run(|_| Ok(text), false)
    };
    let good = check("upstreams: [{url: http://a:1}]");
    assert_eq!(good.code, 0);
    assert_eq!(good.stdout, "ridge.yaml is valid: 1 upstream, 0 upstream files, 0 DNS names\n");
    let bad = check("attempts: 0");
    assert_eq!((bad.code, bad.stdout.as_str()), (1, ""));
    assert!(bad.stderr.contains("ridge.yaml:1:11") && bad.stderr.ends_with("1 problem\n"));
}

#[test]
fn a_missing_file_is_named() {
    let file = "nowhere.yaml".into();
    let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
    let output = ConfigCommand::Check { file }.run(|_| Err(missing()), false);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("nowhere.yaml"), "{}", output.stderr);
}
