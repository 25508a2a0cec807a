//! The pool of head slots: equal pieces, each for the first bytes of one larger object.
//!
//! Owns the free slots and the eviction queue of the heads, behind one lock that no reader takes.

use std::sync::Arc;

use super::eviction::S3Fifo;
use super::map::SlotMap;
use super::slot::Slot;
use super::{EVICT_TRIES_MAX, PoolStats, Tally};
use crate::sys::mapping::Span;

pub(super) struct HeadPool {
    free: Vec<Span>,
    slots: usize,
    slot_bytes: usize,
    queue: S3Fifo<Arc<Slot>>,
    tally: Tally,
}

impl HeadPool {
    /// A pool of these slots.
    pub fn new(mut free: Vec<Span>, slot_bytes: usize) -> HeadPool {
        // The first slots are used first.
        free.reverse();
        let slots = free.len();
        HeadPool { free, slots, slot_bytes, queue: S3Fifo::default(), tally: Tally::default() }
    }

    /// A slot to write into, by evicting when none is free.
    pub fn allocate(&mut self, map: &SlotMap) -> Option<Span> {
        let span = self.free.pop().or_else(|| self.evict(map));
        match span {
            Some(_) => self.tally.slots_out += 1,
            None => self.tally.rejected += 1,
        }
        span
    }

    fn evict(&mut self, map: &SlotMap) -> Option<Span> {
        for _ in 0..EVICT_TRIES_MAX {
            let slot = self.queue.evict(0)?;
            map.unlink(&slot);
            if let Some(span) = self.tally.retire(slot) {
                self.tally.slots_out -= 1;
                return Some(span);
            }
        }
        None
    }

    /// Makes a written slot visible; true when the blob is resident afterwards.
    pub fn install(&mut self, slot: Arc<Slot>, map: &SlotMap) -> bool {
        match map.insert(Arc::clone(&slot)) {
            Ok(()) => {
                self.tally.resident(&slot);
                let ticket = self.queue.insert(Arc::clone(&slot), 0);
                slot.set_ticket(ticket);
            }
            Err(again) => {
                drop(again);
                if let Some(span) = Slot::into_span(slot) {
                    self.give_back(span);
                }
            }
        }
        true
    }

    /// Takes a slot out of map and queue. The caller keeps its reference until the lock is
    /// released; the memory comes home when the last one is dropped.
    pub fn remove(&mut self, slot: &Arc<Slot>, map: &SlotMap) {
        if map.unlink(slot) {
            self.queue.remove(slot.ticket());
            self.tally.removed(slot);
        }
    }

    pub fn give_back(&mut self, span: Span) {
        self.tally.slots_out -= 1;
        self.free.push(span);
    }

    /// As `give_back`, for a slot that had left the map while it was borrowed.
    pub fn come_home(&mut self, span: Span) {
        self.tally.lent -= 1;
        self.give_back(span);
    }

    pub fn stats(&self) -> PoolStats {
        let capacity_bytes = (self.slots * self.slot_bytes) as u64;
        let used_bytes = (self.tally.slots_out * self.slot_bytes) as u64;
        self.tally.stats(capacity_bytes, used_bytes)
    }
}
