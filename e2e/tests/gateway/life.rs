//! Starting, changing its configuration and ending, without a stream noticing.

use e2e::{ConfigFile, House, chat, completion, config_of, header};
use rig::client::{self, post_bytes};
use rig::script::{self, Step};
use rig::{End, H2Client, RawClient, RidgeProcess, ScriptedEngine, wait_until};

const PATH: &str = "/v1/chat/completions";

fn long_stream() -> script::Script {
    script::paced(script::sse((0..30).map(|i| format!("data: {i}\n\n"))), 50)
}

fn begin(house: &House) -> (RawClient, rig::Response) {
    let mut client = RawClient::connect(house.addr());
    client.send(post_bytes(PATH, chat(true)));
    let response = client.read_until(|response| !response.body().is_empty());
    assert_eq!(response.status(), 200);
    (client, response)
}

#[test]
fn told_to_end_it_finishes_its_streams_first() {
    let engine = ScriptedEngine::answering(long_stream());
    let mut house = House::with(vec![engine], &[]);
    let streams: Vec<_> = (0..5).map(|_| begin(&house)).collect();
    house.ridge.signal("TERM");
    wait_until("it says that it is not ready", || client::get(house.ridge.admin, "/readyz").status() == 503);
    assert_eq!(client::get(house.ridge.admin, "/livez").status(), 200);
    for (mut client, mut response) in streams {
        client.read_on(&mut response);
        assert_eq!(response.end, End::Complete);
        assert!(response.text().ends_with("data: 29\n\n"));
    }
    let status = house.wait_for_end();
    assert!(status.success(), "{status}");
}

#[test]
fn while_it_finishes_it_still_serves() {
    // Load balancers take a moment to hear of it; what they send meanwhile must not fail.
    let engine = ScriptedEngine::start(|request| {
        let long = request.target() == PATH;
        (request.method() == "POST").then(|| if long { long_stream() } else { script::json(200, "{}") })
    });
    let mut house = House::with(vec![engine], &[]);
    let (mut client, mut response) = begin(&house);
    house.ridge.signal("TERM");
    wait_until("it says that it is not ready", || client::get(house.ridge.admin, "/readyz").status() == 503);
    for _ in 0..20 {
        let answer = client::post_json(house.addr(), "/v1/completions", completion("new"));
        assert_eq!(answer.status(), 200, "{}", answer.text());
        // The client is told to go elsewhere next time.
        assert_eq!(header(&answer, "connection"), "close");
    }
    client.read_on(&mut response);
    assert_eq!(response.end, End::Complete);
    assert!(house.wait_for_end().success());
}

#[test]
fn http2_streams_are_finished_and_idle_connections_let_go() {
    let engine = ScriptedEngine::answering(long_stream());
    let mut house = House::with(vec![engine], &[]);
    let idle = H2Client::connect(house.addr());
    let connection = H2Client::connect(house.addr());
    let json = [("content-type", "application/json")];
    let streams: Vec<_> = (0..3).map(|_| connection.start("POST", PATH, &json, chat(true))).collect();
    house.engine().wait_for_requests(3);
    house.ridge.signal("TERM");
    for stream in streams {
        let answer = stream.read_all();
        assert!(answer.error.is_none(), "{answer:?}");
        assert!(answer.body.ends_with(b"data: 29\n\n"));
    }
    assert!(house.wait_for_end().success());
    drop(idle);
}

#[test]
fn a_stream_without_an_end_does_not_hold_it_for_ever() {
    let engine =
        ScriptedEngine::answering(vec![script::sse_head(), script::chunk("data: 1\n\n"), Step::Hang]);
    let mut house = House::with(vec![engine], &["--timeouts-drain", "300ms"]);
    let (mut client, mut response) = begin(&house);
    house.ridge.signal("TERM");
    client.read_on(&mut response);
    assert_ne!(response.end, End::Complete);
    assert!(house.wait_for_end().success());
    // It was not the client who left.
    let said = house.ridge.output();
    assert!(said.contains(r#""error":"shutdown""#) && !said.contains("client_gone"), "{said}");
    assert!(said.contains("1 requests were cut off"), "{said}");
}

#[test]
fn with_nothing_to_do_it_ends_at_once() {
    for signal in ["TERM", "INT"] {
        let mut ridge = RidgeProcess::serve(["--upstream", "http://127.0.0.1:9"]);
        // A client that keeps its connection but asks nothing holds up nothing.
        let _idle = RawClient::connect(ridge.gateway);
        let began = std::time::Instant::now();
        ridge.signal(signal);
        assert!(ridge.wait().success());
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }
}

#[test]
fn both_listeners_tell_whether_it_lives_and_is_ready() {
    let house = House::answering(script::json(200, "{}"));
    for addr in [house.ridge.gateway, house.ridge.admin] {
        assert_eq!(client::get(addr, "/livez").status(), 200);
        assert_eq!(client::get(addr, "/readyz").status(), 200);
    }
}

#[test]
fn a_changed_configuration_is_taken_in_without_dropping_a_stream() {
    let old = ScriptedEngine::answering(long_stream());
    let new = ScriptedEngine::answering(script::json(200, "{}"));
    let new_name = format!("e{}", new.addr().port());
    let file = ConfigFile::new("change", &config_of(&[&old]));
    let ridge = RidgeProcess::start(&["serve", "-c", &file.path()], &[]);
    let house = House::around(ridge, vec![old, new]);
    house.wait_for_endpoints(1);
    let (mut client, mut response) = begin(&house);
    file.write(&config_of(&[&house.engines[1]]));
    house.ridge.signal("HUP");
    wait_until("the new engine is used", || {
        let answer = client::post_json(house.addr(), "/v1/completions", completion("x"));
        answer.status() == 200 && header(&answer, "x-ridge-endpoint") == new_name
    });
    client.read_on(&mut response);
    assert_eq!(response.end, End::Complete);
    assert!(response.text().ends_with("data: 29\n\n"));
}

#[test]
fn a_changed_file_is_noticed_without_a_signal() {
    let old = ScriptedEngine::answering(script::json(200, "{}"));
    let new = ScriptedEngine::answering(script::json(200, "{}"));
    let new_name = format!("e{}", new.addr().port());
    let file = ConfigFile::new("watch", &config_of(&[&old]));
    let ridge = RidgeProcess::start(&["serve", "-c", &file.path()], &[]);
    let house = House::around(ridge, vec![old, new]);
    house.wait_for_endpoints(1);
    file.write(&config_of(&[&house.engines[1]]));
    wait_until("the new engine is used", || {
        let answer = client::post_json(house.addr(), "/v1/completions", completion("x"));
        answer.status() == 200 && header(&answer, "x-ridge-endpoint") == new_name
    });
}

#[test]
fn a_bad_configuration_is_refused_and_the_old_one_stays() {
    let engine = ScriptedEngine::answering(script::json(200, "{}"));
    let file = ConfigFile::new("bad", &config_of(&[&engine]));
    let ridge = RidgeProcess::start(&["serve", "-c", &file.path()], &[]);
    let house = House::around(ridge, vec![engine]);
    house.wait_for_endpoints(1);
    let good = config_of(&[house.engine()]);
    file.write(&good.replace("upstreams", "upstraems"));
    house.ridge.signal("HUP");
    wait_until("the mistake is named", || house.ridge.output().contains("upstraems"));
    assert_eq!(client::post_json(house.addr(), "/v1/completions", completion("x")).status(), 200);
    assert_eq!(client::get(house.addr(), "/readyz").status(), 200);
}
