//! The contract suite on SQLite, and what only it has: reopening, replay, groups.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::start::LogDisk;
use super::*;
use crate::catalog::decide::BlobState;
use crate::catalog::suite;
use crate::clock::ManualClock;
use crate::model::BlobPlace;
use crate::model::commit::ProposedData;
use crate::rng::Rng;
use crate::sys::fault::FaultDisk;

/// A data directory with a simulated disk for the log.
struct Place {
    dir: tempfile::TempDir,
    disk: FaultDisk,
    clock: Arc<ManualClock>,
    index_bytes_max: u64,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultDisk::new(7);
        let clock = Arc::new(ManualClock::new(1_000));
        Place { dir, disk, clock, index_bytes_max: 1 << 20 }
    }

    fn database(&self) -> PathBuf {
        self.dir.path().join("catalog.sqlite")
    }

    fn settings(&self) -> SqliteSettings {
        SqliteSettings {
            path: self.database(),
            log_dir: Path::new("/data/log").into(),
            log: LogSettings { segment_bytes: 1 << 20, flush: true },
            readers: 2,
            index_bytes_max: self.index_bytes_max,
            queue_max: 1000,
            group_max: 64,
        }
    }

    fn try_open(&self) -> Result<Arc<SqliteCatalog>, OpenError> {
        let disk = LogDisk::Simulated(self.disk.clone());
        SqliteCatalog::open_on(disk, self.settings(), self.clock.clone(), Rng::seeded(1))
    }

    fn open(&self) -> Arc<SqliteCatalog> {
        self.try_open().unwrap()
    }
}

async fn fresh() -> (Place, Arc<dyn Catalog>, Arc<ManualClock>) {
    let place = Place::new();
    let (catalog, clock) = (place.open(), place.clock.clone());
    (place, catalog, clock)
}

suite::catalog_suite!(super::fresh);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn listings_match_the_naive_one((keys, prefix, delimiter, after) in suite::some_keys()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_place, catalog, clock) = fresh().await;
            let kit = suite::Kit::new(catalog.clone(), clock).await;
            for key in &keys {
                let proposal = suite::put(kit.bucket, key, 1, ProposedData::Empty);
                kit.version(proposal).await.unwrap();
            }
            let query = ListObjects { prefix, delimiter, after, ..ListObjects::default() };
            suite::pages_agree(catalog, kit.bucket, &keys, query).await;
        });
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Groups decide as the model does one by one, and a restart and a rebuild lose nothing.
    #[test]
    fn groups_match_the_model(steps in suite::steps(), tiny_index in any::<bool>()) {
        block_on(async {
            let mut place = Place::new();
            place.index_bytes_max = if tiny_index { 0 } else { 1 << 20 };
            let catalog = place.open();
            let mut pair = suite::Pair::new(catalog.clone(), place.clock.clone()).await;
            pair.run(steps).await;
            pair.compare(&*catalog).await;
            pair.compare_blobs(&*catalog).await;
            drop(pair.release_other());
            drop(catalog);
            audit(&place.database()).await;
            let catalog = place.open();
            pair.compare(&*catalog).await;
            drop(catalog);
            remove_database(&place.database());
            let catalog = place.open();
            pair.compare(&*catalog).await;
            drop(catalog);
            audit(&place.database()).await;
        });
    }
}

fn remove_database(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let _ = std::fs::remove_file(name);
    }
}

/// Counts references and live bytes anew and compares them with the rows.
async fn audit(path: &Path) {
    let mut conn = schema::connect_writer(path).await.unwrap();
    let mut refs: HashMap<BlobId, u64> = HashMap::new();
    let all = rows::query("SELECT body FROM objects", Default::default());
    for row in all.fetch_all(&mut conn).await.unwrap() {
        let version: ObjectVersion = rows::body(&row).unwrap();
        assert_eq!(version.size, version.extents.iter().map(|e| e.len).sum::<u64>());
        version.extents.iter().for_each(|e| *refs.entry(e.blob.id).or_default() += 1);
    }
    let all = rows::query("SELECT body FROM parts", Default::default());
    for row in all.fetch_all(&mut conn).await.unwrap() {
        let part: Part = rows::body(&row).unwrap();
        part.extents.iter().for_each(|e| *refs.entry(e.blob.id).or_default() += 1);
    }
    let mut live: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let all = rows::query("SELECT * FROM blobs", Default::default());
    for row in all.fetch_all(&mut conn).await.unwrap() {
        let (id, blob) = rows::blob_row(&row).unwrap();
        assert_eq!(refs.remove(&id).unwrap_or(0), blob.refs, "{blob:?}");
        if let BlobState::Live(BlobPlace::Segment { segment, record_offset }) = blob.state {
            assert!(segment > 0 && record_offset > 0);
            let figures = live.entry(segment).or_default();
            *figures = (figures.0 + blob.len, figures.1 + 1);
        }
        assert_eq!(matches!(blob.state, BlobState::Live(_)), blob.refs > 0);
    }
    assert!(refs.is_empty(), "blobs without rows: {refs:?}");
    let usage = read::segments(&mut conn).await.unwrap().into_iter();
    let usage = usage.filter(|s| s.live_blobs > 0);
    let usage: BTreeMap<u64, _> =
        usage.map(|s| (s.segment, (s.live_bytes, s.live_blobs))).collect();
    assert_eq!(usage, live);
}
