//! What a fleet needs to start, and what it says when it cannot.

mod fleet;

use std::net::SocketAddr;

use fleet::{Client, fast, text, with_fleet};
use sim_server::{Sim, SimError, SimOptions};

fn bind(options: SimOptions) -> Result<Vec<SocketAddr>, SimError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { Ok(Sim::bind(options).await?.addresses()) })
}

#[test]
fn a_taken_port_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let error = bind(SimOptions { listen, ..fast() }).unwrap_err().to_string();
    assert!(error.starts_with(&format!("replica 0 cannot listen on {listen}: ")), "{error}");
    assert!(error.ends_with("choose another --listen"), "{error}");
}

#[test]
fn options_that_make_no_fleet_are_refused() {
    for (options, reason) in [
        (
            SimOptions { listen: ([127, 0, 0, 1], 65_535).into(), replicas: 2, ..fast() },
            "2 replicas from port 65535",
        ),
        (SimOptions { speed: 0.0, ..fast() }, "--speed is 0"),
        (SimOptions { step_ms: -1.0, ..fast() }, "replica 0: step_us is -1000"),
        (SimOptions { max_num_seqs: 0, ..fast() }, "replica 0: max_num_seqs is 0"),
        (
            SimOptions { replica_overrides: vec!["3:slow=2".parse().unwrap()], ..fast() },
            "--replica 3:slow=2: there is no replica 3; the last is 0",
        ),
        (
            SimOptions { replica_overrides: vec!["0:slow=-2".parse().unwrap()], ..fast() },
            "replica 0: slow_factor is -2",
        ),
    ] {
        let error = bind(options).unwrap_err().to_string();
        assert!(error.starts_with(reason), "{error}");
    }
}

#[test]
fn a_fleet_that_is_stopped_lets_go_of_its_ports_and_clients() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let sim = Sim::bind(fast()).await.unwrap();
        let address = sim.addresses()[0];
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(sim.run(async { _ = stopped.await }));
        let mut client = Client::connect(address).await;
        assert_eq!(client.text("GET", "/health", "").await.0, 200);
        stop.send(()).unwrap();
        running.await.unwrap();
        assert!(client.try_send("GET", "/health", "").await.is_err());
        // The same port can be had again at once.
        Sim::bind(SimOptions { listen: address, ..fast() }).await.unwrap();
    });
}

#[test]
fn a_models_folder_says_its_name_context_and_vocabulary() {
    let folder = std::env::temp_dir().join(format!("sim-model-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("tiny-model")).unwrap();
    let model = folder.join("tiny-model").to_string_lossy().into_owned();
    let error = bind(SimOptions { model: model.clone(), ..fast() }).unwrap_err().to_string();
    assert!(error.contains("--model takes a name, or a folder with a config.json"), "{error}");

    let config = r#"{"max_position_embeddings": 4096, "vocab_size": 1000, "hidden_size": 8}"#;
    std::fs::write(folder.join("tiny-model/config.json"), config).unwrap();
    with_fleet(SimOptions { model, ..fast() }, async |addresses| {
        let (_, models) = text(addresses[0], "GET", "/v1/models", "").await;
        assert!(
            models.contains(r#""id":"tiny-model""#) && models.contains(r#""max_model_len":4096"#),
            "{models}"
        );
        let (_, tokens) = text(addresses[0], "POST", "/tokenize", r#"{"prompt": "hello"}"#).await;
        assert!(tokens.contains(r#""tokens":[176,111]"#), "{tokens}");
    });
    std::fs::remove_dir_all(folder).unwrap();
}
