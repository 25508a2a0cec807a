//! The open readers that one thread keeps, so that a ranged download does not open its blob anew
//! for every range.
//!
//! Bounded in number; `sweep` closes what was not used since the sweep before, because an open
//! file keeps the disk space of a removed blob.

use std::collections::VecDeque;

use super::BlobReader;
use crate::model::BlobId;

pub(super) struct ReaderCache {
    /// Least recently used first; few enough to be searched one by one.
    readers: VecDeque<Cached>,
    readers_max: usize,
}

struct Cached {
    reader: BlobReader,
    used_since_sweep: bool,
}

impl ReaderCache {
    pub(super) fn new(readers_max: usize) -> ReaderCache {
        ReaderCache { readers: VecDeque::new(), readers_max }
    }

    pub(super) fn get(&mut self, blob: BlobId) -> Option<BlobReader> {
        let at = self.readers.iter().position(|cached| cached.reader.id() == blob)?;
        let mut cached = self.readers.remove(at)?;
        cached.used_since_sweep = true;
        let reader = cached.reader.clone();
        self.readers.push_back(cached);
        Some(reader)
    }

    pub(super) fn put(&mut self, reader: BlobReader) {
        self.remove(reader.id());
        if self.readers_max == 0 {
            return;
        }
        while self.readers.len() >= self.readers_max {
            self.readers.pop_front();
        }
        self.readers.push_back(Cached { reader, used_since_sweep: true });
    }

    pub(super) fn remove(&mut self, blob: BlobId) {
        self.readers.retain(|cached| cached.reader.id() != blob);
    }

    pub(super) fn sweep(&mut self) {
        self.readers.retain(|cached| cached.used_since_sweep);
        for cached in &mut self.readers {
            cached.used_since_sweep = false;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.readers.len()
    }
}
