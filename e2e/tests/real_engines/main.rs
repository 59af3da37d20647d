//! `ridge serve` before real engines with a real small model, and the vendors' SDKs as clients.

mod llama;
mod sdks;
mod vllm;

use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use e2e::engines::VllmPair;
use rig::RidgeProcess;

/// Started by the first test that needs it. Tests that only ask share it; those that kill an engine, or count what
/// runs, have it alone.
static VLLM: LazyLock<RwLock<VllmPair>> = LazyLock::new(|| RwLock::new(VllmPair::start()));

fn vllm() -> RwLockReadGuard<'static, VllmPair> {
    VLLM.read().unwrap_or_else(PoisonError::into_inner)
}

fn vllm_alone() -> RwLockWriteGuard<'static, VllmPair> {
    VLLM.write().unwrap_or_else(PoisonError::into_inner)
}

/// A gateway before these engines.
fn gateway(urls: &[String]) -> RidgeProcess {
    e2e::before(urls, e2e::engines::MODEL)
}

fn before_vllm(pair: &VllmPair) -> RidgeProcess {
    gateway(&[pair.url(0), pair.url(1)])
}
