//! Which endpoint saw the beginning of this prompt last: a small, lossy, lock-free table.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::endpoint::EndpointId;

/// Bytes of prompt text in a block. 512 bytes are about 128 tokens: fine enough that a chat's earlier turns
/// match, coarse enough that two unrelated short prompts never share one.
pub const BLOCK_BYTES: usize = 512;

/// Blocks of a prompt that are looked at: 16 KiB of text, about 4,000 tokens. What follows no longer decides where a
/// request goes; hashing it would cost more than the rest of the decision.
pub const MAX_BLOCKS: usize = 32;

/// Chained hashes of a prompt's blocks: the n-th stands for everything up to the end of block n.
#[derive(Clone, Debug, Default)]
pub struct PrefixHashes {
    hashes: SmallVec<[u64; MAX_BLOCKS]>,
}

impl PrefixHashes {
    /// Hashes the `spans` of `body` in order, each in blocks of its own; `seed` keeps models apart. The last,
    /// unfinished block of the last span is left out (the next turn of the chat will have it otherwise); an
    /// unfinished block before it counts, since the next span starts there each time.
    pub fn of(body: &[u8], spans: &[Range<usize>], seed: u64) -> Self {
        let mut hashes = SmallVec::new();
        let mut chain = seed;
        for (place, span) in spans.iter().enumerate() {
            let text = body.get(span.clone()).unwrap_or_default();
            let blocks = text.chunks_exact(BLOCK_BYTES);
            let rest = blocks.remainder();
            for block in blocks {
                if hashes.len() == MAX_BLOCKS {
                    return Self { hashes };
                }
                chain = xxh3_64_with_seed(block, chain);
                hashes.push(chain);
            }
            if place + 1 < spans.len() && !rest.is_empty() {
                // Part of the chain, not a block: a match must rest on a whole block of prompt.
                chain = xxh3_64_with_seed(rest, chain);
            }
        }
        Self { hashes }
    }

    /// Number of whole blocks.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether the prompt is shorter than a block.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

/// Remembers for each block which endpoint took it last. Fixed size; a newer block may take an older one's
/// place, and a reader may see either: a lost entry costs a little affinity and nothing else. An entry holds
/// the endpoint's [`EndpointId`], so an endpoint that is gone matches nothing.
#[derive(Debug)]
pub struct PrefixIndex {
    /// Upper half: the block hash's upper half. Lower half: the endpoint. 0 is empty.
    slots: Box<[AtomicU64]>,
}

impl PrefixIndex {
    /// A table of `entries` (rounded up to a power of two) of 8 bytes each.
    pub fn with_entries(entries: usize) -> Self {
        let entries = entries.clamp(1, 1 << 28).next_power_of_two();
        Self { slots: (0..entries).map(|_| AtomicU64::new(0)).collect() }
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.slots[hash as usize & (self.slots.len() - 1)]
    }

    /// The endpoint that took this block last.
    fn holder(&self, hash: u64) -> Option<EndpointId> {
        let entry = self.slot(hash).load(Relaxed);
        (entry >> 32 == hash >> 32 && entry as u32 != 0).then_some(EndpointId(entry as u32))
    }

    /// Notes that `endpoint` now holds all blocks of the prompt.
    pub fn record(&self, prefix: &PrefixHashes, endpoint: EndpointId) {
        for &hash in &prefix.hashes {
            let entry = hash >> 32 << 32 | u64::from(endpoint.0);
            let slot = self.slot(hash);
            if slot.load(Relaxed) != entry {
                slot.store(entry, Relaxed);
            }
        }
    }

    /// The endpoints that hold a leading run of the prompt, with the run's length in blocks, longest first.
    /// One run for each endpoint: where holders alternate, an endpoint's run ends at its last block.
    pub fn holders(&self, prefix: &PrefixHashes) -> SmallVec<[(EndpointId, u32); 4]> {
        let mut runs: SmallVec<[(EndpointId, u32); 4]> = SmallVec::new();
        for (place, &hash) in prefix.hashes.iter().enumerate() {
            let Some(holder) = self.holder(hash) else { break };
            let length = place as u32 + 1;
            match runs.iter().position(|(id, _)| *id == holder) {
                Some(known) => runs[known].1 = length,
                None if runs.len() < 4 => runs.push((holder, length)),
                None => break,
            }
        }
        runs.sort_unstable_by_key(|&(id, run)| (std::cmp::Reverse(run), id));
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(text: &str) -> PrefixHashes {
        PrefixHashes::of(text.as_bytes(), std::slice::from_ref(&(0..text.len())), 1)
    }

    #[test]
    fn a_longer_prompt_matches_its_beginning() {
        let index = PrefixIndex::with_entries(1024);
        let first = "x".repeat(BLOCK_BYTES * 3);
        index.record(&hashes(&first), EndpointId(9));
        let longer = first.clone() + &"y".repeat(BLOCK_BYTES * 2);
        assert_eq!(index.holders(&hashes(&longer)).as_slice(), [(EndpointId(9), 3)]);
        let other = format!("z{first}");
        assert!(index.holders(&hashes(&other)).is_empty());
    }

    #[test]
    fn short_prompts_and_other_models_match_nothing() {
        let index = PrefixIndex::with_entries(1024);
        assert!(hashes("hello").is_empty());
        let text = "x".repeat(BLOCK_BYTES);
        index.record(&hashes(&text), EndpointId(9));
        let other_model = PrefixHashes::of(text.as_bytes(), std::slice::from_ref(&(0..text.len())), 2);
        assert!(index.holders(&other_model).is_empty());
    }

    #[test]
    fn a_hostile_span_is_no_panic() {
        assert!(PrefixHashes::of(b"abc", &[0..3, 2..900], 0).is_empty());
    }

    #[test]
    fn unrelated_prompts_share_nothing_even_when_the_table_is_full() {
        let index = PrefixIndex::with_entries(64);
        for i in 0..1_000u32 {
            index.record(&hashes(&format!("{i:0512}")), EndpointId(i % 7 + 1));
        }
        assert!(index.holders(&hashes(&"q".repeat(2_000))).is_empty());
    }
}
