//! The contract of blob files, run on both I/O engines; crashes and rot on the simulated disk.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::future::join_all;
use proptest::prelude::*;

use super::layout::{BLOB_BYTES_MAX, BLOCK_BYTES, READ_BYTES_MAX, Shape};
use super::{BlobError, BlobFiles, Damage};
use crate::model::{BlobId, BlobPlace, BlobRef};
use crate::soak::Soak;
use crate::sys::aligned_buf::{AlignedBuf, SharedBuf};
use crate::sys::engine::{IoEngine, OpenMode};
use crate::sys::fault::{Fault, FaultDisk, FaultEngine, FaultError, Op, Survivors};
use crate::sys::uring::{self, UringEngine};

const CHUNK: usize = 1 << 20;

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

/// Runs `test` on each engine, in an empty directory.
fn on_each_engine<F: Future<Output = ()>>(test: impl Fn(Rc<dyn IoEngine>, PathBuf) -> F) {
    for seed in 0..3 {
        let engine = Rc::new(FaultEngine::new(&FaultDisk::new(seed)));
        block_on(test(engine, PathBuf::from("/blobs")));
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let root = dir.path().join("blobs");
    uring::run(async { test(Rc::new(UringEngine::new()), root).await })
        .expect("a kernel with io_uring");
}

fn on_fault_disk(disk: &FaultDisk) -> BlobFiles {
    BlobFiles::new(Rc::new(FaultEngine::new(disk)), PathBuf::from("/blobs"))
}

fn id(n: u8) -> BlobId {
    BlobId([n; 16])
}

fn path(n: u8) -> PathBuf {
    Path::new("/blobs").join(format!("{n:02x}")).join(format!("{}.blob", id(n)))
}

fn named(n: u8, len: usize) -> BlobRef {
    BlobRef { id: id(n), place: BlobPlace::File, len: len as u64 }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn chunk(bytes: &[u8]) -> SharedBuf {
    let mut buf = AlignedBuf::recycled(bytes.len());
    buf.extend_from_slice(bytes);
    buf.freeze()
}

/// Writes and seals a blob of `bytes` in chunks of `step` bytes.
async fn write_in(
    files: &BlobFiles,
    n: u8,
    bytes: &[u8],
    step: usize,
    expected: Option<u64>,
) -> Result<u64, BlobError> {
    let mut writer = files.create(id(n), expected).await?;
    for part in bytes.chunks(step) {
        writer.append(chunk(part)).await?;
    }
    writer.seal().await
}

async fn write(files: &BlobFiles, n: u8, bytes: &[u8]) -> Result<u64, BlobError> {
    write_in(files, n, bytes, CHUNK, Some(bytes.len() as u64)).await
}

/// Reads all of a blob in pieces of at most 1 MiB.
async fn read_all(files: &BlobFiles, blob: BlobRef) -> Result<Vec<u8>, BlobError> {
    let reader = files.open(blob).await?;
    let mut all = Vec::new();
    while (all.len() as u64) < blob.len {
        let left = blob.len as usize - all.len();
        let piece = reader.read(all.len() as u64, left.min(READ_BYTES_MAX)).await?;
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

#[test]
fn sizes_at_every_edge_come_back() {
    on_each_engine(|engine, root| async move {
        let files = BlobFiles::new(engine, root);
        let edges = [0, 4096, BLOCK_BYTES, CHUNK, CHUNK + BLOCK_BYTES, 5 * CHUNK];
        let sizes = edges.into_iter().flat_map(|edge| [edge.max(1) - 1, edge, edge + 1]);
        for (n, len) in sizes.enumerate() {
            let bytes = pattern(len, n as u64);
            let lengths = [None, Some(len as u64), Some(3 * CHUNK as u64)];
            for (round, expected) in lengths.into_iter().enumerate() {
                let n = (n * 3 + round) as u8;
                let sealed = write_in(&files, n, &bytes, CHUNK, expected).await;
                assert_eq!(sealed.unwrap(), len as u64);
                assert_eq!(read_all(&files, named(n, len)).await.unwrap(), bytes);
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any length near an edge, any chunk size, any ranges.
    #[test]
    fn any_range_of_any_blob_comes_back(
        edge in prop::sample::select(vec![4096, BLOCK_BYTES, CHUNK, 3 * CHUNK]),
        off in -4100i64..4100,
        pages in 1usize..=256,
        ranges in prop::collection::vec((0.0f64..1.0, 0.0f64..1.0), 1..12),
        seed in 0u64..1000,
    ) {
        let len = (edge as i64 + off).max(0) as usize;
        let bytes = pattern(len, seed);
        block_on(async {
            let files = on_fault_disk(&FaultDisk::new(seed));
            write_in(&files, 1, &bytes, pages * 4096, None).await.unwrap();
            let reader = files.open(named(1, len)).await.unwrap();
            let reads = ranges.iter().map(|(at, part)| {
                let at = (len as f64 * at) as usize;
                let part = ((len - at) as f64 * part) as usize;
                let (reader, part) = (reader.clone(), part.min(READ_BYTES_MAX));
                async move { (at, part, reader.read(at as u64, part).await.unwrap()) }
            });
            for (at, part, read) in join_all(reads).await {
                assert_eq!(read, &bytes[at..at + part]);
            }
        });
    }
}

#[test]
fn reads_are_slices_of_the_buffer_that_the_disk_filled() {
    on_each_engine(|engine, root| async move {
        let files = BlobFiles::new(engine, root);
        let bytes = pattern(3 * CHUNK, 1);
        write(&files, 1, &bytes).await.unwrap();
        let reader = files.open(named(1, bytes.len())).await.unwrap();
        for (at, len) in [(5, 10), (CHUNK - 7, CHUNK), (2 * CHUNK + 1, CHUNK - 1)] {
            let read = reader.read(at as u64, len).await.unwrap();
            assert_eq!(read, &bytes[at..at + len]);
            assert_eq!(read.as_ptr() as usize % 4096, at % 4096);
        }
    });
}

#[test]
fn ranges_outside_and_too_long_are_refused() {
    on_each_engine(|engine, root| async move {
        let files = BlobFiles::new(engine, root);
        write(&files, 1, &pattern(2 * CHUNK, 1)).await.unwrap();
        let reader = files.open(named(1, 2 * CHUNK)).await.unwrap();
        assert!(reader.read(2 * CHUNK as u64, 0).await.unwrap().is_empty());
        for (at, len) in [(2 * CHUNK as u64, 1), (0, CHUNK + 1), (u64::MAX, 2), (1 << 40, 1)] {
            assert!(matches!(reader.read(at, len).await, Err(BlobError::Io { .. })));
        }
    });
}

#[test]
fn an_id_is_used_once_and_unknown_ids_are_not_found() {
    on_each_engine(|engine, root| async move {
        let files = BlobFiles::new(engine, root);
        write(&files, 1, b"first").await.unwrap();
        assert!(matches!(write(&files, 1, b"second").await, Err(BlobError::Io { .. })));
        assert_eq!(read_all(&files, named(1, 5)).await.unwrap(), b"first");
        let missing = files.open(named(2, 5)).await;
        assert!(matches!(missing.err(), Some(BlobError::NotFound(blob)) if blob == id(2)));
    });
}

#[test]
fn removal_is_idempotent_and_listing_finds_every_file() {
    on_each_engine(|engine, root| async move {
        let files = BlobFiles::new(engine.clone(), root.clone());
        assert!(files.list().await.unwrap().is_empty());
        files.prepare().await.unwrap();
        files.prepare().await.unwrap();
        write(&files, 1, b"sealed").await.unwrap();
        drop(files.create(id(2), None).await.unwrap());
        files.create(id(3), Some(99)).await.unwrap().abort().await.unwrap();
        for stray in ["01/notes.txt", "01/0101.blob", "02/03030303030303030303030303030303.blob"] {
            drop(engine.open(&root.join(stray), OpenMode::CreateNew).await.unwrap());
        }
        let mut listed = files.list().await.unwrap();
        listed.sort();
        assert_eq!(listed, [id(1), id(2)]);
        for n in [1, 1, 2, 9] {
            files.remove(id(n)).await.unwrap();
        }
        assert!(files.list().await.unwrap().is_empty());
    });
}

#[test]
fn a_reader_outlives_the_removal() {
    on_each_engine(|engine, root| async move {
        let files = BlobFiles::new(engine, root);
        let bytes = pattern(CHUNK, 1);
        write(&files, 1, &bytes).await.unwrap();
        let reader = files.open(named(1, CHUNK)).await.unwrap();
        files.remove(id(1)).await.unwrap();
        assert_eq!(reader.read(0, CHUNK).await.unwrap(), bytes);
        assert!(matches!(files.open(named(1, CHUNK)).await, Err(BlobError::NotFound(_))));
    });
}

#[test]
fn open_readers_are_kept_within_bounds_and_swept() {
    on_each_engine(|engine, root| async move {
        let files = BlobFiles::with_cache(engine, root, 2);
        for n in 1..=3 {
            write(&files, n, b"abc").await.unwrap();
            assert_eq!(read_all(&files, named(n, 3)).await.unwrap(), b"abc");
        }
        assert_eq!(files.cached(), 2);
        files.sweep();
        assert_eq!(files.cached(), 2);
        files.clone().open(named(3, 3)).await.unwrap();
        files.sweep();
        assert_eq!(files.cached(), 1);
        files.remove(id(3)).await.unwrap();
        assert_eq!(files.cached(), 0);
        assert!(files.open(named(3, 3)).await.is_err());
    });
}

#[test]
fn many_blobs_at_once() {
    on_each_engine(|engine, root| async move {
        let files = BlobFiles::new(engine, root);
        let work = (0..24u8).map(|n| {
            let files = files.clone();
            async move {
                let bytes = pattern(CHUNK + n as usize * 5000, n as u64);
                write(&files, n, &bytes).await.unwrap();
                assert_eq!(read_all(&files, named(n, bytes.len())).await.unwrap(), bytes);
            }
        });
        join_all(work).await;
    });
}

#[test]
fn a_chunk_after_the_unaligned_last_one_is_refused() {
    on_each_engine(|engine, root| async move {
        let files = BlobFiles::new(engine, root);
        let mut writer = files.create(id(1), None).await.unwrap();
        writer.append(chunk(b"last")).await.unwrap();
        assert!(writer.append(chunk(b"more")).await.is_err());
        assert!(files.create(id(2), Some(BLOB_BYTES_MAX + 1)).await.is_err());
        assert!(files.open(named(2, 1)).await.is_err(), "nothing is left behind");
    });
}

#[test]
fn the_file_has_exactly_the_documented_length() {
    block_on(async {
        let disk = FaultDisk::new(1);
        let files = on_fault_disk(&disk);
        for (n, expected) in [(1, None), (2, Some(300_000)), (3, Some(9_000_000))] {
            write_in(&files, n, &pattern(300_000, 1), CHUNK, expected).await.unwrap();
            let len = Shape::new(300_000).map(Shape::file_bytes).expect("within the bound");
            assert!(disk.files().contains(&(path(n), len)));
        }
    });
}

/// I5: no flipped bit anywhere in the file stays unnoticed by a reader of the whole blob.
#[test]
fn every_flipped_bit_is_found() {
    const LEN: usize = BLOCK_BYTES + 5000;
    block_on(async {
        let disk = FaultDisk::new(1);
        let files = on_fault_disk(&disk);
        let bytes = pattern(LEN, 1);
        write(&files, 1, &bytes).await.unwrap();
        let shape = Shape::new(LEN as u64).expect("within the bound");
        let (data_end, file_bytes) = (shape.data_end(), shape.file_bytes());
        let footer = file_bytes - 4096;
        // First and last bytes of data, zeros, table, its zeros, footer; and a walk through all.
        let edges = [0, LEN as u64, data_end, data_end + 8, footer, footer + 44, file_bytes];
        let near_edges = edges.into_iter().flat_map(|edge| [edge.saturating_sub(1), edge]);
        let walk = (0..file_bytes).step_by(1021);
        for at in near_edges.chain(walk).filter(|at| *at < file_bytes) {
            let bit = (at % 8) as u8;
            assert!(disk.flip_bit(&path(1), at, bit));
            match read_all(&files, named(1, LEN)).await {
                Err(BlobError::Corrupt { blob, damage }) => {
                    assert_eq!(blob, id(1));
                    let block = Damage::Block(at / BLOCK_BYTES as u64);
                    assert_eq!(damage == block, at < data_end, "byte {at}: {damage}");
                }
                other => panic!("byte {at}: {:?}", other.map(|read| read == bytes)),
            }
            disk.flip_bit(&path(1), at, bit);
        }
        assert_eq!(read_all(&files, named(1, LEN)).await.unwrap(), bytes);
    });
}

#[test]
fn one_rotten_block_leaves_the_others_readable() {
    block_on(async {
        let disk = FaultDisk::new(1);
        let files = on_fault_disk(&disk);
        let bytes = pattern(3 * BLOCK_BYTES, 1);
        write(&files, 1, &bytes).await.unwrap();
        disk.flip_bit(&path(1), BLOCK_BYTES as u64 + 1, 0);
        let reader = files.open(named(1, bytes.len())).await.unwrap();
        let block = BLOCK_BYTES as u64;
        assert_eq!(reader.read(0, BLOCK_BYTES).await.unwrap(), &bytes[..BLOCK_BYTES]);
        assert_eq!(reader.read(2 * block, 9).await.unwrap(), &bytes[2 * BLOCK_BYTES..][..9]);
        let bad = reader.read(block - 1, 2).await;
        assert!(matches!(bad, Err(BlobError::Corrupt { damage: Damage::Block(1), .. })));
    });
}

#[test]
fn another_blobs_file_and_a_wrong_length_are_told() {
    on_each_engine(|engine, root| async move {
        let files = BlobFiles::new(engine.clone(), root.clone());
        files.prepare().await.unwrap();
        write(&files, 1, &pattern(5000, 1)).await.unwrap();
        let damage = |result: Result<_, BlobError>| match result.err() {
            Some(BlobError::Corrupt { damage, .. }) => damage,
            other => panic!("not damaged: {other:?}"),
        };
        let longer = damage(files.open(named(1, 5001)).await.map(|_| ()));
        assert_eq!(longer, Damage::Length { expected: 5001, found: 5000 });
        let much_longer = damage(files.open(named(1, 50_000)).await.map(|_| ()));
        assert!(matches!(much_longer, Damage::FileLength { .. }));
        let of = |n: u8| root.join(format!("{n:02x}")).join(format!("{}.blob", id(n)));
        engine.rename(&of(1), &of(2)).await.unwrap();
        assert_eq!(damage(files.open(named(2, 5000)).await.map(|_| ())), Damage::OtherBlob(id(1)));
        let file = engine.open(&of(2), OpenMode::ReadWrite).await.unwrap();
        file.truncate(8192).await.unwrap();
        let cut = damage(files.open(named(2, 5000)).await.map(|_| ()));
        assert!(matches!(cut, Damage::FileLength { found: 8192, .. }));
    });
}

/// I1 for blobs: the power goes at every point of a write. A sealed blob is whole afterwards;
/// an unsealed one is absent, refused, or whole by luck, never wrong.
#[test]
fn power_cuts_at_every_point() {
    let bytes = pattern(2 * CHUNK + 777, 1);
    let runs = [(Survivors::None, 3), (Survivors::All, 1), (Survivors::Random, 12)];
    for (survivors, seeds) in runs {
        for seed in 0..seeds {
            let sealed = (0..).find(|cut| cut_once(&bytes, seed, *cut, survivors));
            assert!(sealed.is_some_and(|cut| cut > 6), "the cut must come within the write");
        }
    }
}

/// Writes a blob and cuts the power at the `cut`-th change; true when the blob was sealed first.
fn cut_once(bytes: &[u8], seed: u64, cut: u64, survivors: Survivors) -> bool {
    block_on(async {
        let disk = FaultDisk::new(seed);
        on_fault_disk(&disk).prepare().await.unwrap();
        let files = on_fault_disk(&disk);
        disk.cut_power_after(cut);
        let sealed = write(&files, 1, bytes).await.is_ok();
        disk.crash(survivors);
        let files = on_fault_disk(&disk);
        match read_all(&files, named(1, bytes.len())).await {
            Ok(read) => assert!(read == bytes, "wrong bytes after a crash"),
            Err(BlobError::NotFound(_) | BlobError::Corrupt { .. }) => {
                assert!(!sealed, "a sealed blob is gone (seed {seed})");
            }
            Err(other) => panic!("{other}"),
        }
        // Whatever is left can be found and removed.
        for blob in files.list().await.unwrap() {
            files.remove(blob).await.unwrap();
        }
        assert!(disk.files().is_empty());
        sealed
    })
}

/// Power cuts, failing disks and flipped bits with new seeds for as long as `Soak` says.
#[test]
#[ignore = "the long form: tests/reliability runs it"]
fn reliability() {
    let mut soak = Soak::start();
    while let Some(seed) = soak.next() {
        let rng = crate::rng::Rng::seeded(seed);
        let dice = |sides: usize| u64::from_le_bytes(rng.bytes()) as usize % sides;
        let bytes = pattern(1 + dice(3 * CHUNK), seed);
        cut_once(&bytes, seed, dice(20) as u64, Survivors::Random);
        soak.count("sequences", 1);
        soak.count("crash_states", 1);
        block_on(async {
            let disk = FaultDisk::new(seed);
            let files = on_fault_disk(&disk);
            files.prepare().await.unwrap();
            let (op, skip) = ([Op::Write, Op::Sync, Op::SyncDir][dice(3)], dice(3) as u64);
            disk.inject(Fault { skip, ..Fault::next(op, FaultError::Io) });
            let sealed = write(&files, 1, &bytes).await.is_ok();
            disk.clear_faults();
            soak.count("faults_injected", 1);
            if !sealed {
                files.remove(id(1)).await.unwrap();
                write(&files, 1, &bytes).await.unwrap();
            }
            assert!(read_all(&files, named(1, bytes.len())).await.unwrap() == bytes);
            let file_bytes = Shape::new(bytes.len() as u64).unwrap().file_bytes() as usize;
            for _ in 0..20 {
                let (at, bit) = (dice(file_bytes) as u64, dice(8) as u8);
                assert!(disk.flip_bit(&path(1), at, bit));
                let read = read_all(&files, named(1, bytes.len())).await;
                assert!(matches!(read, Err(BlobError::Corrupt { .. })), "bit {bit} of {at}");
                disk.flip_bit(&path(1), at, bit);
            }
            soak.count("bits_flipped", 20);
            soak.count("bytes_verified", 21 * bytes.len() as u64);
        });
    }
    soak.report();
}

#[test]
fn a_failed_flush_is_a_failed_seal() {
    block_on(async {
        for (n, op) in [(1, Op::Sync), (2, Op::SyncDir), (3, Op::Write)] {
            let disk = FaultDisk::new(n as u64);
            let files = on_fault_disk(&disk);
            files.prepare().await.unwrap();
            disk.inject(Fault::next(op, FaultError::Io));
            let sealed = write(&files, n, &pattern(CHUNK, 1)).await;
            assert!(matches!(sealed, Err(BlobError::Io { .. })), "{op:?}");
        }
    });
}

#[test]
fn a_full_disk_is_told_apart() {
    block_on(async {
        for op in [Op::Create, Op::Allocate, Op::Write, Op::Sync] {
            let disk = FaultDisk::new(1);
            let files = on_fault_disk(&disk);
            files.prepare().await.unwrap();
            disk.inject(Fault { times: u64::MAX, ..Fault::next(op, FaultError::NoSpace) });
            let result = write(&files, 1, &pattern(CHUNK, 1)).await;
            assert!(matches!(result, Err(BlobError::NoSpace)), "{op:?}");
            if matches!(op, Op::Create | Op::Allocate) {
                assert!(disk.files().is_empty(), "{op:?} leaves no file");
            }
            files.remove(id(1)).await.unwrap();
            assert!(disk.files().is_empty());
        }
    });
}

/// The error may arrive with a later chunk than the one that failed, but it always arrives.
#[test]
fn a_failed_write_never_ends_in_a_seal() {
    block_on(async {
        for seed in 0..60 {
            let disk = FaultDisk::new(seed);
            let files = on_fault_disk(&disk);
            files.prepare().await.unwrap();
            disk.inject(Fault { skip: seed % 10, ..Fault::next(Op::Write, FaultError::Io) });
            let mut writer = files.create(id(1), None).await.unwrap();
            let mut failed = false;
            for part in pattern(9 * CHUNK, 1).chunks(CHUNK) {
                failed |= writer.append(chunk(part)).await.is_err();
            }
            let sealed = writer.seal().await;
            assert!(sealed.is_err(), "sealed after a failed write (seed {seed}, {failed})");
        }
    });
}
