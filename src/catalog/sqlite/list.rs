//! Pages of a listing: range scans, and one seek for each common prefix.
//!
//! A key is followed by the next possible key (the key and a zero byte); a common prefix by the
//! first key behind all keys under it (its last byte raised by one). Keys are UTF-8, in which the
//! byte FF never occurs, so raising a byte never overflows and FF is above every key.

use std::sync::Arc;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::rows::{self, Args, SqlResult, query};
use crate::catalog::{ListObjects, ListRow, ListedObject, Page};
use crate::model::{BucketId, Upload, UploadId};
use crate::sabotage::{self, Sabotage};

/// The columns that `listed_version` reads.
macro_rules! listed_columns {
    () => {
        "o.lsn, o.version_id, o.size, o.modified_ms, o.etag_md5, o.etag_parts, o.owner, \
         o.storage_class, o.checksum_algorithm, o.checksum_kind"
    };
}
pub(super) use listed_columns;

const SCAN: &str = concat!(
    "SELECT o.key, ",
    listed_columns!(),
    " FROM objects o WHERE o.bucket_id = ? AND o.key >= ? AND o.key < ? ORDER BY o.key LIMIT ?"
);

/// Walks from row to row with one seek each, over common prefixes in one step. Parameters:
/// 1 bucket, 2 first key, 3 bound, 4 where the rest behind the prefix begins (from 1), 5 the
/// delimiter, 6 length of prefix and delimiter less 2, 7 the delimiter's last byte raised by one,
/// 8 limit.
const WALK: &str = concat!(
    "WITH RECURSIVE walk (key) AS ( \
       SELECT (SELECT key FROM objects WHERE bucket_id = ?1 AND key >= ?2 AND key < ?3 \
               ORDER BY key LIMIT 1) \
       UNION ALL \
       SELECT (SELECT n.key FROM objects n WHERE n.bucket_id = ?1 AND n.key < ?3 AND n.key >= \
                 CASE instr(substr(walk.key, ?4), ?5) \
                   WHEN 0 THEN CAST(walk.key || x'00' AS BLOB) \
                   ELSE CAST(substr(walk.key, 1, ?6 + instr(substr(walk.key, ?4), ?5)) || ?7 \
                             AS BLOB) END \
               ORDER BY n.key LIMIT 1) \
       FROM walk WHERE walk.key IS NOT NULL LIMIT ?8) \
     SELECT walk.key AS key, o.key IS NOT NULL AS is_item, ",
    listed_columns!(),
    " FROM walk LEFT JOIN objects o ON o.bucket_id = ?1 AND o.key = walk.key \
      AND instr(substr(walk.key, ?4), ?5) = 0 \
     WHERE walk.key IS NOT NULL"
);

/// The keys of a page: from `first` on, below `bound`.
pub(super) struct Range {
    pub first: Vec<u8>,
    pub bound: Vec<u8>,
}

/// The first key behind all keys that begin with `prefix`.
fn behind(prefix: &str) -> Vec<u8> {
    let mut bytes = prefix.as_bytes().to_vec();
    match bytes.last_mut() {
        Some(last) => *last += 1,
        None => bytes.push(0xFF),
    }
    bytes
}

/// The first key behind `key` itself.
pub(super) fn next_key(key: &str) -> Vec<u8> {
    let mut bytes = key.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

pub(super) fn range(query: &ListObjects) -> Range {
    let start = match (query.after.is_empty(), query.after_is_prefix) {
        (true, _) => Vec::new(),
        (false, true) => behind(&query.after),
        (false, false) => next_key(&query.after),
    };
    Range { first: start.max(query.prefix.as_bytes().to_vec()), bound: behind(&query.prefix) }
}

/// The common prefix that `key` belongs to, if any.
pub(super) fn common_prefix<'k>(key: &'k str, query: &ListObjects) -> Option<&'k str> {
    if query.delimiter.is_empty() {
        return None;
    }
    let rest = key.get(query.prefix.len()..)?;
    let at = rest.find(&query.delimiter)?;
    key.get(..query.prefix.len() + at + query.delimiter.len())
}

/// One page of the current versions of a bucket.
pub(super) async fn objects(
    conn: &mut SqliteConnection,
    bucket: BucketId,
    list: &ListObjects,
) -> SqlResult<Page<ListRow<ListedObject>>> {
    if list.limit == 0 {
        return Ok(Page { rows: Vec::new(), truncated: false });
    }
    let Range { first, bound } = range(list);
    let mut args = Args::default();
    args.count(bucket.0)?;
    args.bytes(&first)?;
    args.bytes(&bound)?;
    let mut rows = if list.delimiter.is_empty() {
        args.count(list.limit as u64 + 1)?;
        let found = query(SCAN, args).fetch_all(conn).await?;
        found.iter().map(item).collect::<SqlResult<Vec<_>>>()?
    } else {
        let delimiter = list.delimiter.as_bytes();
        let raised = delimiter.last().map_or(0, |last| last + 1);
        args.count(list.prefix.len() as u64 + 1)?;
        args.bytes(delimiter)?;
        args.int((list.prefix.len() + delimiter.len()) as i64 - 2)?;
        args.bytes(&[raised])?;
        args.count(list.limit as u64 + 1)?;
        let found = query(WALK, args).fetch_all(conn).await?;
        found.iter().map(|row| walked(row, list)).collect::<SqlResult<Vec<_>>>()?
    };
    if sabotage::is(Sabotage::ForeignKeyOrder) {
        rows.sort_by_key(|row| match row {
            ListRow::Item(item) => item.key.as_str().to_lowercase(),
            ListRow::CommonPrefix(prefix) => prefix.to_lowercase(),
        });
    }
    let truncated = rows.len() > list.limit;
    rows.truncate(list.limit);
    Ok(Page { rows, truncated })
}

fn item(row: &SqliteRow) -> SqlResult<ListRow<ListedObject>> {
    let version = Arc::new(rows::listed_version(row)?);
    Ok(ListRow::Item(ListedObject { key: rows::key(row)?, version }))
}

fn walked(row: &SqliteRow, list: &ListObjects) -> SqlResult<ListRow<ListedObject>> {
    if row.try_get::<i64, _>("is_item")? == 1 {
        return item(row);
    }
    let key = rows::key(row)?;
    match common_prefix(key.as_str(), list) {
        Some(prefix) => Ok(ListRow::CommonPrefix(prefix.to_owned())),
        None => Err(sqlx::Error::Decode(format!("{key:?} is no row of the listing").into())),
    }
}

/// Where a page of uploads begins, exclusive.
struct UploadMark {
    key: Vec<u8>,
    initiated_ms: i64,
    id: [u8; 16],
}

const UPLOADS: &str = "SELECT body FROM uploads WHERE bucket_id = ? AND key < ? \
                       AND (key, initiated_ms, id) > (?, ?, ?) \
                       ORDER BY key, initiated_ms, id LIMIT ?";

/// One page of the uploads of a bucket. Uploads in progress are few, so a common prefix is passed
/// over row by row within what one statement fetched, and by a seek beyond that.
pub(super) async fn uploads(
    conn: &mut SqliteConnection,
    bucket: BucketId,
    list: &ListObjects,
    after_upload: Option<UploadId>,
) -> SqlResult<Page<ListRow<Arc<Upload>>>> {
    if list.limit == 0 {
        return Ok(Page { rows: Vec::new(), truncated: false });
    }
    let Range { first, bound } = range(list);
    // Before every upload of the first key of the range.
    let mut mark = UploadMark { key: first, initiated_ms: i64::MIN, id: [0; 16] };
    if let Some(id) = after_upload.filter(|_| !list.after_is_prefix) {
        mark = upload_mark(conn, list, id, mark).await?;
    }
    let mut rows: Vec<ListRow<Arc<Upload>>> = Vec::new();
    while rows.len() <= list.limit {
        let batch = fetch_uploads(conn, bucket, &bound, &mark, list.limit + 1).await?;
        let full = batch.len() > list.limit;
        let mut skip: Option<String> = None;
        for upload in batch {
            let key = upload.key.as_str();
            mark = UploadMark {
                key: key.as_bytes().to_vec(),
                initiated_ms: upload.initiated_ms,
                id: upload.id.0,
            };
            if skip.as_ref().is_some_and(|prefix| key.starts_with(prefix.as_str())) {
                continue;
            }
            match common_prefix(key, list).map(str::to_owned) {
                Some(prefix) => {
                    skip = Some(prefix.clone());
                    rows.push(ListRow::CommonPrefix(prefix));
                }
                None => rows.push(ListRow::Item(Arc::new(upload))),
            }
        }
        if !full {
            break;
        }
        if let Some(prefix) = skip.filter(|prefix| mark.key.starts_with(prefix.as_bytes())) {
            mark = UploadMark { key: behind(&prefix), initiated_ms: i64::MIN, id: [0; 16] };
        }
    }
    let truncated = rows.len() > list.limit;
    rows.truncate(list.limit);
    Ok(Page { rows, truncated })
}

/// The mark behind upload `id` of key `list.after`. When that upload is gone, all uploads of its
/// key are shown again: twice is better than never.
async fn upload_mark(
    conn: &mut SqliteConnection,
    list: &ListObjects,
    id: UploadId,
    otherwise: UploadMark,
) -> SqlResult<UploadMark> {
    let key = list.after.as_bytes().to_vec();
    if key < list.prefix.as_bytes().to_vec() {
        return Ok(otherwise);
    }
    let known = super::read::upload(conn, id).await?;
    let known = known.filter(|upload| upload.key.as_str() == list.after);
    Ok(match known {
        Some(upload) => UploadMark { key, initiated_ms: upload.initiated_ms, id: id.0 },
        None => UploadMark { key, initiated_ms: i64::MIN, id: [0; 16] },
    })
}

async fn fetch_uploads(
    conn: &mut SqliteConnection,
    bucket: BucketId,
    bound: &[u8],
    after: &UploadMark,
    limit: usize,
) -> SqlResult<Vec<Upload>> {
    let mut args = Args::default();
    args.count(bucket.0)?;
    args.bytes(bound)?;
    args.bytes(&after.key)?;
    args.int(after.initiated_ms)?;
    args.bytes(&after.id)?;
    args.count(limit as u64)?;
    let found = query(UPLOADS, args).fetch_all(conn).await?;
    found.iter().map(rows::body).collect()
}

#[cfg(test)]
pub(super) fn statements() -> Vec<String> {
    [SCAN, WALK, UPLOADS].map(str::to_owned).to_vec()
}
