//! The contract suite on SQLite, and what only it has: reopening, replay, groups.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::start::LogDisk;
use super::*;
use crate::catalog::suite;
use crate::clock::ManualClock;
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
