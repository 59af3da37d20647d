//! What a replica says about itself.

use super::quoted;
use crate::options::EngineKind;
use crate::replica::Replica;

/// `/v1/models`.
pub fn models(replica: &Replica) -> String {
    let name = quoted(&replica.model.name);
    let created_s = replica.started_s() as u64;
    let max_len = replica.model.max_len;
    let owner = match replica.kind {
        EngineKind::Vllm => "vllm",
        EngineKind::Sglang => "sglang",
        EngineKind::Trtllm => "tensorrt_llm",
    };
    format!(
        r#"{{"object":"list","data":[{{"id":{name},"object":"model","created":{created_s},"owned_by":"{owner}","root":{name},"parent":null,"max_model_len":{max_len},"permission":[]}}]}}"#
    )
}

/// `/version`.
pub fn version(replica: &Replica) -> String {
    let version = match replica.kind {
        EngineKind::Vllm => "0.32.0",
        EngineKind::Sglang => "0.5.6",
        EngineKind::Trtllm => "1.2.0",
    };
    format!(r#"{{"version":"{version}+sim"}}"#)
}
