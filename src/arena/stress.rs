//! Threads that insert, read, remove and hold at once, over an arena far too small for them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::tests::{id, pattern, small};
use super::*;

const IDS: u64 = 400;
/// How much must have happened before the threads are told to stop, and how long that may take on
/// a machine that is busy with other things.
const READS_MIN: u64 = 2000;
const EVICTIONS_MIN: u64 = 500;
const RUN_MAX: Duration = Duration::from_secs(60);

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }
}

fn length(number: u64) -> usize {
    [200, 700, 3000, 8000, 16_384][number as usize % 5]
}

fn verify(number: u64, bytes: &Bytes) {
    let expected = pattern(id(number), length(number));
    assert!(*bytes == expected, "blob {number} shows bytes of another");
}

/// Reads, sometimes keeps what it read, and verifies everything it keeps again before letting go.
fn read(arena: &Arena, seed: u64, stop: &AtomicBool, reads: &AtomicU64) {
    let mut random = Random(seed);
    let mut held: Vec<(u64, Bytes)> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let number = random.below(IDS);
        let Some(bytes) = arena.get(id(number)) else { continue };
        verify(number, &bytes);
        reads.fetch_add(1, Ordering::Relaxed);
        if random.below(4) == 0 {
            held.push((number, bytes));
        }
        if held.len() > 6 {
            let (number, bytes) = held.swap_remove(random.below(6) as usize);
            verify(number, &bytes);
        }
    }
    held.iter().for_each(|(number, bytes)| verify(*number, bytes));
}

fn churn(arena: &Arc<Arena>, seed: u64, stop: &AtomicBool) {
    let mut random = Random(seed);
    while !stop.load(Ordering::Relaxed) {
        let number = random.below(IDS);
        match random.below(20) {
            0 => arena.remove(id(number)),
            1 => drop(arena.reserve(length(number))),
            _ => {
                arena.insert(id(number), &pattern(id(number), length(number)));
            }
        }
    }
}

#[test]
fn bytes_never_change_while_borrowed() {
    let arena = small(12, 8);
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for seed in 0..3 {
            let (arena, stop, reads) = (&arena, &stop, &reads);
            scope.spawn(move || read(arena, seed, stop, reads));
            scope.spawn(move || churn(arena, 100 + seed, stop));
        }
        let begin = Instant::now();
        while begin.elapsed() < RUN_MAX {
            let stats = arena.stats();
            let evicted = stats.heads.evicted.min(stats.packed.evicted);
            if reads.load(Ordering::Relaxed) >= READS_MIN && evicted >= EVICTIONS_MIN {
                break;
            }
            assert!(stats.heads.used_bytes <= stats.heads.capacity_bytes);
            assert!(stats.packed.used_bytes <= stats.packed.capacity_bytes);
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let stats = arena.stats();
    assert!(reads.load(Ordering::Relaxed) >= READS_MIN, "{stats:?}");
    assert!(stats.heads.evicted.min(stats.packed.evicted) >= EVICTIONS_MIN, "{stats:?}");
    assert_eq!((stats.heads.borrowed, stats.packed.borrowed), (0, 0));

    (0..IDS).for_each(|number| arena.remove(id(number)));
    let stats = arena.stats();
    assert_eq!((stats.heads.used_bytes, stats.packed.used_bytes), (0, 0), "{stats:?}");
}

#[test]
fn readers_of_one_hot_blob_do_not_lose_it() {
    let arena = small(4, 2);
    let hot = IDS;
    arena.insert(id(hot), &pattern(id(hot), length(hot)));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    if let Some(bytes) = arena.get(id(hot)) {
                        verify(hot, &bytes);
                    }
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
        scope.spawn(|| churn(&arena, 7, &stop));
    });
    arena.remove(id(hot));
    (0..IDS).for_each(|number| arena.remove(id(number)));
    let stats = arena.stats();
    assert_eq!((stats.heads.used_bytes, stats.packed.used_bytes), (0, 0), "{stats:?}");
}
