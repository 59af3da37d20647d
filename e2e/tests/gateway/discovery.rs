//! What engines say of themselves may be late, wrong or absurd; requests are served all the same.

use e2e::{House, completion, header};
use rig::client::{self, post_bytes};
use rig::script::{self, Step};
use rig::{MetricsText, RawClient, RidgeProcess, ScriptedEngine, wait_until};
use serde_json::json;

const COMPLETIONS: &str = "/v1/completions";

fn good() -> ScriptedEngine {
    ScriptedEngine::answering(script::json(200, "{}"))
}

fn serves(house: &House) {
    for i in 0..10 {
        let answer = client::post_json(house.addr(), COMPLETIONS, completion(&format!("{i} {i}")));
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
}

/// Waits until the engine's metrics page has been read `times` more times.
fn read_again(engine: &ScriptedEngine, times: usize) {
    let count = || engine.all_requests().iter().filter(|request| request.target() == "/metrics").count();
    let before = count();
    wait_until("the metrics page is read again", || count() >= before + times);
}

#[test]
fn nonsense_in_the_metrics_page_costs_no_request() {
    let labels = "{engine=\"0\",model_name=\"m\"}";
    let endless = format!("vllm:num_requests_running{labels} 1\n").repeat(200_000);
    for page in [
        "",
        "garbage \u{0} {{{{ 1\n",
        "vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\nvllm:kv_cache_usage_perc -7\n",
        "vllm:num_requests_running{engine=\"0\"} 1e308\nvllm:num_requests_waiting{engine=\"0\"} -1\n",
        "vllm:num_requests_running{engine=\"0 5\n",
        endless.as_str(),
    ] {
        let house = House::with(vec![good(), good()], &["--signals-interval", "100ms"]);
        house.engines[0].set_metrics(page);
        read_again(&house.engines[0], 3);
        serves(&house);
        let own = house.ridge.metrics();
        for name in ["ridge_endpoint_running", "ridge_endpoint_waiting", "ridge_endpoint_kv_usage"] {
            for (_, value) in own.series(name) {
                assert!(value.is_finite() && (0.0..1e9).contains(&value), "{name} {value}");
            }
        }
        // Told once when it begins, not each second.
        let told = house.ridge.output().lines().filter(|line| !line.starts_with('{')).count();
        assert!(told < 20, "{}", house.ridge.output());
    }
}

#[test]
fn a_metrics_page_that_never_comes_costs_no_request() {
    let engine =
        ScriptedEngine::start(|request| match (request.method().as_str(), request.target().as_str()) {
            ("POST", _) => Some(script::json(200, "{}")),
            (_, "/metrics") => Some(vec![Step::Hang]),
            _ => None,
        });
    let (url, short) = (engine.url(), "100ms");
    let ridge =
        RidgeProcess::serve(["--upstream", &url, "--signals-interval", short, "--signals-timeout", short]);
    let house = House::around(ridge, vec![engine]);
    wait_until("the model is known", || client::get(house.addr(), "/v1/models").text().contains("\"m\""));
    read_again(house.engine(), 5);
    serves(&house);
    assert_eq!(client::get(house.addr(), "/readyz").status(), 200);
    // The hanging reads do not pile up.
    assert!(house.engine().connections_open() < 20, "{}", house.engine().connections_open());
}

#[test]
fn an_engine_without_metrics_is_served() {
    let engine =
        ScriptedEngine::start(|request| match (request.method().as_str(), request.target().as_str()) {
            ("POST", _) => Some(script::json(200, "{}")),
            (_, "/metrics" | "/version" | "/health") => Some(script::json(404, "{}")),
            _ => None,
        });
    let house = House::with(vec![engine], &["--signals-interval", "100ms"]);
    serves(&house);
    // Unknown is unknown, not zero.
    assert_eq!(house.ridge.metrics().sum("ridge_endpoint_running", &[]), None);
}

#[test]
fn odd_model_names_are_only_names() {
    let names = [
        "org/model-8B",
        "mit leerzeichen",
        "안녕 🦀",
        "quo\"te\\back",
        "a{b}=\"c\",d",
        "line\nbreak",
        "../../metrics",
        "%2e%2e",
    ];
    for name in names {
        let list = json!({"object": "list", "data": [{"id": name, "object": "model"}]}).to_string();
        let engine = ScriptedEngine::start(move |request| match request.target().as_str() {
            "/v1/models" => Some(script::json(200, &list)),
            _ => (request.method() == "POST").then(|| script::json(200, "{}")),
        });
        let house = House::with(vec![engine], &[]);
        let models = client::get(house.addr(), "/v1/models").json();
        assert_eq!(models["data"][0]["id"], name);
        let body = json!({"model": name, "prompt": "x"}).to_string();
        assert_eq!(client::post_json(house.addr(), COMPLETIONS, &body).status(), 200, "{name:?}");
        house.wait_until_idle();
        let page = client::get(house.ridge.admin, "/metrics").text();
        let read = MetricsText::parse(&page);
        assert_eq!(
            read.sum("ridge_requests_total", &[("model", name), ("status", "200")]),
            Some(1.0),
            "{page}"
        );
    }
}

/// An engine that lists these models.
fn with_models(numbers: std::ops::Range<usize>) -> ScriptedEngine {
    let data: Vec<_> = numbers.map(|i| json!({"id": format!("model-{i}"), "object": "model"})).collect();
    let list = json!({"object": "list", "data": data}).to_string();
    ScriptedEngine::start(move |request| match request.target().as_str() {
        "/v1/models" => Some(script::json(200, &list)),
        _ => (request.method() == "POST").then(|| script::json(200, "{}")),
    })
}

#[test]
fn more_models_than_there_are_labels_are_served_and_counted() {
    let house = House::with(vec![with_models(0..6_000), with_models(6_000..12_000)], &[]);
    wait_until("all are known", || {
        let models = client::get(house.addr(), "/v1/models").text();
        models.contains("\"model-0\"") && models.contains("\"model-11999\"")
    });
    let mut client = RawClient::connect(house.addr());
    for i in (0..12_000).step_by(40) {
        client.send(post_bytes(COMPLETIONS, format!(r#"{{"model":"model-{i}","prompt":"x"}}"#)));
        assert_eq!(client.read_response().status(), 200);
    }
    house.wait_until_idle();
    let page = house.ridge.metrics();
    let count = |labels: &[(&str, &str)]| {
        ["engine-1", "engine-2"]
            .iter()
            .filter_map(|name| {
                page.sum("ridge_requests_total", &[labels, &[("endpoint", name), ("status", "200")]].concat())
            })
            .sum::<f64>()
    };
    assert_eq!(count(&[]), 300.0);
    assert!(count(&[("model", "other")]) >= 40.0);
}

#[test]
fn an_absurdly_long_list_of_models_is_refused_with_a_word() {
    let engine = with_models(0..10_001);
    let ridge = RidgeProcess::serve(["--upstream", engine.url().as_str()]);
    wait_until("it is told", || ridge.output().contains("10000"));
    assert!(ridge.output().contains("engine-1"), "{}", ridge.output());
}

#[test]
fn an_engine_that_comes_back_with_another_model_is_known_by_that() {
    let mut house = House::with(vec![good()], &["--signals-interval", "100ms"]);
    serves(&house);
    house.engines[0].kill();
    house.engines[0].set_model("other");
    house.engines[0].restart();
    wait_until("the new model is known", || {
        client::get(house.addr(), "/v1/models").text().contains("\"other\"")
    });
    let body = r#"{"model":"other","prompt":"x"}"#;
    wait_until("it is served", || client::post_json(house.addr(), COMPLETIONS, body).status() == 200);
    wait_until("the old one is not", || {
        client::post_json(house.addr(), COMPLETIONS, completion("x")).status() == 404
    });
}

#[test]
fn models_on_several_engines_are_listed_once() {
    let engines = vec![good(), good(), good()];
    engines[2].set_model("only-here");
    let house = House::with(engines, &[]);
    wait_until("all are known", || client::get(house.addr(), "/v1/models").text().contains("only-here"));
    let models = client::get(house.addr(), "/v1/models").json();
    let mut ids: Vec<&str> =
        models["data"].as_array().into_iter().flatten().filter_map(|model| model["id"].as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["m", "only-here"]);
    let detail = client::get(house.addr(), "/v1/models/only-here");
    assert_eq!((detail.status(), detail.json()["id"].as_str()), (200, Some("only-here")));
    assert_eq!(client::get(house.addr(), "/v1/models/nobody").status(), 404);
}

#[test]
fn a_list_file_is_followed_and_names_do_not_inherit() {
    let folder = std::env::temp_dir().join(format!("ridge-test-list-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    let list = folder.join("upstreams.yaml");
    let write = |engine: &ScriptedEngine| {
        let new = folder.join("new");
        std::fs::write(&new, format!("upstreams:\n  - url: {}\n    name: gpu-a\n", engine.url()))
            .expect("to write");
        std::fs::rename(&new, &list).expect("to move into place");
    };
    let old = ScriptedEngine::start(|request| {
        let long = request.body.windows(4).any(|window| window == b"long");
        let begun = vec![script::sse_head(), script::chunk("data: 1\n\n"), Step::Hang];
        (request.method() == "POST").then(|| if long { begun } else { script::json(200, "old") })
    });
    write(&old);
    let ridge = RidgeProcess::serve(["--upstream-file".to_owned(), list.to_string_lossy().into_owned()]);
    let house = House::around(ridge, vec![old, good()]);
    house.wait_for_endpoints(1);
    let mut client = RawClient::connect(house.addr());
    client.send(post_bytes(COMPLETIONS, completion("long")));
    let begun = client.read_until(|response| !response.body().is_empty());
    assert_eq!(header(&begun, "x-ridge-endpoint"), "gpu-a");
    house.ridge.wait_for_metric("ridge_requests_in_flight", &[("endpoint", "gpu-a")], 1.0);

    // Another machine takes the name over; what runs on the old one is not its load.
    write(&house.engines[1]);
    wait_until("the new one is used", || {
        client::post_json(house.addr(), COMPLETIONS, completion("short")).text() == "{}"
    });
    house.ridge.wait_for_metric("ridge_requests_in_flight", &[("endpoint", "gpu-a")], 0.0);
    client.close();
    wait_until("the old request is over", || house.engines[0].requests()[0].aborted_at.is_some());
    for (labels, value) in house.ridge.metrics().series("ridge_requests_in_flight") {
        assert_eq!(value, 0.0, "{labels:?}");
    }
    serves(&house);
    let _ = std::fs::remove_dir_all(&folder);
}
