//! `goblin-store check`: the catalog against itself, against the disk, and the disk against it.
//!
//! Reads rows, footers and record headers, not the bytes of objects: that is what scrub does.

use std::collections::HashSet;

use futures_util::StreamExt;
use futures_util::stream;
use serde::Serialize;

use super::{Disk, IN_FLIGHT, MaintenanceError};
use crate::blob::BlobError;
use crate::catalog::sqlite::{Audit, KnownBlob, Problems, SqliteCatalog};
use crate::log::LogError;
use crate::model::{BlobId, BlobPlace, Lsn};

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckReport {
    pub buckets: u64,
    pub objects: u64,
    /// Versions that are not current, and delete markers.
    pub other_versions: u64,
    pub parts_of_uploads: u64,
    pub bytes: u64,
    /// Blob files with a footer that matches.
    pub blob_files: u64,
    /// Small objects whose record is where the catalog says.
    pub packed_blobs: u64,
    /// Blob files that wait for their removal; the server takes them.
    pub waiting_files: u64,
    /// Records of the log behind the newest snapshot: what a recovery would read.
    pub log_records: u64,
    /// Descriptions of the first thousand problems.
    pub problems: Vec<String>,
    pub problems_total: u64,
}

/// Compares everything. The catalog is open and nobody commits meanwhile.
///
/// **Errors** When the catalog or a directory cannot be read at all; damage to single blobs is in
/// the report.
pub async fn check(catalog: &SqliteCatalog, disk: &Disk) -> Result<CheckReport, MaintenanceError> {
    let audit = catalog.audit().await?;
    let mut checker = Checker { disk, report: report_of(&audit), problems: audit.problems.clone() };
    checker.catalog_to_disk(&audit.blobs).await;
    checker.disk_to_catalog(&audit.blobs).await?;
    checker.snapshots_and_log(catalog).await?;
    let Checker { mut report, problems, .. } = checker;
    report.problems_total = problems.total;
    report.problems = problems.described;
    Ok(report)
}

fn report_of(audit: &Audit) -> CheckReport {
    CheckReport {
        buckets: audit.buckets,
        objects: audit.objects,
        other_versions: audit.versions,
        parts_of_uploads: audit.parts,
        bytes: audit.bytes,
        ..CheckReport::default()
    }
}

struct Checker<'a> {
    disk: &'a Disk,
    report: CheckReport,
    problems: Problems,
}

impl Checker<'_> {
    /// Every live blob is where the catalog says, with the length that it says.
    async fn catalog_to_disk(&mut self, blobs: &[KnownBlob]) {
        let mut live: Vec<_> = blobs.iter().filter(|b| b.live).map(|b| b.blob).collect();
        // In the order of the disk, as far as that is known.
        live.sort_by_key(|blob| match blob.place {
            BlobPlace::File => (u64::MAX, 0, blob.id),
            BlobPlace::Segment { segment, record_offset } => (segment, record_offset, blob.id),
        });
        let disk = self.disk;
        let looks = live.into_iter().map(|blob| async move {
            let found = match blob.place {
                BlobPlace::File => disk.blobs.open(blob).await.map(drop).map_err(say_blob),
                BlobPlace::Segment { .. } => {
                    disk.segments.check_head(&blob).await.map_err(|e| say_packed(blob.id, &e))
                }
            };
            (blob.place == BlobPlace::File, found)
        });
        let mut looks = stream::iter(looks).buffer_unordered(IN_FLIGHT);
        while let Some((is_file, found)) = looks.next().await {
            match found {
                Ok(()) if is_file => self.report.blob_files += 1,
                Ok(()) => self.report.packed_blobs += 1,
                Err(what) => self.problems.add(what),
            }
        }
    }

    /// Every file is one that the catalog knows.
    async fn disk_to_catalog(&mut self, blobs: &[KnownBlob]) -> Result<(), MaintenanceError> {
        let is_file = |b: &&KnownBlob| b.blob.place == BlobPlace::File;
        let live: HashSet<BlobId> =
            blobs.iter().filter(|b| b.live).filter(is_file).map(|b| b.blob.id).collect();
        let other: HashSet<BlobId> = blobs.iter().filter(|b| !b.live).map(|b| b.blob.id).collect();
        let list = self.disk.blobs.list_all().await;
        let (files, strangers) = list.map_err(MaintenanceError::io("list the blob files"))?;
        for id in files {
            if other.contains(&id) {
                self.report.waiting_files += 1;
            } else if !live.contains(&id) {
                self.problems.add(format!("blob file {id}: the catalog does not know it"));
            }
        }
        for name in strangers {
            self.problems.add(format!("blobs/{name}: not a blob file"));
        }
        for name in self.disk.log.strangers().await? {
            self.problems.add(format!("log/{name}: not a segment"));
        }
        Ok(())
    }

    /// A lost database could be made again: a sound snapshot, and a log that goes on from it.
    async fn snapshots_and_log(&mut self, catalog: &SqliteCatalog) -> Result<(), MaintenanceError> {
        let mut from = Lsn(0);
        let snapshots = catalog.check_snapshots();
        for (lsn, sound) in snapshots.map_err(MaintenanceError::io("read the snapshots"))? {
            if sound {
                from = from.max(lsn);
            } else {
                self.problems.add(format!("the snapshot at commit {} is damaged", lsn.0));
            }
        }
        match self.disk.log.read_records(from).await {
            Ok((records, damaged)) => {
                self.report.log_records = records;
                for lsn in damaged {
                    self.problems
                        .add(format!("the data of commit {} in the log is damaged", lsn.0));
                }
            }
            Err(error @ LogError::Corrupt { .. }) => self.problems.add(format!(
                "{error}; a lost catalog could not be made again from commit {} on",
                from.0
            )),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn say_blob(error: BlobError) -> String {
    error.to_string()
}

fn say_packed(id: BlobId, error: &LogError) -> String {
    match error {
        LogError::Gone => format!("packed blob {id} is not where the catalog says"),
        other => format!("packed blob {id}: {other}"),
    }
}
