//! The map from blob id to resident slot, in shards so that readers rarely meet.
//!
//! Owns the only lock on the read path; it is held for one hash lookup and one reference count.
//! Changes are made with the slot's pool lock held (always pool first, then shard), so that a slot
//! is in the map exactly when it is in its pool's eviction queue.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::slot::Slot;
use crate::model::BlobId;

/// Shards; several times the cores of one node, so that two readers seldom want the same one.
const SHARDS: usize = 128;

/// The id as a number.
pub(super) fn id_bits(id: BlobId) -> u128 {
    u128::from_le_bytes(id.0)
}

/// Ids are random already: half of the bits is the hash, the other half chooses the shard.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u128(&mut self, id: u128) {
        self.0 = id as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// On its own pair of cache lines, so that neighbouring locks do not slow each other down.
#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<ShardState>);

#[derive(Default)]
struct ShardState {
    slots: HashMap<u128, Arc<Slot>, BuildHasherDefault<IdHasher>>,
    hits: u64,
    misses: u64,
}

pub(super) struct SlotMap {
    shards: Box<[Shard]>,
}

impl SlotMap {
    pub fn new() -> SlotMap {
        SlotMap { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    fn shard(&self, id: u128) -> MutexGuard<'_, ShardState> {
        let shard = &self.shards[(id >> 64) as usize % SHARDS];
        shard.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up for a reader; counts a hit or a miss.
    pub fn get(&self, id: BlobId) -> Option<Arc<Slot>> {
        let id = id_bits(id);
        let mut shard = self.shard(id);
        let found = shard.slots.get(&id).cloned();
        match found {
            Some(_) => shard.hits += 1,
            None => shard.misses += 1,
        }
        found
    }

    /// Looks up without counting.
    pub fn peek(&self, id: BlobId) -> Option<Arc<Slot>> {
        let id = id_bits(id);
        self.shard(id).slots.get(&id).cloned()
    }

    pub fn contains(&self, id: BlobId) -> bool {
        let id = id_bits(id);
        self.shard(id).slots.contains_key(&id)
    }

    /// Adds a slot; gives it back when its id is there already.
    pub fn insert(&self, slot: Arc<Slot>) -> Result<(), Arc<Slot>> {
        let id = id_bits(slot.id());
        let mut shard = self.shard(id);
        if shard.slots.contains_key(&id) {
            return Err(slot);
        }
        shard.slots.insert(id, slot);
        Ok(())
    }

    /// Removes exactly this slot; false when it is not there (another may be, under its id).
    /// The caller holds a reference, so that this never drops the last one.
    pub fn unlink(&self, slot: &Arc<Slot>) -> bool {
        let id = id_bits(slot.id());
        let mut shard = self.shard(id);
        let there = shard.slots.get(&id).is_some_and(|found| Arc::ptr_eq(found, slot));
        if there {
            shard.slots.remove(&id);
        }
        there
    }

    /// Hits and misses since the start.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(hits, misses), shard| {
            let state = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
            (hits + state.hits, misses + state.misses)
        })
    }
}
