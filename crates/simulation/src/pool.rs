//! The paged KV pool: blocks, who refers to them, and which content they cache.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Block hashes are already well mixed, so the map takes them as they are.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

const NONE: u32 = u32::MAX;

#[derive(Clone)]
struct Block {
    /// The content it caches, if it is full and the pool's first with that content.
    hash: Option<u64>,
    refs: u32,
    /// Neighbours in the list of unreferenced blocks, oldest first.
    older: u32,
    newer: u32,
}

/// A fixed number of blocks. A block that someone refers to stays; one that nobody refers to keeps its cached
/// content until the space is needed, least recently used first.
pub struct BlockPool {
    blocks: Vec<Block>,
    cached: HashMap<u64, u32, BuildHasherDefault<AsIs>>,
    oldest: u32,
    newest: u32,
    unreferenced: usize,
    evicted: u64,
}

/// Blocks held by one sequence, in the order of its tokens. Give it back with [`BlockPool::release`].
#[derive(Debug, Default)]
pub struct Reservation {
    blocks: Vec<u32>,
    hits: usize,
}

impl Reservation {
    /// How many of the blocks came with their content already computed; they are the first ones.
    pub fn hits(&self) -> usize {
        self.hits
    }

    /// Number of blocks held.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

impl BlockPool {
    /// A pool of `count` empty blocks. At most 2^32 - 2 of them; more are not made.
    pub fn new(count: u64) -> Self {
        let count = count.min(u64::from(NONE - 1)) as usize;
        let blank = Block { hash: None, refs: 0, older: NONE, newer: NONE };
        let mut pool = Self {
            blocks: vec![blank; count],
            cached: HashMap::default(),
            oldest: NONE,
            newest: NONE,
            unreferenced: 0,
            evicted: 0,
        };
        for index in 0..count {
            pool.push_newest(index as u32);
        }
        pool
    }

    /// Number of blocks in the pool.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether the pool has no blocks at all.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Blocks that someone refers to.
    pub fn referenced(&self) -> usize {
        self.blocks.len() - self.unreferenced
    }

    /// Blocks with cached content, referenced or not.
    pub fn cached(&self) -> usize {
        self.cached.len()
    }

    /// Cached blocks given up so far.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// How many of `hashes`, from the first on, are cached.
    pub fn cached_prefix(&self, hashes: &[u64]) -> usize {
        hashes.iter().take_while(|hash| self.cached.contains_key(hash)).count()
    }

    /// Takes `total` blocks, the first of them shared with whoever cached the prefix of `hashes`. `None`, and
    /// nothing changed, if they do not fit now.
    pub fn reserve(&mut self, hashes: &[u64], total: usize) -> Option<Reservation> {
        let hits = self.cached_prefix(&hashes[..hashes.len().min(total)]);
        let shared: Vec<u32> = hashes[..hits].iter().map(|hash| self.cached[hash]).collect();
        let revived = shared.iter().filter(|block| self.blocks[**block as usize].refs == 0).count();
        if self.unreferenced - revived < total - hits {
            return None;
        }
        let mut blocks = shared;
        for block in &blocks {
            if self.blocks[*block as usize].refs == 0 {
                self.unlink(*block);
            }
            self.blocks[*block as usize].refs += 1;
        }
        blocks.reserve_exact(total - hits);
        for _ in hits..total {
            let block = self.oldest;
            self.unlink(block);
            self.forget(block);
            self.blocks[block as usize].refs = 1;
            blocks.push(block);
        }
        Some(Reservation { blocks, hits })
    }

    /// Says that block `index` of the reservation now holds the content `hash`. If another block caches the
    /// same content already, that one stays the shared one.
    pub fn fill(&mut self, reservation: &Reservation, index: usize, hash: u64) {
        let Some(block) = reservation.blocks.get(index).copied() else { return };
        if self.blocks[block as usize].hash.is_some() || self.cached.contains_key(&hash) {
            return;
        }
        self.blocks[block as usize].hash = Some(hash);
        self.cached.insert(hash, block);
    }

    /// Gives the blocks back. The end of a sequence is given up before its beginning, since prefixes are shared
    /// from the front; blocks that cache nothing go first of all.
    pub fn release(&mut self, reservation: Reservation) {
        for block in reservation.blocks.into_iter().rev() {
            let state = &mut self.blocks[block as usize];
            state.refs -= 1;
            if state.refs > 0 {
                continue;
            }
            if state.hash.is_some() {
                self.push_newest(block);
            } else {
                self.push_oldest(block);
            }
        }
    }

    fn forget(&mut self, block: u32) {
        if let Some(hash) = self.blocks[block as usize].hash.take() {
            self.cached.remove(&hash);
            self.evicted += 1;
        }
    }

    fn push_newest(&mut self, block: u32) {
        let last = self.newest;
        let state = &mut self.blocks[block as usize];
        (state.older, state.newer) = (last, NONE);
        match last {
            NONE => self.oldest = block,
            last => self.blocks[last as usize].newer = block,
        }
        self.newest = block;
        self.unreferenced += 1;
    }

    fn push_oldest(&mut self, block: u32) {
        let first = self.oldest;
        let state = &mut self.blocks[block as usize];
        (state.older, state.newer) = (NONE, first);
        match first {
            NONE => self.newest = block,
            first => self.blocks[first as usize].older = block,
        }
        self.oldest = block;
        self.unreferenced += 1;
    }

    fn unlink(&mut self, block: u32) {
        let Block { older, newer, .. } = self.blocks[block as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.blocks[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.blocks[newer as usize].older = older,
        }
        self.unreferenced -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pool: &mut BlockPool, hashes: &[u64]) -> Reservation {
        let reservation = pool.reserve(hashes, hashes.len()).expect("fits");
        for (index, hash) in hashes.iter().enumerate() {
            pool.fill(&reservation, index, *hash);
        }
        reservation
    }

    #[test]
    fn a_released_prefix_is_found_again_and_pinned_while_used() {
        let mut pool = BlockPool::new(4);
        let first = filled(&mut pool, &[1, 2]);
        pool.release(first);
        assert_eq!(pool.referenced(), 0);
        let again = pool.reserve(&[1, 2, 3], 3).expect("fits");
        assert_eq!(again.hits(), 2);
        assert!(pool.reserve(&[], 2).is_none(), "only one block is left");
        assert_eq!(pool.referenced(), 3);
    }

    #[test]
    fn the_end_of_the_least_recently_used_prefix_goes_first() {
        let mut pool = BlockPool::new(4);
        let old = filled(&mut pool, &[1, 2]);
        let new = filled(&mut pool, &[11, 12]);
        pool.release(old);
        pool.release(new);
        let taken = pool.reserve(&[], 1).expect("fits");
        assert_eq!((pool.cached_prefix(&[1, 2]), pool.cached_prefix(&[11, 12])), (1, 2));
        assert_eq!(pool.evicted(), 1);
        pool.release(taken);
    }

    #[test]
    fn two_blocks_with_the_same_content_share_one_entry() {
        let mut pool = BlockPool::new(4);
        let first = pool.reserve(&[1], 1).expect("fits");
        let second = pool.reserve(&[1], 1).expect("fits");
        pool.fill(&first, 0, 1);
        pool.fill(&second, 0, 1);
        pool.release(first);
        assert_eq!((pool.cached(), pool.referenced()), (1, 1));
        pool.release(second);
        assert_eq!((pool.cached(), pool.referenced()), (1, 0));
    }
}
