//! Headers: what belongs to one connection stays on it, everything else passes, and nobody is impersonated.

use e2e::{House, chat, header};
use rig::client::{self, post_bytes_with};
use rig::{ScriptedEngine, script};

const PATH: &str = "/v1/chat/completions";

fn send(house: &House, headers: &[(&str, &str)]) -> (rig::Response, rig::Request) {
    let mut all = vec![("content-type", "application/json")];
    all.extend(headers);
    let answer = client::exchange(house.addr(), &post_bytes_with(PATH, &all, chat(false)));
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let seen = house.engine().requests().pop().expect("the request reached the engine");
    (answer, seen)
}

#[test]
fn of_the_clients_connection_do_not_reach_the_engine() {
    let house = House::answering(script::json(200, "{}"));
    let (_, seen) = send(
        &house,
        &[
            ("connection", "keep-alive, x-private"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic eA=="),
            ("proxy-connection", "keep-alive"),
            ("te", "gzip"),
            ("upgrade", "websocket"),
            ("x-kept", "yes"),
        ],
    );
    for name in ["x-private", "keep-alive", "proxy-authorization", "proxy-connection", "upgrade"] {
        assert!(seen.header(name).is_empty(), "{name}: {:?}", seen.headers());
    }
    assert!(!seen.header("te").contains(&"gzip".to_owned()));
    assert!(seen.header("connection").iter().all(|value| !value.contains("x-private")));
    assert_eq!(seen.header("x-kept"), ["yes"]);
}

#[test]
fn of_the_engines_connection_do_not_reach_the_client() {
    let headers = [
        ("content-type", "application/json"),
        ("connection", "keep-alive, x-hop"),
        ("keep-alive", "timeout=5, max=100"),
        ("proxy-authenticate", "Basic"),
        ("x-hop", "1"),
        ("x-kept", "yes"),
        ("server", "uvicorn"),
    ];
    let house = House::answering(script::answer(200, &headers, "{}"));
    let (answer, _) = send(&house, &[]);
    for name in ["connection", "keep-alive", "proxy-authenticate", "x-hop"] {
        assert!(answer.header(name).is_empty(), "{name}: {:?}", answer.headers());
    }
    assert_eq!(header(&answer, "x-kept"), "yes");
    assert_eq!(header(&answer, "server"), "uvicorn");
}

#[test]
fn exactly_one_authorization_reaches_the_engine() {
    let house = House::answering(script::json(200, "{}"));
    let (_, seen) = send(&house, &[("authorization", "Bearer client")]);
    assert_eq!(seen.header("authorization"), ["Bearer client"]);
    let (_, seen) = send(&house, &[]);
    assert!(seen.header("authorization").is_empty());
}

#[test]
fn two_authorizations_are_refused() {
    let house = House::answering(script::json(200, "{}"));
    let two =
        [("content-type", "application/json"), ("authorization", "Bearer a"), ("Authorization", "Bearer b")];
    let answer = client::exchange(house.addr(), &post_bytes_with(PATH, &two, chat(false)));
    assert_eq!(answer.status(), 400);
    assert!(house.engine().requests().is_empty());
}

#[test]
fn a_configured_key_takes_the_place_of_the_clients() {
    let engine = ScriptedEngine::answering(script::json(200, "{}"));
    let upstream = format!("{{url: \"{}\", api_key: {{env: RIDGE_TEST_KEY}}}}", engine.url());
    let arguments =
        ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", upstream.as_str()];
    let ridge = rig::RidgeProcess::start(&arguments, &[("RIDGE_TEST_KEY", "secret-of-the-engine")]);
    let house = House::around(ridge, vec![engine]);
    house.wait_for_endpoints(1);
    for headers in [&[][..], &[("authorization", "Bearer client")][..]] {
        let (_, seen) = send(&house, headers);
        assert_eq!(seen.header("authorization"), ["Bearer secret-of-the-engine"]);
    }
    // The engine's own pages are asked for with the key too.
    let asked = house.engine().all_requests();
    assert!(asked.iter().all(|request| request.header("authorization") == ["Bearer secret-of-the-engine"]));
    assert!(!house.ridge.output().contains("secret-of-the-engine"));
}

#[test]
fn the_answer_says_who_gave_it() {
    let house = House::answering(script::json(200, "{}"));
    let (answer, _) = send(&house, &[]);
    assert_eq!(header(&answer, "x-ridge-endpoint"), "engine-1");
    assert_eq!(header(&answer, "x-ridge-attempts"), "1");
    assert!(!header(&answer, "x-request-id").is_empty());
    let address = house.engine().addr().to_string();
    assert!(!String::from_utf8_lossy(answer.head()).contains(&address));
}

#[test]
fn each_of_the_gateways_own_can_be_turned_off() {
    let off = ["--headers-endpoint=false", "--headers-attempts=false", "--headers-request-id=false"];
    let house = House::with(vec![ScriptedEngine::answering(script::json(200, "{}"))], &off);
    let (answer, _) = send(&house, &[]);
    for name in ["x-ridge-endpoint", "x-ridge-attempts", "x-request-id"] {
        assert!(answer.header(name).is_empty(), "{name}: {:?}", answer.headers());
    }
}

#[test]
fn an_engine_cannot_speak_for_the_gateway() {
    let headers =
        [("content-type", "application/json"), ("x-ridge-endpoint", "forged"), ("x-ridge-attempts", "99")];
    let house = House::answering(script::answer(200, &headers, "{}"));
    let (answer, _) = send(&house, &[]);
    assert_eq!(header(&answer, "x-ridge-endpoint"), "engine-1");
    assert_eq!(header(&answer, "x-ridge-attempts"), "1");
}

#[test]
fn a_client_cannot_speak_for_the_gateway() {
    let house = House::answering(script::json(200, "{}"));
    let (_, seen) =
        send(&house, &[("x-ridge-endpoint", "engine-9"), ("x-ridge-attempts", "7"), ("x-ridge-x", "1")]);
    assert!(
        seen.headers().iter().all(|(name, _)| !name.to_lowercase().starts_with("x-ridge-")),
        "{:?}",
        seen.headers()
    );
}

#[test]
fn the_id_is_the_clients_where_it_gives_one() {
    let house = House::answering(script::json(200, "{}"));
    let (answer, seen) = send(&house, &[("x-request-id", "abc-123")]);
    assert_eq!(header(&answer, "x-request-id"), "abc-123");
    assert_eq!(seen.header("x-request-id"), ["abc-123"]);
    // Each request without one gets another.
    let ids: Vec<String> = (0..5).map(|_| header(&send(&house, &[]).0, "x-request-id")).collect();
    assert!(ids.iter().all(|id| ids.iter().filter(|other| *other == id).count() == 1), "{ids:?}");
}

#[test]
fn the_host_is_the_engines_own() {
    let house = House::answering(script::json(200, "{}"));
    let (_, seen) = send(&house, &[]);
    assert_eq!(seen.header("host"), [house.engine().addr().to_string()]);
}

#[test]
fn several_of_one_name_stay_several() {
    let headers = [("content-type", "application/json"), ("set-cookie", "a=1"), ("set-cookie", "b=2")];
    let house = House::answering(script::answer(200, &headers, "{}"));
    let (answer, seen) = send(&house, &[("x-many", "1"), ("x-many", "2")]);
    assert_eq!(answer.header("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(seen.header("x-many"), ["1", "2"]);
}

#[test]
fn a_query_passes_unchanged() {
    let house = House::answering(script::json(200, "{}"));
    let target = "/v1/messages?beta=true&x=%7B%22a%22%3A1%7D&&=";
    assert_eq!(client::post_json(house.addr(), target, r#"{"model":"m","messages":[]}"#).status(), 200);
    assert_eq!(house.engine().requests()[0].target(), target);
}
