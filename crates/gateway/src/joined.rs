//! Pieces of a body made one.

use bytes::{Bytes, BytesMut};

/// Memory set aside at once for what is announced; the rest is taken as it comes.
const MAX_RESERVE: u64 = 1 << 20;

/// A body in the making. Most come in one piece, which is not copied.
#[derive(Debug, Default)]
pub struct Joined {
    first: Bytes,
    joined: BytesMut,
}

impl Joined {
    /// Adds a piece, of which `more` bytes are said to follow.
    pub fn push(&mut self, piece: Bytes, more: u64) {
        if piece.is_empty() {
            return;
        }
        if self.len() == 0 {
            self.first = piece;
            return;
        }
        if self.joined.is_empty() {
            self.joined.reserve(self.first.len() + piece.len() + more.min(MAX_RESERVE) as usize);
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&piece);
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// The whole.
    pub fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_piece_is_not_copied_and_several_are_joined() {
        let piece = Bytes::from(vec![b'a'; 100]);
        let mut one = Joined::default();
        one.push(piece.clone(), 0);
        one.push(Bytes::new(), 0);
        assert_eq!(one.into_bytes().as_ptr(), piece.as_ptr());
        let mut many = Joined::default();
        for text in ["", "ab", "", "c", "de"] {
            many.push(Bytes::from_static(text.as_bytes()), u64::MAX);
        }
        assert_eq!(many.len(), 5);
        assert_eq!(many.into_bytes(), "abcde");
        assert_eq!(Joined::default().into_bytes().len(), 0);
    }
}
