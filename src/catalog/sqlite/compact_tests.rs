//! Compaction keeps the log small, loses nothing, and leaves a lost database recoverable.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use futures_util::future::join_all;

use super::start::LogDisk;
use super::*;
use crate::clock::ManualClock;
use crate::log::{LogFiles, SegmentReader};
use crate::model::commit::{PackedBytes, ProposedData};
use crate::model::{BucketName, Committed, ETag, ObjectMetadata, OwnerId, WriteCondition};
use crate::rng::Rng;
use crate::sys::engine::IoEngine;
use crate::sys::fault::{FaultDisk, FaultEngine, Survivors};

const LOG_DIR: &str = "/data/log";
const SEGMENT_BYTES: u64 = 256 << 10;
const SETTINGS: CompactSettings = CompactSettings {
    live_percent_max: 50,
    move_bytes_max: 1 << 20,
    snapshot_after_bytes: 512 << 10,
};

/// A store of small objects: what the tests believe is in it, and the catalog.
struct Bench {
    dir: tempfile::TempDir,
    disk: FaultDisk,
    rng: Rng,
    catalog: Arc<SqliteCatalog>,
    bucket: BucketId,
    model: BTreeMap<u64, Vec<u8>>,
}

fn open(dir: &Path, disk: &FaultDisk) -> Arc<SqliteCatalog> {
    let settings = SqliteSettings {
        path: dir.join("catalog.sqlite"),
        log_dir: LOG_DIR.into(),
        log: LogSettings { segment_bytes: SEGMENT_BYTES, flush: true },
        readers: 2,
        index_bytes_max: 1 << 20,
        queue_max: 1000,
        group_max: 64,
    };
    let clock = Arc::new(ManualClock::new(1_000));
    SqliteCatalog::open_on(LogDisk::Simulated(disk.clone()), settings, clock, Rng::seeded(1))
        .expect("the catalog opens")
}

impl Bench {
    async fn new() -> Bench {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = FaultDisk::new(7);
        let catalog = open(dir.path(), &disk);
        let name = BucketName::new("bucket").expect("a valid name");
        let owner = OwnerId::new("owner");
        let created = catalog
            .commit(Proposal::CreateBucket {
                name,
                owner,
                location: String::new(),
                object_lock: false,
            })
            .await;
        let Ok(Committed::Bucket { bucket, .. }) = created else { panic!("{created:?}") };
        let (bucket, model) = (bucket.id, BTreeMap::new());
        Bench { dir, disk, rng: Rng::seeded(3), catalog, bucket, model }
    }

    fn key(n: u64) -> Key {
        Key::new(&format!("key-{n}")).expect("a valid key")
    }

    /// Writes new bytes under each key, together.
    async fn put(&mut self, keys: impl IntoIterator<Item = u64>, len: usize) {
        let mut puts = Vec::new();
        for n in keys {
            let mut bytes = vec![0; len];
            self.rng.fill(&mut bytes);
            self.model.insert(n, bytes.clone());
            let id = BlobId(self.rng.bytes());
            puts.push(self.catalog.commit(Proposal::PutObject {
                bucket: self.bucket,
                key: Bench::key(n),
                owner: OwnerId::new("owner"),
                metadata: ObjectMetadata::default(),
                etag: ETag { md5: [1; 16], parts: 0 },
                checksum: None,
                data: ProposedData::Packed(PackedBytes { id, bytes: bytes.into() }),
                condition: WriteCondition::default(),
            }));
        }
        for put in join_all(puts).await {
            put.expect("committed");
        }
    }

    fn engine(&self) -> Rc<dyn IoEngine> {
        Rc::new(FaultEngine::new(&self.disk))
    }

    fn compactor(&self) -> Compactor {
        let files = LogFiles::new(self.engine(), LOG_DIR.into());
        Compactor::new(self.catalog.clone(), files, SETTINGS)
    }

    /// Every object has the bytes it was given, read from the log.
    async fn check(&self) {
        let reader = SegmentReader::new(self.engine(), LOG_DIR.into());
        for (n, bytes) in &self.model {
            let found = self.catalog.object(self.bucket, &Bench::key(*n), None).await;
            let version = found.expect("readable").expect("there");
            let blob = version.extents[0].blob;
            let read = match reader.read_packed(&blob).await {
                Err(LogError::Gone) => {
                    let moved = self.catalog.locate(blob.id).await.expect("readable");
                    reader.read_packed(&moved.expect("alive")).await
                }
                read => read,
            };
            assert_eq!(read.expect("readable"), bytes, "key {n}");
        }
    }

    fn log_bytes(&self) -> u64 {
        self.disk.files().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Power cut, perhaps with the loss of the database, and a new start.
    async fn restart(&mut self, lose_database: bool) {
        self.catalog.close().await;
        self.disk.crash(Survivors::Random);
        if lose_database {
            std::fs::remove_file(self.dir.path().join("catalog.sqlite")).expect("removed");
        }
        self.catalog = open(self.dir.path(), &self.disk);
    }
}

#[tokio::test]
async fn overwrites_keep_the_log_flat() {
    let mut bench = Bench::new().await;
    let mut compactor = bench.compactor();
    bench.put(0..50, 3000).await;
    let mut most = 0;
    for round in 0..100 {
        bench.put((0..50).chain(0..50), 3000).await;
        if round % 4 == 3 {
            let may_go = compactor.round().await.expect("compacted");
            compactor.remove(&may_go).await.expect("removed");
            most = most.max(bench.log_bytes());
        }
    }
    // 10,000 overwrites wrote 30 MiB or more. Allowed: what waits for a snapshot, what is written
    // between two rounds, and the segments that are alive.
    assert!(most < 4 << 20, "the log grew to {most} bytes");
    let stats = compactor.stats();
    assert!(stats.removed_bytes > 24 << 20, "{stats:?}");
    assert!(stats.snapshots < stats.removed_segments, "{stats:?}");
    bench.check().await;
    let left = bench.catalog.segments().await.expect("readable");
    assert!(left.len() as u64 * SEGMENT_BYTES <= 4 << 20, "figures are dropped: {left:?}");
}

#[tokio::test]
async fn live_blobs_are_moved_and_survive() {
    for lose_database in [false, true] {
        let mut bench = Bench::new().await;
        bench.put(0..400, 3000).await;
        bench.check().await;
        // One in eight stays alive in the old segments.
        bench.put((0..400).filter(|n| n % 8 != 0), 3000).await;
        let before = bench.log_bytes();
        let mut compactor = bench.compactor();
        for _ in 0..8 {
            let may_go = compactor.round().await.expect("compacted");
            compactor.remove(&may_go).await.expect("removed");
        }
        let stats = compactor.stats();
        assert!(stats.moved_blobs >= 40 && stats.removed_segments >= 4, "{stats:?}");
        assert_eq!(stats.moved_bytes, stats.moved_blobs * 3000);
        assert!(bench.log_bytes() < before);
        bench.check().await;
        drop(compactor);
        bench.restart(lose_database).await;
        bench.check().await;
        bench.put(0..10, 100).await;
        bench.restart(lose_database).await;
        bench.check().await;
    }
}

/// A round that was cut off anywhere leaves a store that is whole and can be compacted again.
#[tokio::test]
async fn a_power_cut_during_compaction_loses_nothing() {
    for mutations in [0, 1, 3, 5, 8, 13, 21, 34] {
        let mut bench = Bench::new().await;
        bench.put(0..300, 3000).await;
        bench.put((0..300).filter(|n| n % 6 != 0), 3000).await;
        let mut compactor = bench.compactor();
        bench.disk.cut_power_after(mutations);
        for _ in 0..4 {
            let Ok(may_go) = compactor.round().await else { break };
            if compactor.remove(&may_go).await.is_err() {
                break;
            }
        }
        drop(compactor);
        bench.restart(mutations % 2 == 1).await;
        bench.check().await;
        let mut compactor = bench.compactor();
        for _ in 0..6 {
            let may_go = compactor.round().await.expect("compacted");
            compactor.remove(&may_go).await.expect("removed");
        }
        drop(compactor);
        bench.check().await;
    }
}
