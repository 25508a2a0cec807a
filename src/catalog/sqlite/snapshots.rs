//! Snapshots of the database beside the commit log, from which a lost database is made again.
//!
//! Owns the directory `snapshots/`. The log needs to reach back only to the newest snapshot, which
//! is what lets compaction remove old segments. Calls block; none is on the path of a request.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::files::{self, remove_if_there, sync_parent, with_suffix};
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
    pub fn list(&self) -> io::Result<Vec<Lsn>> {
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
        sync_parent(&self.dir)?;
        let temporary = self.dir.join(TEMPORARY);
        remove_if_there(&temporary)?;
        let lsn = catalog.snapshot(&temporary).await?;
        // Opening the copy to read its position may have changed its first page.
        File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, self.path(lsn))?;
        sync_parent(&temporary)?;
        let all = self.list()?;
        for old in all.iter().rev().skip(KEPT) {
            remove_if_there(&self.path(*old))?;
        }
        Ok(lsn)
    }

    /// Puts the newest sound snapshot in the place of a database file that is missing; the log then
    /// adds what came later. Tells the snapshot's position, `None` when there is nothing to do.
    pub fn restore_missing(&self, catalog: &Path) -> io::Result<Option<Lsn>> {
        if catalog.exists() {
            return Ok(None);
        }
        for lsn in self.list()?.into_iter().rev() {
            if self.is_sound(lsn)? {
                self.install(lsn, catalog)?;
                return Ok(Some(lsn));
            }
        }
        Ok(None)
    }

    /// Whether every page of a snapshot is as it was written. A damaged one is logged.
    pub fn is_sound(&self, lsn: Lsn) -> io::Result<bool> {
        let path = self.path(lsn);
        let damaged = files::damaged_pages(&path, 1)?;
        if let Some(page) = damaged.first() {
            tracing::error!(path = %path.display(), page, "a snapshot of the catalog is damaged");
        }
        Ok(damaged.is_empty())
    }

    /// Copies a snapshot to `catalog`, durably.
    pub fn install(&self, lsn: Lsn, catalog: &Path) -> io::Result<()> {
        // Leftovers of the lost file must not be mixed with another one.
        for suffix in ["-wal", "-shm"] {
            remove_if_there(&with_suffix(catalog, suffix))?;
        }
        let temporary = with_suffix(catalog, ".restored");
        fs::copy(self.path(lsn), &temporary)?;
        File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, catalog)?;
        sync_parent(catalog)
    }
}

fn parse(name: &str) -> Option<Lsn> {
    let digits = name.strip_suffix(".sqlite")?;
    let ok = digits.len() == NAME_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    ok.then(|| digits.parse().ok().map(Lsn)).flatten()
}
