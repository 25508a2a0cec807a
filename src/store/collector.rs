//! The garbage collector: the only code that deletes the bytes of a blob.
//!
//! It takes blobs that the catalog calls dead, waits until no read that began before is under way
//! and the grace has passed, removes the file, and then lets the catalog forget the blob. At start
//! it also removes files that the catalog does not know at all: what a power cut left of writes
//! whose announcement was not flushed. It runs on one worker, as a task of its own.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

use super::{Abandoned, ObjectStore, StoreError, StoreResult};
use crate::model::{BlobId, Proposal};

/// How often dead blobs are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Dead blobs taken in one sweep.
const SWEEP_BLOBS_MAX: usize = 1000;

pub struct Collector {
    store: ObjectStore,
    abandoned: Abandoned,
    /// Dead blobs that wait: the epoch that must pass, and when the grace ends.
    waiting: HashMap<BlobId, (u64, Instant)>,
}

impl Collector {
    pub fn new(store: ObjectStore, abandoned: Abandoned) -> Collector {
        Collector { store, abandoned, waiting: HashMap::new() }
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        if let Err(error) = self.remove_orphans().await {
            warn!(%error, "cannot look for orphaned blob files; the next start tries again");
        }
        let mut ticks = interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(id) = self.abandoned.0.recv() => self.abandon(id).await,
                _ = ticks.tick() => {
                    if let Err(error) = self.sweep().await {
                        warn!(%error, "cannot collect dead blobs; trying again");
                    }
                }
            }
        }
    }

    async fn abandon(&self, id: BlobId) {
        if let Err(error) = self.store.commit(Proposal::AbandonBlob { id }).await {
            warn!(blob = %id, %error, "cannot give up a blob; the next start finds it");
        }
    }

    /// One round: learns of dead blobs, and removes those whose time has come.
    async fn sweep(&mut self) -> StoreResult<()> {
        let shared = &self.store.shared;
        let dead = shared.catalog.dead_blobs(SWEEP_BLOBS_MAX).await?;
        if dead.is_empty() {
            self.waiting.clear();
            return Ok(());
        }
        let epoch = shared.pins.advance();
        let due = Instant::now() + shared.settings.delete_grace;
        for blob in &dead {
            self.waiting.entry(blob.id).or_insert((epoch, due));
        }
        let mut gone = Vec::new();
        for blob in dead {
            let Some((epoch, due)) = self.waiting.get(&blob.id) else { continue };
            if Instant::now() < *due || !shared.pins.passed(*epoch) {
                continue;
            }
            shared.arena.remove(blob.id);
            match self.store.blobs.remove(blob.id).await {
                Ok(()) => gone.push(blob.id),
                Err(error) => warn!(blob = %blob.id, %error, "cannot remove a dead blob"),
            }
        }
        for id in &gone {
            self.waiting.remove(id);
        }
        if !gone.is_empty() {
            shared.catalog.forget(gone).await?;
        }
        Ok(())
    }

    /// Removes blob files that no row of the catalog names. New blobs are announced before their
    /// file is made, so that a file without a row is nobody's.
    async fn remove_orphans(&self) -> StoreResult<()> {
        let files = self.store.blobs.list().await.map_err(|e| StoreError::io("list blobs", e))?;
        for chunk in files.chunks(SWEEP_BLOBS_MAX) {
            let known = self.store.shared.catalog.known_blobs(chunk.to_vec()).await?;
            for id in chunk.iter().filter(|id| !known.contains(id)) {
                let removed = self.store.blobs.remove(*id).await;
                removed.map_err(|e| StoreError::io("remove an orphan", e))?;
                info!(blob = %id, "removed a blob file that no commit refers to");
            }
        }
        Ok(())
    }
}
