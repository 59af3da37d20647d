//! Who may call: keys with scopes and rates, from a file that changes while the gateway runs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use e2e::{House, chat, completion, header};
use rig::client::{exchange, post_bytes_with};
use rig::{Response, RidgeProcess, ScriptedEngine, ridge_binary, script, wait_until};

/// A file of keys, gone with the test.
pub struct KeyFile(PathBuf);

impl KeyFile {
    /// A file that is not there yet.
    pub fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ridge-keys-{}-{test}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &str {
        self.0.to_str().expect("a plain path")
    }

    /// Runs `ridge keys`, and gives what it prints.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(ridge_binary())
            .args(["keys", arguments[0], "--file", self.path()])
            .args(&arguments[1..])
            .output()
            .expect("to start ridge");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Makes a key.
    #[track_caller]
    pub fn create(&self, name: &str, tenant: &str, more: &[&str]) -> String {
        self.run(&[&["create", "--name", name, "--tenant", tenant], more].concat()).expect("a key")
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A gateway that knows these keys, before these engines.
fn house(file: &KeyFile, key: &str, engines: Vec<ScriptedEngine>, arguments: &[&str]) -> House {
    let mut all: Vec<String> =
        engines.iter().flat_map(|engine| ["--upstream".to_owned(), engine.url()]).collect();
    all.extend(["--auth-keys".to_owned(), file.path().to_owned()]);
    all.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let house = House::around(RidgeProcess::serve(all), engines);
    wait_until("every engine is up", || {
        house.ridge.metrics().sum("ridge_endpoint_up", &[]) == Some(house.engines.len() as f64)
    });
    wait_until("the model is known", || {
        let list = get(house.addr(), "/v1/models", &bearer(key)).json();
        list["data"].as_array().is_some_and(|list| !list.is_empty())
    });
    house
}

fn bearer(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

fn get(addr: SocketAddr, path: &str, headers: &str) -> Response {
    exchange(addr, format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}connection: close\r\n\r\n").as_bytes())
}

fn post(addr: SocketAddr, path: &str, key: &str, body: String) -> Response {
    let value = format!("Bearer {key}");
    exchange(addr, &post_bytes_with(path, &[("authorization", &value)], body))
}

fn code(answer: &Response) -> String {
    answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
}

fn engine() -> ScriptedEngine {
    ScriptedEngine::answering(script::json(
        200,
        r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}"#,
    ))
}

#[test]
fn only_who_has_a_key_is_let_in() {
    let file = KeyFile::new("let-in");
    let key = file.create("ci", "research", &[]);
    let house = house(&file, &key, vec![engine()], &[]);
    let addr = house.addr();
    assert_eq!(post(addr, "/v1/completions", &key, completion("x")).status(), 200);
    let anthropic = |headers: &[(&str, &str)]| {
        exchange(
            addr,
            &post_bytes_with("/v1/messages", headers, r#"{"model":"m","max_tokens":1,"messages":[]}"#),
        )
    };
    assert_eq!(anthropic(&[("x-api-key", &key)]).status(), 200);

    let refused = anthropic(&[]);
    assert_eq!((refused.status(), code(&refused).as_str()), (401, "missing_key"));
    assert_eq!(refused.json()["error"]["type"], "authentication_error");
    assert_eq!(header(&refused, "www-authenticate"), "Bearer realm=\"ridge\"");
    let value = format!("Bearer {key}");
    let refused = anthropic(&[("x-api-key", &key), ("authorization", &value)]);
    assert_eq!((refused.status(), code(&refused).as_str()), (400, "several_credentials"));
    let mut guess = key.clone();
    let last = if guess.pop() == Some('A') { 'B' } else { 'A' };
    guess.push(last);
    for wrong in [guess.as_str(), "x", "", "rdg_0000000000000000_AAAA"] {
        let refused = post(addr, "/v1/completions", wrong, completion("x"));
        assert_eq!((refused.status(), code(&refused).as_str()), (401, "invalid_key"), "{wrong}");
    }
    // Paths that do not exist tell nothing to strangers; probes need no key.
    assert_eq!(get(addr, "/nothing", "").status(), 401);
    assert_eq!(get(addr, "/livez", "").status(), 200);
    assert_eq!(get(addr, "/readyz", "").status(), 200);

    let sent = house.engine().requests();
    assert_eq!(sent.len(), 2, "nothing that was refused reached the engine");
    for request in sent {
        assert!(request.headers().iter().all(|(_, value)| !value.contains(&key)), "{:?}", request.headers());
    }
}

#[test]
fn a_key_is_kept_to_its_models_and_paths() {
    let file = KeyFile::new("scopes");
    let (one, two) = (engine(), engine());
    one.set_model("small-1");
    two.set_model("large-1");
    let paths = ["--path", "/v1/completions", "--path", "/v1/models*"];
    let key = file.create("ci", "research", &[&["--model", "small*"][..], &paths].concat());
    let all = file.create("all", "ops", &[]);
    let house = house(&file, &all, vec![one, two], &["--allow-path", "/custom/*"]);
    let addr = house.addr();
    wait_until("both models are known", || {
        let list = get(addr, "/v1/models", &bearer(&all)).json();
        list["data"].as_array().is_some_and(|list| list.len() == 2)
    });
    let list = get(addr, "/v1/models", &bearer(&key)).json();
    assert_eq!(list["object"], "list");
    let seen: Vec<&str> =
        list["data"].as_array().expect("a list").iter().filter_map(|m| m["id"].as_str()).collect();
    assert_eq!(seen, ["small-1"]);
    assert_eq!(get(addr, "/v1/models/small-1", &bearer(&key)).status(), 200);
    let refused = get(addr, "/v1/models/large-1", &bearer(&key));
    assert_eq!((refused.status(), code(&refused).as_str()), (403, "model_not_allowed"));

    let ask = |key: &str, path: &str, model: &str| {
        post(addr, path, key, format!(r#"{{"model":"{model}","prompt":"x"}}"#))
    };
    assert_eq!(ask(&key, "/v1/completions", "small-1").status(), 200);
    // A model that nobody serves is refused like one that is another's: a key is no way to find out.
    for model in ["large-1", "none"] {
        let refused = ask(&key, "/v1/completions", model);
        assert_eq!((refused.status(), code(&refused).as_str()), (403, "model_not_allowed"));
    }
    let refused = ask(&key, "/v1/completions", "small-2");
    assert_eq!((refused.status(), code(&refused).as_str()), (404, "unknown_model"));
    assert!(!refused.text().contains("large-1"), "{}", refused.text());
    for path in ["/v1/embeddings", "/custom/x"] {
        let refused = ask(&key, path, "small-1");
        assert_eq!((refused.status(), code(&refused).as_str()), (403, "path_not_allowed"), "{path}");
    }
    assert_eq!(ask(&all, "/custom/x", "small-1").status(), 200);
    assert_eq!(ask(&all, "/v1/completions", "large-1").status(), 200);
}

#[test]
fn rates_are_held_and_say_when_to_come_again() {
    let file = KeyFile::new("rates");
    let all = file.create("all", "ops", &[]);
    let slow = file.create("slow", "research", &["--requests-per-second", "0.01", "--burst", "2"]);
    let small = file.create("small", "research", &["--tokens-per-minute", "5"]);
    let house = house(&file, &all, vec![engine()], &["--threads", "2"]);
    let ask = |key: &str| post(house.addr(), "/v1/completions", key, completion("x"));
    // The burst holds whichever core a connection is on.
    let statuses: Vec<u16> = (0..6).map(|_| ask(&slow).status()).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429, 429]);
    let refused = ask(&slow);
    assert_eq!(code(&refused), "rate_limited");
    let wait: u64 = header(&refused, "retry-after").parse().expect("seconds");
    assert!((90..=100).contains(&wait), "{wait}");
    // Ten tokens were used of five: the answer to the first request counts against the second.
    assert_eq!(ask(&small).status(), 200);
    wait_until("the tokens are charged", || code(&ask(&small)) == "tokens_limited");
    assert_eq!(ask(&all).status(), 200);
}

#[test]
fn keys_come_and_go_while_it_runs() {
    let file = KeyFile::new("reload");
    let first = file.create("first", "research", &[]);
    let mut house = house(&file, &first, vec![engine()], &[]);
    let addr = house.addr();
    let works = |key: &str| get(addr, "/v1/models", &bearer(key)).status() == 200;
    let second = file.create("second", "research", &["--expires", "2999-01-01"]);
    let over = file.create("over", "research", &["--expires", "2020-01-01"]);
    wait_until("the new key works", || works(&second));
    assert_eq!(code(&get(addr, "/v1/models", &bearer(&over))), "expired_key");

    let list = file.run(&["list"]).expect("a list");
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(list.contains("second  tenant=research  expires=2999-01-01T00:00:00Z"), "{list}");
    let id = first.split('_').nth(1).expect("an id");
    file.run(&["revoke", id]).expect("it is there");
    wait_until("the revoked key is refused", || !works(&first));
    assert!(works(&second));
    assert!(file.run(&["revoke", id]).expect_err("it is gone").contains(id));

    // A file with a mistake, and none at all: the keys stay.
    let good = std::fs::read(file.path()).expect("to read the file");
    std::fs::write(file.path(), [good.as_slice(), b"{\"id\":\n"].concat()).expect("to spoil the file");
    wait_until("the mistake is told", || house.ridge.output().contains(&format!("{}:3: ", file.path())));
    assert!(works(&second) && !works(&first));
    std::fs::remove_file(file.path()).expect("to remove the file");
    wait_until("the loss is told", || house.ridge.output().contains("cannot be read"));
    assert!(works(&second) && !works(&first));
    std::fs::write(file.path(), b"# nobody\n").expect("to write the file");
    wait_until("nobody is let in", || !works(&second));

    // Nothing that was printed holds a key.
    house.ridge.signal("TERM");
    house.wait_for_end();
    for secret in [&first, &second, &over].map(|key| &key[key.len() - 43..]) {
        assert!(!house.ridge.output().contains(secret));
    }
}

#[test]
fn the_file_of_keys_is_its_owners_and_holds_no_key() {
    use std::os::unix::fs::PermissionsExt;
    let file = KeyFile::new("file");
    let keys = [file.create("a", "t", &[]), file.create("b", "t", &[])];
    let text = std::fs::read_to_string(file.path()).expect("to read the file");
    let mode = std::fs::metadata(file.path()).expect("to look at it").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_ne!(keys[0], keys[1]);
    for key in &keys {
        assert!(!text.contains(&key[key.len() - 43..]), "{text}");
    }
    let before = text;
    for wrong in [["--name", "a b", "--tenant", "t"], ["--name", "a", "--tenant", "other"]] {
        assert!(file.run(&[&["create"][..], &wrong].concat()).is_err());
        assert_eq!(std::fs::read_to_string(file.path()).expect("to read the file"), before);
    }
}

#[test]
fn what_each_tenant_used_is_counted() {
    let file = KeyFile::new("tenants");
    let key = file.create("ci", "research", &[]);
    let house = house(&file, &key, vec![engine()], &["--auth-anonymous", "true"]);
    for key in [&key, &key] {
        assert_eq!(post(house.addr(), "/v1/completions", key, completion("x")).status(), 200);
    }
    house.engine().set(|_| {
        Some(script::sse([
            "data: {\"choices\":[{\"text\":\"a\"}]}\n\n",
            "data: {\"choices\":[{\"text\":\"b\"}]}\n\n",
            "data: [DONE]\n\n",
        ]))
    });
    assert_eq!(rig::client::post_json(house.addr(), "/v1/chat/completions", chat(true)).status(), 200);
    let count = |name: &str, labels: &[(&str, &str)]| house.ridge.metrics().sum(name, labels);
    let research = [("tenant", "research"), ("model", "m")];
    wait_until("all is counted", || {
        count("ridge_tenant_requests_total", &[research[0], research[1], ("status", "200")]) == Some(2.0)
            && count("ridge_tenant_requests_total", &[("tenant", "anonymous"), ("model", "m")]) == Some(1.0)
    });
    let exact = [research[0], research[1], ("kind", "exact")];
    assert_eq!(count("ridge_tenant_prompt_tokens_total", &exact), Some(14.0));
    assert_eq!(count("ridge_tenant_output_tokens_total", &exact), Some(6.0));
    // The stream had no report of usage: what it took is estimated, and said to be.
    let estimated = [("tenant", "anonymous"), ("kind", "estimated")];
    assert_eq!(count("ridge_tenant_output_tokens_total", &estimated), Some(2.0));
    assert_eq!(
        count("ridge_tenant_output_tokens_total", &[("tenant", "anonymous"), ("kind", "exact")]),
        Some(0.0)
    );
    let prompt = count("ridge_tenant_prompt_tokens_total", &estimated).expect("counted");
    assert_eq!(prompt, (chat(true).len() / 4) as f64);
    wait_until("the log names tenant and key", || {
        house.ridge.output().contains("\"tenant\":\"research\",\"key\":\"ci\"")
    });
}
