//! Size classes, and blocks that are cut into slots of one class.
//!
//! Owns the arithmetic: which class fits a length, and cutting and joining one block. A block is
//! cut as slots are asked for, and becomes whole again when its last slot comes back, so that it
//! can serve another class. Never locks and never evicts.

use crate::sys::mapping::Span;

/// Slots begin at multiples of this many bytes: a cache line, so that two slots never share one.
const SLOT_ALIGN: usize = 64;
/// The smallest class, in bytes.
pub const SLOT_BYTES_MIN: usize = 256;
/// Pools with at least this many blocks use four classes for each doubling of size, else two: a
/// class needs a block of its own, so a small pool cannot afford many.
const FINE_CLASSES_BLOCKS_MIN: usize = 128;

/// The slot sizes of a packed pool.
///
/// Each size is the block divided by 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20 ... slots, so that a
/// block is filled to the end; a slot is at most a quarter larger than its object needs, except
/// between the largest two classes (a third).
pub struct SizeClasses {
    /// Bytes, ascending.
    sizes: Vec<usize>,
}

impl SizeClasses {
    /// Classes below `slot_bytes_end` bytes for a pool of `blocks` blocks.
    pub fn new(block_bytes: usize, slot_bytes_end: usize, blocks: usize) -> SizeClasses {
        let fine = blocks >= FINE_CLASSES_BLOCKS_MIN;
        let mut sizes = Vec::new();
        let mut power = 1;
        while block_bytes / power >= SLOT_BYTES_MIN {
            // Slots in a block: 4, 5, 6, 7 times a power of two (or 4 and 6 times).
            for step in (4..8).step_by(if fine { 1 } else { 2 }) {
                let slots = step * power;
                sizes.push(block_bytes / slots / SLOT_ALIGN * SLOT_ALIGN);
            }
            power *= 2;
        }
        sizes.extend([block_bytes / 2, block_bytes / 3].map(|size| size / SLOT_ALIGN * SLOT_ALIGN));
        sizes.retain(|&size| size >= SLOT_BYTES_MIN && size < slot_bytes_end);
        sizes.sort_unstable();
        sizes.dedup();
        SizeClasses { sizes }
    }

    pub fn count(&self) -> usize {
        self.sizes.len()
    }

    pub fn slot_bytes(&self, class: usize) -> usize {
        self.sizes[class]
    }

    /// The smallest class that holds `len` bytes.
    pub fn class_of(&self, len: usize) -> Option<usize> {
        let class = self.sizes.partition_point(|&size| size < len);
        (class < self.sizes.len()).then_some(class)
    }
}

/// A block while it serves one class.
pub struct CutBlock {
    slot_bytes: usize,
    /// What was not cut yet; `None` when all of it was.
    uncut: Option<Span>,
    /// Slots that came back.
    free: Vec<Span>,
    /// Slots that are out.
    out: usize,
    begin: usize,
}

impl CutBlock {
    pub fn new(block: Span, slot_bytes: usize) -> CutBlock {
        assert!(slot_bytes <= block.len());
        let begin = block.offset();
        CutBlock { slot_bytes, uncut: Some(block), free: Vec::new(), out: 0, begin }
    }

    /// Hands out a slot; `None` when all are out.
    pub fn take(&mut self) -> Option<Span> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => self.cut()?,
        };
        self.out += 1;
        Some(slot)
    }

    /// Cuts the next slot; what is left at the end and too short for a slot stays with the last.
    fn cut(&mut self) -> Option<Span> {
        let mut uncut = self.uncut.take()?;
        if uncut.len() < 2 * self.slot_bytes {
            return Some(uncut);
        }
        let slot = uncut.take_front(self.slot_bytes);
        self.uncut = Some(uncut);
        slot
    }

    /// Takes a slot back.
    pub fn give_back(&mut self, slot: Span) {
        assert!(self.out > 0 && slot.offset() >= self.begin);
        self.out -= 1;
        self.free.push(slot);
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty() || self.uncut.is_some()
    }

    pub fn slots_out(&self) -> usize {
        self.out
    }

    /// Which slot of the block this is, counted from its beginning.
    pub fn index_of(&self, slot: &Span) -> usize {
        (slot.offset() - self.begin) / self.slot_bytes
    }

    /// Joins the slots to the whole block again. Only when none is out.
    pub fn into_whole(mut self) -> Span {
        assert_eq!(self.out, 0, "a block is joined when all its slots are back");
        self.free.sort_unstable_by_key(Span::offset);
        let parts = self.free.into_iter().chain(self.uncut);
        parts
            .reduce(|whole, next| whole.join(next).expect("slots of a block are neighbours"))
            .expect("a block has at least one part")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sys::mapping::{LockWanted, MappingSettings, PagesWanted, map};

    const BLOCK: usize = 2 << 20;

    fn block() -> Span {
        let settings = MappingSettings {
            bytes: BLOCK,
            pages: PagesWanted::Small,
            numa_node: None,
            prefault: false,
            lock: LockWanted::No,
        };
        map(&settings).unwrap().0
    }

    #[test]
    fn classes_waste_little() {
        let classes = SizeClasses::new(BLOCK, 1 << 20, 1000);
        assert_eq!(classes.slot_bytes(0), 256);
        let largest = classes.slot_bytes(classes.count() - 1);
        assert_eq!(largest, BLOCK / 3 / 64 * 64);
        assert_eq!(classes.class_of(largest + 1), None);
        for len in (SLOT_BYTES_MIN..=largest).step_by(61) {
            let slot = classes.slot_bytes(classes.class_of(len).unwrap());
            assert!(slot >= len);
            let most = if len > BLOCK / 4 { len * 4 / 3 } else { len * 5 / 4 };
            assert!(slot <= most + 2 * SLOT_ALIGN, "{len} bytes in a slot of {slot}");
        }
        for class in 0..classes.count() {
            let slot = classes.slot_bytes(class);
            let lost = BLOCK - BLOCK / slot * slot;
            assert!(lost * 50 < BLOCK, "{lost} bytes lost by slots of {slot}");
        }
    }

    #[test]
    fn a_small_pool_has_fewer_classes() {
        let coarse = SizeClasses::new(BLOCK, 1 << 20, 32).count();
        let fine = SizeClasses::new(BLOCK, 1 << 20, 1000).count();
        assert!(coarse <= 25 && fine > 40, "{coarse} {fine}");
    }

    #[test]
    fn classes_fit_any_block_and_head() {
        for (block, head) in [(4096, 2048), (4096, 65536), (65536, 4096), (512, 256), (256, 1)] {
            let classes = SizeClasses::new(block, head, 8);
            for class in 0..classes.count() {
                let slot = classes.slot_bytes(class);
                assert!((SLOT_BYTES_MIN..head).contains(&slot) && slot <= block);
            }
        }
    }

    proptest! {
        #[test]
        fn slots_never_overlap_and_the_block_becomes_whole_again(
            slot_bytes in 16usize..6000,
            steps in prop::collection::vec(any::<bool>(), 0..200),
        ) {
            let slot_bytes = slot_bytes * SLOT_ALIGN;
            let mut cut = CutBlock::new(block(), slot_bytes);
            let mut out: Vec<Span> = Vec::new();
            for take in steps {
                if take {
                    let room = cut.has_room();
                    let slot = cut.take();
                    prop_assert_eq!(slot.is_some(), room);
                    let Some(mut slot) = slot else { continue };
                    prop_assert!(slot.len() >= slot_bytes);
                    let mark = cut.index_of(&slot) as u8;
                    // The ends show whether it overlaps a neighbour.
                    let last = slot.len() - 1;
                    (slot[0], slot[last]) = (mark, mark);
                    out.push(slot);
                } else if !out.is_empty() {
                    let slot = out.swap_remove(out.len() / 2);
                    let mark = cut.index_of(&slot) as u8;
                    prop_assert_eq!((slot[0], slot[slot.len() - 1]), (mark, mark));
                    cut.give_back(slot);
                }
                prop_assert_eq!(cut.slots_out(), out.len());
            }
            for slot in out.drain(..) {
                cut.give_back(slot);
            }
            prop_assert_eq!(cut.into_whole().len(), BLOCK);
        }
    }
}
