//! Scrub: reads every stored byte and verifies its checksum, slowly, and remembers how far it is.
//!
//! Owns the order of the walk, its pace, and the list of what is damaged. Changes nothing but its
//! own state file. Blobs are visited in the order of their ids, so that a position is one id:
//!
//! ```text
//!   blobs (files and small objects) --> records of the log --> snapshots, catalog --> finished
//! ```

mod service;
mod state;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::time::Instant;

pub use service::{ScrubHandle, ScrubSettings, StartScrub};
pub use state::{DamagedBlob, Phase, ScrubState};

use super::{Disk, MaintenanceError};
use crate::blob::READ_BYTES_MAX;
use crate::catalog::Catalog;
use crate::catalog::sqlite::SqliteCatalog;
use crate::clock::Clock;
use crate::log::LogError;
use crate::model::{BlobId, BlobPlace, BlobRef};

/// Blobs taken from the catalog at a time.
const BATCH_BLOBS: usize = 256;
/// Reads of one blob in flight.
const READS_IN_FLIGHT: usize = 4;
/// How often the state is written down: what a crash makes scrub read again.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// What the owner of a running scrub can see and do, from any thread.
#[derive(Clone, Default)]
pub struct ScrubControl(Arc<Control>);

#[derive(Default)]
struct Control {
    state: Mutex<ScrubState>,
    stop: AtomicBool,
    running: AtomicBool,
    /// **Units** bytes per second; 0 is as fast as the disk.
    rate: AtomicU64,
}

impl ScrubControl {
    pub fn state(&self) -> ScrubState {
        let mut state = self.lock().clone();
        state.running = self.0.running.load(Ordering::Acquire);
        state
    }

    /// Lets the scrub end soon; its state is kept, and the next one goes on from there.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Release);
    }

    pub fn set_rate(&self, bytes_per_second: u64) {
        self.0.rate.store(bytes_per_second, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, ScrubState> {
        // Every change is made whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.0.stop.load(Ordering::Acquire)
    }
}

/// One walk.
pub struct Scrubber {
    catalog: Arc<SqliteCatalog>,
    disk: Disk,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    control: ScrubControl,
    began: Instant,
    /// Bytes read since `began`, for the pace.
    paced: u64,
    saved: Instant,
}

impl Scrubber {
    /// `path` is the state file; a walk that it tells of is continued.
    ///
    /// **Errors** When the state file is there and cannot be read.
    pub fn new(
        catalog: Arc<SqliteCatalog>,
        disk: Disk,
        clock: Arc<dyn Clock>,
        path: PathBuf,
        control: ScrubControl,
    ) -> Result<Scrubber, MaintenanceError> {
        *control.lock() = ScrubState::load(&path)?;
        let now = Instant::now();
        Ok(Scrubber { catalog, disk, clock, path, control, began: now, paced: 0, saved: now })
    }

    /// Goes on where the last walk stopped, or begins a new one (always with `restart`), until it
    /// is finished or stopped.
    ///
    /// **Errors** When the catalog or the log's directory cannot be read; the position is kept.
    pub async fn run(&mut self, restart: bool) -> Result<(), MaintenanceError> {
        self.control.0.stop.store(false, Ordering::Release);
        self.control.0.running.store(true, Ordering::Release);
        (self.began, self.paced) = (Instant::now(), 0);
        let done = self.walk(restart).await;
        let told = self.find_owners().await;
        self.control.0.running.store(false, Ordering::Release);
        let saved = self.save();
        done.and(told).and(saved)
    }

    async fn walk(&mut self, restart: bool) -> Result<(), MaintenanceError> {
        if restart || self.control.lock().phase.is_over() {
            let (blobs, bytes) = self.catalog.live_blob_figures().await?;
            *self.control.lock() = ScrubState::begin(self.clock.now_ms(), blobs, bytes);
        }
        loop {
            let phase = self.control.lock().phase.clone();
            match phase {
                Phase::Blobs { after } => self.blobs(after).await?,
                Phase::Log { after } => self.log(after).await?,
                Phase::Catalog => self.catalog_files().await?,
                Phase::Idle | Phase::Finished => return Ok(()),
            }
            if self.control.stopped() {
                return Ok(());
            }
        }
    }

    async fn blobs(&mut self, after: Option<String>) -> Result<(), MaintenanceError> {
        let mut after = after.and_then(|text| BlobId::from_hex(&text));
        loop {
            let batch = self.catalog.live_blobs_after(after, BATCH_BLOBS).await?;
            if batch.is_empty() {
                self.control.lock().phase = Phase::Log { after: 0 };
                return Ok(());
            }
            for blob in batch {
                if let Err(damage) = self.blob(blob).await
                    && let Some(damage) = self.confirm(blob, damage).await?
                {
                    self.control.lock().add_damaged(blob, damage);
                }
                if self.control.stopped() {
                    return Ok(());
                }
                after = Some(blob.id);
                let mut state = self.control.lock();
                state.phase = Phase::Blobs { after: Some(blob.id.to_string()) };
                state.blobs_done += 1;
                drop(state);
                self.save_now_and_then()?;
            }
        }
    }

    /// Reads a blob whole. `Err` tells the damage.
    async fn blob(&mut self, blob: BlobRef) -> Result<(), String> {
        if blob.place != BlobPlace::File {
            let bytes = self.disk.segments.read_packed(&blob).await.map_err(|e| e.to_string())?;
            self.pace(bytes.len() as u64).await;
            return Ok(());
        }
        let reader = self.disk.blobs.open(blob).await.map_err(|e| e.to_string())?;
        let pieces = (0..blob.len.div_ceil(READ_BYTES_MAX as u64)).map(|n| {
            let at = n * READ_BYTES_MAX as u64;
            let (reader, len) = (reader.clone(), (blob.len - at).min(READ_BYTES_MAX as u64));
            async move { reader.read(at, len as usize).await.map(|bytes| bytes.len() as u64) }
        });
        let mut reads = stream::iter(pieces).buffered(READS_IN_FLIGHT);
        let mut damage: Option<String> = None;
        let mut damaged = 0u64;
        while let Some(read) = reads.next().await {
            match read {
                Ok(len) => self.pace(len).await,
                Err(error) => {
                    damaged += 1;
                    damage.get_or_insert_with(|| error.to_string());
                }
            }
            if self.control.stopped() {
                break;
            }
        }
        match damage {
            Some(first) if damaged > 1 => Err(format!("{first}, and {} more reads", damaged - 1)),
            Some(first) => Err(first),
            None => Ok(()),
        }
    }

    /// Looks again: the blob may have been removed or moved meanwhile, and a disk may have failed
    /// once. `None` when all is well.
    async fn confirm(
        &mut self,
        blob: BlobRef,
        first: String,
    ) -> Result<Option<String>, MaintenanceError> {
        let Some(now) = self.catalog.locate(blob.id).await? else { return Ok(None) };
        match self.blob(now).await {
            Ok(()) if now.place == blob.place => {
                tracing::warn!(blob = %blob.id, first, "damaged at first, sound when read again");
                self.control.lock().sound_when_read_again += 1;
                Ok(None)
            }
            Ok(()) => Ok(None),
            Err(again) => {
                tracing::error!(blob = %blob.id, damage = again, "scrub found a damaged blob");
                Ok(Some(again))
            }
        }
    }

    /// Every record of the segments that are not written any more, dead ones too: a recovery
    /// would need them.
    async fn log(&mut self, after: u64) -> Result<(), MaintenanceError> {
        for segment in self.disk.log.sealed().await? {
            if segment.number.0 <= after {
                continue;
            }
            match self.segment(&segment).await {
                Err(LogError::Gone) | Ok(()) => {}
                Err(error @ LogError::Corrupt { .. }) => {
                    tracing::error!(%error, "scrub found a damaged segment of the log");
                    self.control.lock().problems.push(error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
            if self.control.stopped() {
                return Ok(());
            }
            self.control.lock().phase = Phase::Log { after: segment.number.0 };
            self.save_now_and_then()?;
        }
        self.control.lock().phase = Phase::Catalog;
        Ok(())
    }

    async fn segment(&mut self, segment: &crate::log::SealedSegment) -> Result<(), LogError> {
        let mut scan = self.disk.log.packed(segment).await?;
        let mut before = 0;
        while let Some((_, place)) = scan.next().await? {
            if let BlobPlace::Segment { record_offset, .. } = place {
                self.pace(record_offset.saturating_sub(before)).await;
                before = record_offset;
            }
            if self.control.stopped() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn catalog_files(&mut self) -> Result<(), MaintenanceError> {
        let snapshots = self.catalog.check_snapshots();
        for (lsn, sound) in snapshots.map_err(MaintenanceError::io("read the snapshots"))? {
            if !sound {
                let what = format!("the snapshot at commit {} is damaged", lsn.0);
                self.control.lock().problems.push(what);
            }
        }
        let damage = match self.catalog.check_pages().await {
            Ok(problems) => problems,
            Err(error) => vec![format!("{error}; `goblin-store recover` makes it again")],
        };
        let mut state = self.control.lock();
        state.problems.extend(damage);
        (state.phase, state.finished_ms) = (Phase::Finished, Some(self.clock.now_ms()));
        Ok(())
    }

    /// Names the objects behind damaged blobs that are not named yet.
    async fn find_owners(&mut self) -> Result<(), MaintenanceError> {
        let unnamed = self.control.lock().unnamed();
        if unnamed.is_empty() {
            return Ok(());
        }
        let owners = self.catalog.owners_of(&unnamed).await?;
        self.control.lock().name(&owners);
        Ok(())
    }

    /// Counts bytes and waits as long as the rate asks for.
    async fn pace(&mut self, bytes: u64) {
        self.control.lock().bytes_done += bytes;
        self.paced += bytes;
        let rate = self.control.0.rate.load(Ordering::Relaxed);
        if rate > 0 {
            let due = self.began + Duration::from_secs_f64(self.paced as f64 / rate as f64);
            while Instant::now() < due && !self.control.stopped() {
                let step = Instant::now() + Duration::from_millis(200);
                tokio::time::sleep_until(due.min(step)).await;
            }
        }
    }

    fn save_now_and_then(&mut self) -> Result<(), MaintenanceError> {
        if self.saved.elapsed() < SAVE_EVERY {
            return Ok(());
        }
        self.save()
    }

    fn save(&mut self) -> Result<(), MaintenanceError> {
        self.saved = Instant::now();
        let mut state = self.control.lock().clone();
        state.updated_ms = self.clock.now_ms();
        state.save(&self.path)
    }
}
