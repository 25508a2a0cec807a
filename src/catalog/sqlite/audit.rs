//! The audit: every row is read, and what can be counted is counted anew.
//!
//! Owns the judgement whether the database agrees with itself; whether it agrees with the disk is
//! the store's to find out, with the list of blobs from here. Changes nothing. Its memory grows
//! with the number of blobs (about 100 bytes each): it is for commands, not for requests.

use std::collections::{BTreeMap, HashMap};

use futures_util::TryStreamExt;
use sqlx::{Row, SqliteConnection};

use super::rows::{self, Args, SqlResult, query};
use super::{SqliteCatalog, read, read_failed};
use crate::catalog::decide::BlobState;
use crate::catalog::{ReadResult, Usage};
use crate::model::{BlobId, BlobPlace, BlobRef, Bucket, BucketId, Extent, ObjectVersion, Part};

/// Problems that are described; more are only counted.
const PROBLEMS_MAX: usize = 1000;

/// What is wrong, in words: the first thousand, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    pub described: Vec<String>,
    pub total: u64,
}

impl Problems {
    pub fn add(&mut self, what: String) {
        self.total += 1;
        if self.described.len() < PROBLEMS_MAX {
            self.described.push(what);
        }
    }
}

/// A blob that the catalog knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownBlob {
    pub blob: BlobRef,
    /// Something refers to it. Others are announced or dead, and their files may be there or not.
    pub live: bool,
}

/// What is in a catalog.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    pub buckets: u64,
    /// Current versions.
    pub objects: u64,
    /// Other versions and delete markers.
    pub versions: u64,
    pub parts: u64,
    /// Bytes of all versions and parts together.
    pub bytes: u64,
    pub blobs: Vec<KnownBlob>,
    pub problems: Problems,
}

impl SqliteCatalog {
    /// Reads everything. Commits meanwhile are not seen.
    ///
    /// **Errors** When the database cannot be read, as with a damaged page.
    pub async fn audit(&self) -> ReadResult<Audit> {
        let mut reader = self.reader().await?;
        let mut auditor = Auditor::default();
        let done = auditor.run(&mut reader).await;
        // Ends the transaction that kept the view; harmless when there is none.
        let ended = sqlx::raw_sql("ROLLBACK").execute(&mut *reader).await;
        done.and(ended.map(|_| ())).map_err(read_failed)?;
        Ok(auditor.audit)
    }
}

#[derive(Default)]
struct Auditor {
    audit: Audit,
    refs: HashMap<BlobId, Counted>,
    usage: HashMap<BucketId, Usage>,
}

/// References to one blob, as counted, and the length that the extents tell.
struct Counted {
    refs: u64,
    len: u64,
}

impl Auditor {
    async fn run(&mut self, conn: &mut SqliteConnection) -> SqlResult<()> {
        sqlx::raw_sql("BEGIN").execute(&mut *conn).await?;
        self.integrity(conn).await?;
        self.objects(conn).await?;
        self.versions(conn).await?;
        self.parts(conn).await?;
        self.buckets(conn).await?;
        let live = self.blobs(conn).await?;
        self.segments(conn, live).await
    }

    /// SQLite's own look at trees and indexes; it reads every page.
    async fn integrity(&mut self, conn: &mut SqliteConnection) -> SqlResult<()> {
        let found = sqlx::query("PRAGMA integrity_check").fetch_all(conn).await?;
        for row in found {
            let line: String = row.try_get(0)?;
            if line != "ok" {
                self.audit.problems.add(format!("SQLite: {line}"));
            }
        }
        Ok(())
    }

    async fn objects(&mut self, conn: &mut SqliteConnection) -> SqlResult<()> {
        let text = "SELECT bucket_id, key, lsn, version_id, size, modified_ms, etag_md5, \
                    etag_parts, owner, storage_class, checksum_algorithm, checksum_kind, body \
                    FROM objects";
        let mut found = query(text, Args::default()).fetch(conn);
        while let Some(row) = found.try_next().await? {
            let (bucket, key) = (BucketId(rows::count(&row, "bucket_id")?), rows::key(&row)?);
            let version: ObjectVersion = rows::body(&row)?;
            let what = || format!("object {:?} of bucket {}", key.as_str(), bucket.0);
            let listed = rows::listed_version(&row)?;
            if !same_as_listed(&listed, &version) {
                self.audit.problems.add(format!("{}: its listing differs from it", what()));
            }
            self.audit.objects += 1;
            self.count_version(bucket, &version, what);
        }
        Ok(())
    }

    async fn versions(&mut self, conn: &mut SqliteConnection) -> SqlResult<()> {
        let text = "SELECT bucket_id, key, lsn, version_id, size, modified_ms, etag_md5, \
                    etag_parts, owner, storage_class, checksum_algorithm, checksum_kind, \
                    delete_marker, body FROM versions";
        let mut found = query(text, Args::default()).fetch(conn);
        while let Some(row) = found.try_next().await? {
            let (bucket, key) = (BucketId(rows::count(&row, "bucket_id")?), rows::key(&row)?);
            let version: ObjectVersion = rows::body(&row)?;
            let what =
                || format!("version {} of {:?} of bucket {}", version.version_id, key, bucket.0);
            let listed = rows::listed_version(&row)?;
            let marker = rows::int(&row, "delete_marker")? == 1;
            if !same_as_listed(&listed, &version) || marker != version.delete_marker {
                self.audit.problems.add(format!("{}: its listing differs from it", what()));
            }
            self.audit.versions += 1;
            self.count_version(bucket, &version, what);
        }
        Ok(())
    }

    fn count_version(
        &mut self,
        bucket: BucketId,
        version: &ObjectVersion,
        what: impl Fn() -> String,
    ) {
        let bytes: u64 = version.extents.iter().map(|e| e.len).sum();
        if bytes != version.size {
            let size = version.size;
            self.audit.problems.add(format!("{}: {bytes} bytes of {size}", what()));
        }
        self.audit.bytes += version.size;
        let usage = self.usage.entry(bucket).or_default();
        usage.objects += 1;
        usage.bytes += version.size;
        self.count_extents(&version.extents, what);
    }

    fn count_extents(&mut self, extents: &[Extent], what: impl Fn() -> String) {
        for extent in extents {
            let blob = extent.blob;
            let counted = self.refs.entry(blob.id).or_insert(Counted { refs: 0, len: blob.len });
            counted.refs += 1;
            let inside = extent.offset.checked_add(extent.len).is_some_and(|end| end <= blob.len);
            if !inside || counted.len != blob.len {
                self.audit.problems.add(format!("{}: it lies outside blob {}", what(), blob.id));
            }
        }
    }

    async fn parts(&mut self, conn: &mut SqliteConnection) -> SqlResult<()> {
        let text = "SELECT p.upload_id, p.number, p.body, u.id IS NOT NULL AS known \
                    FROM parts p LEFT JOIN uploads u ON u.id = p.upload_id";
        let mut found = query(text, Args::default()).fetch(conn);
        while let Some(row) = found.try_next().await? {
            let part: Part = rows::body(&row)?;
            let (upload, number) = (rows::id(&row, "upload_id")?, rows::int(&row, "number")?);
            let what = || format!("part {number} of upload {}", hex::encode(upload));
            if rows::int(&row, "known")? != 1 {
                self.audit.problems.add(format!("{}: there is no such upload", what()));
            }
            self.audit.parts += 1;
            self.audit.bytes += part.size;
            self.count_extents(&part.extents, what);
        }
        Ok(())
    }

    async fn buckets(&mut self, conn: &mut SqliteConnection) -> SqlResult<()> {
        let text = "SELECT id, name, object_count, object_bytes, body FROM buckets";
        for row in query(text, Args::default()).fetch_all(conn).await? {
            let bucket: Bucket = rows::body(&row)?;
            self.audit.buckets += 1;
            let counted = self.usage.remove(&bucket.id).unwrap_or_default();
            let kept = Usage {
                objects: rows::count(&row, "object_count")?,
                bytes: rows::count(&row, "object_bytes")?,
            };
            if counted != kept {
                let name = &bucket.name;
                self.audit.problems.add(format!("bucket {name}: {kept:?} is kept, {counted:?}"));
            }
        }
        for bucket in std::mem::take(&mut self.usage).into_keys() {
            self.audit.problems.add(format!("there are objects of bucket {}, not it", bucket.0));
        }
        Ok(())
    }

    /// Compares the rows of the blobs with the counted references; tells what is alive where.
    async fn blobs(&mut self, conn: &mut SqliteConnection) -> SqlResult<BTreeMap<u64, (u64, u64)>> {
        let mut alive: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut found = query("SELECT * FROM blobs", Args::default()).fetch(conn);
        while let Some(row) = found.try_next().await? {
            let (id, blob) = rows::blob_row(&row)?;
            let counted = self.refs.remove(&id).unwrap_or(Counted { refs: 0, len: blob.len });
            let (live, place) = match blob.state {
                BlobState::Live(place) => (true, place),
                BlobState::Pending | BlobState::Dead => (false, BlobPlace::File),
            };
            if (counted.refs, counted.len) != (blob.refs, blob.len) || live != (blob.refs > 0) {
                let Counted { refs, len } = counted;
                let what = format!("blob {id}: {blob:?}, but {refs} references to {len} bytes");
                self.audit.problems.add(what);
            }
            if let BlobPlace::Segment { segment, .. } = place {
                let figures = alive.entry(segment).or_default();
                *figures = (figures.0 + blob.len, figures.1 + 1);
            }
            self.audit.blobs.push(KnownBlob { blob: BlobRef { id, place, len: blob.len }, live });
        }
        for id in std::mem::take(&mut self.refs).into_keys() {
            self.audit.problems.add(format!("blob {id} is referred to and unknown"));
        }
        Ok(alive)
    }

    async fn segments(
        &mut self,
        conn: &mut SqliteConnection,
        mut alive: BTreeMap<u64, (u64, u64)>,
    ) -> SqlResult<()> {
        for kept in read::segments(conn).await? {
            let counted = alive.remove(&kept.segment).unwrap_or_default();
            if counted != (kept.live_bytes, kept.live_blobs) {
                let what = format!("log segment {}: {counted:?} alive, {kept:?}", kept.segment);
                self.audit.problems.add(what);
            }
        }
        for segment in alive.into_keys() {
            self.audit.problems.add(format!("log segment {segment} has blobs and no figures"));
        }
        Ok(())
    }
}

/// Whether a listing shows what the version says.
fn same_as_listed(listed: &ObjectVersion, version: &ObjectVersion) -> bool {
    let kind = |v: &ObjectVersion| v.checksum.as_ref().map(|c| (c.algorithm, c.kind));
    let columns =
        |v: &ObjectVersion| (v.lsn, v.version_id, v.size, v.modified_ms, v.etag, v.owner.clone());
    columns(listed) == columns(version)
        && kind(listed) == kind(version)
        && listed.metadata.storage_class == version.metadata.storage_class
}
