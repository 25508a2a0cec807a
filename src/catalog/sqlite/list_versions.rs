//! Pages of ListObjectVersions: the current versions and the others, merged in listing order.
//!
//! Without a delimiter a page is one merged range scan. With one, a walk first finds the keys and
//! common prefixes of the page by one seek each, and scans give the versions of the keys.

use std::sync::Arc;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::list::{Range, common_prefix, listed_columns, next_key, range};
use super::rows::{self, Args, SqlResult, query};
use crate::catalog::{ListObjects, ListRow, ListedVersion, Page};
use crate::model::{BucketId, Key, Lsn, VersionId};

/// Parameters: 1 bucket, 2 first key, 3 bound, 4 the key of which only versions older than commit
/// 5 are wanted (no key is empty), 6 limit. A version that is not current is the latest when it is
/// a delete marker that nothing newer covers.
const SCAN: &str = concat!(
    "SELECT o.key, ",
    listed_columns!(),
    ", 0 AS delete_marker, 1 AS is_latest FROM objects o \
     WHERE o.bucket_id = ?1 AND o.key >= ?2 AND o.key < ?3 AND (o.key > ?4 OR o.lsn < ?5) \
     UNION ALL SELECT o.key, ",
    listed_columns!(),
    ", o.delete_marker, o.delete_marker = 1 \
     AND NOT EXISTS (SELECT 1 FROM objects n WHERE n.bucket_id = ?1 AND n.key = o.key) \
     AND NOT EXISTS (SELECT 1 FROM versions n \
                     WHERE n.bucket_id = ?1 AND n.key = o.key AND n.lsn > o.lsn) \
     FROM versions o \
     WHERE o.bucket_id = ?1 AND o.key >= ?2 AND o.key < ?3 AND (o.key > ?4 OR o.lsn < ?5) \
     ORDER BY 1, 2 DESC LIMIT ?6"
);

/// The first key of both tables from an expression on.
macro_rules! next_of_both {
    ($($from:tt)*) => {
        concat!(
            "(SELECT min(coalesce(a, b), coalesce(b, a)) FROM (SELECT \
               (SELECT n.key FROM objects n WHERE n.bucket_id = ?1 AND n.key < ?3 AND n.key >= ",
            $($from)*,
            " ORDER BY n.key LIMIT 1) AS a, \
               (SELECT n.key FROM versions n WHERE n.bucket_id = ?1 AND n.key < ?3 AND n.key >= ",
            $($from)*,
            " ORDER BY n.key LIMIT 1) AS b))"
        )
    };
}

/// Where the walk goes on: behind the key, or behind its common prefix.
macro_rules! behind_walked {
    () => {
        "CASE instr(substr(walk.key, ?4), ?5) WHEN 0 THEN CAST(walk.key || x'00' AS BLOB) \
         ELSE CAST(substr(walk.key, 1, ?6 + instr(substr(walk.key, ?4), ?5)) || ?7 AS BLOB) END"
    };
}

/// Walks from key to key of both tables, over common prefixes in one step. Parameters as in the
/// walk of `list`.
const WALK: &str = concat!(
    "WITH RECURSIVE walk (key) AS (SELECT ",
    next_of_both!("?2"),
    " UNION ALL SELECT ",
    next_of_both!(behind_walked!()),
    " FROM walk WHERE walk.key IS NOT NULL LIMIT ?8) SELECT key FROM walk WHERE key IS NOT NULL"
);

/// Of one key only versions of before a commit are wanted.
struct Older {
    key: Vec<u8>,
    than: Lsn,
}

/// One page of the versions of a bucket.
pub(super) async fn versions(
    conn: &mut SqliteConnection,
    bucket: BucketId,
    list: &ListObjects,
    after_version: Option<VersionId>,
) -> SqlResult<Page<ListRow<ListedVersion>>> {
    if list.limit == 0 {
        return Ok(Page { rows: Vec::new(), truncated: false });
    }
    let mut older = Older { key: Vec::new(), than: Lsn(0) };
    let mut wanted = range(list);
    let in_prefix = list.after.as_bytes() >= list.prefix.as_bytes();
    if let Some(id) = after_version.filter(|_| !list.after_is_prefix && in_prefix) {
        older = Older {
            key: list.after.as_bytes().to_vec(),
            than: lsn_of(conn, bucket, list, id).await?,
        };
        wanted.first = older.key.clone();
    }
    let mut rows = Vec::new();
    if list.delimiter.is_empty() {
        scan(conn, bucket, &wanted, &older, list, &mut rows).await?;
    } else {
        for step in steps(walk(conn, bucket, &wanted, list).await?, list) {
            match step {
                Step::CommonPrefix(prefix) => rows.push(ListRow::CommonPrefix(prefix)),
                Step::Keys(range) => scan(conn, bucket, &range, &older, list, &mut rows).await?,
            }
            if rows.len() > list.limit {
                break;
            }
        }
    }
    let truncated = rows.len() > list.limit;
    rows.truncate(list.limit);
    Ok(Page { rows, truncated })
}

/// The commit of the marker's version. That of a null version is in its row; when the row is gone,
/// all versions of the key are shown again: twice is better than never.
async fn lsn_of(
    conn: &mut SqliteConnection,
    bucket: BucketId,
    list: &ListObjects,
    id: VersionId,
) -> SqlResult<Lsn> {
    if let Some(lsn) = id.lsn() {
        return Ok(lsn);
    }
    let found = match Key::new(&list.after) {
        Ok(key) => super::read::version(conn, bucket, &key, Some(id)).await?,
        Err(_) => None,
    };
    Ok(found.map_or(Lsn(u64::MAX), |version| version.lsn))
}

async fn scan(
    conn: &mut SqliteConnection,
    bucket: BucketId,
    range: &Range,
    older: &Older,
    list: &ListObjects,
    rows: &mut Vec<ListRow<ListedVersion>>,
) -> SqlResult<()> {
    let mut args = Args::default();
    args.count(bucket.0)?;
    args.bytes(&range.first)?;
    args.bytes(&range.bound)?;
    args.bytes(&older.key)?;
    args.int(i64::try_from(older.than.0).unwrap_or(i64::MAX))?;
    args.count((list.limit + 1 - rows.len()) as u64)?;
    for row in query(SCAN, args).fetch_all(conn).await? {
        let listed = item(&row)?;
        // A key under a common prefix came in after the walk.
        if common_prefix(listed.key.as_str(), list).is_none() {
            rows.push(ListRow::Item(listed));
        }
    }
    Ok(())
}

fn item(row: &SqliteRow) -> SqlResult<ListedVersion> {
    let mut version = rows::listed_version(row)?;
    version.delete_marker = row.try_get::<i64, _>("delete_marker")? == 1;
    let is_latest = row.try_get::<i64, _>("is_latest")? == 1;
    Ok(ListedVersion { key: rows::key(row)?, is_latest, version: Arc::new(version) })
}

/// The keys of a page, of common prefixes one each.
async fn walk(
    conn: &mut SqliteConnection,
    bucket: BucketId,
    range: &Range,
    list: &ListObjects,
) -> SqlResult<Vec<Key>> {
    let delimiter = list.delimiter.as_bytes();
    let raised = delimiter.last().map_or(0, |last| last + 1);
    let mut args = Args::default();
    args.count(bucket.0)?;
    args.bytes(&range.first)?;
    args.bytes(&range.bound)?;
    args.count(list.prefix.len() as u64 + 1)?;
    args.bytes(delimiter)?;
    args.int((list.prefix.len() + delimiter.len()) as i64 - 2)?;
    args.bytes(&[raised])?;
    // The key in the middle of which a page begins may have no more versions to show.
    args.count(list.limit as u64 + 2)?;
    query(WALK, args).fetch_all(conn).await?.iter().map(rows::key).collect()
}

enum Step {
    CommonPrefix(String),
    /// Neighbouring keys, none of them under a common prefix.
    Keys(Range),
}

fn steps(keys: Vec<Key>, list: &ListObjects) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for key in keys {
        if let Some(prefix) = common_prefix(key.as_str(), list) {
            steps.push(Step::CommonPrefix(prefix.to_owned()));
            continue;
        }
        let bound = next_key(key.as_str());
        match steps.last_mut() {
            Some(Step::Keys(range)) => range.bound = bound,
            _ => steps.push(Step::Keys(Range { first: key.as_str().as_bytes().to_vec(), bound })),
        }
    }
    steps
}

#[cfg(test)]
pub(super) fn statements() -> Vec<String> {
    [SCAN, WALK].map(str::to_owned).to_vec()
}
