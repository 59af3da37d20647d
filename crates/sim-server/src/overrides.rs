//! `--replica INDEX:KEY=VALUE,…`: one engine that is not like the others.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use simulation::EngineParams;

use crate::options::EngineKind;

/// What is different about one replica.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaOverride {
    /// Which replica, counted from 0.
    pub index: usize,
    settings: Vec<Setting>,
    text: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Setting {
    Slow(f64),
    StepMs(f64),
    PerSeqMs(f64),
    DecodeMs(f64),
    PrefillTps(f64),
    MaxNumSeqs(usize),
    KvTokens(u64),
    BlockSize(u32),
    Model(String),
    Kind(EngineKind),
}

const KEYS: &str = "slow, step-ms, per-seq-ms, decode-ms, prefill-tps, max-num-seqs, kv-tokens, block-size, model, engine-kind";

impl ReplicaOverride {
    /// Changes what the override names.
    pub(crate) fn apply(&self, params: &mut EngineParams, model: &mut String, kind: &mut EngineKind) {
        for setting in &self.settings {
            match setting {
                Setting::Slow(factor) => params.slow_factor = *factor,
                Setting::StepMs(ms) => params.step_us = ms * 1e3,
                Setting::PerSeqMs(ms) => params.per_seq_us = ms * 1e3,
                Setting::DecodeMs(ms) => params.decode_us = ms * 1e3,
                Setting::PrefillTps(rate) => params.prefill_tokens_per_s = *rate,
                Setting::MaxNumSeqs(count) => params.max_num_seqs = *count,
                Setting::KvTokens(tokens) => params.kv_tokens = *tokens,
                Setting::BlockSize(tokens) => params.block_size = *tokens,
                Setting::Model(name) => model.clone_from(name),
                Setting::Kind(other) => *kind = *other,
            }
        }
    }
}

impl fmt::Display for ReplicaOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for ReplicaOverride {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (index, rest) = text.split_once(':').ok_or("write INDEX:KEY=VALUE, for example 0:slow=5")?;
        let index = index.parse().map_err(|_| format!("{index:?} is not the index of a replica"))?;
        let settings = rest.split(',').map(setting).collect::<Result<_, _>>()?;
        Ok(Self { index, settings, text: text.to_owned() })
    }
}

fn setting(text: &str) -> Result<Setting, String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("{text:?} is not KEY=VALUE; keys: {KEYS}"))?;
    Ok(match key {
        "slow" => Setting::Slow(number(key, value)?),
        "step-ms" => Setting::StepMs(number(key, value)?),
        "per-seq-ms" => Setting::PerSeqMs(number(key, value)?),
        "decode-ms" => Setting::DecodeMs(number(key, value)?),
        "prefill-tps" => Setting::PrefillTps(number(key, value)?),
        "max-num-seqs" => Setting::MaxNumSeqs(number(key, value)?),
        "kv-tokens" => Setting::KvTokens(number(key, value)?),
        "block-size" => Setting::BlockSize(number(key, value)?),
        "model" => Setting::Model(value.to_owned()),
        "engine-kind" => Setting::Kind(EngineKind::from_str(value, false)?),
        _ => return Err(format!("{key:?} is not a key; keys: {KEYS}")),
    })
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key} is {value:?}, which is not a number that fits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_wrong_ones_named() {
        let slow: ReplicaOverride = "3:slow=5,kv-tokens=1000,model=other".parse().unwrap();
        let (mut params, mut model, mut kind) = (EngineParams::default(), "m".to_owned(), EngineKind::Vllm);
        slow.apply(&mut params, &mut model, &mut kind);
        assert_eq!(
            (slow.index, params.slow_factor, params.kv_tokens, model.as_str()),
            (3, 5.0, 1000, "other")
        );

        for (text, reason) in [
            ("slow=5", "write INDEX:KEY=VALUE"),
            ("x:slow=5", "\"x\" is not the index"),
            ("0:slow", "\"slow\" is not KEY=VALUE"),
            ("0:fast=5", "\"fast\" is not a key; keys: slow"),
            ("0:kv-tokens=-1", "kv-tokens is \"-1\""),
        ] {
            let error = text.parse::<ReplicaOverride>().unwrap_err();
            assert!(error.starts_with(reason), "{text}: {error}");
        }
    }
}
