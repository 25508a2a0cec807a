//! What is in the objects: a slice of one random pattern, another for each object.
//!
//! Owns the pattern. An object's bytes follow from the seed, its number and its length, so that a
//! download can be compared byte for byte without keeping what was uploaded.

use crate::rng::{Rng, mix};

/// Not a multiple of any block size, so that swapped blocks of a large object are noticed.
const PATTERN_BYTES: usize = (4 << 20) + 4099;

/// The bytes of all objects of one run. Lives as long as the program, as the ring wants it.
pub struct Content {
    pattern: &'static [u8],
    seed: u64,
}

impl Content {
    pub fn new(seed: u64) -> Content {
        let mut rng = Rng::new(seed);
        let mut pattern = Vec::with_capacity(PATTERN_BYTES + 8);
        while pattern.len() < PATTERN_BYTES {
            pattern.extend_from_slice(&rng.next_u64().to_le_bytes());
        }
        pattern.truncate(PATTERN_BYTES);
        Content { pattern: Vec::leak(pattern), seed }
    }

    /// Bytes of object `number` from `offset` on: at least one, at most `bytes_max`.
    pub fn piece(&self, number: u32, offset: u64, bytes_max: u64) -> &'static [u8] {
        let start = mix(self.seed ^ (u64::from(number) + 1)).wrapping_add(offset);
        let at = (start % PATTERN_BYTES as u64) as usize;
        let bytes = bytes_max.min((PATTERN_BYTES - at) as u64) as usize;
        &self.pattern[at..at + bytes]
    }

    /// Whether `bytes` are what object `number` has at `offset`.
    pub fn matches(&self, number: u32, mut offset: u64, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let piece = self.piece(number, offset, bytes.len() as u64);
            let (head, rest) = bytes.split_at(piece.len());
            if head != piece {
                return false;
            }
            offset += piece.len() as u64;
            bytes = rest;
        }
        true
    }

    /// Hands out the whole object piece by piece.
    pub fn for_each(&self, number: u32, bytes: u64, mut f: impl FnMut(&[u8])) {
        let mut offset = 0;
        while offset < bytes {
            let piece = self.piece(number, offset, bytes - offset);
            f(piece);
            offset += piece.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(content: &Content, number: u32, bytes: u64) -> Vec<u8> {
        let mut all = Vec::new();
        content.for_each(number, bytes, |piece| all.extend_from_slice(piece));
        all
    }

    #[test]
    fn an_object_is_the_same_for_the_same_seed_and_differs_from_others() {
        let (a, b) = (Content::new(7), Content::new(7));
        assert_eq!(whole(&a, 3, 1000), whole(&b, 3, 1000));
        assert_ne!(whole(&a, 3, 1000), whole(&a, 4, 1000));
        assert_ne!(whole(&a, 3, 1000), whole(&Content::new(8), 3, 1000));
    }

    #[test]
    fn one_wrong_byte_is_noticed_also_beyond_the_pattern() {
        let content = Content::new(7);
        let bytes = PATTERN_BYTES as u64 * 2 + 10;
        let mut object = whole(&content, 0, bytes);
        assert_eq!(object.len() as u64, bytes);
        assert!(content.matches(0, 0, &object));
        assert!(content.matches(0, 5_000_000, &object[5_000_000..]));
        *object.last_mut().expect("not empty") ^= 1;
        assert!(!content.matches(0, 0, &object));
    }
}
