//! The operator's walks over everything that is stored.
//!
//! Owns walks over the whole catalog and the whole disk, and what they report. It never changes
//! what a client stored, never removes a blob, and never holds up requests: what runs beside the
//! server has a thread and a ring of its own.

mod backup;
mod check;
mod online;
pub mod scrub;

use std::path::Path;
use std::rc::Rc;

pub use backup::{BackupRequest, BackupSummary, WholeBackup, backup, inspect, restore};
pub use check::{CheckReport, check};
pub use online::Backups;

use crate::blob::{BlobError, BlobFiles};
use crate::catalog::ReadError;
use crate::catalog::sqlite::OpenError;
use crate::log::{LogError, LogFiles, SegmentReader};
use crate::sys::engine::IoEngine;
use crate::sys::uring::UringEngine;

/// Blobs that are looked at together: enough to keep a disk array busy.
const IN_FLIGHT: usize = 32;

/// Why a walk ended early. What it found so far is still true.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Catalog(#[from] OpenError),
    #[error("the commit log: {0}")]
    Log(#[from] LogError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error("cannot {action}: {source}")]
    Io { action: &'static str, source: std::io::Error },
    #[error("{0}")]
    Refused(String),
}

impl MaintenanceError {
    fn io(action: &'static str) -> impl FnOnce(std::io::Error) -> MaintenanceError {
        move |source| MaintenanceError::Io { action, source }
    }
}

/// The files of a data directory, for one thread. Made inside a ring.
pub struct Disk {
    blobs: BlobFiles,
    segments: SegmentReader,
    log: LogFiles,
}

impl Disk {
    /// `blobs` and `log` are the directories of that name.
    pub fn new(blobs: &Path, log: &Path) -> Disk {
        Disk::on(Rc::new(UringEngine::new()), blobs, log)
    }

    fn on(engine: Rc<dyn IoEngine>, blobs: &Path, log: &Path) -> Disk {
        Disk {
            blobs: BlobFiles::new(engine.clone(), blobs.to_owned()),
            segments: SegmentReader::new(engine.clone(), log.to_owned()),
            log: LogFiles::new(engine, log.to_owned()),
        }
    }
}
