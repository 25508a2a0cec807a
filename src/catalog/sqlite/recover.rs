//! Recovery: the database is made again from a snapshot and the commit log, whatever its file is.
//!
//! Never removes the file that it replaces: that one is moved aside, and moved back when nothing
//! better can be made. Blocks; runs while no server uses the directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{remove_if_there, sync_parent, with_suffix};
use super::snapshots::Snapshots;
use super::start::LogDisk;
use super::{OpenError, SqliteCatalog, SqliteSettings};
use crate::clock::Clock;
use crate::model::Lsn;
use crate::rng::Rng;

/// The files of one database.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// What recovery started from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Last commit of the snapshot; `None` when the log alone had everything.
    pub snapshot: Option<Lsn>,
    /// Snapshots that were damaged, or from which the log does not go on.
    pub refused: Vec<String>,
    /// Where the former database was moved, if there was one.
    pub former: Option<PathBuf>,
}

impl SqliteCatalog {
    /// Makes the database again and opens it. The newest sound snapshot that the log continues is
    /// taken, else the log alone.
    ///
    /// **Errors** The reason why the last way did not work; the former file is in its place then.
    pub fn recover(
        settings: SqliteSettings,
        clock: Arc<dyn Clock>,
        rng: Rng,
    ) -> Result<(Arc<SqliteCatalog>, Recovered), OpenError> {
        recover_on(|| LogDisk::Real, settings, clock, rng)
    }
}

pub(super) fn recover_on(
    disk: impl Fn() -> LogDisk,
    settings: SqliteSettings,
    clock: Arc<dyn Clock>,
    rng: Rng,
) -> Result<(Arc<SqliteCatalog>, Recovered), OpenError> {
    let path = settings.path.clone();
    let former = move_aside(&path, clock.now_ms())?;
    let snapshots = Snapshots::of(&path);
    let mut refused = Vec::new();
    let ways = snapshots.list()?.into_iter().rev().map(Some).chain([None]);
    let mut last_error = None;
    for snapshot in ways {
        if let Some(lsn) = snapshot {
            if !snapshots.is_sound(lsn)? {
                refused.push(format!("the snapshot at commit {} is damaged", lsn.0));
                continue;
            }
            snapshots.install(lsn, &path)?;
        }
        match SqliteCatalog::open_as_is(disk(), settings.clone(), clock.clone(), rng.clone()) {
            Ok(catalog) => return Ok((catalog, Recovered { snapshot, refused, former })),
            Err(error) => {
                let from = snapshot.map_or("the log alone".to_owned(), |lsn| {
                    format!("the snapshot at commit {}", lsn.0)
                });
                refused.push(format!("{from}: {error}"));
                last_error.get_or_insert(error);
                remove_database(&path)?;
            }
        }
    }
    if let Some(former) = &former {
        rename_database(former, &path)?;
    }
    Err(last_error.unwrap_or_else(|| io::Error::other("there is nothing to recover from").into()))
}

/// Renames the database's files, so that nothing stands at `path`; tells their new name.
fn move_aside(path: &Path, now_ms: i64) -> io::Result<Option<PathBuf>> {
    if SUFFIXES.iter().all(|suffix| !with_suffix(path, suffix).exists()) {
        return Ok(None);
    }
    let mut former = with_suffix(path, &format!(".former-{now_ms}"));
    for n in 1.. {
        if !former.exists() {
            break;
        }
        former = with_suffix(path, &format!(".former-{now_ms}-{n}"));
    }
    rename_database(path, &former)?;
    Ok(Some(former))
}

fn rename_database(from: &Path, to: &Path) -> io::Result<()> {
    for suffix in SUFFIXES {
        match fs::rename(with_suffix(from, suffix), with_suffix(to, suffix)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    sync_parent(to)
}

fn remove_database(path: &Path) -> io::Result<()> {
    SUFFIXES.iter().try_for_each(|suffix| remove_if_there(&with_suffix(path, suffix)))
}
