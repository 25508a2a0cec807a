//! Reads for walks over everything: live blobs in order, what refers to a blob, every page.

use std::collections::HashSet;
use std::path::Path;

use futures_util::TryStreamExt;
use sqlx::{Row, SqliteConnection};

use super::rows::{self, Args, SqlResult, query};
use super::{OpenError, SqliteCatalog, read_failed, schema};
use crate::catalog::ReadResult;
use crate::model::{BlobId, BlobPlace, BlobRef, Extent, ObjectVersion, Part, VersionId};

impl SqliteCatalog {
    /// How many live blobs there are, and their bytes.
    pub async fn live_blob_figures(&self) -> ReadResult<(u64, u64)> {
        let text = "SELECT count(*) AS blobs, coalesce(sum(len), 0) AS bytes FROM blobs \
                    WHERE state = 1";
        let mut reader = self.reader().await?;
        let row = query(text, Args::default()).fetch_one(&mut *reader).await;
        row.and_then(|row| Ok((rows::count(&row, "blobs")?, rows::count(&row, "bytes")?)))
            .map_err(read_failed)
    }

    /// The next live blobs in the order of their ids.
    pub async fn live_blobs_after(
        &self,
        after: Option<BlobId>,
        limit: usize,
    ) -> ReadResult<Vec<BlobRef>> {
        let mut reader = self.reader().await?;
        blobs_after(&mut reader, after, limit).await.map_err(read_failed)
    }

    /// Names of the objects, versions and parts that refer to one of `blobs`. Reads all rows.
    pub async fn owners_of(&self, blobs: &[BlobId]) -> ReadResult<Vec<(BlobId, String)>> {
        let wanted = blobs.iter().copied().collect();
        let mut reader = self.reader().await?;
        owners(&mut reader, &wanted).await.map_err(read_failed)
    }

    /// Reads every page; returns what SQLite finds wrong with its trees.
    ///
    /// **Errors** When a page is damaged.
    pub async fn check_pages(&self) -> ReadResult<Vec<String>> {
        let mut reader = self.reader().await?;
        let found = sqlx::query("PRAGMA quick_check").fetch_all(&mut *reader).await;
        let lines = found.and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect());
        let lines: Vec<String> = lines.map_err(read_failed)?;
        Ok(lines.into_iter().filter(|line| line != "ok").collect())
    }
}

/// The live blobs of a copy that `SqliteCatalog::snapshot` made, in the order of their ids.
pub async fn blobs_in_copy(path: &Path) -> Result<Vec<BlobRef>, OpenError> {
    let mut conn = schema::connect_reader(path).await?;
    let blobs = blobs_after(&mut conn, None, i64::MAX as usize).await;
    sqlx::Connection::close(conn).await?;
    Ok(blobs?)
}

async fn blobs_after(
    conn: &mut SqliteConnection,
    after: Option<BlobId>,
    limit: usize,
) -> SqlResult<Vec<BlobRef>> {
    let mut args = Args::default();
    // Nothing is below the empty string, and every id is above it.
    args.bytes(after.as_ref().map_or(&[], |id| &id.0[..]))?;
    args.count(limit as u64)?;
    let text = "SELECT id, len, segment, record_offset FROM blobs \
                WHERE id > ? AND state = 1 ORDER BY id LIMIT ?";
    let found = query(text, args).fetch_all(conn).await?;
    let blob = |row| {
        Ok(BlobRef {
            id: BlobId(rows::id(row, "id")?),
            place: rows::place(row)?.unwrap_or(BlobPlace::File),
            len: rows::count(row, "len")?,
        })
    };
    found.iter().map(blob).collect()
}

async fn owners(
    conn: &mut SqliteConnection,
    wanted: &HashSet<BlobId>,
) -> SqlResult<Vec<(BlobId, String)>> {
    let mut owners = Vec::new();
    let mut add = |extents: &[Extent], name: &dyn Fn() -> String| {
        for extent in extents.iter().filter(|e| wanted.contains(&e.blob.id)) {
            owners.push((extent.blob.id, name()));
        }
    };
    for table in ["objects", "versions"] {
        let text = match table {
            "objects" => {
                "SELECT b.name, o.key, o.body FROM objects o JOIN buckets b ON b.id = o.bucket_id"
            }
            _ => {
                "SELECT b.name, o.key, o.body FROM versions o JOIN buckets b ON b.id = o.bucket_id"
            }
        };
        let mut found = query(text, Args::default()).fetch(&mut *conn);
        while let Some(row) = found.try_next().await? {
            let (bucket, key): (String, _) = (row.try_get("name")?, rows::key(&row)?);
            let version: ObjectVersion = rows::body(&row)?;
            add(&version.extents, &|| match version.version_id {
                VersionId::NULL if table == "objects" => format!("{bucket}/{key}"),
                id => format!("{bucket}/{key}?versionId={id}"),
            });
        }
    }
    let text = "SELECT b.name, u.key, u.id, p.body FROM parts p \
                JOIN uploads u ON u.id = p.upload_id JOIN buckets b ON b.id = u.bucket_id";
    let mut found = query(text, Args::default()).fetch(&mut *conn);
    while let Some(row) = found.try_next().await? {
        let (bucket, key): (String, _) = (row.try_get("name")?, rows::key(&row)?);
        let (upload, part): (_, Part) = (rows::id(&row, "id")?, rows::body(&row)?);
        add(&part.extents, &|| {
            let (upload, number) = (hex::encode(upload), part.number);
            format!("{bucket}/{key}?uploadId={upload}&partNumber={number}")
        });
    }
    drop(found);
    owners.sort();
    owners.dedup();
    Ok(owners)
}
