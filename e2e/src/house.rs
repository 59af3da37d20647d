//! A gateway with scripted engines behind it.

use std::net::SocketAddr;

use rig::{RidgeProcess, Script, ScriptedEngine, wait_until};

/// A running gateway and its engines, named `engine-1`, `engine-2` and so on.
///
/// When it goes at the end of a test it checks what must hold after any test: no request is counted as in flight any
/// more, and the gateway has not panicked.
pub struct House {
    /// The gateway.
    pub ridge: RidgeProcess,
    /// The engines, in the order in which the gateway knows them.
    pub engines: Vec<ScriptedEngine>,
    ended: bool,
}

impl House {
    /// A gateway before one engine that answers every POST with `script`.
    #[track_caller]
    pub fn answering(script: Script) -> Self {
        Self::with(vec![ScriptedEngine::answering(script)], &[])
    }

    /// A gateway before these engines, with arguments for `ridge serve`; waits until it knows all of them.
    #[track_caller]
    pub fn with(engines: Vec<ScriptedEngine>, arguments: &[&str]) -> Self {
        let upstreams = engines.iter().flat_map(|engine| ["--upstream".to_owned(), engine.url()]);
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        let ridge = RidgeProcess::serve(upstreams.chain(arguments));
        let house = Self::around(ridge, engines);
        house.wait_for_endpoints(house.engines.len());
        house
    }

    /// A gateway that was started in a way of its own.
    pub fn around(ridge: RidgeProcess, engines: Vec<ScriptedEngine>) -> Self {
        Self { ridge, engines, ended: false }
    }

    /// Waits until the gateway, told to do so, has ended.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> std::process::ExitStatus {
        let status = self.ridge.wait();
        self.ended = true;
        status
    }

    /// Waits until the gateway counts `count` endpoints as up and knows a model.
    #[track_caller]
    pub fn wait_for_endpoints(&self, count: usize) {
        wait_until("every engine is up", || {
            self.ridge.metrics().sum("ridge_endpoint_up", &[]) == Some(count as f64)
        });
        wait_until("the model is known", || {
            let models = rig::client::get(self.ridge.gateway, "/v1/models");
            models.status() == 200 && models.json()["data"].as_array().is_some_and(|list| !list.is_empty())
        });
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.ridge.gateway
    }

    /// The only engine, or the first.
    pub fn engine(&self) -> &ScriptedEngine {
        &self.engines[0]
    }

    /// Waits until no request is in flight, by the gateway's own account.
    #[track_caller]
    pub fn wait_until_idle(&self) {
        self.ridge.wait_for_metric("ridge_requests_in_flight", &[], 0.0);
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if !self.ended {
            self.wait_until_idle();
        }
        assert!(!self.ridge.output().contains("panicked"), "{}", self.ridge.output());
    }
}

/// A gateway before these engines, as soon as it counts all of them as up and lists `model`.
#[track_caller]
pub fn before(urls: &[String], model: &str) -> RidgeProcess {
    let ridge = RidgeProcess::serve(urls.iter().flat_map(|url| ["--upstream", url.as_str()]));
    wait_until("every engine is up", || {
        ridge.metrics().sum("ridge_endpoint_up", &[]) == Some(urls.len() as f64)
    });
    wait_until("the model is known", || {
        rig::client::get(ridge.gateway, "/v1/models").text().contains(&format!("\"{model}\""))
    });
    ridge
}

/// A chat request for the model `m`, streamed or not.
pub fn chat(stream: bool) -> String {
    format!(r#"{{"model":"m","stream":{stream},"messages":[{{"role":"user","content":"Say something."}}]}}"#)
}

/// A completion request for the model `m` with this prompt.
pub fn completion(prompt: &str) -> String {
    serde_json::json!({"model": "m", "prompt": prompt}).to_string()
}

/// The one value of a response header.
///
/// # Panics
/// If there is none, or more than one.
#[track_caller]
pub fn header(response: &rig::Response, name: &str) -> String {
    let values = response.header(name);
    assert_eq!(values.len(), 1, "{name} in {}", String::from_utf8_lossy(response.head()));
    values.into_iter().next().unwrap_or_default()
}
