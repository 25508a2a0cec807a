//! Snapshots of the database beside the commit log, from which a lost database is made again.
//!
//! Owns the directory `snapshots/`. The log needs to reach back only to the newest snapshot, which
//! is what lets compaction remove old segments. Calls block; none is on the path of a request.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{OpenError, SqliteCatalog};
use crate::model::Lsn;

/// The newest snapshots that are kept. The one before the newest is a spare: without the log that
/// was removed since, it gives back an older state.
const KEPT: usize = 2;
const TEMPORARY: &str = "new.tmp";
/// Digits of a commit's position in a file name: as many as a `u64` can have.
const NAME_DIGITS: usize = 20;

/// The snapshots of one catalog.
pub(super) struct Snapshots {
    dir: PathBuf,
}

impl Snapshots {
    /// Those of the database file `catalog`: they stand in `snapshots/` beside it.
    pub fn of(catalog: &Path) -> Snapshots {
        Snapshots { dir: catalog.with_file_name("snapshots") }
    }

    fn path(&self, lsn: Lsn) -> PathBuf {
        self.dir.join(format!("{:0NAME_DIGITS$}.sqlite", lsn.0))
    }

    /// The last commit of each snapshot, rising.
    fn list(&self) -> io::Result<Vec<Lsn>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            found.extend(entry?.file_name().to_str().and_then(parse));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// The last commit that the newest snapshot has.
    pub fn newest(&self) -> io::Result<Option<Lsn>> {
        Ok(self.list()?.pop())
    }

    /// Makes a snapshot, durably, and removes those that are too old.
    pub async fn take(&self, catalog: &SqliteCatalog) -> Result<Lsn, OpenError> {
        fs::create_dir_all(&self.dir)?;
        if let Some(parent) = self.dir.parent() {
            sync_dir(parent)?;
        }
        let temporary = self.dir.join(TEMPORARY);
        remove_if_there(&temporary)?;
        let lsn = catalog.snapshot(&temporary).await?;
        // Opening the copy to read its position may have changed its first page.
        File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, self.path(lsn))?;
        sync_dir(&self.dir)?;
        let all = self.list()?;
        for old in all.iter().rev().skip(KEPT) {
            remove_if_there(&self.path(*old))?;
        }
        Ok(lsn)
    }

    /// Puts the newest snapshot in the place of a database file that is missing; the log then adds
    /// what came later. Tells the snapshot's position, `None` when there is nothing to do.
    pub fn restore_missing(&self, catalog: &Path) -> io::Result<Option<Lsn>> {
        if catalog.exists() {
            return Ok(None);
        }
        let Some(newest) = self.newest()? else { return Ok(None) };
        // Leftovers of the lost file must not be mixed with another one.
        for suffix in ["-wal", "-shm"] {
            remove_if_there(&with_suffix(catalog, suffix))?;
        }
        let temporary = with_suffix(catalog, ".restored");
        fs::copy(self.path(newest), &temporary)?;
        File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, catalog)?;
        if let Some(parent) = catalog.parent() {
            sync_dir(parent)?;
        }
        Ok(Some(newest))
    }
}

fn parse(name: &str) -> Option<Lsn> {
    let digits = name.strip_suffix(".sqlite")?;
    let ok = digits.len() == NAME_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    ok.then(|| digits.parse().ok().map(Lsn)).flatten()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)?.sync_all()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
