//! A database that is lost or damaged anywhere is noticed, and made again exactly.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use sqlx::{AssertSqlSafe, Column, Row};

use super::files::with_suffix;
use super::recover::recover_on;
use super::start::LogDisk;
use super::tests::{Place, audit, block_on, kit_on, put_packed, remove_database};
use super::*;
use crate::catalog::suite;
use crate::rng::Rng;

/// A version or part as text. Places of packed blobs are those of the table `blobs`: what stands in
/// a body is where the blob was when the row was written.
fn body_text(table: &str, row: &sqlx::sqlite::SqliteRow) -> Option<String> {
    let unplaced = |extents: &mut Vec<crate::model::Extent>| {
        extents.iter_mut().for_each(|e| e.blob.place = crate::model::BlobPlace::File);
    };
    match table {
        "objects" | "versions" => {
            let mut version: ObjectVersion = rows::body(row).unwrap();
            unplaced(&mut version.extents);
            Some(format!("{version:?}"))
        }
        "parts" => {
            let mut part: Part = rows::body(row).unwrap();
            unplaced(&mut part.extents);
            Some(format!("{part:?}"))
        }
        _ => None,
    }
}

/// The same rows; a difference is told by its first line.
#[track_caller]
fn check_same(found: &[String], wanted: &[String]) {
    let differs = found.iter().zip(wanted).find(|(a, b)| a != b);
    assert!(differs.is_none(), "{differs:#?}");
    assert_eq!(found.len(), wanted.len());
}

/// Every row of every table as text, but for what is not promised: announced and dead blobs, the
/// moment at which a completion was recorded, segments without anything alive.
async fn dump(catalog: &SqliteCatalog) -> Vec<String> {
    let mut conn = catalog.reader().await.unwrap();
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' \
                  AND substr(name, 1, 1) <> '_' ORDER BY name";
    let tables = sqlx::query_scalar::<_, String>(tables).fetch_all(&mut *conn).await.unwrap();
    assert!(tables.len() >= 12, "{tables:?}");
    let mut lines = Vec::new();
    for table in tables {
        let wanted = match table.as_str() {
            "blobs" => "WHERE state = 1",
            "segments" => "WHERE live_blobs > 0",
            _ => "",
        };
        let text = AssertSqlSafe(format!("SELECT * FROM {table} {wanted}"));
        let mut of_table = Vec::new();
        for row in sqlx::query(text).fetch_all(&mut *conn).await.unwrap() {
            let mut line = table.clone();
            for column in row.columns() {
                let name = column.name();
                let body = body_text(&table, &row).filter(|_| name == "body");
                let value = body.unwrap_or_else(|| {
                    match (row.try_get_unchecked::<Vec<u8>, _>(name), name) {
                        (_, "completed_ms" | "since_lsn") => "-".to_owned(),
                        (Ok(bytes), _) => hex::encode(bytes),
                        (Err(_), _) => "NULL".to_owned(),
                    }
                });
                line += &format!(" {name}={value}");
            }
            of_table.push(line);
        }
        of_table.sort();
        lines.append(&mut of_table);
    }
    lines
}

fn recover(place: &Place) -> Result<(Arc<SqliteCatalog>, Recovered), OpenError> {
    let disk = || LogDisk::Simulated(place.disk.clone());
    recover_on(disk, place.settings(), place.clock.clone(), Rng::seeded(1))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Any history, with a snapshot somewhere in it, comes back row by row.
    #[test]
    fn any_history_comes_back(
        before in suite::steps(),
        after in suite::steps(),
        snapshot in any::<bool>(),
        lose in 0..3u8,
    ) {
        block_on(async {
            let place = Place::new();
            let catalog = place.open();
            let mut pair = suite::Pair::new(catalog.clone(), place.clock.clone()).await;
            pair.run(before).await;
            if snapshot {
                snapshots::Snapshots::of(&place.database()).take(&catalog).await.unwrap();
            }
            pair.run(after).await;
            let wanted = dump(&catalog).await;
            drop(pair.release_other());
            catalog.close().await;
            drop(catalog);
            match lose {
                0 => remove_database(&place.database()),
                1 => fs::write(place.database(), vec![7; 100_000]).unwrap(),
                _ => {}
            }
            let (catalog, recovered) = recover(&place).unwrap();
            assert_eq!(recovered.snapshot.is_some(), snapshot);
            assert_eq!(recovered.former.is_some(), lose != 0);
            check_same(&dump(&catalog).await, &wanted);
            audit(&catalog).await;
            pair.compare(&*catalog).await;
            catalog.close().await;
        });
    }
}

/// A place with some hundred objects, two snapshots and what the catalog holds, closed.
async fn filled() -> (Place, Vec<String>) {
    let place = Place::new();
    let catalog = place.open();
    let kit = kit_on(&place, &catalog).await;
    let snapshots = snapshots::Snapshots::of(&place.database());
    for n in 0..400 {
        kit.version(put_packed(&kit, &format!("key-{}", n % 150), 100)).await.unwrap();
        if n == 100 || n == 200 {
            snapshots.take(&catalog).await.unwrap();
        }
    }
    let wanted = dump(&catalog).await;
    catalog.close().await;
    drop((kit, catalog));
    (place, wanted)
}

/// Opens the catalog and reads every row through it; `Err` says that the damage was noticed.
async fn read_everything(place: &Place) -> Result<Vec<String>, String> {
    let catalog = place.try_open().map_err(|e| e.to_string())?;
    let found = match catalog.audit().await {
        Err(error) => Err(error.to_string()),
        Ok(found) if found.problems.total > 0 => Err(found.problems.described.join("; ")),
        Ok(_) => Ok(dump(&catalog).await),
    };
    catalog.close().await;
    found
}

fn change(path: &Path, at: usize, with: impl FnOnce(&mut [u8])) {
    let mut bytes = fs::read(path).unwrap();
    with(&mut bytes[at..]);
    fs::write(path, bytes).unwrap();
}

/// Flipped bits all over the file, zeroed and torn sectors, and every truncation tried: the
/// damage is noticed or the rows are what they were, and recovery brings every row back.
#[test]
fn damage_anywhere_in_the_database_is_noticed() {
    block_on(async {
        let (place, wanted) = filled().await;
        let path = place.database();
        let sound = fs::read(&path).unwrap();
        assert!(sound.len() > 100_000, "several levels of pages");
        let rng = Rng::seeded(5);
        let dice = |n: usize| u64::from_le_bytes(rng.bytes()) as usize % n;
        let mut noticed = 0;
        for case in 0..160 {
            match case % 4 {
                0 | 1 => {
                    // The header's bits each once, the others by chance.
                    let at = if case < 60 { case * 2 } else { dice(sound.len()) };
                    change(&path, at, |rest| rest[0] ^= 1 << dice(8));
                }
                2 => {
                    let sector = [512, 4096][dice(2)];
                    let at = dice(sound.len() / sector) * sector;
                    change(&path, at, |rest| rest[..sector].fill(0));
                }
                _ => fs::write(&path, &sound[..dice(sound.len())]).unwrap(),
            }
            let changed = fs::read(&path).unwrap() != sound;
            let found = read_everything(&place).await;
            assert_eq!(found.is_err(), changed, "case {case}: {found:?}");
            noticed += u32::from(changed);
            if case % 16 == 3 {
                let (catalog, _) = recover(&place).unwrap();
                check_same(&dump(&catalog).await, &wanted);
                catalog.close().await;
            }
            for suffix in ["-wal", "-shm"] {
                let _ = fs::remove_file(with_suffix(&path, suffix));
            }
            fs::write(&path, &sound).unwrap();
        }
        assert!(noticed > 100);
    });
}

#[test]
fn a_damaged_snapshot_is_passed_over() {
    block_on(async {
        let (place, wanted) = filled().await;
        let all = snapshots::Snapshots::of(&place.database()).list().unwrap();
        let [older, newer] = all[..] else { panic!("{all:?}") };
        let newest = place.dir.path().join("snapshots").join(format!("{:020}.sqlite", newer.0));
        change(&newest, 9000, |rest| rest[0] ^= 1);
        let (catalog, recovered) = recover(&place).unwrap();
        assert_eq!((recovered.snapshot, recovered.refused.len()), (Some(older), 1));
        check_same(&dump(&catalog).await, &wanted);
        catalog.close().await;
        remove_database(&place.database());
        check_same(&dump(&place.open()).await, &wanted);
    });
}

#[test]
fn what_cannot_be_made_again_stays_where_it_was() {
    block_on(async {
        let (place, _) = filled().await;
        let before = fs::read(place.database()).unwrap();
        fs::remove_dir_all(place.dir.path().join("snapshots")).unwrap();
        // Acknowledged commits in the middle of the log are gone.
        let log = place.disk.files().into_iter().find(|(p, _)| p.extension().is_some());
        let (path, _) = log.expect("a segment");
        assert!(place.disk.flip_bit(&path, 4096 + 70, 0));
        let error = recover(&place).err().expect("refused");
        assert!(matches!(error, OpenError::Log(LogError::Corrupt { .. })), "{error}");
        assert_eq!(fs::read(place.database()).unwrap(), before);
        assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 1);
    });
}
