//! The arena: first bytes of objects, and whole small objects, in locked RAM.
//!
//! Owns one mapping, cut into a packed pool (size classes inside blocks) and a pool of head slots,
//! and the map from blob id to slot. It holds copies only: losing it loses nothing, so nothing in
//! here is ever written to disk. Never decides what belongs in RAM beyond its eviction rule, never
//! waits, never grows. Any thread may call it; a read takes one shard lock for a lookup.
//!
//! Lock order: a pool's lock, then a shard's. No bytes are copied with a lock held.

pub mod eviction;
mod head;
mod map;
mod packed;
mod slab;
mod slot;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tracing::{info, warn};

use self::head::HeadPool;
use self::map::SlotMap;
use self::packed::PackedPool;
pub use self::slot::SlotWriter;
use self::slot::{Place, Slot};
use crate::model::BlobId;
use crate::sys::mapping::{
    self, LockWanted, MappingError, MappingReport, MappingSettings, PagesWanted, Span,
};

/// Evictions tried for one allocation: each can fail only when a reader borrowed the entry in the
/// instant between its choice and its removal.
const EVICT_TRIES_MAX: usize = 8;
/// Sizes of slots and blocks are multiples of this, so that slots never share a page.
const GRAIN_BYTES: usize = mapping::PAGE_BYTES;

/// How much RAM, and how it is cut. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct ArenaSettings {
    /// For head slots; 0 means none.
    pub head_bytes: u64,
    /// For objects smaller than a head; 0 means that they use head slots.
    pub packed_bytes: u64,
    /// One head slot: the longest prefix of an object kept in RAM.
    pub head_slot_bytes: usize,
    /// One block of the packed pool.
    pub block_bytes: usize,
    /// Bind the memory to this NUMA node.
    pub numa_node: Option<u32>,
    pub pages: PagesWanted,
    /// Fault the memory in at the start instead of on first use.
    pub prefault: bool,
    pub lock: LockWanted,
}

impl Default for ArenaSettings {
    /// Fits a laptop: 256 MiB of heads, 64 MiB of small objects.
    fn default() -> ArenaSettings {
        ArenaSettings {
            head_bytes: 256 << 20,
            packed_bytes: 64 << 20,
            head_slot_bytes: 1 << 20,
            block_bytes: 2 << 20,
            numa_node: None,
            pages: PagesWanted::Best,
            prefault: true,
            lock: LockWanted::Try,
        }
    }
}

impl ArenaSettings {
    /// What has to be mapped: whole slots and blocks only. 0 when the arena is switched off.
    pub fn mapped_bytes(&self) -> Result<usize, ArenaError> {
        let (packed, heads) = self.parts()?;
        packed.checked_add(heads).ok_or_else(|| ArenaError::Settings("it is too large".into()))
    }

    /// Bytes for the packed pool and for the heads, rounded down to whole blocks and slots.
    fn parts(&self) -> Result<(usize, usize), ArenaError> {
        for (name, bytes) in [("head", self.head_slot_bytes), ("block", self.block_bytes)] {
            if bytes == 0 || !bytes.is_multiple_of(GRAIN_BYTES) {
                return Err(ArenaError::Settings(format!(
                    "a {name} of {bytes} bytes is not a multiple of {GRAIN_BYTES}"
                )));
            }
        }
        let whole = |bytes: u64, unit: usize| {
            usize::try_from(bytes)
                .map(|bytes| bytes / unit * unit)
                .map_err(|_| ArenaError::Settings(format!("{bytes} bytes cannot be addressed")))
        };
        Ok((
            whole(self.packed_bytes, self.block_bytes)?,
            whole(self.head_bytes, self.head_slot_bytes)?,
        ))
    }
}

/// Why there is no arena.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    #[error("the arena cannot be laid out: {0}")]
    Settings(String),
    #[error("no memory for the arena: {0}")]
    Memory(#[from] MappingError),
}

/// What the arena stands on.
#[derive(Clone, Debug)]
pub struct ArenaReport {
    /// `None` when the arena is switched off (0 bytes).
    pub mapping: Option<MappingReport>,
    pub head_slots: usize,
    pub blocks: usize,
}

/// Counters of one pool. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    pub capacity_bytes: u64,
    /// Slots in use, at their full size.
    pub used_bytes: u64,
    /// Bytes of objects that can be read now.
    pub stored_bytes: u64,
    /// Objects that can be read now.
    pub resident: u64,
    /// Slots that left the map while a response borrowed them, and have not come home.
    pub borrowed: u64,
    /// Objects made readable since the start.
    pub inserted: u64,
    pub evicted: u64,
    /// Reservations refused because nothing could be freed.
    pub rejected: u64,
}

/// Counters of the arena since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaStats {
    pub hits: u64,
    pub misses: u64,
    pub heads: PoolStats,
    pub packed: PoolStats,
}

/// Objects in RAM. See the module's header.
pub struct Arena {
    map: SlotMap,
    heads: Mutex<HeadPool>,
    packed: Mutex<PackedPool>,
    head_slot_bytes: usize,
    report: ArenaReport,
}

impl Arena {
    /// Maps and cuts the memory; logs once what could not be had.
    ///
    /// **Errors** `Settings` when sizes do not fit together, `Memory` when there is none at all.
    pub fn new(settings: ArenaSettings) -> Result<Arc<Arena>, ArenaError> {
        let (packed_bytes, head_bytes) = settings.parts()?;
        let bytes = settings.mapped_bytes()?;
        let mapped = match bytes {
            0 => None,
            bytes => Some(mapping::map(&MappingSettings {
                bytes,
                pages: settings.pages,
                numa_node: settings.numa_node,
                prefault: settings.prefault,
                lock: settings.lock,
            })?),
        };
        let (mut memory, mapping) = mapped.unzip();
        // Blocks come first, so that each of 2 MiB is one huge page.
        let blocks = cut(&mut memory, settings.block_bytes, packed_bytes);
        let heads = cut(&mut memory, settings.head_slot_bytes, head_bytes);
        let report = ArenaReport { mapping, head_slots: heads.len(), blocks: blocks.len() };
        log_report(&report);
        let packed = PackedPool::new(blocks, settings.block_bytes, settings.head_slot_bytes);
        let arena = Arena {
            map: SlotMap::new(),
            heads: Mutex::new(HeadPool::new(heads, settings.head_slot_bytes)),
            packed: Mutex::new(packed),
            head_slot_bytes: settings.head_slot_bytes,
            report,
        };
        Ok(Arc::new(arena))
    }

    /// The longest value in bytes: the first that many bytes of a blob are what is kept.
    pub fn head_slot_bytes(&self) -> usize {
        self.head_slot_bytes
    }

    pub fn report(&self) -> &ArenaReport {
        &self.report
    }

    /// The resident bytes of a blob, without a copy: its slot is not used again while the `Bytes`
    /// or a clone of it lives.
    pub fn get(&self, id: BlobId) -> Option<Bytes> {
        let slot = self.map.get(id)?;
        slot.touch();
        Some(Slot::lend(slot))
    }

    /// Whether a blob is resident; counts neither as hit nor as miss nor as a read.
    pub fn contains(&self, id: BlobId) -> bool {
        self.map.contains(id)
    }

    /// Copies the first bytes of a blob in (all of it, or exactly `head_slot_bytes`).
    ///
    /// Returns whether the blob is resident now: false when `bytes` is empty or longer than a
    /// head, or when nothing could be freed.
    pub fn insert(self: &Arc<Self>, id: BlobId, bytes: &[u8]) -> bool {
        if self.map.contains(id) {
            return true;
        }
        let Some(mut writer) = self.reserve(bytes.len()) else { return false };
        writer.write(bytes);
        writer.publish(id)
    }

    /// A slot for `len` bytes, to be written piece by piece and then published.
    ///
    /// `None` when `len` is 0 or more than a head, or when nothing could be freed.
    pub fn reserve(self: &Arc<Self>, len: usize) -> Option<SlotWriter> {
        if len == 0 || len > self.head_slot_bytes {
            return None;
        }
        let (place, span) = self.allocate(len)?;
        Some(SlotWriter::new(Arc::clone(self), place, span, len))
    }

    fn allocate(&self, len: usize) -> Option<(Place, Span)> {
        let mut packed = lock(&self.packed);
        if let Some(class) = packed.class_of(len) {
            let (block, span) = packed.allocate(class, &self.map)?;
            return Some((Place::Packed { block }, span));
        }
        drop(packed);
        let span = lock(&self.heads).allocate(&self.map)?;
        Some((Place::Head, span))
    }

    /// Forgets a blob. Responses that borrow it keep their bytes.
    pub fn remove(&self, id: BlobId) {
        let Some(slot) = self.map.peek(id) else { return };
        match slot.place() {
            Place::Head => lock(&self.heads).remove(&slot, &self.map),
            Place::Packed { block } => lock(&self.packed).remove(&slot, block, &self.map),
        }
        // The lock is released; this may be the last reference, which brings the memory home.
        drop(slot);
    }

    pub fn stats(&self) -> ArenaStats {
        let (hits, misses) = self.map.hits_and_misses();
        let heads = lock(&self.heads).stats();
        let packed = lock(&self.packed).stats();
        ArenaStats { hits, misses, heads, packed }
    }

    /// Makes a written slot visible.
    fn install(&self, slot: Arc<Slot>) -> bool {
        match slot.place() {
            Place::Head => lock(&self.heads).install(slot, &self.map),
            Place::Packed { block } => lock(&self.packed).install(slot, block, &self.map),
        }
    }

    /// Takes back a slot that was reserved and never published.
    fn unreserve(&self, place: Place, span: Span) {
        match place {
            Place::Head => lock(&self.heads).give_back(span),
            Place::Packed { block } => lock(&self.packed).give_back(block, span),
        }
    }

    /// Takes back a slot whose last reader is done, after it left the map.
    fn come_home(&self, place: Place, span: Span) {
        match place {
            Place::Head => lock(&self.heads).come_home(span),
            Place::Packed { block } => lock(&self.packed).come_home(block, span),
        }
    }
}

/// A pool's state is whole between any two statements that can panic, so a poisoned lock is used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cuts `bytes` off the front of `memory`, in pieces of `piece_bytes`.
fn cut(memory: &mut Option<Span>, piece_bytes: usize, bytes: usize) -> Vec<Span> {
    let piece = |_| match memory.as_mut()?.take_front(piece_bytes) {
        Some(piece) => Some(piece),
        // The last piece of the mapping is what is left.
        None => memory.take(),
    };
    (0..bytes / piece_bytes).map_while(piece).collect()
}

fn log_report(report: &ArenaReport) {
    let Some(mapping) = &report.mapping else {
        info!("arena switched off: every read goes to disk");
        return;
    };
    info!(
        bytes = mapping.bytes,
        pages = %mapping.pages,
        locked = mapping.locked,
        numa_node = mapping.bound_node,
        head_slots = report.head_slots,
        blocks = report.blocks,
        "arena ready"
    );
    for shortfall in &mapping.shortfalls {
        warn!("arena: {shortfall}");
    }
}

/// What a pool counts, with its lock held.
#[derive(Default)]
struct Tally {
    /// Slots not free: resident, reserved or borrowed.
    slots_out: usize,
    resident: usize,
    stored_bytes: u64,
    /// Left the map while borrowed.
    lent: usize,
    inserted: u64,
    evicted: u64,
    rejected: u64,
}

impl Tally {
    /// A slot became visible.
    fn resident(&mut self, slot: &Slot) {
        self.inserted += 1;
        self.resident += 1;
        self.stored_bytes += slot.len() as u64;
    }

    /// An evicted slot, out of queue and map. `None` while a response borrows it.
    fn retire(&mut self, slot: Arc<Slot>) -> Option<Span> {
        self.evicted += 1;
        self.removed(&slot);
        let span = Slot::into_span(slot);
        if span.is_some() {
            self.lent -= 1;
        }
        span
    }

    /// A slot left queue and map, and its memory is still referred to.
    fn removed(&mut self, slot: &Slot) {
        self.resident -= 1;
        self.stored_bytes -= slot.len() as u64;
        self.lent += 1;
    }

    fn stats(&self, capacity_bytes: u64, used_bytes: u64) -> PoolStats {
        PoolStats {
            capacity_bytes,
            used_bytes,
            stored_bytes: self.stored_bytes,
            resident: self.resident as u64,
            borrowed: self.lent as u64,
            inserted: self.inserted,
            evicted: self.evicted,
            rejected: self.rejected,
        }
    }
}

#[cfg(test)]
mod stress;
#[cfg(test)]
mod tests;
