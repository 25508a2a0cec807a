//! Backup: a consistent copy of the catalog, the list of all blobs, the log's part that small
//! objects are in, and the blob files.
//!
//! Beside a running server as well as without one. What the copied catalog refers to must not be
//! removed meanwhile: the caller holds a pin. The directory, in the order in which it is written:
//!
//! ```text
//!   log/N.seg          segments with small objects, up to the catalog's last commit
//!   blobs/XX/ID.blob   blob files; those of an earlier backup in the same directory are kept
//!   catalog.sqlite     the catalog, as one of its snapshots
//!   manifest.jsonl     one line for each blob
//!   backup.json        written last: without it there is no backup
//! ```

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Disk, MaintenanceError};
use crate::catalog::sqlite::SqliteCatalog;
use crate::model::{BlobPlace, BlobRef, Lsn};
use crate::sys::durable::write_durably;

const FORMAT: &str = "goblin-store backup 1";
const SUMMARY: &str = "backup.json";
const CATALOG: &str = "catalog.sqlite";
const MANIFEST: &str = "manifest.jsonl";

/// What is wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackupRequest {
    /// A directory that is empty, missing, or holds an earlier backup.
    pub to: PathBuf,
    /// Leaves the blob files to the operator, who copies them by the manifest.
    #[serde(default)]
    pub without_blobs: bool,
}

/// `backup.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupSummary {
    pub format: String,
    /// The last commit that the backup contains.
    pub last_commit: u64,
    /// **Units** milliseconds since the Unix epoch.
    pub created_ms: i64,
    pub blobs: u64,
    pub bytes: u64,
    /// Blob files that were copied now; others were there.
    pub files_copied: u64,
    pub segments: Vec<u64>,
    pub without_blobs: bool,
}

/// A line of the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestLine {
    pub blob: String,
    pub bytes: u64,
    /// Below the backup's directory, as below the data directory.
    pub file: String,
    /// Where in a segment the record of a small object begins.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub offset: Option<u64>,
}

impl ManifestLine {
    fn of(blob: &BlobRef) -> ManifestLine {
        let id = blob.id.to_string();
        let (file, offset) = match blob.place {
            BlobPlace::File => (format!("blobs/{}/{id}.blob", &id[..2]), None),
            BlobPlace::Segment { segment, record_offset } => {
                (format!("log/{segment:020}.seg"), Some(record_offset))
            }
        };
        ManifestLine { blob: id, bytes: blob.len, file, offset }
    }
}

fn io_error(action: &'static str) -> impl FnOnce(io::Error) -> MaintenanceError {
    MaintenanceError::io(action)
}

/// Writes a backup. `data_dir` is where the blob files are.
///
/// **Errors** When the directory holds something else, or anything cannot be copied; an earlier
/// backup in it may be incomplete then.
pub async fn backup(
    catalog: &SqliteCatalog,
    disk: &Disk,
    data_dir: &Path,
    request: &BackupRequest,
    now_ms: i64,
) -> Result<BackupSummary, MaintenanceError> {
    let to = &request.to;
    prepare(to)?;
    let next = to.join("catalog.next");
    remove_if_there(&next).map_err(io_error("clear the backup's directory"))?;
    let lsn = catalog.snapshot(&next).await?;
    let blobs = crate::catalog::sqlite::blobs_in_copy(&next).await?;
    let segments = copy_segments(disk, &blobs, lsn, to).await?;
    let mut files_copied = 0;
    if !request.without_blobs {
        for blob in blobs.iter().filter(|blob| blob.place == BlobPlace::File) {
            files_copied += u64::from(copy_blob(data_dir, to, blob)?);
        }
    }
    write_manifest(to, &blobs).map_err(io_error("write the manifest"))?;
    fs::rename(&next, to.join(CATALOG)).map_err(io_error("name the catalog's copy"))?;
    let summary = BackupSummary {
        format: FORMAT.to_owned(),
        last_commit: lsn.0,
        created_ms: now_ms,
        blobs: blobs.len() as u64,
        bytes: blobs.iter().map(|blob| blob.len).sum(),
        files_copied,
        segments,
        without_blobs: request.without_blobs,
    };
    let text = serde_json::to_vec_pretty(&summary).map_err(io::Error::other);
    text.and_then(|text| write_durably(&to.join(SUMMARY), &text, 0o600))
        .map_err(io_error("write the backup's summary"))?;
    Ok(summary)
}

/// The directory, without a summary until the backup is whole.
fn prepare(to: &Path) -> Result<(), MaintenanceError> {
    fs::create_dir_all(to).map_err(io_error("make the backup's directory"))?;
    let mut entries = fs::read_dir(to).map_err(io_error("list the backup's directory"))?;
    if entries.next().is_some() && !to.join(SUMMARY).exists() && !to.join("catalog.next").exists() {
        let what = format!("{} is not empty and holds no backup", to.display());
        return Err(MaintenanceError::Refused(what));
    }
    // An interrupted backup keeps its half-made catalog as the sign that the directory is ours.
    let next = to.join("catalog.next");
    File::create(&next).map_err(io_error("write to the backup's directory"))?;
    remove_if_there(&to.join(SUMMARY)).map_err(io_error("clear the backup's directory"))
}

/// Copies the segments that small objects are in, and the last one, which keeps numbers rising.
async fn copy_segments(
    disk: &Disk,
    blobs: &[BlobRef],
    lsn: Lsn,
    to: &Path,
) -> Result<Vec<u64>, MaintenanceError> {
    let dir = to.join("log");
    // Segments of an earlier backup may have ended earlier.
    if dir.exists() {
        fs::remove_dir_all(&dir).map_err(io_error("clear the backup's log"))?;
    }
    fs::create_dir_all(&dir).map_err(io_error("make the backup's log"))?;
    let mut wanted: Vec<u64> = blobs
        .iter()
        .filter_map(|blob| match blob.place {
            BlobPlace::Segment { segment, .. } => Some(segment),
            BlobPlace::File => None,
        })
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    let all = disk.log.spans(lsn).await?;
    let mut copied = Vec::new();
    for (index, span) in all.iter().enumerate() {
        let is_last = index + 1 == all.len();
        if wanted.binary_search(&span.number.0).is_ok() || is_last {
            let name = format!("{:020}.seg", span.number.0);
            copy_start(&span.path, &dir.join(name), span.bytes)
                .map_err(io_error("copy a log segment"))?;
            copied.push(span.number.0);
        }
    }
    if let Some(missing) = wanted.iter().find(|number| !copied.contains(number)) {
        return Err(MaintenanceError::Refused(format!("log segment {missing} is missing")));
    }
    sync_dir(&dir)?;
    Ok(copied)
}

/// Copies the first `bytes` of a file, durably.
fn copy_start(from: &Path, to: &Path, bytes: u64) -> io::Result<()> {
    let mut source = File::open(from)?.take(bytes);
    let mut target = File::create(to)?;
    io::copy(&mut source, &mut target)?;
    target.sync_all()
}

/// Copies a blob file unless it is there; tells whether it did.
fn copy_blob(data_dir: &Path, to: &Path, blob: &BlobRef) -> Result<bool, MaintenanceError> {
    let file = ManifestLine::of(blob).file;
    let (source, target) = (data_dir.join(&file), to.join(&file));
    let bytes = fs::metadata(&source).map_err(io_error("find a blob file"))?.len();
    // Blobs never change and ids are never used again.
    if fs::metadata(&target).is_ok_and(|there| there.len() == bytes) {
        return Ok(false);
    }
    let parent = target.parent().unwrap_or(to);
    fs::create_dir_all(parent).map_err(io_error("make a directory of blob files"))?;
    let temporary = target.with_extension("new");
    fs::copy(&source, &temporary)
        .and_then(|_| File::open(&temporary)?.sync_all())
        .and_then(|()| fs::rename(&temporary, &target))
        .map_err(io_error("copy a blob file"))?;
    Ok(true)
}

fn write_manifest(to: &Path, blobs: &[BlobRef]) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(to.join(MANIFEST))?);
    for blob in blobs {
        serde_json::to_writer(&mut out, &ManifestLine::of(blob))?;
        out.write_all(b"\n")?;
    }
    out.into_inner().map_err(|e| e.into_error())?.sync_all()
}

fn sync_dir(dir: &Path) -> Result<(), MaintenanceError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("flush a directory"))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// A backup that was looked at: all its files are there.
#[derive(Debug)]
pub struct WholeBackup {
    from: PathBuf,
    summary: BackupSummary,
    lines: Vec<ManifestLine>,
}

/// Looks at a backup before it is restored.
///
/// **Errors** `Refused` when it is not whole.
pub fn inspect(from: &Path) -> Result<WholeBackup, MaintenanceError> {
    let text = fs::read(from.join(SUMMARY)).map_err(io_error("read the backup's summary"))?;
    let summary: BackupSummary = serde_json::from_slice(&text)
        .map_err(|e| MaintenanceError::Refused(format!("{SUMMARY} is not understood: {e}")))?;
    if summary.format != FORMAT {
        let what = format!("the backup is {:?}, and this program knows {FORMAT:?}", summary.format);
        return Err(MaintenanceError::Refused(what));
    }
    let lines = verify(from, &summary)?;
    Ok(WholeBackup { from: from.to_owned(), summary, lines })
}

/// Copies a backup into `data_dir`, which has no data yet. The catalog is put there last; open it
/// to finish. The caller has the lock.
pub fn restore(backup: WholeBackup, data_dir: &Path) -> Result<BackupSummary, MaintenanceError> {
    let WholeBackup { from, summary, lines } = backup;
    let mut files: Vec<String> = lines.into_iter().map(|line| line.file).collect();
    files.extend(summary.segments.iter().map(|number| format!("log/{number:020}.seg")));
    files.sort_unstable();
    files.dedup();
    for file in &files {
        copy_durably(&from.join(file), &data_dir.join(file)).map_err(io_error("copy a file"))?;
    }
    let mut dirs: Vec<_> =
        files.iter().filter_map(|file| data_dir.join(file).parent().map(Path::to_owned)).collect();
    dirs.dedup();
    dirs.iter().try_for_each(|dir| sync_dir(dir))?;
    // A database that is lost later is made again from here: the log does not reach back further.
    let snapshot = data_dir.join("snapshots").join(format!("{:020}.sqlite", summary.last_commit));
    for target in [&snapshot, &data_dir.join(CATALOG)] {
        copy_durably(&from.join(CATALOG), target).map_err(io_error("copy the catalog"))?;
    }
    sync_dir(&data_dir.join("snapshots"))?;
    sync_dir(data_dir)?;
    Ok(summary)
}

/// Every file of the manifest is there, and the catalog's copy is sound.
fn verify(from: &Path, summary: &BackupSummary) -> Result<Vec<ManifestLine>, MaintenanceError> {
    let refused = |what: String| Err(MaintenanceError::Refused(what));
    let damaged = crate::catalog::sqlite::damaged_pages_of_copy(&from.join(CATALOG))
        .map_err(io_error("read the backup's catalog"))?;
    if let Some(page) = damaged.first() {
        return refused(format!("page {page} of the backup's catalog is damaged"));
    }
    let text = fs::read_to_string(from.join(MANIFEST)).map_err(io_error("read the manifest"))?;
    let lines: Result<Vec<ManifestLine>, _> = text.lines().map(serde_json::from_str).collect();
    let Ok(lines) = lines else { return refused(format!("{MANIFEST} is not understood")) };
    if lines.len() as u64 != summary.blobs {
        return refused(format!("{MANIFEST} has {} of {} blobs", lines.len(), summary.blobs));
    }
    let missing: Vec<_> = lines.iter().filter(|line| !from.join(&line.file).exists()).collect();
    if let Some(first) = missing.first() {
        return refused(format!("{} files are missing, such as {}", missing.len(), first.file));
    }
    Ok(lines)
}

fn copy_durably(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to)?;
    File::open(to)?.sync_all()
}
