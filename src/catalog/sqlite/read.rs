//! Reads that the RAM cannot answer, each one statement where it can be.

use std::sync::Arc;

use sqlx::SqliteConnection;

use super::prefetch::place_version;
use super::rows::{self, Args, Batch, RowsStatement, SqlResult, query};
use super::{SegmentUsage, persist};
use crate::catalog::{DeadBlob, Page, Usage};
use crate::model::{
    BlobId, BlobPlace, BlobRef, BucketId, Key, Lsn, ObjectVersion, Part, Upload, UploadId,
    VersionId,
};

const OBJECT: &str = "SELECT o.body, o.blob_id IS NOT NULL AS packed, b.segment, b.record_offset \
                      FROM objects o LEFT JOIN blobs b ON b.id = o.blob_id \
                      WHERE o.bucket_id = ? AND o.key = ?";
/// Tries to read an object whose blobs move or go between the two statements that it needs.
const OBJECT_TRIES: u32 = 8;

/// The current version of a key, with the present places of its packed blobs.
pub(super) async fn object(
    conn: &mut SqliteConnection,
    bucket: BucketId,
    key: &Key,
) -> SqlResult<Option<ObjectVersion>> {
    for _ in 0..OBJECT_TRIES {
        let mut args = Args::default();
        args.count(bucket.0)?;
        args.bytes(key.as_str().as_bytes())?;
        let Some(row) = query(OBJECT, args).fetch_optional(&mut *conn).await? else {
            return Ok(None);
        };
        let mut version: ObjectVersion = rows::body(&row)?;
        if rows::int(&row, "packed")? == 1 {
            if let (Some(place), [only]) = (rows::place(&row)?, version.extents.as_mut_slice()) {
                only.blob.place = place;
                return Ok(Some(version));
            }
            let what = format!("the packed blob of {key:?} has no place");
            return Err(sqlx::Error::Decode(what.into()));
        }
        let packed = version.extents.iter().any(|e| e.blob.place != BlobPlace::File);
        if !packed || place_version(conn, &mut version).await? {
            return Ok(Some(version));
        }
    }
    let what = format!("the packed blobs of {key:?} cannot be found");
    Err(sqlx::Error::Decode(what.into()))
}

const VERSION: &str = "SELECT body FROM objects \
                       WHERE bucket_id = ?1 AND key = ?2 AND version_id = ?3 \
                       UNION ALL SELECT body FROM versions \
                       WHERE bucket_id = ?1 AND key = ?2 AND lsn = ?4 AND version_id = ?3";
const NULL_VERSION: &str = "SELECT body FROM objects \
                            WHERE bucket_id = ?1 AND key = ?2 \
                            AND version_id = x'00000000000000000000000000000000' \
                            UNION ALL SELECT body FROM versions \
                            WHERE bucket_id = ?1 AND key = ?2 \
                            AND version_id = x'00000000000000000000000000000000'";
const LATEST: &str = "SELECT lsn, body FROM objects WHERE bucket_id = ?1 AND key = ?2 \
                      UNION ALL SELECT lsn, body FROM versions \
                      WHERE bucket_id = ?1 AND key = ?2 ORDER BY lsn DESC LIMIT 1";

/// A version by its id, or without one the newest, which may be a delete marker.
pub(super) async fn version(
    conn: &mut SqliteConnection,
    bucket: BucketId,
    key: &Key,
    id: Option<VersionId>,
) -> SqlResult<Option<ObjectVersion>> {
    for _ in 0..OBJECT_TRIES {
        let mut args = Args::default();
        args.count(bucket.0)?;
        args.bytes(key.as_str().as_bytes())?;
        let text = match id.map(|id| (id, id.lsn())) {
            None => LATEST,
            Some((_, None)) => NULL_VERSION,
            Some((id, Some(lsn))) => {
                args.bytes(&id.0)?;
                args.named_lsn(lsn)?;
                VERSION
            }
        };
        let Some(row) = query(text, args).fetch_optional(&mut *conn).await? else {
            return Ok(None);
        };
        let mut version: ObjectVersion = rows::body(&row)?;
        let packed = version.extents.iter().any(|e| e.blob.place != BlobPlace::File);
        if !packed || place_version(conn, &mut version).await? {
            return Ok(Some(version));
        }
    }
    let what = format!("the packed blobs of a version of {key:?} cannot be found");
    Err(sqlx::Error::Decode(what.into()))
}

pub(super) async fn upload(
    conn: &mut SqliteConnection,
    id: UploadId,
) -> SqlResult<Option<Arc<Upload>>> {
    let mut args = Args::default();
    args.bytes(&id.0)?;
    let row = query("SELECT body FROM uploads WHERE id = ?", args).fetch_optional(conn).await?;
    row.map(|row| rows::body(&row).map(Arc::new)).transpose()
}

pub(super) async fn parts(
    conn: &mut SqliteConnection,
    upload: UploadId,
    after: u32,
    limit: usize,
) -> SqlResult<Page<Part>> {
    let mut args = Args::default();
    args.bytes(&upload.0)?;
    args.int(after.into())?;
    args.count(limit as u64 + 1)?;
    let text = "SELECT body FROM parts WHERE upload_id = ? AND number > ? \
                ORDER BY number LIMIT ?";
    let found = query(text, args).fetch_all(conn).await?;
    let mut parts = found.iter().map(rows::body).collect::<SqlResult<Vec<Part>>>()?;
    let truncated = limit > 0 && parts.len() > limit;
    parts.truncate(limit);
    Ok(Page { rows: parts, truncated })
}

pub(super) async fn usage(conn: &mut SqliteConnection, bucket: BucketId) -> SqlResult<Usage> {
    let mut args = Args::default();
    args.count(bucket.0)?;
    let text = "SELECT object_count, object_bytes FROM buckets WHERE id = ?";
    let Some(row) = query(text, args).fetch_optional(conn).await? else {
        return Ok(Usage::default());
    };
    Ok(Usage {
        objects: rows::count(&row, "object_count")?,
        bytes: rows::count(&row, "object_bytes")?,
    })
}

pub(super) async fn locate(
    conn: &mut SqliteConnection,
    blob: BlobId,
) -> SqlResult<Option<BlobRef>> {
    let mut args = Args::default();
    args.bytes(&blob.0)?;
    let text = "SELECT len, segment, record_offset FROM blobs WHERE id = ? AND state = 1";
    let Some(row) = query(text, args).fetch_optional(conn).await? else { return Ok(None) };
    let place = rows::place(&row)?.unwrap_or(BlobPlace::File);
    Ok(Some(BlobRef { id: blob, place, len: rows::count(&row, "len")? }))
}

pub(super) async fn dead_blobs(
    conn: &mut SqliteConnection,
    limit: usize,
) -> SqlResult<Vec<DeadBlob>> {
    let mut args = Args::default();
    args.count(limit as u64)?;
    // The first term matches the partial index.
    let text = "SELECT id FROM blobs WHERE state <> 1 AND state = 2 \
                ORDER BY since_lsn, id LIMIT ?";
    let found = query(text, args).fetch_all(conn).await?;
    found.iter().map(|row| Ok(DeadBlob { id: BlobId(rows::id(row, "id")?) })).collect()
}

pub(super) async fn known_blobs(
    conn: &mut SqliteConnection,
    ids: &[BlobId],
) -> SqlResult<Vec<BlobId>> {
    const KNOWN: RowsStatement =
        RowsStatement { text: "SELECT id FROM blobs WHERE id IN ({rows})", tuple: "?" };
    let mut batch = Batch::new(conn);
    KNOWN.execute(&mut batch, ids, |args, id| args.bytes(&id.0)).await?;
    let mut known = std::collections::HashSet::new();
    for row in batch.rows().await? {
        known.insert(BlobId(rows::id(&row, "id")?));
    }
    Ok(ids.iter().copied().filter(|id| known.contains(id)).collect())
}

pub(super) async fn segments(conn: &mut SqliteConnection) -> SqlResult<Vec<SegmentUsage>> {
    let text = "SELECT segment, live_bytes, live_blobs, first_lsn, last_lsn FROM segments \
                ORDER BY segment";
    let found = query(text, Args::default()).fetch_all(conn).await?;
    let usage = |row| {
        Ok(SegmentUsage {
            segment: rows::count(row, "segment")?,
            live_bytes: rows::count(row, "live_bytes")?,
            live_blobs: rows::count(row, "live_blobs")?,
            first_lsn: Lsn(rows::count(row, "first_lsn")?),
            last_lsn: Lsn(rows::count(row, "last_lsn")?),
        })
    };
    found.iter().map(usage).collect()
}

pub(super) async fn applied_lsn(conn: &mut SqliteConnection) -> SqlResult<Lsn> {
    persist::applied_lsn(conn).await
}

#[cfg(test)]
pub(super) fn statements() -> Vec<String> {
    [OBJECT, VERSION, NULL_VERSION, LATEST].map(str::to_owned).to_vec()
}
