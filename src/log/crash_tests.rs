//! Power cuts, failing disks and full disks, on the simulated disk.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use proptest::prelude::*;

use super::suite::{SETTINGS, opened, replayed};
use super::testing::{packed_put, small};
use super::{LogError, LogSettings, LogWriter, Record, SegmentReader};
use crate::model::{BlobPlace, BlobRef};
use crate::rng::Rng;
use crate::soak::Soak;
use crate::sys::engine::IoEngine;
use crate::sys::fault::{Fault, FaultDisk, FaultEngine, FaultError, Op, Survivors};

fn dir() -> PathBuf {
    PathBuf::from("data/log")
}

fn boot(disk: &FaultDisk) -> Rc<dyn IoEngine> {
    Rc::new(FaultEngine::new(disk))
}

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// Deterministic choices below `n`.
struct Dice(Rng);

impl Dice {
    fn below(&self, n: u64) -> u64 {
        u64::from_le_bytes(self.0.bytes()) % n
    }

    /// A group of up to six records; `generation` tells two groups at the same position apart.
    fn group(&self, first: u64, generation: u64) -> Vec<Record> {
        let sizes = [0, 10, 3000, 5000, 20_000, 40_000, 140_000];
        (first..=first + self.below(6))
            .map(|lsn| match self.below(3) {
                0 => small(lsn),
                _ => {
                    let size = sizes[self.below(sizes.len() as u64) as usize];
                    let mut record = packed_put(lsn, size + (generation % 7) as usize);
                    if let Some(packed) = &mut record.packed {
                        packed.id.0[8..].copy_from_slice(&generation.to_le_bytes());
                    }
                    record
                }
            })
            .collect()
    }
}

type Placed = (Record, BlobPlace);

/// Opens the log as a process does and checks that exactly `acknowledged` is there, perhaps
/// followed by records of `unanswered`, the group whose caller never got an answer. What replay
/// found counts as acknowledged from then on.
async fn reopened(
    engine: &Rc<dyn IoEngine>,
    acknowledged: &mut Vec<Placed>,
    unanswered: &[Record],
) -> Result<LogWriter, LogError> {
    let (found, end) = replayed(engine, &dir(), 0).await?;
    let kept = acknowledged.len();
    assert!(found.len() >= kept, "{} of {kept} records are left", found.len());
    assert_eq!(found[..kept], acknowledged[..]);
    let extra: Vec<_> = found[kept..].iter().map(|(record, _)| record.clone()).collect();
    assert!(unanswered.starts_with(&extra), "records came from nowhere: {extra:?}");
    *acknowledged = found;
    LogWriter::open(Rc::clone(engine), &dir(), SETTINGS, end, Rng::system()).await
}

/// Power cuts at random points of random work, with random remains of what was not flushed.
/// Also while the log is being opened.
fn check_power_cuts(seed: u64, survivors: Survivors) -> u64 {
    let disk = FaultDisk::new(seed);
    let dice = Dice(Rng::seeded(seed));
    let mut acknowledged: Vec<Placed> = Vec::new();
    let mut unanswered: Vec<Record> = Vec::new();
    for life in 0..6 {
        disk.cut_power_after(dice.below(60));
        run(async {
            let engine = boot(&disk);
            let opened = reopened(&engine, &mut acknowledged, &unanswered).await;
            let Ok(mut writer) = opened else { return };
            unanswered.clear();
            loop {
                let generation = life * 1000 + acknowledged.len() as u64;
                let group = dice.group(writer.next_lsn().0, generation);
                match writer.append(&group).await {
                    Ok(places) => acknowledged.extend(group.into_iter().zip(places)),
                    Err(_) => {
                        unanswered = group;
                        return;
                    }
                }
            }
        });
        disk.crash(survivors);
    }
    run(async {
        let engine = boot(&disk);
        let mut writer = reopened(&engine, &mut acknowledged, &unanswered).await.expect("sound");
        writer.append(&[small(acknowledged.len() as u64 + 1)]).await.expect("works again");
        read_all(&engine, &acknowledged).await;
    });
    let packed = acknowledged.iter().filter_map(|(record, _)| record.packed.as_ref());
    packed.map(|packed| packed.bytes.len() as u64).sum()
}

async fn read_all(engine: &Rc<dyn IoEngine>, records: &[Placed]) {
    let reader = SegmentReader::new(Rc::clone(engine), dir());
    for (record, place) in records {
        let Some(packed) = &record.packed else { continue };
        let blob = BlobRef { id: packed.id, place: *place, len: packed.bytes.len() as u64 };
        assert_eq!(reader.read_packed(&blob).await.expect("readable"), packed.bytes);
    }
}

#[test]
fn acknowledged_records_survive_power_cuts() {
    for seed in 0..60 {
        check_power_cuts(seed, Survivors::Random);
    }
    check_power_cuts(1000, Survivors::None);
    check_power_cuts(1001, Survivors::All);
}

/// Power cuts and failing disks with new seeds for as long as `Soak` says.
#[test]
#[ignore = "the long form: tests/reliability runs it"]
fn reliability() {
    let mut soak = Soak::start();
    while let Some(seed) = soak.next() {
        let bytes = check_power_cuts(seed, Survivors::Random);
        soak.count("sequences", 1);
        soak.count("crash_states", 7);
        soak.count("bytes_verified", bytes);
        let ops = [Op::Write, Op::Sync, Op::Allocate, Op::Create, Op::SyncDir];
        let (op, skip) = (ops[seed as usize % ops.len()], seed / 5 % 60);
        let error = if seed % 3 == 0 { FaultError::NoSpace } else { FaultError::Io };
        if error == FaultError::Io || matches!(op, Op::Write | Op::Allocate | Op::Create) {
            check_failed_group(op, error, skip, seed.is_multiple_of(2));
            soak.count("faults_injected", 1);
            soak.count("crash_states", 1);
        }
    }
    soak.report();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn acknowledged_records_survive_any_power_cut(seed: u64) {
        check_power_cuts(seed, Survivors::Random);
    }
}

/// A group fails at each of its operations in turn; then either the process goes on, or it dies.
/// Records of the failed group never come back once the writer has answered a later one.
fn check_failed_group(op: Op, error: FaultError, skip: u64, die: bool) {
    let disk = FaultDisk::new(skip);
    let dice = Dice(Rng::seeded(skip));
    let mut acknowledged: Vec<Placed> = Vec::new();
    run(async {
        let engine = boot(&disk);
        let mut writer = opened(&engine, &dir(), SETTINGS).await;
        disk.inject(Fault { skip, ..Fault::next(op, error) });
        for generation in 0..40 {
            let group = dice.group(writer.next_lsn().0, generation);
            match writer.append(&group).await {
                Ok(places) => acknowledged.extend(group.into_iter().zip(places)),
                Err(e) => {
                    let no_space = matches!(e, LogError::NoSpace);
                    assert_eq!(no_space, error == FaultError::NoSpace, "{e}");
                    if die {
                        break;
                    }
                }
            }
        }
        read_all(&engine, &acknowledged).await;
    });
    disk.crash(Survivors::Random);
    run(async {
        let engine = boot(&disk);
        reopened(&engine, &mut acknowledged, &[]).await.expect("a sound log");
    });
}

#[test]
fn a_failed_group_never_comes_back() {
    for skip in 0..40 {
        for op in [Op::Write, Op::Sync, Op::Allocate, Op::Create, Op::SyncDir] {
            check_failed_group(op, FaultError::Io, skip, false);
            check_failed_group(op, FaultError::Io, skip, true);
        }
    }
}

#[test]
fn a_full_disk_refuses_and_works_again() {
    for skip in 0..20 {
        for op in [Op::Write, Op::Allocate, Op::Create] {
            check_failed_group(op, FaultError::NoSpace, skip, false);
            check_failed_group(op, FaultError::NoSpace, skip, true);
        }
    }
}

/// While the fence cannot be written either, nothing is acknowledged; then all is well again.
#[test]
fn nothing_is_acknowledged_until_the_fence_stands() {
    let disk = FaultDisk::new(5);
    run(async {
        let engine = boot(&disk);
        let mut writer = opened(&engine, &dir(), SETTINGS).await;
        let mut acknowledged = vec![];
        let places = writer.append(&[packed_put(1, 100)]).await.expect("appended");
        acknowledged.push((packed_put(1, 100), places[0]));
        disk.inject(Fault { times: u64::MAX, ..Fault::next(Op::Sync, FaultError::Io) });
        for _ in 0..10 {
            writer.append(&[packed_put(2, 777)]).await.expect_err("no flush");
        }
        assert!(disk.files().len() <= 4, "failures pile up files: {:?}", disk.files());
        disk.clear_faults();
        let places = writer.append(&[packed_put(2, 200)]).await.expect("works again");
        acknowledged.push((packed_put(2, 200), places[0]));
        disk.crash(Survivors::All);
        let engine = boot(&disk);
        reopened(&engine, &mut acknowledged, &[]).await.expect("a sound log");
        assert_eq!(acknowledged.len(), 2);
    });
}

/// A dropped `append` may have written anything; its positions are used again.
#[test]
fn a_dropped_append_is_revoked() {
    for polls in 0..12 {
        let disk = FaultDisk::new(polls);
        let mut acknowledged = vec![];
        run(async {
            let engine = boot(&disk);
            let mut writer = opened(&engine, &dir(), SETTINGS).await;
            let group: Vec<_> = (1..4).map(|lsn| packed_put(lsn, 40_000)).collect();
            {
                let append = writer.append(&group);
                tokio::pin!(append);
                for _ in 0..polls {
                    if futures_util::poll!(&mut append).is_ready() {
                        return;
                    }
                }
            }
            let places = writer.append(&[packed_put(1, 10)]).await.expect("appended");
            acknowledged.push((packed_put(1, 10), places[0]));
        });
        if acknowledged.is_empty() {
            continue;
        }
        disk.crash(Survivors::All);
        run(async {
            let engine = boot(&disk);
            reopened(&engine, &mut acknowledged, &[]).await.expect("a sound log");
            assert_eq!(acknowledged.len(), 1);
        });
    }
}

/// Without flushes a power cut takes the last changes, but leaves a prefix without a gap.
#[test]
fn an_unflushed_log_loses_only_its_end() {
    let settings = LogSettings { flush: false, ..SETTINGS };
    for seed in 0..40 {
        let disk = FaultDisk::new(seed);
        let mut sent = Vec::new();
        run(async {
            let engine = boot(&disk);
            let mut writer = opened(&engine, &dir(), settings).await;
            for lsn in 1..=30 {
                sent.push(packed_put(lsn, 9000));
                writer.append(&sent[lsn as usize - 1..]).await.expect("appended");
            }
            if seed % 2 == 0 {
                writer.flush().await.expect("flushed");
            }
        });
        disk.crash(Survivors::Random);
        run(async {
            let engine = boot(&disk);
            let (found, _) = replayed(&engine, &dir(), 0).await.expect("a sound log");
            let found: Vec<_> = found.into_iter().map(|(record, _)| record).collect();
            assert!(sent.starts_with(&found));
            assert!(found.len() >= if seed % 2 == 0 { 30 } else { 24 }, "{} left", found.len());
            opened(&engine, &dir(), settings).await;
            replayed(&engine, &dir(), found.len() as u64).await.expect("a sound log");
        });
    }
}

/// One flush and one write for a group, whatever its size, unless it spans segments.
#[test]
fn a_group_costs_one_write_and_one_flush() {
    let disk = FaultDisk::new(1);
    run(async {
        let engine = boot(&disk);
        let mut writer = opened(&engine, Path::new("data/log"), SETTINGS).await;
        let before = disk.stats();
        let group: Vec<_> = (1..=10).map(|lsn| packed_put(lsn, 4096)).collect();
        writer.append(&group).await.expect("appended");
        let after = disk.stats();
        assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (1, 1));
    });
}
