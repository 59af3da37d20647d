//! Chained hashes of a text's blocks.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hashes of the full blocks of `text`, each chained to the one before it, so that equal hashes mean equal
/// prefixes. A last block that is not full has none. `block_bytes` of 0 gives no hashes.
///
/// ```
/// let a = simulation::prefix_hashes(b"0123456789", 4);
/// let b = simulation::prefix_hashes(b"0123xxxxyyyy", 4);
/// assert_eq!((a.len(), b.len()), (2, 3));
/// assert_eq!(a[0], b[0]);
/// assert_ne!(a[1], b[1]);
/// ```
pub fn prefix_hashes(text: &[u8], block_bytes: usize) -> Vec<u64> {
    if block_bytes == 0 {
        return Vec::new();
    }
    let mut parent = 0;
    text.chunks_exact(block_bytes)
        .map(|block| {
            parent = xxh3_64_with_seed(block, parent);
            parent
        })
        .collect()
}
