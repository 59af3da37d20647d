//! Flags and file are one definition.

use clap::Parser;
use config::{Config, Diagnostics, ServeFlags};

#[derive(Parser)]
struct Serve {
    #[command(flatten)]
    flags: ServeFlags,
}

fn flags(args: &[&str]) -> ServeFlags {
    let args = ["serve"].iter().chain(args);
    Serve::try_parse_from(args).unwrap().flags
}

fn from_flags(args: &[&str]) -> Result<Config, Diagnostics> {
    Config::load(None, &flags(args))
}

fn from_file(text: &str) -> Result<Config, Diagnostics> {
    Config::from_yaml("ridge.yaml", text.as_bytes())
}

#[test]
fn a_flag_means_what_the_file_means() {
    let file = from_file(
        "
listen: [\"127.0.0.1:1\", \"[::1]:2\"]
admin: off
limits: {body: 1MiB}
headers: {request_id: false}
upstreams:
  - {url: http://127.0.0.1:8000, name: a, weight: 2, labels: {zone: x, gpu.example.com/kind: h100}, models: [m, n],
     api_key: {env: KEY}}
  - {url: \"http://[::1]:8001\", name: \"b\"}
upstream_dns: [{host: vllm.svc, port: 8000, refresh: 1s}]
allow_paths: [{path: /v1/files/*, methods: [GET, DELETE]}]
",
    );
    let args = [
        "--listen=127.0.0.1:1",
        "--listen=[::1]:2",
        "--admin=off",
        "--limits-body=1MiB",
        "--headers-request-id=false",
        "--upstream=http://127.0.0.1:8000,name=a,weight=2,label.zone=x,label.gpu.example.com/kind=h100,model=m,model=n,api_key.env=KEY",
        "--upstream={url: 'http://[::1]:8001', name: b}",
        "--upstream-dns=vllm.svc,port=8000,refresh=1s",
        "--allow-path=/v1/files/*,method=GET,method=DELETE",
    ];
    assert_eq!(from_flags(&args).unwrap(), file.unwrap());
}

#[test]
fn a_wrong_flag_is_shown_like_a_wrong_file() {
    let wrong = from_flags(&[
        "--limits-body=64",
        "--upstream=http://a:1,weigth=2,zone",
        "--upstream={url: http://b:1, role: prefil}",
        "--upstream={url: [}",
    ])
    .unwrap_err();
    insta::assert_snapshot!(wrong.to_string());
}
