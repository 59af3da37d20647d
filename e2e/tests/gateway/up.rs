//! `ridge up`: the first minute with the program.

use std::net::TcpListener;

use e2e::chat;
use rig::{RidgeProcess, ScriptedEngine, SimProcess, client, script, wait_until};

const FREE: [&str; 5] = ["up", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

fn up(more: &[&str]) -> RidgeProcess {
    RidgeProcess::start(&[&FREE[..], more].concat(), &[])
}

#[test]
fn with_nothing_at_hand_it_simulates_and_answers() {
    let mut ridge = up(&["--no-detect"]);
    let models = client::get(ridge.gateway, "/v1/models").json();
    let model = models["data"][0]["id"].as_str().expect("a model").to_owned();
    let body = chat(false).replace("\"m\"", &format!("\"{model}\""));
    let answer = client::post_json(ridge.gateway, "/v1/chat/completions", body);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert!(answer.json()["choices"][0]["message"]["content"].is_string());
    assert!(ridge.metrics().series("ridge_endpoint_up").len() >= 2, "a small fleet");
    // What it prints without a terminal is plain text.
    assert!(!ridge.output().contains('\u{1b}'), "{}", ridge.output());
    ridge.signal("INT");
    assert!(ridge.wait().success());
}

#[test]
fn so_many_engines_are_simulated_as_asked_for() {
    let ridge = up(&["--sim", "5"]);
    wait_until("five are up", || ridge.metrics().sum("ridge_endpoint_up", &[]) == Some(5.0));
}

#[test]
fn the_users_own_engines_stand_behind_it() {
    let engines = [
        ScriptedEngine::answering(script::json(200, "{}")),
        ScriptedEngine::answering(script::json(200, "{}")),
    ];
    let ridge = up(&["--engine", &engines[0].url(), "--engine", &engines[1].url()]);
    wait_until("both are up", || ridge.metrics().sum("ridge_endpoint_up", &[]) == Some(2.0));
    for _ in 0..10 {
        assert_eq!(client::post_json(ridge.gateway, "/v1/chat/completions", chat(false)).status(), 200);
    }
    assert!(engines.iter().map(|engine| engine.requests().len()).sum::<usize>() >= 10);
}

#[test]
fn a_taken_port_gives_way_to_the_next_free_one() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("its address").port();
    let listen = format!("127.0.0.1:{port}");
    let ridge =
        RidgeProcess::start(&["up", "--no-detect", "--listen", &listen, "--admin", "127.0.0.1:0"], &[]);
    assert_ne!(ridge.gateway.port(), port);
    assert!(ridge.output().contains(&port.to_string()), "it says which port was taken: {}", ridge.output());
    assert_eq!(client::get(ridge.gateway, "/livez").status(), 200);
}

#[test]
fn nothing_is_left_when_it_ends() {
    let mut ridge = up(&["--no-detect", "--sim", "2"]);
    ridge.signal("TERM");
    assert!(ridge.wait().success());
    assert!(rig::RawClient::try_connect(ridge.gateway).is_err());
    assert!(rig::RawClient::try_connect(ridge.admin).is_err());
}

#[test]
fn simulated_engines_end_when_told() {
    let mut sim = SimProcess::start(2, &[]);
    sim.signal("TERM");
    assert!(sim.wait().success());
    assert!(rig::RawClient::try_connect(sim.replicas[0]).is_err());
}
