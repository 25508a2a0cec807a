//! Compaction of the commit log: makes segments removable.
//!
//! A segment may go when nothing alive is packed in it any more, when the database file has its
//! commits durably, and when a snapshot has them too, so that a lost database can still be made
//! again. `Compactor` brings that about, round by round, and tells which segments have come so
//! far. Its caller removes them once no read can be under way that began with an older place.
//! Runs on a thread of its own: it reads whole segments and waits for flushes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::snapshots::Snapshots;
use super::{OpenError, SqliteCatalog};
use crate::catalog::{Catalog, ReadError};
use crate::log::{Candidate, LogError, LogFiles, PackedScan, SealedSegment, SegmentNumber, choose};
use crate::model::commit::PackedBytes;
use crate::model::{BlobPlace, CommitError, Lsn, Proposal};

/// Packed blobs that are looked up together.
const BATCH_BLOBS_MAX: usize = 256;
/// Bytes that such a batch may hold, in about: one blob more.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Blobs that are being moved at the same time.
const MOVES_IN_FLIGHT: usize = 32;
/// The pause before a move is tried again while the commit queue is full.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// When compaction acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactSettings {
    /// A segment of which more than this is alive is left alone. **Units** percent.
    pub live_percent_max: u64,
    /// Bytes of packed blobs moved in one round; the emptiest segment is emptied in any case.
    pub move_bytes_max: u64,
    /// Bytes of segments that wait for a snapshot only, before one is taken. A snapshot costs as
    /// much as the database is long.
    pub snapshot_after_bytes: u64,
}

impl Default for CompactSettings {
    fn default() -> CompactSettings {
        CompactSettings {
            live_percent_max: 50,
            move_bytes_max: 256 << 20,
            snapshot_after_bytes: 1 << 30,
        }
    }
}

/// What compaction has done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactStats {
    pub moved_blobs: u64,
    pub moved_bytes: u64,
    pub snapshots: u64,
    pub removed_segments: u64,
    pub removed_bytes: u64,
}

/// A failed round. The next one tries again; nothing is lost.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    #[error("the commit log: {0}")]
    Log(#[from] LogError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("moving a packed blob: {0}")]
    Commit(#[from] CommitError),
    #[error("taking a snapshot: {0}")]
    Snapshot(#[from] OpenError),
    #[error("the directory of snapshots: {0}")]
    Io(#[from] io::Error),
}

/// A segment without a live blob, on its way out.
#[derive(Clone, Copy, Debug)]
struct Emptied {
    segment: SealedSegment,
    /// The last commit when it was empty: covers the commits that moved its blobs.
    at: Lsn,
}

/// See the module. One per catalog.
pub struct Compactor {
    catalog: Arc<SqliteCatalog>,
    files: LogFiles,
    settings: CompactSettings,
    snapshots: Snapshots,
    emptied: BTreeMap<SegmentNumber, Emptied>,
    /// Told to the operator once, then left alone.
    damaged: BTreeSet<SegmentNumber>,
    stats: CompactStats,
}

impl Compactor {
    /// `files` are those of the catalog's own log.
    pub fn new(
        catalog: Arc<SqliteCatalog>,
        files: LogFiles,
        settings: CompactSettings,
    ) -> Compactor {
        let snapshots = Snapshots::of(catalog.path());
        let (emptied, damaged) = (BTreeMap::new(), BTreeSet::new());
        let stats = CompactStats::default();
        Compactor { catalog, files, settings, snapshots, emptied, damaged, stats }
    }

    pub fn stats(&self) -> CompactStats {
        self.stats
    }

    /// Moves blobs, takes a snapshot and checkpoints as far as that is worth it now; returns the
    /// segments that may go. They are returned again until they are removed.
    ///
    /// **Errors** Any; try again later.
    pub async fn round(&mut self) -> Result<Vec<SegmentNumber>, CompactError> {
        for segment in self.chosen().await? {
            match self.empty(&segment).await {
                Err(CompactError::Log(error @ LogError::Corrupt { .. })) => {
                    tracing::error!(%error, "a log segment cannot be compacted and is kept");
                    self.damaged.insert(segment.number);
                }
                done => done?,
            }
        }
        if self.emptied.is_empty() {
            return Ok(Vec::new());
        }
        let snapshot = self.snapshot_if_worth_it().await?;
        if !self.emptied.values().any(|e| e.segment.last_lsn <= snapshot) {
            return Ok(Vec::new());
        }
        let durable = self.catalog.checkpoint().await?;
        let may_go = |e: &&Emptied| e.segment.last_lsn <= snapshot && e.at <= durable;
        Ok(self.emptied.values().filter(may_go).map(|e| e.segment.number).collect())
    }

    /// Removes segments that `round` returned.
    ///
    /// **Errors** `Log`, `Commit`; those that are left are returned by the next round.
    pub async fn remove(&mut self, numbers: &[SegmentNumber]) -> Result<(), CompactError> {
        let mut gone = Vec::new();
        for number in numbers {
            let Some(emptied) = self.emptied.get(number) else { continue };
            self.files.remove(*number).await?;
            self.stats.removed_segments += 1;
            self.stats.removed_bytes += emptied.segment.bytes;
            self.emptied.remove(number);
            gone.push(number.0);
        }
        Ok(self.catalog.forget_segments(gone).await?)
    }

    async fn chosen(&self) -> Result<Vec<SealedSegment>, CompactError> {
        let live = self.live_bytes().await?;
        let mut candidates = Vec::new();
        for segment in self.files.sealed().await? {
            let number = segment.number;
            if !self.emptied.contains_key(&number) && !self.damaged.contains(&number) {
                let live_bytes = live.get(&number.0).map_or(0, |(bytes, _)| *bytes);
                candidates.push(Candidate { segment, live_bytes });
            }
        }
        let CompactSettings { live_percent_max, move_bytes_max, .. } = self.settings;
        Ok(choose(&candidates, live_percent_max, move_bytes_max))
    }

    /// Live bytes and blobs of each segment.
    async fn live_bytes(&self) -> Result<HashMap<u64, (u64, u64)>, CompactError> {
        let usage = self.catalog.segments().await?;
        Ok(usage.into_iter().map(|u| (u.segment, (u.live_bytes, u.live_blobs))).collect())
    }

    /// Moves what is alive in a segment to the end of the log.
    async fn empty(&mut self, segment: &SealedSegment) -> Result<(), CompactError> {
        // Commits of the segment must all be in the figures and tables that are asked below.
        if self.catalog.applied_lsn().await? < segment.last_lsn {
            return Ok(());
        }
        let mut scan = self.files.packed(segment).await?;
        loop {
            let batch = next_batch(&mut scan).await?;
            if batch.is_empty() {
                break;
            }
            self.move_live(batch).await?;
        }
        let left = self.live_bytes().await?.get(&segment.number.0).map_or(0, |(_, blobs)| *blobs);
        if left > 0 {
            // Two independent accounts disagree; deleting on one of them could lose an object.
            tracing::error!(
                segment = segment.number.0,
                blobs = left,
                "a log segment should hold live blobs that are not in it, and is kept"
            );
            self.damaged.insert(segment.number);
            return Ok(());
        }
        let at = self.catalog.applied_lsn().await?;
        self.emptied.insert(segment.number, Emptied { segment: *segment, at });
        Ok(())
    }

    async fn move_live(
        &mut self,
        batch: Vec<(PackedBytes, BlobPlace)>,
    ) -> Result<(), CompactError> {
        let ids = batch.iter().map(|(packed, _)| packed.id).collect();
        let known: BTreeSet<_> = self.catalog.known_blobs(ids).await?.into_iter().collect();
        let live = batch.into_iter().filter(|(packed, _)| known.contains(&packed.id));
        let catalog = &*self.catalog;
        let moves = stream::iter(live.map(|(packed, from)| move_blob(catalog, packed, from)));
        let moved: Vec<u64> = moves.buffer_unordered(MOVES_IN_FLIGHT).try_collect().await?;
        self.stats.moved_blobs += moved.iter().filter(|bytes| **bytes > 0).count() as u64;
        self.stats.moved_bytes += moved.iter().sum::<u64>();
        Ok(())
    }

    /// The position that the newest snapshot covers, after taking one if enough waits for it.
    async fn snapshot_if_worth_it(&mut self) -> Result<Lsn, CompactError> {
        let newest = self.snapshots.newest()?.unwrap_or_default();
        let waiting = self.emptied.values().filter(|e| e.segment.last_lsn > newest);
        let bytes: u64 = waiting.map(|e| e.segment.bytes).sum();
        if bytes == 0 || bytes < self.settings.snapshot_after_bytes {
            return Ok(newest);
        }
        let lsn = self.snapshots.take(&self.catalog).await?;
        self.stats.snapshots += 1;
        Ok(lsn)
    }
}

async fn next_batch(scan: &mut PackedScan) -> Result<Vec<(PackedBytes, BlobPlace)>, LogError> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while batch.len() < BATCH_BLOBS_MAX && bytes < BATCH_BYTES_MAX {
        let Some(found) = scan.next().await? else { break };
        bytes += found.0.bytes.len();
        batch.push(found);
    }
    Ok(batch)
}

/// Moves one blob if it is alive and still where `from` says; returns the bytes moved.
async fn move_blob(
    catalog: &SqliteCatalog,
    data: PackedBytes,
    from: BlobPlace,
) -> Result<u64, CompactError> {
    let alive = catalog.locate(data.id).await?.is_some_and(|blob| blob.place == from);
    if !alive {
        return Ok(0);
    }
    loop {
        match catalog.commit(Proposal::Relocate { data: data.clone(), from }).await {
            Err(CommitError::Busy) => tokio::time::sleep(BUSY_PAUSE).await,
            done => return Ok(done.map(|_| data.bytes.len() as u64)?),
        }
    }
}
