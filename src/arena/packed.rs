//! The packed pool: small objects in slots of their size class, cut from blocks.
//!
//! Owns the blocks, which class has which, and one eviction queue for each class, behind one lock
//! that no reader takes. A class that is full evicts its own entries; it takes a block from
//! another class when it has none, or when that class keeps entries much longer than itself, so
//! that memory follows the load. Age is counted in bytes put into the pool, not in time.
//!
//! **Source** the age rule is that of memcached's slab_automove (doc/protocol.txt, "Slabs
//! Automove"), which compares the oldest entries of two classes before it moves a page.

use std::sync::Arc;

use super::eviction::{S3Fifo, Ticket};
use super::map::SlotMap;
use super::slab::{CutBlock, SizeClasses};
use super::slot::{Place, Slot};
use super::{EVICT_TRIES_MAX, PoolStats, Tally};
use crate::sys::mapping::Span;

/// A block changes class when its class keeps entries this many times as long as the class that
/// wants it: 2 leaves classes of about equal age alone.
const STEAL_AGE_RATIO: u64 = 2;
/// Blocks emptied for one allocation before it is refused; more than one only when slots of the
/// emptied block are borrowed.
const STEALS_MAX: usize = 4;

pub(super) struct PackedPool {
    sizes: SizeClasses,
    classes: Vec<Class>,
    blocks: Vec<Block>,
    free_blocks: Vec<u32>,
    block_bytes: usize,
    /// Bytes of slots filled since the start.
    clock: u64,
    used_bytes: u64,
    tally: Tally,
}

struct Class {
    queue: S3Fifo<Arc<Slot>>,
    /// Blocks with room, in no order.
    open: Vec<u32>,
    blocks: usize,
}

enum Block {
    /// Serves no class. `None` only while it changes hands.
    Whole(Option<Span>),
    Cut(Cut),
}

struct Cut {
    class: usize,
    slots: CutBlock,
    /// The queue tickets of the resident slots, by index in the block.
    tickets: Vec<Option<Ticket>>,
    /// Position in `Class::open`; `None` when there is no room, or the block is being emptied.
    open_at: Option<usize>,
    /// Emptied for another class, waiting for borrowed slots.
    draining: bool,
}

impl PackedPool {
    /// A pool of these blocks, with classes for slots below `slot_bytes_end`.
    pub fn new(memory: Vec<Span>, block_bytes: usize, slot_bytes_end: usize) -> PackedPool {
        let blocks: Vec<Block> = memory.into_iter().map(|span| Block::Whole(Some(span))).collect();
        let sizes = SizeClasses::new(block_bytes, slot_bytes_end, blocks.len());
        let class = || Class { queue: S3Fifo::default(), open: Vec::new(), blocks: 0 };
        PackedPool {
            classes: (0..sizes.count()).map(|_| class()).collect(),
            sizes,
            free_blocks: (0..blocks.len() as u32).rev().collect(),
            blocks,
            block_bytes,
            clock: 0,
            used_bytes: 0,
            tally: Tally::default(),
        }
    }

    /// The class for an object of this length; `None` when it belongs into a head slot.
    pub fn class_of(&self, len: usize) -> Option<usize> {
        if self.blocks.is_empty() { None } else { self.sizes.class_of(len) }
    }

    /// A slot of the class to write into, and its block.
    pub fn allocate(&mut self, class: usize, map: &SlotMap) -> Option<(u32, Span)> {
        let slot = self
            .take_open(class)
            .or_else(|| self.open_free_block(class))
            .or_else(|| self.steal(class, map, true))
            .or_else(|| self.evict(class, map))
            .or_else(|| self.steal(class, map, false));
        match slot {
            Some(_) => {
                self.tally.slots_out += 1;
                self.used_bytes += self.sizes.slot_bytes(class) as u64;
            }
            None => self.tally.rejected += 1,
        }
        slot
    }

    fn take_open(&mut self, class: usize) -> Option<(u32, Span)> {
        let block = *self.classes[class].open.last()?;
        let Block::Cut(cut) = &mut self.blocks[block as usize] else { return None };
        let span = cut.slots.take()?;
        if !cut.slots.has_room() {
            cut.open_at = None;
            self.classes[class].open.pop();
        }
        Some((block, span))
    }

    fn open_free_block(&mut self, class: usize) -> Option<(u32, Span)> {
        let block = self.free_blocks.pop()?;
        let Block::Whole(whole) = &mut self.blocks[block as usize] else { return None };
        let slots = CutBlock::new(whole.take()?, self.sizes.slot_bytes(class));
        let cut = Cut { class, slots, tickets: Vec::new(), open_at: None, draining: false };
        self.blocks[block as usize] = Block::Cut(cut);
        self.classes[class].blocks += 1;
        self.list_as_open(block);
        self.take_open(class)
    }

    /// Evicts within the class, and uses the freed slot again at once.
    fn evict(&mut self, class: usize, map: &SlotMap) -> Option<(u32, Span)> {
        for _ in 0..EVICT_TRIES_MAX {
            let slot = self.classes[class].queue.evict(self.clock)?;
            map.unlink(&slot);
            let Place::Packed { block } = slot.place() else { continue };
            self.forget_ticket(&slot, block);
            if let Some(span) = self.tally.retire(slot) {
                self.tally.slots_out -= 1;
                self.used_bytes -= self.sizes.slot_bytes(class) as u64;
                return Some((block, span));
            }
        }
        None
    }

    /// Empties blocks of the class with the oldest entries until one is whole. With `if_colder`
    /// only when that class keeps its entries much longer than this one.
    fn steal(&mut self, class: usize, map: &SlotMap, if_colder: bool) -> Option<(u32, Span)> {
        for _ in 0..STEALS_MAX {
            let block = self.block_to_steal(class, if_colder)?;
            self.empty_block(block, map);
            if !self.free_blocks.is_empty() {
                return self.open_free_block(class);
            }
        }
        None
    }

    /// The block of the oldest entry of any other class.
    fn block_to_steal(&self, class: usize, if_colder: bool) -> Option<u32> {
        let others = self.classes.iter().enumerate().filter(|(other, _)| *other != class);
        let (stamp, slot) =
            others.filter_map(|(_, other)| other.queue.oldest()).min_by_key(|(stamp, _)| *stamp)?;
        let own = &self.classes[class];
        if if_colder && own.blocks > 0 {
            let own_age = own.queue.oldest().map_or(0, |(stamp, _)| self.clock - stamp);
            if self.clock - stamp <= STEAL_AGE_RATIO * own_age.max(self.block_bytes as u64) {
                return None;
            }
        }
        match slot.place() {
            Place::Packed { block } => Some(block),
            Place::Head => None,
        }
    }

    /// Evicts everything in a block. It becomes whole now, or when its last borrowed slot returns.
    fn empty_block(&mut self, block: u32, map: &SlotMap) {
        self.unlist_as_open(block);
        let Block::Cut(cut) = &mut self.blocks[block as usize] else { return };
        cut.draining = true;
        let slot_bytes = self.sizes.slot_bytes(cut.class) as u64;
        for ticket in cut.tickets.drain(..).flatten() {
            let Some(slot) = self.classes[cut.class].queue.remove(ticket) else { continue };
            map.unlink(&slot);
            if let Some(span) = self.tally.retire(slot) {
                self.tally.slots_out -= 1;
                self.used_bytes -= slot_bytes;
                cut.slots.give_back(span);
            }
        }
        self.free_if_whole(block);
    }

    /// Makes a written slot visible; true when the blob is resident afterwards.
    pub fn install(&mut self, slot: Arc<Slot>, block: u32, map: &SlotMap) -> bool {
        let Block::Cut(cut) = &mut self.blocks[block as usize] else { return false };
        let index = slot.span().map(|span| cut.slots.index_of(span));
        let resident = map.contains(slot.id());
        let (Some(index), false, false) = (index, cut.draining, resident) else {
            self.uninstall(slot, block);
            return resident;
        };
        if let Err(again) = map.insert(Arc::clone(&slot)) {
            drop(again);
            self.uninstall(slot, block);
            return true;
        }
        self.clock += self.sizes.slot_bytes(cut.class) as u64;
        self.tally.resident(&slot);
        let ticket = self.classes[cut.class].queue.insert(Arc::clone(&slot), self.clock);
        slot.set_ticket(ticket);
        if cut.tickets.len() <= index {
            cut.tickets.resize(index + 1, None);
        }
        cut.tickets[index] = Some(ticket);
        true
    }

    /// Takes back the memory of a slot that was never visible.
    fn uninstall(&mut self, slot: Arc<Slot>, block: u32) {
        if let Some(span) = Slot::into_span(slot) {
            self.give_back(block, span);
        }
    }

    /// Takes a slot out of map and queue. The caller keeps its reference until the lock is
    /// released; the memory comes home when the last one is dropped.
    pub fn remove(&mut self, slot: &Arc<Slot>, block: u32, map: &SlotMap) {
        if map.unlink(slot) {
            self.forget_ticket(slot, block);
            if let Block::Cut(cut) = &self.blocks[block as usize] {
                self.classes[cut.class].queue.remove(slot.ticket());
            }
            self.tally.removed(slot);
        }
    }

    /// Clears the block's note of a slot that left the queue.
    fn forget_ticket(&mut self, slot: &Slot, block: u32) {
        let Block::Cut(cut) = &mut self.blocks[block as usize] else { return };
        let Some(span) = slot.span() else { return };
        if let Some(ticket) = cut.tickets.get_mut(cut.slots.index_of(span)) {
            *ticket = None;
        }
    }

    pub fn give_back(&mut self, block: u32, span: Span) {
        let Block::Cut(cut) = &mut self.blocks[block as usize] else { return };
        self.tally.slots_out -= 1;
        self.used_bytes -= self.sizes.slot_bytes(cut.class) as u64;
        cut.slots.give_back(span);
        if !cut.draining && cut.open_at.is_none() {
            self.list_as_open(block);
        }
        self.free_if_whole(block);
    }

    /// As `give_back`, for a slot that had left the map while it was borrowed.
    pub fn come_home(&mut self, block: u32, span: Span) {
        self.tally.lent -= 1;
        self.give_back(block, span);
    }

    /// Ends a block's service for its class when none of its slots is out.
    fn free_if_whole(&mut self, block: u32) {
        let Block::Cut(cut) = &self.blocks[block as usize] else { return };
        if cut.slots.slots_out() > 0 {
            return;
        }
        self.unlist_as_open(block);
        let taken = std::mem::replace(&mut self.blocks[block as usize], Block::Whole(None));
        let Block::Cut(cut) = taken else { return };
        self.classes[cut.class].blocks -= 1;
        self.blocks[block as usize] = Block::Whole(Some(cut.slots.into_whole()));
        self.free_blocks.push(block);
    }

    fn list_as_open(&mut self, block: u32) {
        let Block::Cut(cut) = &mut self.blocks[block as usize] else { return };
        let open = &mut self.classes[cut.class].open;
        cut.open_at = Some(open.len());
        open.push(block);
    }

    fn unlist_as_open(&mut self, block: u32) {
        let Block::Cut(cut) = &mut self.blocks[block as usize] else { return };
        let Some(at) = cut.open_at.take() else { return };
        let open = &mut self.classes[cut.class].open;
        open.swap_remove(at);
        // The block that took its position learns of it.
        let Some(&moved) = open.get(at) else { return };
        if let Block::Cut(cut) = &mut self.blocks[moved as usize] {
            cut.open_at = Some(at);
        }
    }

    pub fn stats(&self) -> PoolStats {
        let capacity_bytes = (self.blocks.len() * self.block_bytes) as u64;
        self.tally.stats(capacity_bytes, self.used_bytes)
    }
}
