//! Which entry leaves next: S3-FIFO, as a pure algorithm.
//!
//! Three FIFO queues. New entries go into the *small* queue (about a tenth of all); what was read
//! more than once while it moved through goes on to the *main* queue, the rest leaves, and only
//! its fingerprint stays for a while in the *ghost* queue; what comes back while its ghost is
//! there enters the main queue at once. An entry of the main queue that was read since its last
//! turn gets another. So one pass over many objects (a backup) cannot push out what is read again
//! and again, and a read costs one atomic store and no lock of ours.
//!
//! **Source** Juncheng Yang, Yazhuo Zhang, Ziyue Qiu, Yao Yue, K. V. Rashmi: "FIFO queues are all
//! you need for cache eviction", SOSP 2023, Algorithm 1. Ours differs in one point: an entry whose
//! bytes are borrowed by a response frees nothing when it leaves, so it gets another turn.
//!
//! Owns order and ghosts. Never touches memory, maps, locks or clocks; its owner holds the lock.

use std::collections::{HashMap, VecDeque};

/// Reads are counted up to this (two bits in the paper).
pub const HITS_MAX: u8 = 3;
/// Reads that carry an entry from the small to the main queue: "more than once".
const HITS_TO_PROMOTE: u8 = 2;
/// The small queue's share of all entries, as a divisor: a tenth.
const SMALL_SHARE: usize = 10;
/// Borrowed entries passed over before `evict` gives up: bounds the time the owner's lock is held.
const PINNED_SKIPS_MAX: usize = 32;

/// What the algorithm needs to know of an entry.
pub trait Candidate {
    /// Recognises the entry when it comes back; equal for equal entries.
    fn fingerprint(&self) -> u64;
    /// Reads since `set_hits`, at most `HITS_MAX`.
    fn hits(&self) -> u8;
    fn set_hits(&self, hits: u8);
    /// True when its bytes are in use, so that evicting it would free nothing now.
    fn pinned(&self) -> bool;
}

/// Names an entry in the queues; valid until that entry is removed or evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

impl Ticket {
    /// For storing in an atomic.
    pub fn to_raw(self) -> u32 {
        self.0
    }

    pub fn from_raw(raw: u32) -> Ticket {
        Ticket(raw)
    }
}

/// No node: the end of a list.
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Small,
    Main,
}

struct Node<T> {
    /// `None` while the node waits on the free list.
    item: Option<T>,
    queue: Queue,
    /// The owner's clock when the entry came to the head of its queue.
    stamp: u64,
    /// Towards the head (younger).
    newer: u32,
    /// Towards the tail (older).
    older: u32,
}

/// A doubly linked list through the nodes: O(1) at both ends and for removal in the middle.
struct List {
    head: u32,
    tail: u32,
    len: usize,
}

impl List {
    const EMPTY: List = List { head: NIL, tail: NIL, len: 0 };
}

/// The queues. `T` is a shared pointer in practice.
pub struct S3Fifo<T> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
    small: List,
    main: List,
    ghosts: Ghosts,
}

impl<T: Candidate> Default for S3Fifo<T> {
    fn default() -> S3Fifo<T> {
        S3Fifo {
            nodes: Vec::new(),
            free: Vec::new(),
            small: List::EMPTY,
            main: List::EMPTY,
            ghosts: Ghosts::default(),
        }
    }
}

impl<T: Candidate> S3Fifo<T> {
    /// Entries in both queues.
    pub fn len(&self) -> usize {
        self.small.len + self.main.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an entry. `now` is the owner's clock, any unit, never going back.
    pub fn insert(&mut self, item: T, now: u64) -> Ticket {
        let returning = self.ghosts.forget(item.fingerprint());
        item.set_hits(0);
        let queue = if returning { Queue::Main } else { Queue::Small };
        let node = Node { item: Some(item), queue, stamp: now, newer: NIL, older: NIL };
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                let index = self.nodes.len() as u32;
                assert!(index < NIL, "a pool has fewer than 2^32 - 1 slots");
                self.nodes.push(node);
                index
            }
        };
        self.link_head(index, queue);
        Ticket(index)
    }

    /// Takes an entry out, wherever it is, without leaving a ghost.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        self.nodes.get(ticket.0 as usize)?.item.as_ref()?;
        self.unlink(ticket.0);
        self.take(ticket.0)
    }

    /// Takes out the entry that is worth least; `None` when there is none, or when too many
    /// entries in a row were pinned.
    pub fn evict(&mut self, now: u64) -> Option<T> {
        let (mut small_skips, mut main_skips) = (0, 0);
        loop {
            let small_over = small_skips >= self.small.len;
            // An entry of the main queue may need a turn for each of its hits before it leaves.
            let main_over = main_skips >= self.main.len * (1 + HITS_MAX as usize);
            let small_full = self.small.len >= self.len().div_ceil(SMALL_SHARE);
            let queue = match (small_over, main_over) {
                (true, true) => return None,
                (true, false) => Queue::Main,
                (false, true) => Queue::Small,
                (false, false) if small_full => Queue::Small,
                (false, false) => Queue::Main,
            };
            let tail = self.list(queue).tail;
            let item = self.nodes.get(tail as usize)?.item.as_ref()?;
            let (hits, fingerprint) = (item.hits(), item.fingerprint());
            if item.pinned() {
                match queue {
                    Queue::Small => small_skips += 1,
                    Queue::Main => main_skips += 1,
                }
                if small_skips + main_skips > PINNED_SKIPS_MAX {
                    return None;
                }
                self.requeue(tail, queue, now);
            } else if queue == Queue::Small && hits >= HITS_TO_PROMOTE {
                item.set_hits(0);
                self.requeue(tail, Queue::Main, now);
            } else if queue == Queue::Main && hits > 0 {
                item.set_hits(hits - 1);
                self.requeue(tail, Queue::Main, now);
            } else {
                if queue == Queue::Small {
                    self.ghosts.remember(fingerprint, self.len());
                }
                self.unlink(tail);
                return self.take(tail);
            }
        }
    }

    /// The stamp of the entry that waits longest at the end of a queue, and that entry.
    pub fn oldest(&self) -> Option<(u64, &T)> {
        let tail = |list: &List| self.nodes.get(list.tail as usize);
        let (small, main) = (tail(&self.small), tail(&self.main));
        let node = small.into_iter().chain(main).min_by_key(|node| node.stamp)?;
        Some((node.stamp, node.item.as_ref()?))
    }

    fn list(&mut self, queue: Queue) -> &mut List {
        match queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
        }
    }

    fn requeue(&mut self, index: u32, queue: Queue, now: u64) {
        self.unlink(index);
        self.nodes[index as usize].queue = queue;
        self.nodes[index as usize].stamp = now;
        self.link_head(index, queue);
    }

    fn take(&mut self, index: u32) -> Option<T> {
        self.free.push(index);
        self.nodes[index as usize].item.take()
    }

    fn link_head(&mut self, index: u32, queue: Queue) {
        let list = self.list(queue);
        let old_head = std::mem::replace(&mut list.head, index);
        list.len += 1;
        if old_head == NIL {
            list.tail = index;
        } else {
            self.nodes[old_head as usize].newer = index;
        }
        let node = &mut self.nodes[index as usize];
        (node.newer, node.older) = (NIL, old_head);
    }

    fn unlink(&mut self, index: u32) {
        let node = &self.nodes[index as usize];
        let (queue, newer, older) = (node.queue, node.newer, node.older);
        match newer {
            NIL => self.list(queue).head = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NIL => self.list(queue).tail = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        self.list(queue).len -= 1;
    }
}

/// Fingerprints of what left the small queue, oldest first; as many as there are entries.
#[derive(Default)]
struct Ghosts {
    order: VecDeque<(u64, u32)>,
    /// The turn in `order` that is valid for a fingerprint; others there are stale.
    turns: HashMap<u64, u32>,
    next_turn: u32,
}

impl Ghosts {
    fn remember(&mut self, fingerprint: u64, room: usize) {
        self.next_turn = self.next_turn.wrapping_add(1);
        self.turns.insert(fingerprint, self.next_turn);
        self.order.push_back((fingerprint, self.next_turn));
        while self.order.len() > room.max(1) {
            let Some((oldest, turn)) = self.order.pop_front() else { break };
            if self.turns.get(&oldest) == Some(&turn) {
                self.turns.remove(&oldest);
            }
        }
    }

    /// True when the fingerprint was there.
    fn forget(&mut self, fingerprint: u64) -> bool {
        self.turns.remove(&fingerprint).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug)]
    struct Item {
        key: u64,
        hits: Cell<u8>,
        pinned: Cell<bool>,
    }

    impl Candidate for Rc<Item> {
        fn fingerprint(&self) -> u64 {
            self.key
        }
        fn hits(&self) -> u8 {
            self.hits.get()
        }
        fn set_hits(&self, hits: u8) {
            self.hits.set(hits);
        }
        fn pinned(&self) -> bool {
            self.pinned.get()
        }
    }

    fn item(key: u64) -> Rc<Item> {
        Rc::new(Item { key, hits: Cell::new(0), pinned: Cell::new(false) })
    }

    /// A cache of `capacity` keys on top of the algorithm.
    struct Cache {
        queues: S3Fifo<Rc<Item>>,
        resident: HashMap<u64, (Rc<Item>, Ticket)>,
        capacity: usize,
        hits: usize,
    }

    impl Cache {
        fn new(capacity: usize) -> Cache {
            Cache { queues: S3Fifo::default(), resident: HashMap::new(), capacity, hits: 0 }
        }

        fn access(&mut self, key: u64) {
            if let Some((item, _)) = self.resident.get(&key) {
                item.set_hits((item.hits() + 1).min(HITS_MAX));
                self.hits += 1;
                return;
            }
            if self.resident.len() == self.capacity {
                let gone = self.queues.evict(0).unwrap();
                self.resident.remove(&gone.key).unwrap();
            }
            let item = item(key);
            let ticket = self.queues.insert(Rc::clone(&item), 0);
            self.resident.insert(key, (item, ticket));
        }
    }

    #[test]
    fn unread_entries_leave_in_the_order_they_came() {
        let mut queues = S3Fifo::default();
        (0..10).for_each(|key| {
            queues.insert(item(key), key);
        });
        assert_eq!(queues.oldest().map(|(stamp, _)| stamp), Some(0));
        for key in 0..10 {
            assert_eq!(queues.evict(99).unwrap().key, key);
        }
        assert!(queues.evict(99).is_none() && queues.is_empty());
    }

    #[test]
    fn one_read_is_not_enough_to_stay_and_two_are() {
        let mut queues = S3Fifo::default();
        let items: Vec<_> = (0..3).map(item).collect();
        for item in &items {
            queues.insert(Rc::clone(item), 0);
        }
        items[0].set_hits(1);
        items[1].set_hits(2);
        assert_eq!(queues.evict(0).unwrap().key, 0);
        assert_eq!(queues.evict(0).unwrap().key, 2);
        assert_eq!(queues.evict(0).unwrap().key, 1);
    }

    #[test]
    fn what_returns_while_its_ghost_is_there_enters_the_main_queue() {
        let mut queues = S3Fifo::default();
        (0..20).for_each(|key| {
            queues.insert(item(key), 0);
        });
        assert_eq!(queues.evict(0).unwrap().key, 0);
        queues.insert(item(0), 0);
        assert_eq!((queues.small.len, queues.main.len), (19, 1));
        // Removal leaves no ghost.
        let ticket = queues.insert(item(100), 0);
        assert_eq!(queues.remove(ticket).unwrap().key, 100);
        assert!(queues.remove(ticket).is_none());
        queues.insert(item(100), 0);
        assert_eq!(queues.main.len, 1);
    }

    #[test]
    fn a_long_scan_does_not_push_out_what_is_read_again_and_again() {
        let mut cache = Cache::new(100);
        for _ in 0..4 {
            (0..50).for_each(|key| cache.access(key));
        }
        (1000..1060).for_each(|key| cache.access(key));
        (2000..12_000).for_each(|key| cache.access(key));
        let kept = (0..50).filter(|key| cache.resident.contains_key(key)).count();
        assert_eq!(kept, 50);
    }

    #[test]
    fn pinned_entries_stay_and_the_search_for_another_is_bounded() {
        let mut queues = S3Fifo::default();
        let items: Vec<_> = (0..1000).map(item).collect();
        for item in &items {
            item.pinned.set(true);
            queues.insert(Rc::clone(item), 0);
        }
        assert!(queues.evict(0).is_none());
        assert_eq!(queues.len(), 1000);
        items[40].pinned.set(false);
        assert_eq!(queues.evict(0).unwrap().key, 40);
    }

    #[test]
    fn ghosts_are_bounded_by_the_number_of_entries() {
        let mut cache = Cache::new(64);
        (0..10_000).for_each(|key| cache.access(key));
        assert!(cache.queues.ghosts.order.len() <= 64);
        assert!(cache.queues.ghosts.turns.len() <= 64);
        assert!(cache.queues.nodes.len() <= 64);
    }

    #[test]
    fn a_skewed_load_is_served_better_than_by_plain_fifo() {
        let mut seed = 1u64;
        let mut keys = Vec::new();
        for _ in 0..50_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = (seed >> 40) as f64 / (1u64 << 24) as f64;
            keys.push((uniform.powi(4) * 5000.0) as u64);
        }
        let mut cache = Cache::new(200);
        keys.iter().for_each(|&key| cache.access(key));
        let mut fifo: VecDeque<u64> = VecDeque::new();
        let mut fifo_hits = 0;
        for key in keys {
            if fifo.contains(&key) {
                fifo_hits += 1;
            } else {
                fifo.push_back(key);
                if fifo.len() > 200 {
                    fifo.pop_front();
                }
            }
        }
        assert!(cache.hits > fifo_hits, "{} against {fifo_hits}", cache.hits);
    }

    proptest! {
        #[test]
        fn every_entry_is_in_exactly_one_place(
            steps in prop::collection::vec((0u8..5, 0u64..40), 0..400),
        ) {
            let mut queues = S3Fifo::default();
            let mut model: HashMap<u64, (Rc<Item>, Ticket)> = HashMap::new();
            for (step, key) in steps {
                match (step, model.get(&key)) {
                    (0 | 1, None) => {
                        let item = item(key);
                        let ticket = queues.insert(Rc::clone(&item), 0);
                        model.insert(key, (item, ticket));
                    }
                    (0 | 1, Some((item, _))) => item.set_hits((item.hits() + 1).min(HITS_MAX)),
                    (2, Some((item, _))) => item.pinned.set(!item.pinned.get()),
                    (3, Some(&(_, ticket))) => {
                        prop_assert_eq!(queues.remove(ticket).unwrap().key, key);
                        model.remove(&key);
                    }
                    (4, _) => match queues.evict(0) {
                        Some(gone) => {
                            prop_assert!(!gone.pinned());
                            prop_assert!(model.remove(&gone.key).is_some());
                        }
                        None => {
                            let pinned = model.values().filter(|(item, _)| item.pinned()).count();
                            let turns = pinned * (1 + HITS_MAX as usize);
                            prop_assert!(pinned == model.len() || turns > PINNED_SKIPS_MAX);
                        }
                    },
                    _ => {}
                }
                prop_assert_eq!(queues.len(), model.len());
            }
        }
    }
}
