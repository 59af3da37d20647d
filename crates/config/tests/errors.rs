//! What a person sees when a configuration is wrong.

use config::{Config, Diagnostics, UpstreamList};

fn refused(text: &str) -> Diagnostics {
    match Config::from_yaml("ridge.yaml", text.as_bytes()) {
        Ok(_) => panic!("accepted: {text}"),
        Err(wrong) => wrong,
    }
}

fn wrong(text: &str) -> String {
    refused(text).to_string()
}

fn right(text: &str) -> Config {
    Config::from_yaml("ridge.yaml", text.as_bytes()).unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn every_problem_is_shown_in_one_go() {
    insta::assert_snapshot!(wrong(
        "\
listen: 8080
admin: no
thread: 4
upstreams:
  - url: https://gpu-a:8000
    weigth: 2
  - url: http://10.0.0.7:8000/v1
    name: 10.0.0.7
    weight: -1
  - name: c
limits:
  body: 64
  header_count: \"100\"
timeouts:
  connect: 3 s
  drain: 1.5h
headers:
  endpoint: yes
attempts: 11
attempts: 2
"
    ));
}

#[test]
fn rules_between_keys_are_shown_at_the_key() {
    insta::assert_snapshot!(wrong(
        "\
listen: [\"127.0.0.1:8080\", \"127.0.0.1:8080\"]
admin: 127.0.0.1:8080
upstreams:
  - {url: http://a:1, name: x}
  - {url: http://b:1, name: x}
  - {url: http://c:1, api_key: {env: A, file: /b}}
  - {url: http://d:1, api_key: {}}
upstream_dns:
  - host: vllm.svc
  - {host: sglang.svc, records: srv, port: 8000}
"
    ));
}

/// A misspelt key that is taken for nothing leaves the default in place and nobody is told.
#[test]
fn a_misspelt_key_is_refused_with_the_nearest_one() {
    for (text, near) in [
        ("upstreams: [{url: http://a:1, weigth: 2}]", "weight"),
        ("upstreams: [{url: http://a:1, max-in-flight: 2}]", "max_in_flight"),
        ("upstreams: [{url: http://a:1, label: {a: b}}]", "labels"),
        ("upstreams: [{uri: http://a:1}]", "url"),
        ("upstream: []", "upstreams"),
        ("Listen: []", "listen"),
        ("limits: {max_inflight: 3}", "max_in_flight"),
        ("routing: {affinity: true}", "prefix_affinity"),
        ("timeouts: {conect: 3s}", "connect"),
    ] {
        let wrong = wrong(text);
        assert!(wrong.contains(&format!("did you mean `{near}`?")), "{text}: {wrong}");
    }
    assert!(wrong("cannot-coexists-with: [a]").contains("unknown key `cannot-coexists-with`"));
    assert!(wrong("<<: {a: b}").contains("merge keys are not read"));
}

#[test]
fn a_misspelt_word_is_refused_with_the_nearest_one() {
    for (text, near) in [
        ("upstreams: [{url: http://a:1, role: prefil}]", "write prefill"),
        ("upstreams: [{url: http://a:1, engine: vLLM}]", "write vllm"),
        ("upstreams: [{url: http://a:1, protocol: http2}]", "write http1"),
        ("access_log: {to: stdot}", "write stdout"),
        ("access_log: {to: access.log}", "write ./access.log"),
        ("allow_paths: [{path: /a, methods: [get]}]", "write GET"),
        ("admin: false", "write off"),
    ] {
        let wrong = wrong(text);
        assert!(wrong.contains(near), "{text}: {wrong}");
    }
}

#[test]
fn dotted_names_and_plain_words_are_texts() {
    let config = right(
        "\
upstreams:
  - url: http://a.example.com:1
    revision: 1.10
    models: [1.0, no, \"on\", null-model]
    labels: {driver: gpu.example.com, gpu.example.com/kind: no, zone: 010, empty: \"\"}
",
    );
    let attributes = &config.upstreams[0].attributes;
    assert_eq!(attributes.revision.as_deref(), Some("1.10"));
    let models: Vec<&str> = attributes.models.iter().map(|model| &**model).collect();
    assert_eq!(models, ["1.0", "no", "on", "null-model"]);
    let labels: Vec<_> = attributes.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["driver=gpu.example.com", "empty=", "gpu.example.com/kind=no", "zone=010"]);
}

#[test]
fn numbers_and_units_are_not_guessed() {
    for (text, remedy) in [
        ("threads: 010", "write 10"),
        ("threads: 0x10", "digits only"),
        ("threads: 4.0", "digits only"),
        ("threads: -1", "digits only"),
        ("threads: 0", "for example 8"),
        ("threads: 99999999999999999999", "write 4294967295 at most"),
        ("threads:", "write a value, or remove the line"),
        ("threads: [4]", "write one value"),
        ("headers: {endpoint: on}", "write true"),
        ("headers: {endpoint: \"true\"}", "remove the quotes"),
        ("upstreams: [{url: http://a:1, weight: .inf}]", "digits with a point"),
        ("upstreams: [{url: http://a:1, weight: NaN}]", "digits with a point"),
        ("upstreams: [{url: http://a:1, weight: 1e3}]", "digits with a point"),
        ("upstreams: [{url: http://a:1, weight: 0}]", "for example 1.5"),
        ("timeouts: {connect: 5}", "write 5s for seconds"),
        ("timeouts: {connect: 5sec}", "250ms, 5s, 2m or 1h"),
        ("timeouts: {connect: 99999999999999999h}", "write less"),
        ("timeouts: {connect: 1h}", "for example 3s"),
        ("limits: {body: 64M}", "write 64MB"),
        ("limits: {body: 64Mi}", "write 64MiB"),
        ("limits: {body: 1B}", "for example 128MiB"),
        ("limits: {body: 99999999999GiB}", "write less"),
        ("limits: 64MiB", "write keys below it"),
        ("upstreams: http://a:1", "put `- ` before each item"),
        ("upstreams:", "write `[]` for an empty list"),
        ("upstreams: [http://a:1]", "write keys below it"),
        ("[1, 2]", "write keys below it"),
        ("hello", "write keys below it"),
    ] {
        let wrong = wrong(text);
        assert!(wrong.contains(remedy), "{text}: {wrong}");
    }
}

#[test]
fn addresses_say_how_they_are_written() {
    for (text, remedy) in [
        ("listen: 8080", "write 127.0.0.1:8080"),
        ("listen: \":8080\"", "write 0.0.0.0:8080"),
        ("listen: localhost:8080", "write 127.0.0.1:8080"),
        ("listen: \"::1\"", "[::1]:8080"),
        ("listen: [::1]:8080", "in quotes"),
        ("listen: []", "listen: [\"127.0.0.1:8080\"]"),
        ("upstreams: [{url: \"a:8000\"}]", "write http://a:8000"),
        ("upstreams: [{url: http://}]", "write http://HOST:PORT"),
        ("upstreams: [{url: \"http://::1:80\"}]", "http://[2001:db8::1]:8000"),
        ("upstreams: [{url: \"http://[::1\"}]", "http://[2001:db8::1]:8000"),
        ("upstreams: [{url: http://127.1:80}]", "engines.example.com"),
        ("upstreams: [{url: http://a:0}]", "write http://a:8000"),
        ("upstreams: [{url: http://a:+80}]", "write http://a:8000"),
        ("upstreams: [{url: http://a:99999}]", "write http://a:8000"),
        ("upstreams: [{url: http://a:1/v1/}]", "leave out /v1"),
        ("upstreams: [{url: http://a:1/../x}]", "write /base"),
        ("upstreams: [{url: http://a:1/x?y}]", "leave out what follows"),
        ("upstreams: [{url: http://a b:1/x}]", "write http://HOST:PORT"),
        ("upstreams: [{url: http://a:1, name: 10-0-0-7}]", "gpu-a"),
        ("upstreams: [{url: http://a:1, name: \"a:1\"}]", "gpu-a"),
        ("upstreams: [{url: http://a:1, name: \"a\\r\\nb\"}]", "gpu-a"),
        ("upstream_dns: [{host: \"a:80\", port: 1}]", "the port in `port`"),
        ("upstream_dns: [{host: 10.0.0.1, port: 1}]", "engines.example.com"),
        ("allow_paths: [{path: v1}]", "/v1/files/*"),
        ("allow_paths: [{path: \"/*/x\"}]", "/v1/files/*"),
        ("allow_paths: [{path: /a/../b}]", "/v1/files/*"),
        ("allow_paths: [{path: /a%2e}]", "/v1/files/*"),
    ] {
        let wrong = wrong(text);
        assert!(wrong.contains(remedy), "{text}: {wrong}");
    }
}

#[test]
fn an_empty_file_and_empty_sections_are_defaults() {
    let default = Config::default();
    for text in ["", "\n", "# nothing\n", "---\n", "\u{feff}", "{}", "limits:\ntimeouts: {}\n"] {
        assert_eq!(right(text), default, "{text:?}");
    }
    assert_eq!(right("\u{feff}attempts: 2").attempts, 2);
    assert_eq!(right("attempts: 2\r\nthreads: 3\r\n").threads, Some(3));
}

#[test]
fn a_list_file_must_say_that_it_is_empty() {
    let list = |text: &str| UpstreamList::from_yaml("upstreams.yaml", text.as_bytes());
    assert!(list("upstreams: []").unwrap().upstreams.is_empty());
    for text in ["", "# half written", "upstreams:"] {
        assert!(list(text).is_err(), "{text:?}");
    }
    let wrong = list("upstreams: []\nlisten: 127.0.0.1:1").unwrap_err();
    assert!(wrong.to_string().contains("unknown key `listen`"));
}

#[test]
fn yaml_that_cannot_be_read_is_shown_at_its_place() {
    insta::assert_snapshot!(wrong("limits:\n\tbody: 64MiB\n"));
    insta::assert_snapshot!(wrong("upstreams:\n  - {url: http://a:1\nattempts: 3\n"));
    insta::assert_snapshot!(wrong("attempts: 2\n---\nattempts: 3\n"));
    insta::assert_snapshot!(wrong("attempts: !!int 2\n"));
    let latin = Config::from_yaml("ridge.yaml", b"attempts: 2\nadmin: caf\xe9\n").unwrap_err();
    insta::assert_snapshot!(latin.to_string());
}

#[test]
fn carets_stand_right_behind_wide_characters() {
    let wrong = refused("# ünïcödé 漢字\nupstreams: [{url: http://a:1, labels: {z: ä}, rôle: x}]");
    let problem = &wrong.problems()[0];
    assert_eq!(wrong.place(problem), Some(("ridge.yaml", 2, 47)));
    assert_eq!(problem.key(), "upstreams[0].rôle");
}

#[test]
fn aliases_work_within_bounds() {
    let config =
        right("upstreams:\n  - {url: http://a:1, labels: &l {zone: x}}\n  - {url: http://b:1, labels: *l}\n");
    assert_eq!(config.upstreams[0].attributes, config.upstreams[1].attributes);

    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let below = level - 1;
        let items = vec![format!("*a{below}"); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert!(wrong(&bomb).contains("values, aliases followed"));
    assert!(wrong("a: &a [*a]").contains("contains it"));
    assert!(wrong("a: *b").contains("not valid YAML"));
}

#[test]
fn depth_and_size_are_bounded() {
    assert!(wrong(&"[".repeat(100_000)).contains("deeper than"));
    assert!(wrong(&"- ".repeat(100_000)).contains("deeper than"));
    assert!(wrong(&format!("a: {}1", "{b: ".repeat(10_000))).contains("deeper than"));
    assert!(wrong(&"#".repeat((8 << 20) + 1)).contains("bytes, the most is"));
    let many = format!("listen: [{}]", "1,".repeat(30_000));
    assert!(wrong(&many).contains("has 30000 items"));
}

#[test]
fn hundreds_of_problems_are_counted_not_printed() {
    let text: String = (0..300).map(|n| format!("key{n}: 1\n")).collect();
    let wrong = refused(&text);
    assert_eq!(wrong.problems().len(), 300);
    assert!(wrong.to_string().ends_with("… and 250 more"));
}

#[test]
fn a_secret_written_out_is_never_shown() {
    for text in [
        "upstreams: [{url: http://a:1, api_key: sk-1234}]",
        "upstreams: [{url: http://a:1, api_key: sk-1234, weigth: 1}]",
        "upstreams: [{url: http://a:1, api_key: {value: sk-1234}}]",
        "upstreams: [{url: http://a:1, api_key: [sk-1234]}]",
        "upstreams: [{url: http://a:1, api_key: {env: sk-1234}}]",
        "upstreams: [{url: http://a:1, api-key: sk-1234}]",
        "upstreams: [{url: http://a:1, apikey: sk-1234}]",
        "upstreams: [{url: http://user:sk-1234@a:1}]",
        "upstreams: [{url: https://user:sk-1234@a:1, name: 1.1.1.1}]",
        "upstreams: [{url: http://a:1, api_key: \"sk-1234}]",
        "upstreams:\n  - url: http://a:1\n    api_key: sk-1234\n   - x: [",
    ] {
        let wrong = refused(text);
        for shown in [wrong.to_string(), format!("{wrong:?}")] {
            assert!(!shown.contains("sk-1234"), "{text}: {shown}");
        }
    }
}

#[test]
fn a_change_says_whether_it_needs_a_restart() {
    let changed = |old: &str, new: &str| Config::changed_needing_restart(&right(old), &right(new));
    assert_eq!(changed("attempts: 2", "attempts: 3"), Vec::<String>::new());
    assert_eq!(changed("", "upstreams: [{url: http://a:1}]"), Vec::<String>::new());
    assert_eq!(
        changed("listen: 127.0.0.1:1", "threads: 2\nrouting: {seed: 1}\nlimits: {body: 1MiB}"),
        ["listen", "threads", "routing.seed"]
    );
}
