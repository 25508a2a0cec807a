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
use crate::sys::fault::{Fault, FaultDisk, FaultError, Op, Survivors};

/// A data directory with a simulated disk for the log.
pub(super) struct Place {
    pub dir: tempfile::TempDir,
    pub disk: FaultDisk,
    pub clock: Arc<ManualClock>,
    index_bytes_max: u64,
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultDisk::new(7);
        let clock = Arc::new(ManualClock::new(1_000));
        Place { dir, disk, clock, index_bytes_max: 1 << 20 }
    }

    pub fn database(&self) -> PathBuf {
        self.dir.path().join("catalog.sqlite")
    }

    pub fn settings(&self) -> SqliteSettings {
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

    pub fn try_open(&self) -> Result<Arc<SqliteCatalog>, OpenError> {
        let disk = LogDisk::Simulated(self.disk.clone());
        SqliteCatalog::open_on(disk, self.settings(), self.clock.clone(), Rng::seeded(1))
    }

    pub fn open(&self) -> Arc<SqliteCatalog> {
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

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Groups decide as the model does one by one, and a restart and a rebuild lose nothing.
    #[test]
    fn groups_match_the_model(steps in suite::steps(), tiny_index in any::<bool>()) {
        check_history(steps, tiny_index, None);
    }
}

/// Random histories and power cuts with new seeds for as long as `Soak` says.
#[test]
#[ignore = "the long form: tests/reliability runs it"]
fn reliability() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    let mut soak = crate::soak::Soak::start();
    while let Some(seed) = soak.next() {
        let mut long = [0; 32];
        long[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &long);
        let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
        let steps = suite::steps().new_tree(&mut runner).expect("steps").current();
        soak.count("operations", steps.len() as u64);
        check_history(steps, seed.is_multiple_of(2), Some(Survivors::Random));
        soak.count("sequences", 1);
        soak.count("crash_states", 2);
    }
    soak.report();
}

/// Runs `steps` on the catalog and on the model; after a restart and after the loss of the database
/// both still agree, with `power_cut` also when the power goes before each.
fn check_history(steps: Vec<suite::Step>, tiny_index: bool, power_cut: Option<Survivors>) {
    block_on(async {
        let mut place = Place::new();
        place.index_bytes_max = if tiny_index { 0 } else { 1 << 20 };
        let catalog = place.open();
        let mut pair = suite::Pair::new(catalog.clone(), place.clock.clone()).await;
        pair.run(steps).await;
        pair.compare(&*catalog).await;
        pair.compare_blobs(&*catalog).await;
        drop(pair.release_other());
        audit(&catalog).await;
        if let Some(survivors) = power_cut {
            place.disk.crash(survivors);
        }
        catalog.close().await;
        drop(catalog);
        let catalog = place.open();
        pair.compare(&*catalog).await;
        if let Some(survivors) = power_cut {
            place.disk.crash(survivors);
        }
        // Connections that are only dropped close later, and would take the new file's WAL.
        catalog.close().await;
        drop(catalog);
        remove_database(&place.database());
        let catalog = place.open();
        pair.compare(&*catalog).await;
        audit(&catalog).await;
        catalog.close().await;
    });
}

pub(super) fn remove_database(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let _ = std::fs::remove_file(name);
    }
}

/// The catalog agrees with itself.
pub(super) async fn audit(catalog: &SqliteCatalog) {
    let audit = catalog.audit().await.unwrap();
    assert_eq!(audit.problems, Problems::default());
}

pub(super) fn put_packed(kit: &suite::Kit, name: &str, len: usize) -> Proposal {
    let n = kit.fresh();
    suite::put(kit.bucket, name, n, suite::packed(n, len))
}

pub(super) async fn kit_on(place: &Place, catalog: &Arc<SqliteCatalog>) -> suite::Kit {
    suite::Kit::new(catalog.clone(), place.clock.clone()).await
}

#[tokio::test]
async fn an_older_copy_of_the_database_catches_up() {
    let place = Place::new();
    let copy = place.dir.path().join("copy.sqlite");
    let catalog = place.open();
    let kit = kit_on(&place, &catalog).await;
    kit.put_packed("a", 10).await;
    let lsn = catalog.snapshot(&copy).await.unwrap();
    assert_eq!(lsn, catalog.applied_lsn().await.unwrap());
    assert!(catalog.snapshot(&copy).await.is_err(), "a snapshot overwrites nothing");
    let (_, b) = kit.put_packed("b", 20).await;
    kit.delete_key("a").await;
    drop((kit, catalog));
    remove_database(&place.database());
    std::fs::copy(&copy, place.database()).unwrap();
    let catalog = place.open();
    let kit = kit_on(&place, &catalog).await;
    assert_eq!(kit.get("a").await, None);
    assert_eq!(kit.get("b").await, Some(b));
    assert!(kit.put_packed("c", 1).await.1.lsn.0 > lsn.0 + 2);
}

#[tokio::test]
async fn acknowledged_commits_survive_a_power_cut() {
    for survivors in [Survivors::None, Survivors::Random, Survivors::All] {
        let place = Place::new();
        let catalog = place.open();
        let kit = kit_on(&place, &catalog).await;
        let (id, a) = kit.put_packed("a", 100_000).await;
        let (_, b) = kit.put_file("b", 3_000_000).await;
        let announced = kit.pending().await;
        place.disk.crash(survivors);
        drop((kit, catalog));
        remove_database(&place.database());
        let catalog = place.open();
        let kit = kit_on(&place, &catalog).await;
        assert_eq!(kit.get("a").await, Some(a));
        assert_eq!(kit.get("b").await, Some(b));
        assert!(catalog.locate(id).await.unwrap().is_some());
        // The announcement was in the database only; the orphan sweep finds its file.
        assert!(catalog.known_blobs(vec![announced]).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn what_was_pending_at_the_end_is_dead_at_the_start() {
    let place = Place::new();
    let catalog = place.open();
    let kit = kit_on(&place, &catalog).await;
    let id = kit.pending().await;
    drop((kit, catalog));
    let catalog = place.open();
    let kit = kit_on(&place, &catalog).await;
    assert_eq!(kit.dead().await, [id]);
}

#[tokio::test]
async fn a_failed_log_commits_nothing_and_recovers() {
    for (op, error) in
        [(Op::Write, FaultError::Io), (Op::Sync, FaultError::Io), (Op::Write, FaultError::NoSpace)]
    {
        let place = Place::new();
        let catalog = place.open();
        let kit = kit_on(&place, &catalog).await;
        let (id, before) = kit.put_packed("a", 10).await;
        place.disk.inject(Fault::next(op, error));
        let refused = kit.refused(put_packed(&kit, "a", 20)).await;
        match error {
            FaultError::NoSpace => assert_eq!(refused, CommitError::NoSpace),
            FaultError::Io => assert!(matches!(refused, CommitError::Failed(_)), "{refused}"),
        }
        assert_eq!(kit.get("a").await, Some(before.clone()));
        assert!(catalog.locate(id).await.unwrap().is_some());
        let (_, after) = kit.put_packed("b", 30).await;
        assert_eq!(after.lsn.0, before.lsn.0 + 1, "{op:?}");
        drop((kit, catalog));
        remove_database(&place.database());
        let catalog = place.open();
        let kit = kit_on(&place, &catalog).await;
        assert_eq!(kit.get("a").await, Some(before));
        assert_eq!(kit.get("b").await, Some(after));
    }
}

async fn rename_table(place: &Place, from: &str, to: &str) {
    let mut conn = schema::connect_writer(&place.database()).await.unwrap();
    let text = sqlx::AssertSqlSafe(format!("ALTER TABLE {from} RENAME TO {to}"));
    sqlx::query(text).execute(&mut conn).await.unwrap();
    sqlx::Connection::close(conn).await.unwrap();
}

#[tokio::test]
async fn what_sqlite_cannot_take_is_kept_and_taken_later() {
    let place = Place::new();
    let catalog = place.open();
    let kit = kit_on(&place, &catalog).await;
    let (_, first) = kit.put_packed("a", 10).await;
    rename_table(&place, "segments", "hidden").await;
    let unknown = kit.refused(put_packed(&kit, "a", 20)).await;
    assert!(matches!(unknown, CommitError::Failed(_)));
    assert_eq!(kit.get("a").await, Some(first));
    let still = kit.refused(put_packed(&kit, "b", 20)).await;
    assert!(matches!(still, CommitError::Failed(_)));
    rename_table(&place, "hidden", "segments").await;
    kit.put_packed("c", 30).await;
    // The log had it, so it counts; what was refused before the log never happened.
    assert_eq!(kit.get("a").await.unwrap().size, 20);
    assert_eq!(kit.get("b").await, None);
    audit(&catalog).await;
}

#[tokio::test]
async fn answers_of_completions_are_kept_for_a_week() {
    let place = Place::new();
    let catalog = place.open();
    let kit = kit_on(&place, &catalog).await;
    let upload = kit.begin("a").await;
    kit.part("a", upload, 1, suite::packed(900, 10)).await.unwrap();
    let request = kit.complete("a", upload, &[1]);
    let first = kit.version(request.clone()).await.unwrap();
    drop((kit, catalog));
    let catalog = place.open();
    let kit = kit_on(&place, &catalog).await;
    let again = kit.version(request.clone()).await.unwrap();
    assert_eq!((again.lsn, again.etag, again.size), (first.lsn, first.etag, first.size));
    place.clock.advance(8 * 24 * 3600 * 1000);
    catalog.forget(Vec::new()).await.unwrap();
    assert_eq!(kit.refused(request).await, CommitError::NoSuchUpload);
}

#[tokio::test]
async fn segments_tell_what_is_alive() {
    let place = Place::new();
    let catalog = place.open();
    let kit = kit_on(&place, &catalog).await;
    kit.put_packed("a", 1_000).await;
    kit.put_packed("b", 500).await;
    kit.delete_key("b").await;
    let segments = catalog.segments().await.unwrap();
    let [one] = segments[..] else { panic!("{segments:?}") };
    assert_eq!((one.live_bytes, one.live_blobs, one.first_lsn), (1_000, 1, Lsn(1)));
    assert_eq!(one.last_lsn, catalog.checkpoint().await.unwrap());
    catalog.forget_segments(vec![one.segment]).await.unwrap();
    assert!(catalog.segments().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_full_queue_refuses_and_loses_nothing() {
    let place = Place::new();
    let mut settings = place.settings();
    (settings.queue_max, settings.group_max) = (4, 2);
    let disk = LogDisk::Simulated(place.disk.clone());
    let clock = place.clock.clone();
    let catalog = SqliteCatalog::open_on(disk, settings, clock, Rng::seeded(1)).unwrap();
    let kit = kit_on(&place, &catalog).await;
    let puts = (0..300).map(|n| catalog.commit(put_packed(&kit, &format!("k{n}"), 10)));
    let answers = futures_util::future::join_all(puts).await;
    let busy = answers.iter().filter(|a| matches!(a, Err(CommitError::Busy))).count();
    let done = answers.iter().filter(|a| a.is_ok()).count();
    assert!(busy > 0 && busy + done == 300);
    assert_eq!(catalog.usage(kit.bucket).await.unwrap().objects, done as u64);
}

#[tokio::test]
async fn closing_finishes_what_waits() {
    let place = Place::new();
    let catalog = place.open();
    let kit = kit_on(&place, &catalog).await;
    let put = catalog.commit(put_packed(&kit, "a", 10));
    let (answer, ()) = futures_util::join!(put, catalog.close());
    answer.unwrap();
    let late = kit.refused(put_packed(&kit, "b", 10)).await;
    assert!(matches!(late, CommitError::Failed(_)));
    assert!(!place.dir.path().join("catalog.sqlite-wal").exists());
}

/// Every statement of the hot paths seeks; a scan would cost more with each object stored.
#[tokio::test]
async fn no_statement_reads_a_whole_table() {
    let place = Place::new();
    let mut conn = schema::connect_writer(&place.database()).await.unwrap();
    let mut names = Vec::new();
    let all =
        rows::query("SELECT name FROM sqlite_schema WHERE type = 'table'", Default::default());
    for row in all.fetch_all(&mut conn).await.unwrap() {
        names.push(sqlx::Row::get::<String, _>(&row, 0));
    }
    let of_lists = [list::statements(), list_versions::statements()].concat();
    let all =
        [persist::statements(), prefetch::statements(), read::statements(), of_lists].concat();
    for text in all {
        let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
        for step in sqlx::query(explain).fetch_all(&mut conn).await.unwrap() {
            let step: String = sqlx::Row::get(&step, "detail");
            let scanned = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
            let whole = scanned.is_some_and(|name| {
                names.iter().any(|n| n == name) || ["o", "n", "p", "v"].contains(&name)
            });
            assert!(!whole, "{step} in {text}");
            // A whole bucket, and rows that are sorted before the first is shown.
            let half = step.ends_with("USING PRIMARY KEY (bucket_id=?)");
            // A bucket that goes takes all its uploads along.
            assert!(!half || step.starts_with("SEARCH uploads"), "{step} in {text}");
            assert!(!step.contains("TEMP B-TREE"), "{step} in {text}");
        }
    }
}
