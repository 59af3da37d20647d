//! What a person sees when a configuration is wrong.

use config::Config;

fn wrong(text: &str) -> String {
    Config::from_yaml("ridge.yaml", text.as_bytes()).unwrap_err().to_string()
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
