//! The arena against its contract, and against a model of what may be resident.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

pub(super) fn small(heads: u64, blocks: u64) -> Arc<Arena> {
    let settings = ArenaSettings {
        head_bytes: heads * 16_384,
        packed_bytes: blocks * 32_768,
        head_slot_bytes: 16_384,
        block_bytes: 32_768,
        numa_node: None,
        pages: PagesWanted::Small,
        prefault: false,
        lock: LockWanted::No,
    };
    Arena::new(settings).unwrap()
}

/// Spread over shards, as random ids are.
pub(super) fn id(number: u64) -> BlobId {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    raw[8..].copy_from_slice(&number.wrapping_mul(0xff51_afd7_ed55_8ccd).to_le_bytes());
    BlobId(raw)
}

/// Bytes that only this id has.
pub(super) fn pattern(id: BlobId, len: usize) -> Vec<u8> {
    id.0.iter().copied().cycle().take(len).collect()
}

fn put(arena: &Arc<Arena>, number: u64, len: usize) -> bool {
    arena.insert(id(number), &pattern(id(number), len))
}

#[test]
fn what_was_inserted_is_read_back_and_counted() {
    let arena = small(4, 4);
    for (number, len) in [(1, 1), (2, 256), (3, 5000), (4, 16_384)] {
        assert!(arena.get(id(number)).is_none());
        assert!(put(&arena, number, len));
        assert!(put(&arena, number, len), "a second insert finds it resident");
        assert_eq!(arena.get(id(number)).unwrap(), pattern(id(number), len));
    }
    let stats = arena.stats();
    assert_eq!((stats.hits, stats.misses), (4, 4));
    assert_eq!((stats.heads.resident, stats.heads.stored_bytes), (1, 16_384));
    assert_eq!((stats.packed.resident, stats.packed.stored_bytes), (3, 5257));
    assert_eq!(stats.heads.capacity_bytes, 4 * 16_384);
    assert_eq!(stats.packed.capacity_bytes, 4 * 32_768);
}

#[test]
fn empty_and_too_long_values_are_refused() {
    let arena = small(2, 2);
    assert!(!arena.insert(id(1), b""));
    assert!(!put(&arena, 1, 16_385));
    assert!(arena.reserve(0).is_none());
    assert_eq!(arena.stats().heads.resident + arena.stats().packed.resident, 0);
}

#[test]
fn an_arena_of_no_bytes_refuses_everything() {
    let arena = small(0, 0);
    assert!(arena.report().mapping.is_none());
    assert!(!put(&arena, 1, 100));
    assert!(arena.get(id(1)).is_none());
}

#[test]
fn either_pool_may_be_switched_off() {
    let heads_only = small(2, 0);
    assert!(put(&heads_only, 1, 100));
    assert_eq!(heads_only.stats().heads.resident, 1);
    let packed_only = small(0, 2);
    assert!(put(&packed_only, 1, 100));
    assert!(!put(&packed_only, 2, 16_384));
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let settings = ArenaSettings { head_slot_bytes: 1000, ..ArenaSettings::default() };
    assert!(matches!(Arena::new(settings), Err(ArenaError::Settings(_))));
    let settings = ArenaSettings { head_bytes: u64::MAX, ..ArenaSettings::default() };
    assert!(Arena::new(settings).is_err());
}

#[test]
fn bytes_come_straight_from_the_slot() {
    let arena = small(2, 0);
    put(&arena, 1, 16_384);
    let (first, second) = (arena.get(id(1)).unwrap(), arena.get(id(1)).unwrap());
    assert_eq!(first.as_ptr(), second.as_ptr());
    assert_eq!(first.as_ptr() as usize % GRAIN_BYTES, 0);
}

#[test]
fn a_borrowed_slot_is_not_reused_and_comes_home() {
    let arena = small(1, 0);
    put(&arena, 1, 16_384);
    let borrowed = arena.get(id(1)).unwrap();
    assert!(!put(&arena, 2, 16_384), "the only slot is borrowed");
    assert!(arena.contains(id(1)), "evicting it would have freed nothing");

    arena.remove(id(1));
    assert!(arena.get(id(1)).is_none(), "unlinked at once");
    assert_eq!(arena.stats().heads.borrowed, 1);
    assert!(!put(&arena, 2, 16_384));
    assert_eq!(borrowed, pattern(id(1), 16_384));

    let part = borrowed.slice(100..200);
    drop(borrowed);
    assert!(!put(&arena, 2, 16_384), "a slice of it is still borrowed");
    drop(part);
    assert_eq!(arena.stats().heads.borrowed, 0);
    assert!(put(&arena, 2, 16_384));
    assert_eq!(arena.stats().heads.rejected, 3);
}

#[test]
fn bytes_outlive_the_arena() {
    let arena = small(1, 1);
    put(&arena, 1, 16_384);
    put(&arena, 2, 300);
    let (head, packed) = (arena.get(id(1)).unwrap(), arena.get(id(2)).unwrap());
    drop(arena);
    assert_eq!(head, pattern(id(1), 16_384));
    assert_eq!(packed, pattern(id(2), 300));
}

#[test]
fn removing_twice_or_what_is_absent_is_fine() {
    let arena = small(1, 1);
    arena.remove(id(9));
    put(&arena, 1, 100);
    arena.remove(id(1));
    arena.remove(id(1));
    let stats = arena.stats().packed;
    assert_eq!((stats.resident, stats.used_bytes, stats.borrowed), (0, 0, 0));
}

#[test]
fn an_unfinished_or_dropped_reservation_leaves_nothing() {
    let arena = small(1, 1);
    let mut writer = arena.reserve(16_384).unwrap();
    assert_eq!(writer.write(&[1; 10_000]), 10_000);
    assert!(!writer.publish(id(1)), "bytes are missing");
    assert!(arena.get(id(1)).is_none());
    drop(arena.reserve(300).unwrap());
    let mut writer = arena.reserve(16_384).unwrap();
    assert_eq!(writer.write(&[2; 20_000]), 16_384);
    assert_eq!(writer.remaining(), 0);
    assert!(writer.publish(id(1)));
    assert_eq!(arena.get(id(1)).unwrap(), vec![2; 16_384]);
    assert_eq!(arena.stats().packed.used_bytes, 0);
}

#[test]
fn two_writers_of_one_blob_leave_one_copy() {
    let arena = small(2, 0);
    let (mut one, mut two) = (arena.reserve(16_384).unwrap(), arena.reserve(16_384).unwrap());
    one.write(&[1; 16_384]);
    two.write(&[1; 16_384]);
    assert!(one.publish(id(1)) && two.publish(id(1)));
    let stats = arena.stats().heads;
    assert_eq!((stats.resident, stats.used_bytes), (1, 16_384));
}

#[test]
fn memory_follows_the_load_from_one_class_to_another() {
    let arena = small(0, 8);
    (0..2000).for_each(|number| assert!(put(&arena, number, 400)));
    assert!(arena.stats().packed.resident > 500);
    (10_000..10_200).for_each(|number| assert!(put(&arena, number, 8000), "{number}"));
    let large = (10_000..10_200).filter(|&number| arena.contains(id(number))).count();
    assert!(large >= 16, "only {large} of 32 slots went to the new class");
    // And both classes keep working under a mixed load.
    for number in 20_000..21_000 {
        assert!(put(&arena, number, if number % 2 == 0 { 400 } else { 8000 }));
    }
    let stats = arena.stats().packed;
    assert!(stats.used_bytes <= stats.capacity_bytes);
    assert_eq!(stats.rejected, 0);
}

#[test]
fn blocks_with_borrowed_slots_change_class_when_they_are_back() {
    let arena = small(0, 1);
    put(&arena, 1, 300);
    put(&arena, 2, 300);
    let borrowed = arena.get(id(1)).unwrap();
    assert!(!put(&arena, 3, 8000), "the only block waits for a reader");
    assert!(!arena.contains(id(1)) && !arena.contains(id(2)));
    assert_eq!(borrowed, pattern(id(1), 300));
    assert!(!put(&arena, 4, 300), "a block that is being emptied serves no class");
    drop(borrowed);
    assert!(put(&arena, 3, 8000));
    let stats = arena.stats().packed;
    assert_eq!((stats.resident, stats.borrowed), (1, 0));
}

#[test]
fn a_reservation_in_a_block_that_changes_class_is_not_published() {
    let arena = small(0, 1);
    put(&arena, 1, 300);
    let mut writer = arena.reserve(300).unwrap();
    writer.write(&[1; 300]);
    assert!(!put(&arena, 2, 8000));
    assert!(!writer.publish(id(3)));
    assert!(put(&arena, 2, 8000));
    assert_eq!(arena.stats().packed.used_bytes, 8192);
}

#[test]
fn the_default_arena_fits_a_laptop() {
    let arena = Arena::new(ArenaSettings { prefault: false, ..ArenaSettings::default() }).unwrap();
    assert_eq!((arena.report().head_slots, arena.report().blocks), (256, 32));
    assert!(put(&arena, 1, 1 << 20));
    assert!(put(&arena, 2, 4096));
    assert_eq!(arena.get(id(1)).unwrap(), pattern(id(1), 1 << 20));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Get(u64),
    Remove(u64),
    Hold(u64),
    Release,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0u64..60;
    let step = prop_oneof![
        4 => number.clone().prop_map(Step::Insert),
        4 => number.clone().prop_map(Step::Get),
        1 => number.clone().prop_map(Step::Remove),
        1 => number.prop_map(Step::Hold),
        1 => Just(Step::Release),
    ];
    prop::collection::vec(step, 0..600)
}

/// Every id has one length, as a blob has.
fn length(number: u64) -> usize {
    [100, 256, 257, 900, 4000, 8192, 11_000, 16_384][number as usize % 8]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The model knows what may be resident; the arena may know less (eviction), never more, and
    /// never other bytes. At the end no slot is missing.
    #[test]
    fn a_read_gives_the_blobs_own_bytes_or_nothing(steps in steps()) {
        let arena = small(6, 6);
        let mut may_be_resident: HashMap<u64, usize> = HashMap::new();
        let mut held: Vec<(u64, Bytes)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(number) => {
                    if put(&arena, number, length(number)) {
                        may_be_resident.insert(number, length(number));
                        prop_assert!(arena.contains(id(number)));
                    }
                }
                Step::Get(number) => if let Some(bytes) = arena.get(id(number)) {
                    prop_assert_eq!(may_be_resident.get(&number), Some(&bytes.len()));
                    prop_assert_eq!(bytes, pattern(id(number), length(number)));
                },
                Step::Remove(number) => {
                    arena.remove(id(number));
                    may_be_resident.remove(&number);
                    prop_assert!(!arena.contains(id(number)));
                }
                Step::Hold(number) => {
                    held.extend(arena.get(id(number)).map(|bytes| (number, bytes)));
                }
                Step::Release => {
                    held.pop();
                }
            }
            let stats = arena.stats();
            prop_assert!(stats.heads.used_bytes <= stats.heads.capacity_bytes);
            prop_assert!(stats.packed.used_bytes <= stats.packed.capacity_bytes);
        }
        for (number, bytes) in held {
            prop_assert_eq!(bytes, pattern(id(number), length(number)));
        }
        (0..60).for_each(|number| arena.remove(id(number)));
        let stats = arena.stats();
        for pool in [stats.heads, stats.packed] {
            prop_assert_eq!((pool.used_bytes, pool.stored_bytes), (0, 0));
            prop_assert_eq!((pool.resident, pool.borrowed), (0, 0));
        }
        let writers: Vec<_> = (0..6).map_while(|_| arena.reserve(16_384)).collect();
        prop_assert_eq!(writers.len(), 6);
        let blocks: Vec<_> = (0..24).map_while(|_| arena.reserve(8000)).collect();
        prop_assert_eq!(blocks.len(), 24);
    }
}
