//! Backup beside a running server: one at a time, on a thread of its own.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{Mutex, oneshot};

use super::{BackupRequest, BackupSummary, Disk, MaintenanceError, backup};
use crate::catalog::sqlite::SqliteCatalog;
use crate::clock::Clock;
use crate::store::Shared;
use crate::sys::uring;

/// What the admin API makes backups with.
pub struct Backups {
    catalog: Arc<SqliteCatalog>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    data_dir: PathBuf,
    one_at_a_time: Mutex<()>,
}

impl Backups {
    /// `data_dir` holds `blobs/` and `log/`.
    pub fn new(
        catalog: Arc<SqliteCatalog>,
        shared: Arc<Shared>,
        clock: Arc<dyn Clock>,
        data_dir: PathBuf,
    ) -> Backups {
        Backups { catalog, shared, clock, data_dir, one_at_a_time: Mutex::new(()) }
    }

    /// Makes a backup. Nothing that is alive now is removed meanwhile.
    ///
    /// **Errors** `Refused` while another one is being made, and as for `backup`.
    /// **Cancel** The backup is made all the same.
    pub async fn make(&self, request: BackupRequest) -> Result<BackupSummary, MaintenanceError> {
        let Ok(_turn) = self.one_at_a_time.try_lock() else {
            return Err(MaintenanceError::Refused("another backup is being made".to_owned()));
        };
        let (reply, answer) = oneshot::channel();
        let (catalog, data_dir) = (self.catalog.clone(), self.data_dir.clone());
        let (keep, now_ms) = (self.shared.keep_all(), self.clock.now_ms());
        let thread = move || {
            let done = uring::run(async {
                let disk = Disk::new(&data_dir.join("blobs"), &data_dir.join("log"));
                backup(&catalog, &disk, &data_dir, &request, now_ms).await
            });
            drop(keep);
            let done = done.map_err(MaintenanceError::io("start a ring")).flatten();
            // Whoever asked may have gone.
            let _ = reply.send(done);
        };
        let named = std::thread::Builder::new().name("backup".into());
        named.spawn(thread).map_err(MaintenanceError::io("start a thread"))?;
        answer.await.map_err(|_| MaintenanceError::Refused("the backup ended in a panic".into()))?
    }
}
