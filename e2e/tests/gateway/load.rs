//! Load is spread by what the gateway itself has sent, not only by what engines said a while ago.

use e2e::{House, completion, header};
use rig::client::{self, post_bytes};
use rig::script::{self, Step};
use rig::{RawClient, ScriptedEngine, wait_until};

#[test]
fn two_idle_engines_share_a_burst() {
    // Signals are read once in an hour, and by those one engine has a little less to do: only the gateway's own count
    // keeps it from getting the whole burst.
    let slow = || ScriptedEngine::answering(vec![script::pause(300), script::json(200, "{}").remove(0)]);
    let engines = vec![slow(), slow()];
    engines[1].set_load(3, 0);
    let house = House::with(engines, &["--signals-interval", "1h"]);
    wait_until("the load is known", || {
        house.ridge.metrics().sum("ridge_endpoint_running", &[("endpoint", "engine-2")]) == Some(3.0)
    });
    let mut clients: Vec<RawClient> = (0..200).map(|_| RawClient::connect(house.addr())).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        client.send(post_bytes("/v1/completions", completion(&format!("{i} has its own prompt"))));
    }
    for client in &mut clients {
        assert_eq!(client.read_response().status(), 200);
    }
    let counts: Vec<usize> = house.engines.iter().map(|engine| engine.requests().len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 200);
    assert!(counts.iter().all(|count| (80..=120).contains(count)), "{counts:?}");
}

#[test]
fn in_flight_is_told_while_it_lasts() {
    let house = House::with(vec![ScriptedEngine::answering(vec![script::sse_head(), Step::Hang])], &[]);
    let mut clients: Vec<RawClient> = (0..5).map(|_| RawClient::connect(house.addr())).collect();
    for client in &mut clients {
        client.send(post_bytes("/v1/completions", completion("x")));
    }
    house.ridge.wait_for_metric("ridge_requests_in_flight", &[("endpoint", "engine-1")], 5.0);
    clients.truncate(2);
    house.ridge.wait_for_metric("ridge_requests_in_flight", &[("endpoint", "engine-1")], 2.0);
    drop(clients);
    house.wait_until_idle();
}

#[test]
fn at_its_bound_an_engine_is_given_nothing_more() {
    let hangs = || {
        ScriptedEngine::start(|request| {
            let waits = request.body.windows(4).any(|window| window == b"wait");
            let steps = if waits { vec![script::sse_head(), Step::Hang] } else { script::json(200, "{}") };
            (request.method() == "POST").then_some(steps)
        })
    };
    let house = House::with(vec![hangs(), hangs()], &["--limits-max-in-flight", "2"]);
    let mut clients: Vec<RawClient> = (0..4).map(|_| RawClient::connect(house.addr())).collect();
    for client in &mut clients {
        client.send(post_bytes("/v1/completions", completion("wait")));
        client.read_until(|_| true);
    }
    for path in ["/v1/completions", "/v1/messages", "/api/generate"] {
        let answer = client::post_json(house.addr(), path, completion("one more"));
        assert_eq!(answer.status(), 429, "{}", answer.text());
        let seconds: u32 = header(&answer, "retry-after").parse().expect("whole seconds");
        assert!((1..=60).contains(&seconds));
        assert!(answer.json().to_string().contains("\"code\""), "{}", answer.text());
    }
    for engine in &house.engines {
        assert_eq!(engine.requests().len(), 2);
    }
    // One that ends makes room for one.
    clients.pop();
    wait_until("there is room", || {
        client::post_json(house.addr(), "/v1/completions", completion("now")).status() == 200
    });
}

#[test]
fn a_busy_engine_gets_less() {
    // Both look idle to the gateway's own count; one says that others keep it busy.
    let engines = vec![
        ScriptedEngine::answering(script::json(200, "{}")),
        ScriptedEngine::answering(script::json(200, "{}")),
    ];
    engines[0].set_load(50, 50);
    let house = House::with(engines, &["--signals-interval", "100ms"]);
    wait_until("the gateway knows the load", || {
        house.ridge.metrics().sum("ridge_endpoint_waiting", &[("endpoint", "engine-1")]) == Some(50.0)
    });
    for i in 0..40 {
        let body = completion(&format!("{i} has its own prompt"));
        assert_eq!(client::post_json(house.addr(), "/v1/completions", body).status(), 200);
    }
    assert!(house.engines[1].requests().len() >= 36, "{}", house.engines[1].requests().len());
}

#[test]
fn prompts_that_begin_alike_go_to_the_same_engine() {
    let engines = (0..4).map(|_| ScriptedEngine::answering(script::json(200, "{}"))).collect();
    let house = House::with(engines, &[]);
    let context = "The same long context, as in a conversation that grows. ".repeat(100);
    let mut prompt = context;
    for turn in 0..10 {
        prompt.push_str(&format!("Turn {turn}. "));
        assert_eq!(client::post_json(house.addr(), "/v1/completions", completion(&prompt)).status(), 200);
    }
    let busiest = house.engines.iter().map(|engine| engine.requests().len()).max();
    assert_eq!(busiest, Some(10));
}
