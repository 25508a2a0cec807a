//! The contract of the log, run on each I/O engine.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::testing::{blob_id, data, packed_put, small};
use super::{Damage, LogError, LogSettings, LogWriter, Record, Replay, ReplayEnd, SegmentReader};
use crate::model::commit::Mutation;
use crate::model::{BlobId, BlobPlace, BlobRef, Lsn};
use crate::rng::Rng;
use crate::sys::aligned_buf::AlignedBuf;
use crate::sys::engine::{IoEngine, OpenMode};
use crate::sys::fault::{FaultDisk, FaultEngine};
use crate::sys::uring::{self, UringEngine};

pub const SETTINGS: LogSettings = LogSettings { segment_bytes: 64 * 1024, flush: true };

/// Runs `test` on each engine, with a directory that does not exist yet.
fn on_each_engine<F: Future<Output = ()>>(test: impl Fn(Rc<dyn IoEngine>, PathBuf) -> F) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let root = dir.path().join("log");
    uring::run(async { test(Rc::new(UringEngine::new()), root).await })
        .expect("a kernel with io_uring");
    let disk = FaultDisk::new(1);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(test(Rc::new(FaultEngine::new(&disk)), PathBuf::from("data/log")));
}

/// Replays after `after`: the records, with their packed bytes, and the end.
pub async fn replayed(
    engine: &Rc<dyn IoEngine>,
    dir: &Path,
    after: u64,
) -> Result<(Vec<(Record, BlobPlace)>, ReplayEnd), LogError> {
    let mut replay = Replay::open(Rc::clone(engine), dir, Lsn(after)).await?;
    let mut records = Vec::new();
    while let Some(r) = replay.next().await? {
        let packed = r.packed.map(|(id, bytes)| crate::model::commit::PackedBytes {
            id,
            bytes: bytes.to_vec().into(),
        });
        records.push((Record { lsn: r.lsn, mutation: r.mutation, packed }, r.place));
    }
    Ok((records, replay.finish().await?))
}

/// What a process does at its start.
pub async fn opened(engine: &Rc<dyn IoEngine>, dir: &Path, settings: LogSettings) -> LogWriter {
    let (_, end) = replayed(engine, dir, 0).await.expect("a sound log");
    LogWriter::open(Rc::clone(engine), dir, settings, end, Rng::seeded(1)).await.expect("space")
}

async fn segment_files(engine: &Rc<dyn IoEngine>, dir: &Path) -> usize {
    engine.list_dir(dir).await.expect("a directory").len()
}

fn blob(lsn: u64, place: BlobPlace, len: usize) -> BlobRef {
    BlobRef { id: blob_id(lsn), place, len: len as u64 }
}

#[test]
fn what_was_appended_is_replayed_and_read() {
    on_each_engine(|engine, dir| async move {
        let mut writer = opened(&engine, &dir, SETTINGS).await;
        let mut wanted = Vec::new();
        let sizes = [0, 1, 4096, 20_000, 300, 70_000, 131_073, 8, 50_000, 262_144];
        for (group, size) in sizes.into_iter().enumerate() {
            let first = writer.next_lsn().0;
            let records =
                vec![packed_put(first, size), small(first + 1), packed_put(first + 2, group)];
            let places = writer.append(&records).await.expect("appended");
            wanted.extend(records.into_iter().zip(places));
        }
        assert!(segment_files(&engine, &dir).await > 3);
        let reader = SegmentReader::new(Rc::clone(&engine), dir.clone());
        for (record, place) in &wanted {
            let Some(packed) = &record.packed else { continue };
            let blob = blob(record.lsn.0, *place, packed.bytes.len());
            assert_eq!(reader.read_packed(&blob).await.expect("readable"), packed.bytes);
        }
        for after in [0, 1, 5, 14, 15, 29, 30, 40] {
            let (got, end) = replayed(&engine, &dir, after).await.expect("a sound log");
            assert_eq!(got, wanted[(after as usize).min(30)..], "after {after}");
            assert_eq!((end.last, end.torn), (Lsn(after.max(30)), None));
        }
    });
}

#[test]
fn processes_follow_each_other_and_leave_no_empty_segments() {
    on_each_engine(|engine, dir| async move {
        for round in 0..5u64 {
            for _ in 0..3 {
                drop(opened(&engine, &dir, SETTINGS).await);
            }
            let mut writer = opened(&engine, &dir, SETTINGS).await;
            assert_eq!(writer.next_lsn(), Lsn(round + 1));
            writer.append(&[packed_put(round + 1, 100)]).await.expect("appended");
            assert_eq!(segment_files(&engine, &dir).await as u64, round + 1);
        }
        let (got, end) = replayed(&engine, &dir, 0).await.expect("a sound log");
        assert_eq!((got.len(), end.last_in_log), (5, Some(Lsn(5))));
        let first = engine.open(&dir.join(format!("{:020}.seg", 4)), OpenMode::Read).await;
        assert_eq!(first.expect("the first segment").len().await.expect("its length"), 8192);
    });
}

#[test]
fn places_that_are_gone_or_wrong() {
    on_each_engine(|engine, dir| async move {
        let mut writer = opened(&engine, &dir, SETTINGS).await;
        let records = [packed_put(1, 5000), packed_put(2, 5000)];
        let places = writer.append(&records).await.expect("appended");
        let reader = SegmentReader::new(Rc::clone(&engine), dir.clone());
        let gone = |e| matches!(e, Err(LogError::Gone));
        let no_segment = BlobPlace::Segment { segment: 77, record_offset: 4096 };
        assert!(gone(reader.read_packed(&blob(1, no_segment, 5000)).await));
        assert!(gone(reader.read_packed(&blob(1, BlobPlace::File, 5000)).await));
        assert!(gone(reader.read_packed(&blob(1, places[1], 5000)).await));
        let length = reader.read_packed(&blob(1, places[0], 4999)).await;
        assert!(matches!(length, Err(LogError::Corrupt { damage: Damage::Length, .. })));
        let beyond = reader.read_packed(&blob(1, places[0], usize::MAX)).await;
        assert!(matches!(beyond, Err(LogError::Corrupt { damage: Damage::Length, .. })));

        let path = dir.join(format!("{:020}.seg", 1));
        let file = engine.open(&path, OpenMode::ReadWrite).await.expect("the segment");
        file.truncate(0).await.expect("cut");
        assert!(gone(reader.read_packed(&blob(1, places[0], 5000)).await));
        engine.remove(&path).await.expect("removed");
        assert!(gone(reader.read_packed(&blob(1, places[0], 5000)).await));
    });
}

#[test]
fn open_segments_are_bounded() {
    on_each_engine(|engine, dir| async move {
        let mut writer = opened(&engine, &dir, SETTINGS).await;
        let reader = SegmentReader::new(Rc::clone(&engine), dir.clone());
        for lsn in 1..=80 {
            let places = writer.append(&[packed_put(lsn, 60_000)]).await.expect("appended");
            let read = reader.read_packed(&blob(lsn, places[0], 60_000)).await;
            assert_eq!(read.expect("readable"), data(lsn, 60_000));
        }
        assert_eq!(reader.open_segments(), 64);
    });
}

/// Flips bits in the 4096 bytes at `offset` of a segment.
async fn damage(engine: &Rc<dyn IoEngine>, dir: &Path, segment: u64, offset: u64) {
    let path = dir.join(format!("{segment:020}.seg"));
    let file = engine.open(&path, OpenMode::ReadWrite).await.expect("the segment");
    let (read, mut buf) = file.read_at(AlignedBuf::recycled(4096), offset).await;
    assert_eq!(read.expect("readable"), 4096);
    buf.iter_mut().for_each(|b| *b ^= 0x10);
    file.write_at(buf.freeze(), offset).await.expect("written");
    file.sync().await.expect("flushed");
}

/// Three groups in segment 1, then one in segment 2.
async fn two_segments(engine: &Rc<dyn IoEngine>, dir: &Path) {
    let mut writer = opened(engine, dir, SETTINGS).await;
    for lsn in 1..=3 {
        writer.append(&[packed_put(lsn, 5000)]).await.expect("appended");
    }
    let mut writer = opened(engine, dir, SETTINGS).await;
    writer.append(&[packed_put(4, 5000)]).await.expect("appended");
}

#[track_caller]
fn is_corrupt<T>(result: Result<T, LogError>) {
    assert!(matches!(result, Err(LogError::Corrupt { .. })));
}

#[test]
fn damage_to_acknowledged_records_is_an_error() {
    // Each group of the first segment; the only group of the second is the tail of the log, where
    // damage cannot be told from a torn write.
    for (segment, offset) in [(1, 4096), (1, 12_288), (1, 20_480), (1, 8192)] {
        on_each_engine(|engine, dir| async move {
            two_segments(&engine, &dir).await;
            damage(&engine, &dir, segment, offset).await;
            is_corrupt(replayed(&engine, &dir, 0).await);
        });
    }
}

/// Flips one bit of a segment.
async fn flip(engine: &Rc<dyn IoEngine>, dir: &Path, segment: u64, at: u64) {
    let path = dir.join(format!("{segment:020}.seg"));
    let file = engine.open(&path, OpenMode::ReadWrite).await.expect("the segment");
    let page = at - at % 4096;
    let (read, mut buf) = file.read_at(AlignedBuf::recycled(4096), page).await;
    assert_eq!(read.expect("readable"), 4096);
    buf[(at - page) as usize] ^= 4;
    file.write_at(buf.freeze(), page).await.expect("written");
    file.sync().await.expect("flushed");
}

#[test]
fn a_damaged_header_is_told_by_the_first_record() {
    for segment in [1, 2] {
        on_each_engine(|engine, dir| async move {
            two_segments(&engine, &dir).await;
            let (wanted, _) = replayed(&engine, &dir, 0).await.expect("sound");
            damage(&engine, &dir, segment, 0).await;
            let (records, end) = replayed(&engine, &dir, 0).await.expect("told");
            assert_eq!((records, end.last), (wanted, Lsn(4)));
            // With the first record gone, too, nothing tells.
            damage(&engine, &dir, segment, 4096).await;
            is_corrupt(replayed(&engine, &dir, 0).await);
        });
    }
}

/// The change counts although the bytes of the object are damaged, but only behind a proof that it
/// was acknowledged: a later group, or a later segment.
#[test]
fn damaged_data_does_not_hide_the_change() {
    for (flipped, counted) in [(1, 4), (2, 4), (3, 4), (4, 3)] {
        on_each_engine(|engine, dir| async move {
            two_segments(&engine, &dir).await;
            let (segment, group) = if flipped == 4 { (2, 0) } else { (1, flipped - 1) };
            flip(&engine, &dir, segment, 4096 + group * 8192 + 1000).await;
            let mut replay = Replay::open(Rc::clone(&engine), &dir, Lsn(0)).await.expect("opens");
            let mut found = Vec::new();
            while let Some(record) = replay.next().await.expect("told") {
                found.push((record.lsn.0, record.data_damaged));
            }
            let wanted: Vec<_> = (1..=counted).map(|lsn| (lsn, lsn == flipped)).collect();
            assert_eq!(found, wanted);
        });
    }
}

/// Damage to what the catalog has already does not keep the store from starting, and nothing
/// behind it is cut off.
#[test]
fn damage_that_is_not_needed_is_passed_by() {
    for at in [4096 + 20, 4096 + 1000, 12_288 + 20, 20_480 + 20] {
        on_each_engine(|engine, dir| async move {
            let mut writer = opened(&engine, &dir, SETTINGS).await;
            let mut places = Vec::new();
            for lsn in 1..=3 {
                places.extend(writer.append(&[packed_put(lsn, 5000)]).await.expect("appended"));
            }
            flip(&engine, &dir, 1, at).await;
            let (records, end) = replayed(&engine, &dir, 3).await.expect("passed by");
            assert_eq!((records.len(), end.last), (0, Lsn(3)));
            let settings = SETTINGS;
            let rng = Rng::seeded(1);
            let writer = LogWriter::open(Rc::clone(&engine), &dir, settings, end, rng).await;
            assert_eq!(writer.expect("opens").next_lsn(), Lsn(4));
            let reader = SegmentReader::new(Rc::clone(&engine), dir.clone());
            for (lsn, place) in (1..).zip(&places) {
                let read = reader.read_packed(&blob(lsn, *place, 5000)).await;
                let is_damaged = at / 8192 == lsn - 1 || at > 20_480 && lsn == 3;
                assert_eq!(read.is_err(), is_damaged, "{lsn} {at}");
            }
        });
    }
}

#[test]
fn damage_in_the_last_segment_is_told_from_a_torn_tail() {
    for (offset, torn_at) in [(4096, None), (8192, None), (12_288, None), (20_480, Some(20_480))] {
        on_each_engine(|engine, dir| async move {
            let mut writer = opened(&engine, &dir, SETTINGS).await;
            for lsn in 1..=3 {
                writer.append(&[packed_put(lsn, 5000)]).await.expect("appended");
            }
            damage(&engine, &dir, 1, offset).await;
            let result = replayed(&engine, &dir, 0).await;
            let Some(torn_at) = torn_at else { return is_corrupt(result) };
            let (records, end) = result.expect("a torn tail is legal");
            assert_eq!((records.len(), end.last), (2, Lsn(2)));
            assert_eq!(end.torn.map(|torn| torn.offset), Some(torn_at));
        });
    }
}

#[test]
fn missing_segments() {
    on_each_engine(|engine, dir| async move {
        two_segments(&engine, &dir).await;
        let first = dir.join(format!("{:020}.seg", 1));
        engine.remove(&first).await.expect("removed");
        is_corrupt(replayed(&engine, &dir, 0).await);
        is_corrupt(replayed(&engine, &dir, 2).await);
        let (records, end) = replayed(&engine, &dir, 3).await.expect("nothing wanted is missing");
        assert_eq!((records.len(), end.last), (1, Lsn(4)));
    });
}

/// Bytes of an object that look like a record of the log change nothing.
#[test]
fn records_inside_the_data_of_an_object_are_not_found() {
    on_each_engine(|engine, dir| async move {
        let mut writer = opened(&engine, &dir, SETTINGS).await;
        writer.append(&[packed_put(1, 5000)]).await.expect("appended");
        let path = dir.join(format!("{:020}.seg", 1));
        let file = engine.open(&path, OpenMode::Read).await.expect("the segment");
        let (_, stolen) = file.read_at(AlignedBuf::recycled(8192), 4096).await;
        let mut record = packed_put(2, 0);
        record.packed = Some(crate::model::commit::PackedBytes {
            id: BlobId([3; 16]),
            bytes: stolen.to_vec().into(),
        });
        writer.append(std::slice::from_ref(&record)).await.expect("appended");
        damage(&engine, &dir, 1, 12_288).await;
        let (records, _) = replayed(&engine, &dir, 0).await.expect("a torn tail");
        assert_eq!(records.len(), 1);
    });
}

#[test]
fn a_record_beyond_the_format_is_refused_and_nothing_changes() {
    on_each_engine(|engine, dir| async move {
        let mut writer = opened(&engine, &dir, SETTINGS).await;
        let keys = vec![
            (
                crate::model::Key::new(&"k".repeat(1024)).expect("valid"),
                crate::model::VersionId::NULL
            );
            20_000
        ];
        let mutation = Mutation::DeleteObjects { bucket: crate::model::BucketId(1), keys };
        let record = Record { lsn: Lsn(1), mutation, packed: None };
        assert!(matches!(writer.append(&[record]).await, Err(LogError::TooLarge)));
        writer.append(&[small(1)]).await.expect("appended");
    });
}
