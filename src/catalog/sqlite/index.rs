//! The RAM index: current versions by (bucket, key), bounded in bytes.
//!
//! Owns copies only; the database is the truth. The writer changes an entry after each commit;
//! readers add what they read, unless a commit came between (the shard's generation tells), so
//! that an entry is never older than the database. Absence is not recorded. Any thread may call
//! it; each call takes one short lock. Eviction is CLOCK: an entry that was read since the hand
//! last passed gets another round.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;

use crate::model::{BlobPlace, BucketId, Key, ObjectVersion};

/// Number of shards: many more than threads, so that two of them rarely want the same lock.
const SHARDS: usize = 64;

type Entry = (BucketId, Key);

pub(super) struct Index {
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    /// **Units** bytes for each shard.
    shard_bytes_max: usize,
}

#[derive(Default)]
struct Shard {
    /// Where in `slots` the entry of a hash is.
    places: HashTable<usize>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    hand: usize,
    bytes: usize,
    /// Grows with each change by the writer.
    generation: u64,
}

struct Slot {
    hash: u64,
    entry: Entry,
    version: Arc<ObjectVersion>,
    bytes: usize,
    visited: bool,
}

impl Slot {
    fn holds(&self, bucket: BucketId, key: &Key) -> bool {
        self.entry.0 == bucket && self.entry.1 == *key
    }
}

/// Taken before a read of the database, given back with what was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    shard: usize,
    generation: u64,
}

impl Index {
    pub fn new(bytes_max: u64) -> Index {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Index {
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect(),
            shard_bytes_max: bytes_max / SHARDS,
        }
    }

    /// The entry, and the ticket for a read when there is none.
    pub fn get(&self, bucket: BucketId, key: &Key) -> Result<Arc<ObjectVersion>, Ticket> {
        let hash = self.hash(bucket, key);
        let shard_number = shard_of(hash);
        let shard = &mut *self.lock(shard_number);
        match shard.find(hash, bucket, key).and_then(|at| shard.slots[at].as_mut()) {
            Some(slot) => {
                slot.visited = true;
                Ok(slot.version.clone())
            }
            None => Err(Ticket { shard: shard_number, generation: shard.generation }),
        }
    }

    /// Adds what a reader found, if no commit touched the shard since the ticket was taken.
    pub fn fill(&self, ticket: Ticket, bucket: BucketId, key: &Key, version: Arc<ObjectVersion>) {
        let shard = &mut *self.lock(ticket.shard);
        if shard.generation == ticket.generation {
            let hash = self.hash(bucket, key);
            shard.insert(hash, (bucket, key.clone()), version, self.shard_bytes_max);
        }
    }

    /// The writer's change after a commit: the new current version, or none.
    pub fn commit(&self, bucket: BucketId, key: &Key, version: Option<Arc<ObjectVersion>>) {
        let hash = self.hash(bucket, key);
        let shard = &mut *self.lock(shard_of(hash));
        shard.generation += 1;
        match version {
            Some(version) => {
                shard.insert(hash, (bucket, key.clone()), version, self.shard_bytes_max);
            }
            None => shard.remove(hash, bucket, key),
        }
    }

    /// Drops every entry with bytes in one of `segments`, which are going: the next read asks the
    /// database where they are now.
    pub fn forget_segments(&self, segments: &[u64]) {
        let gone = |version: &ObjectVersion| {
            version.extents.iter().any(|extent| match extent.blob.place {
                BlobPlace::Segment { segment, .. } => segments.contains(&segment),
                BlobPlace::File => false,
            })
        };
        for number in 0..SHARDS {
            let shard = &mut *self.lock(number);
            shard.generation += 1;
            let is_stale = |at: &usize| shard.slots[*at].as_ref().is_some_and(|s| gone(&s.version));
            let stale: Vec<usize> = (0..shard.slots.len()).filter(is_stale).collect();
            stale.into_iter().for_each(|at| shard.clear_slot(at));
        }
    }

    fn hash(&self, bucket: BucketId, key: &Key) -> u64 {
        self.hasher.hash_one((bucket, key))
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Middle bits: the table within the shard uses those at both ends.
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

impl Shard {
    fn find(&self, hash: u64, bucket: BucketId, key: &Key) -> Option<usize> {
        let holds = |at: &usize| self.slots[*at].as_ref().is_some_and(|s| s.holds(bucket, key));
        self.places.find(hash, holds).copied()
    }

    fn insert(&mut self, hash: u64, entry: Entry, version: Arc<ObjectVersion>, bytes_max: usize) {
        self.remove(hash, entry.0, &entry.1);
        let bytes = footprint_bytes(&entry, &version);
        // One giant must not empty a whole shard.
        if bytes > bytes_max / 4 {
            return;
        }
        while self.bytes + bytes > bytes_max {
            self.evict_one();
        }
        self.bytes += bytes;
        let slot = Some(Slot { hash, entry, version, bytes, visited: false });
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        let slots = &self.slots;
        self.places.insert_unique(hash, at, |at| slots[*at].as_ref().map_or(0, |s| s.hash));
    }

    fn remove(&mut self, hash: u64, bucket: BucketId, key: &Key) {
        if let Some(at) = self.find(hash, bucket, key) {
            self.clear_slot(at);
        }
    }

    fn clear_slot(&mut self, at: usize) {
        let Some(slot) = self.slots[at].take() else { return };
        if let Ok(place) = self.places.find_entry(slot.hash, |known| *known == at) {
            place.remove();
        }
        self.bytes -= slot.bytes;
        self.free.push(at);
    }

    /// Moves the hand to an entry that was not read since its last pass, and drops it. Called
    /// only while `bytes` is above 0, so there is one after at most two rounds.
    fn evict_one(&mut self) {
        for _ in 0..2 * self.slots.len() {
            self.hand = (self.hand + 1) % self.slots.len();
            match &mut self.slots[self.hand] {
                Some(slot) if slot.visited => slot.visited = false,
                Some(_) => return self.clear_slot(self.hand),
                None => {}
            }
        }
    }
}

/// About how much RAM an entry takes, in bytes: structures, strings and the map's overhead.
fn footprint_bytes((_, key): &Entry, version: &ObjectVersion) -> usize {
    const OVERHEAD: usize = 128;
    let m = &version.metadata;
    let texts = [
        &m.content_type,
        &m.content_encoding,
        &m.cache_control,
        &m.content_disposition,
        &m.content_language,
        &m.expires,
        &m.website_redirect,
        &m.storage_class,
    ];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    let pairs = m.user.iter().chain(&m.tags);
    let pairs: usize = pairs.map(|(name, value)| name.len() + value.len() + 48).sum();
    let parts: usize = version.parts.iter().map(|p| size_of_val(p) + checksum_bytes(p)).sum();
    size_of::<Slot>()
        + size_of::<ObjectVersion>()
        + OVERHEAD
        + key.as_str().len()
        + texts
        + pairs
        + parts
        + size_of_val(version.extents.as_slice())
}

fn checksum_bytes(part: &crate::model::PartRecord) -> usize {
    part.checksum.as_ref().map_or(0, |c| c.value.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ETag, Lsn, ObjectMetadata, OwnerId, VersionId};

    const BUCKET: BucketId = BucketId(1);

    fn version(lsn: u64) -> Arc<ObjectVersion> {
        Arc::new(ObjectVersion {
            lsn: Lsn(lsn),
            version_id: VersionId::NULL,
            delete_marker: false,
            size: 0,
            modified_ms: 0,
            etag: ETag { md5: [0; 16], parts: 0 },
            owner: OwnerId::new("o"),
            metadata: ObjectMetadata::default(),
            checksum: None,
            parts: Vec::new(),
            extents: Vec::new(),
        })
    }

    fn key(n: u64) -> Key {
        Key::new(&format!("key-{n}")).unwrap()
    }

    #[test]
    fn a_read_that_a_commit_overtook_is_not_kept() {
        let index = Index::new(1 << 20);
        let ticket = index.get(BUCKET, &key(1)).unwrap_err();
        index.commit(BUCKET, &key(1), None);
        index.fill(ticket, BUCKET, &key(1), version(1));
        let ticket = index.get(BUCKET, &key(1)).unwrap_err();
        index.fill(ticket, BUCKET, &key(1), version(2));
        assert_eq!(index.get(BUCKET, &key(1)).unwrap().lsn, Lsn(2));
    }

    #[test]
    fn a_commit_replaces_and_removes() {
        let index = Index::new(1 << 20);
        index.commit(BUCKET, &key(1), Some(version(1)));
        index.commit(BUCKET, &key(1), Some(version(2)));
        assert_eq!(index.get(BUCKET, &key(1)).unwrap().lsn, Lsn(2));
        assert!(index.get(BucketId(2), &key(1)).is_err());
        index.commit(BUCKET, &key(1), None);
        assert!(index.get(BUCKET, &key(1)).is_err());
    }

    #[test]
    fn the_bound_holds_and_what_is_read_stays_longer() {
        let bytes_max = 256 << 10;
        let index = Index::new(bytes_max);
        for n in 0..20_000 {
            index.commit(BUCKET, &key(n), Some(version(n)));
            let _ = index.get(BUCKET, &key(7));
        }
        let shards = (0..SHARDS).map(|n| index.lock(n));
        let bytes: Vec<usize> = shards
            .map(|shard| {
                assert_eq!(shard.slots.len() - shard.free.len(), shard.places.len());
                shard.bytes
            })
            .collect();
        assert!(bytes.iter().all(|b| *b <= bytes_max as usize / SHARDS));
        assert!(bytes.iter().sum::<usize>() > bytes_max as usize / 2);
        assert!(index.get(BUCKET, &key(7)).is_ok());
        assert!(index.get(BUCKET, &key(8)).is_err());
    }

    #[test]
    fn entries_in_removed_segments_are_forgotten() {
        use crate::model::{BlobId, BlobRef, Extent};
        let index = Index::new(1 << 20);
        for segment in 1..=3 {
            let place = BlobPlace::Segment { segment, record_offset: 4096 };
            let blob = BlobRef { id: BlobId([1; 16]), place, len: 5 };
            let mut packed = (*version(segment)).clone();
            packed.extents = vec![Extent { blob, offset: 0, len: 5 }];
            index.commit(BUCKET, &key(segment), Some(Arc::new(packed)));
        }
        let ticket = index.get(BUCKET, &key(9)).unwrap_err();
        index.forget_segments(&[1, 3]);
        let known: Vec<bool> = (1..=3).map(|n| index.get(BUCKET, &key(n)).is_ok()).collect();
        assert_eq!(known, [false, true, false]);
        // What was read from the database before may name an old place.
        index.fill(ticket, BUCKET, &key(9), version(9));
        assert!(index.get(BUCKET, &key(9)).is_err());
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let index = Index::new(0);
        index.commit(BUCKET, &key(1), Some(version(1)));
        assert!(index.get(BUCKET, &key(1)).is_err());
    }
}
