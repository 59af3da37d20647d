//! The flags of a simulated fleet.

use std::net::{Ipv4Addr, SocketAddr};

use clap::{Args, ValueEnum};
use simulation::EngineParams;

use crate::overrides::ReplicaOverride;

/// Which engine a replica pretends to be: its metric names, its `owned_by`, and its own paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum EngineKind {
    /// vLLM 0.32.
    #[default]
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM's `trtllm-serve`.
    Trtllm,
}

/// A fleet of simulated engines.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct SimOptions {
    /// Where the first replica listens; replica i listens on this port + i. Port 0 takes any free port for each
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9100")]
    pub listen: SocketAddr,

    /// How many engines
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub replicas: u16,

    /// The served model: a name, or a folder with a config.json, from which name, context and vocabulary are read
    #[arg(long, value_name = "NAME|DIR", default_value = "sim")]
    pub model: String,

    /// Longest prompt plus answer, in tokens [default: the model folder's, else 131072]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_model_len: Option<u32>,

    /// Which engine to pretend to be
    #[arg(long, value_enum, default_value_t)]
    pub engine_kind: EngineKind,

    /// Length of an engine step with nothing in it
    #[arg(long, value_name = "MS", default_value_t = 10.8)]
    pub step_ms: f64,

    /// What each decoding sequence adds to a step
    #[arg(long, value_name = "MS", default_value_t = 0.15)]
    pub per_seq_ms: f64,

    /// What a step costs once if anything decodes in it
    #[arg(long, value_name = "MS", default_value_t = 7.2)]
    pub decode_ms: f64,

    /// Prompt tokens computed in a second
    #[arg(long, value_name = "TOKENS", default_value_t = 8_000.0)]
    pub prefill_tps: f64,

    /// Most prompt tokens computed in one step; a longer prompt is computed in chunks
    #[arg(long, value_name = "TOKENS", default_value_t = 2_048)]
    pub prefill_chunk: u32,

    /// Most sequences that run at once in an engine; the rest wait
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_num_seqs: usize,

    /// Tokens that an engine's KV cache holds
    #[arg(long, value_name = "TOKENS", default_value_t = 600_000)]
    pub kv_tokens: u64,

    /// Tokens in one KV block
    #[arg(long, value_name = "TOKENS", default_value_t = 512)]
    pub block_size: u32,

    /// Virtual seconds in one real second
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub speed: f64,

    /// Makes one replica different, as in "0:slow=5" or "2:kv-tokens=100000,model=other" (repeatable)
    #[arg(long = "replica", value_name = "INDEX:KEY=VALUE,...")]
    pub replica_overrides: Vec<ReplicaOverride>,

    /// Always answer with max_tokens tokens, as if each request said ignore_eos
    #[arg(long)]
    pub ignore_eos: bool,

    /// Give each answer an id and a time of its own; else both follow from the prompt, so that equal requests
    /// have equal answers to the byte
    #[arg(long)]
    pub real_ids: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9100)),
            replicas: 1,
            model: "sim".to_owned(),
            max_model_len: None,
            engine_kind: EngineKind::Vllm,
            step_ms: 10.8,
            per_seq_ms: 0.15,
            decode_ms: 7.2,
            prefill_tps: 8_000.0,
            prefill_chunk: 2_048,
            max_num_seqs: 64,
            kv_tokens: 600_000,
            block_size: 512,
            speed: 1.0,
            replica_overrides: Vec::new(),
            ignore_eos: false,
            real_ids: false,
        }
    }
}

impl SimOptions {
    /// The parameters of each engine before overrides.
    pub(crate) fn engine_params(&self) -> EngineParams {
        EngineParams {
            step_us: self.step_ms * 1e3,
            per_seq_us: self.per_seq_ms * 1e3,
            decode_us: self.decode_ms * 1e3,
            prefill_tokens_per_s: self.prefill_tps,
            max_step_prefill_tokens: self.prefill_chunk,
            max_num_seqs: self.max_num_seqs,
            kv_tokens: self.kv_tokens,
            block_size: self.block_size,
            ..EngineParams::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        sim: SimOptions,
    }

    #[test]
    fn no_flags_are_the_defaults() {
        assert_eq!(Command::try_parse_from(["sim"]).unwrap().sim, SimOptions::default());
        assert_eq!(SimOptions::default().engine_params(), EngineParams::default());
    }
}
