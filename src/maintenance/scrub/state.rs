//! How far a scrub is and what it found: kept in memory and in a small file.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::MaintenanceError;
use crate::model::{BlobId, BlobPlace, BlobRef};
use crate::sys::durable::write_durably;

/// Damaged blobs that are listed; more are only counted.
const DAMAGED_MAX: usize = 1000;

/// Where the walk is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// None was begun.
    #[default]
    Idle,
    /// `after` is the last blob that was read, as hex digits.
    Blobs {
        after: Option<String>,
    },
    /// `after` is the number of the last segment that was read.
    Log {
        after: u64,
    },
    Catalog,
    Finished,
}

impl Phase {
    pub fn is_over(&self) -> bool {
        matches!(self, Phase::Idle | Phase::Finished)
    }
}

/// A blob whose bytes on disk are not those that were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedBlob {
    pub blob: String,
    /// The file below the data directory, or segment and offset.
    pub place: String,
    pub damage: String,
    /// What refers to it: `bucket/key`, with `?versionId=` or `?uploadId=` where that is needed.
    pub objects: Vec<String>,
}

/// Everything about the present or last walk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubState {
    pub phase: Phase,
    /// Not stored: whether it goes on at this moment.
    pub running: bool,
    /// Stopped by the operator: it does not go on by itself.
    pub paused: bool,
    /// **Units** milliseconds since the Unix epoch, as the other times.
    pub started_ms: i64,
    pub updated_ms: i64,
    pub finished_ms: Option<i64>,
    /// Blobs and bytes as they were when the walk began; the log's own records come on top.
    pub blobs_total: u64,
    pub bytes_total: u64,
    pub blobs_done: u64,
    pub bytes_done: u64,
    pub sound_when_read_again: u64,
    pub damaged: Vec<DamagedBlob>,
    pub damaged_total: u64,
    /// Damage to the log, the snapshots and the catalog.
    pub problems: Vec<String>,
}

impl ScrubState {
    pub(super) fn begin(now_ms: i64, blobs: u64, bytes: u64) -> ScrubState {
        ScrubState {
            phase: Phase::Blobs { after: None },
            started_ms: now_ms,
            blobs_total: blobs,
            bytes_total: bytes,
            ..ScrubState::default()
        }
    }

    /// True when nothing that was read so far is damaged.
    pub fn is_sound(&self) -> bool {
        self.damaged_total == 0 && self.problems.is_empty()
    }

    pub(super) fn load(path: &Path) -> Result<ScrubState, MaintenanceError> {
        let text = match std::fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(ScrubState::default()),
            text => text.map_err(MaintenanceError::io("read the state of scrub"))?,
        };
        let state: Result<ScrubState, _> = serde_json::from_slice(&text);
        // A damaged position is worth a warning and a walk from the beginning, no more.
        Ok(state.map(|state| ScrubState { running: false, ..state }).unwrap_or_else(|error| {
            tracing::warn!(%error, path = %path.display(), "the state of scrub is not readable");
            ScrubState::default()
        }))
    }

    pub(super) fn save(&self, path: &Path) -> Result<(), MaintenanceError> {
        let stored = ScrubState { running: false, ..self.clone() };
        let text = serde_json::to_vec_pretty(&stored).map_err(io::Error::other);
        text.and_then(|text| write_durably(path, &text, 0o600))
            .map_err(MaintenanceError::io("write the state of scrub"))
    }

    pub(super) fn add_damaged(&mut self, blob: BlobRef, damage: String) {
        self.damaged_total += 1;
        if self.damaged.len() < DAMAGED_MAX {
            let id = blob.id.to_string();
            let place = match blob.place {
                BlobPlace::File => format!("blobs/{}/{id}.blob", &id[..2]),
                BlobPlace::Segment { segment, record_offset } => {
                    format!("log/{segment:020}.seg at byte {record_offset}")
                }
            };
            self.damaged.push(DamagedBlob { blob: id, place, damage, objects: Vec::new() });
        }
    }

    pub(super) fn unnamed(&self) -> Vec<BlobId> {
        let unnamed = self.damaged.iter().filter(|damaged| damaged.objects.is_empty());
        unnamed.filter_map(|damaged| BlobId::from_hex(&damaged.blob)).collect()
    }

    pub(super) fn name(&mut self, owners: &[(BlobId, String)]) {
        for damaged in &mut self.damaged {
            let id = BlobId::from_hex(&damaged.blob);
            let of_it = owners.iter().filter(|(owned, _)| Some(*owned) == id);
            damaged.objects.extend(of_it.map(|(_, name)| name.clone()));
        }
    }
}
