//! One piece of arena memory: while it is written, while it is resident, while it is borrowed.
//!
//! ```text
//!   Span in a pool --reserve--> SlotWriter --publish--> Arc<Slot> in map and queue
//!        ^  ^                      |                        |        \ get
//!        |  +------ dropped -------+                     evict,       Bytes (holds an Arc<Slot>)
//!        |                                               remove           |
//!        +--- nobody borrows it: at once ------------------+              |
//!        +--- else when the last Bytes is dropped ------------------------+
//! ```
//! Owns the life of a slot. A writer has the memory alone; once published it is only read, so no
//! byte changes while anybody can see it. Dropping a `Slot` takes its pool's lock: never drop what
//! may be the last reference with that lock held.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::Arena;
use super::eviction::{Candidate, HITS_MAX, Ticket};
use crate::model::BlobId;
use crate::sabotage::{self, Sabotage};
use crate::sys::mapping::Span;

/// References that the arena itself holds to a resident slot: the map's and the queue's.
const RESIDENT_REFS: usize = 2;

/// Where a slot's memory comes from and returns to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Head,
    Packed { block: u32 },
}

/// A published slot.
pub(super) struct Slot {
    id: BlobId,
    /// Bytes of the span that belong to the blob.
    len: usize,
    /// `None` once the memory was taken back.
    span: Option<Span>,
    place: Place,
    hits: AtomicU8,
    /// Its place in the eviction queue; written and read with the pool's lock held.
    ticket: AtomicU32,
    arena: Weak<Arena>,
}

impl Slot {
    pub fn id(&self) -> BlobId {
        self.id
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn place(&self) -> Place {
        self.place
    }

    pub fn span(&self) -> Option<&Span> {
        self.span.as_ref()
    }

    pub fn ticket(&self) -> Ticket {
        Ticket::from_raw(self.ticket.load(Ordering::Relaxed))
    }

    pub fn set_ticket(&self, ticket: Ticket) {
        self.ticket.store(ticket.to_raw(), Ordering::Relaxed);
    }

    /// Counts a read. Two readers at once may count as one: the count is a hint.
    pub fn touch(&self) {
        let hits = self.hits.load(Ordering::Relaxed);
        if hits < HITS_MAX {
            self.hits.store(hits + 1, Ordering::Relaxed);
        }
    }

    /// Gives the memory back when this was the last reference; else it comes home later, by the
    /// last reader's drop.
    pub fn into_span(slot: Arc<Slot>) -> Option<Span> {
        Arc::into_inner(slot)?.span.take()
    }

    /// Lends the bytes without a copy.
    pub fn lend(slot: Arc<Slot>) -> Bytes {
        Bytes::from_owner(Lent(slot))
    }
}

impl Candidate for Arc<Slot> {
    fn fingerprint(&self) -> u64 {
        super::map::id_bits(self.id) as u64
    }

    fn hits(&self) -> u8 {
        self.hits.load(Ordering::Relaxed)
    }

    fn set_hits(&self, hits: u8) {
        self.hits.store(hits, Ordering::Relaxed);
    }

    fn pinned(&self) -> bool {
        Arc::strong_count(self) > RESIDENT_REFS
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(span) = self.span.take() else { return };
        // Without an arena the span alone keeps the mapping alive, and ends with it here.
        if let Some(arena) = self.arena.upgrade() {
            arena.come_home(self.place, span);
        }
    }
}

/// The owner behind a lent `Bytes`.
struct Lent(Arc<Slot>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.0.span.as_ref().map_or(&[], |span| &span[..self.0.len])
    }
}

/// Exclusive access to a reserved slot, until it is published or dropped.
///
/// **Cancel** dropping it gives the memory back; nothing becomes visible.
pub struct SlotWriter {
    arena: Arc<Arena>,
    place: Place,
    /// `None` only while it is being published or dropped.
    span: Option<Span>,
    len: usize,
    filled: usize,
}

impl SlotWriter {
    pub(super) fn new(arena: Arc<Arena>, place: Place, span: Span, len: usize) -> SlotWriter {
        debug_assert!(len <= span.len());
        SlotWriter { arena, place, span: Some(span), len, filled: 0 }
    }

    /// Bytes that are still missing.
    pub fn remaining(&self) -> usize {
        self.len - self.filled
    }

    /// Appends as much of `bytes` as there is room for; returns how many were taken.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.remaining());
        if let Some(span) = &mut self.span {
            span[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
        }
        self.filled += taken;
        taken
    }

    /// Makes the bytes visible under `id`. A blob never changes, so when it is resident already
    /// that copy stays and this one is given back.
    ///
    /// Returns whether the blob is resident now: false when bytes are missing (a slot's old bytes
    /// must never be served under a new id), or the slot's block is being handed to another class.
    pub fn publish(mut self, id: BlobId) -> bool {
        if self.remaining() > 0 && !sabotage::is(Sabotage::ShowSlotEarly) {
            return false;
        }
        let Some(span) = self.span.take() else { return false };
        let slot = Slot {
            id,
            len: self.len,
            span: Some(span),
            place: self.place,
            hits: AtomicU8::new(0),
            ticket: AtomicU32::new(0),
            arena: Arc::downgrade(&self.arena),
        };
        self.arena.install(Arc::new(slot))
    }
}

impl Drop for SlotWriter {
    fn drop(&mut self) {
        if let Some(span) = self.span.take() {
            self.arena.unreserve(self.place, span);
        }
    }
}
