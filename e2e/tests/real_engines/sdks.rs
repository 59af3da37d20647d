//! The vendors' SDKs, unchanged, against the gateway.

use e2e::engines::{Llama, MODEL, run_python};

use crate::{before_vllm, gateway, vllm};

#[test]
fn the_openai_sdk_before_vllm() {
    let pair = vllm();
    let ridge = before_vllm(&pair);
    let url = format!("http://{}", ridge.gateway);
    println!("{}", run_python("openai_client.py", &[&url, MODEL, "vllm"]));
    ridge.wait_for_metric("ridge_requests_in_flight", &[], 0.0);
}

#[test]
fn the_anthropic_sdk_before_vllm() {
    let pair = vllm();
    let ridge = before_vllm(&pair);
    let url = format!("http://{}", ridge.gateway);
    println!("{}", run_python("anthropic_client.py", &[&url, MODEL]));
    ridge.wait_for_metric("ridge_requests_in_flight", &[], 0.0);
}

#[test]
fn the_openai_sdk_before_llama_cpp() {
    let llama = Llama::start();
    let ridge = gateway(&[llama.url()]);
    let url = format!("http://{}", ridge.gateway);
    println!("{}", run_python("openai_client.py", &[&url, MODEL, "llamacpp"]));
    ridge.wait_for_metric("ridge_requests_in_flight", &[], 0.0);
}
