//! Statements over many rows, and the two ways between model types and columns.
//!
//! Each call crosses to sqlx's worker thread (35 to 110 us, more on a busy machine), so rows
//! travel in statements of up to 64, and small statements travel together. The sizes are powers
//! of two: few distinct texts, each prepared once.

use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe, Row, Sqlite, SqliteConnection};

use crate::catalog::decide::BlobState;
use crate::model::{
    BlobId, BlobPlace, Checksum, ChecksumAlgorithm, ChecksumKind, ETag, Key, Lsn, ObjectMetadata,
    ObjectVersion, OwnerId, VersionId,
};

/// The most rows of one statement.
pub(super) const ROWS_MAX: usize = 64;

/// A statement of so many rows goes alone: its text would multiply those of the others.
const ROWS_ALONE: usize = 8;

pub(super) type SqlResult<T> = Result<T, sqlx::Error>;

/// Arguments of one statement, in order.
#[derive(Default)]
pub(super) struct Args(SqliteArguments);

impl Args {
    pub fn int(&mut self, value: i64) -> SqlResult<()> {
        self.0.add(value).map_err(sqlx::Error::Encode)
    }

    /// Counters and lengths stay far below 2^63.
    pub fn count(&mut self, value: u64) -> SqlResult<()> {
        self.int(i64::try_from(value).map_err(|e| sqlx::Error::Encode(e.into()))?)
    }

    /// A commit that a client may have made up: one that no counter reaches finds nothing.
    pub fn named_lsn(&mut self, lsn: Lsn) -> SqlResult<()> {
        self.int(i64::try_from(lsn.0).unwrap_or(-1))
    }

    pub fn bytes(&mut self, value: &[u8]) -> SqlResult<()> {
        self.0.add(value).map_err(sqlx::Error::Encode)
    }

    pub fn text(&mut self, value: &str) -> SqlResult<()> {
        self.0.add(value).map_err(sqlx::Error::Encode)
    }

    pub fn int_or_null(&mut self, value: Option<i64>) -> SqlResult<()> {
        self.0.add(value).map_err(sqlx::Error::Encode)
    }

    pub fn text_or_null(&mut self, value: Option<&str>) -> SqlResult<()> {
        self.0.add(value).map_err(sqlx::Error::Encode)
    }

    pub fn bytes_or_null(&mut self, value: Option<&[u8]>) -> SqlResult<()> {
        self.0.add(value).map_err(sqlx::Error::Encode)
    }

    pub fn cbor<T: minicbor::Encode<()>>(&mut self, value: &T) -> SqlResult<()> {
        let body = minicbor::to_vec(value).map_err(|e| sqlx::Error::Encode(e.into()))?;
        self.0.add(body).map_err(sqlx::Error::Encode)
    }
}

/// Statements that are sent to SQLite together.
pub(super) struct Batch<'c> {
    conn: &'c mut SqliteConnection,
    text: String,
    args: Args,
    /// Rows that the statements so far returned, in order.
    found: Vec<SqliteRow>,
}

impl<'c> Batch<'c> {
    pub fn new(conn: &'c mut SqliteConnection) -> Batch<'c> {
        Batch { conn, text: String::new(), args: Args::default(), found: Vec::new() }
    }

    /// Runs what was added and gives the rows of all its statements.
    pub async fn rows(mut self) -> SqlResult<Vec<SqliteRow>> {
        self.send().await?;
        Ok(self.found)
    }

    /// Adds one statement, whose parameters are all plain `?`.
    pub fn add(
        &mut self,
        text: &str,
        bind: impl FnOnce(&mut Args) -> SqlResult<()>,
    ) -> SqlResult<()> {
        self.text.push_str(text);
        self.text.push(';');
        bind(&mut self.args)
    }

    /// Runs what was added, in order, up to the first error.
    pub async fn send(&mut self) -> SqlResult<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let (text, args) = (std::mem::take(&mut self.text), std::mem::take(&mut self.args));
        let statements = sqlx::query_with::<Sqlite, _>(AssertSqlSafe(text), args.0);
        self.found.extend(statements.fetch_all(&mut *self.conn).await?);
        Ok(())
    }
}

/// A statement with `{rows}` where one tuple per row goes.
pub(super) struct RowsStatement {
    pub text: &'static str,
    /// The tuple of one row, as "(?, ?)", or its condition, as "(a = ? AND b = ?)".
    pub tuple: &'static str,
}

impl RowsStatement {
    /// The text for so many rows.
    pub fn sized(&self, rows: usize) -> AssertSqlSafe<String> {
        let glue = if self.tuple.contains('=') { " OR " } else { ", " };
        let tuples = vec![self.tuple; rows].join(glue);
        AssertSqlSafe(self.text.replace("{rows}", &tuples))
    }

    /// Adds it for all `rows`.
    pub async fn execute<T>(
        &self,
        batch: &mut Batch<'_>,
        rows: &[T],
        bind: impl Fn(&mut Args, &T) -> SqlResult<()>,
    ) -> SqlResult<()> {
        self.execute_after(batch, |_| Ok(()), rows, bind).await
    }

    /// The same with parameters before those of the rows.
    pub async fn execute_after<T>(
        &self,
        batch: &mut Batch<'_>,
        lead: impl Fn(&mut Args) -> SqlResult<()>,
        mut rows: &[T],
        bind: impl Fn(&mut Args, &T) -> SqlResult<()>,
    ) -> SqlResult<()> {
        while let Some((chunk, rest)) = split_chunk(rows) {
            if chunk.len() >= ROWS_ALONE {
                batch.send().await?;
            }
            let text = self.sized(chunk.len());
            batch.add(&text.0, |args| {
                lead(args)?;
                chunk.iter().try_for_each(|row| bind(args, row))
            })?;
            if chunk.len() >= ROWS_ALONE {
                batch.send().await?;
            }
            rows = rest;
        }
        Ok(())
    }
}

/// The next rows for one statement: as many as a power of two allows.
fn split_chunk<T>(rows: &[T]) -> Option<(&[T], &[T])> {
    let n = rows.len().min(ROWS_MAX);
    let size = 1usize << n.checked_ilog2()?;
    Some(rows.split_at(size))
}

/// One statement with fixed text.
pub(super) fn query(
    text: &'static str,
    args: Args,
) -> sqlx::query::Query<'static, Sqlite, SqliteArguments> {
    sqlx::query_with(text, args.0)
}

fn bad(column: &str, what: impl std::fmt::Display) -> sqlx::Error {
    let message = format!("column {column}: {what}");
    sqlx::Error::Decode(message.into())
}

pub(super) fn int(row: &SqliteRow, column: &str) -> SqlResult<i64> {
    row.try_get(column)
}

pub(super) fn count(row: &SqliteRow, column: &str) -> SqlResult<u64> {
    u64::try_from(int(row, column)?).map_err(|e| bad(column, e))
}

pub(super) fn id(row: &SqliteRow, column: &str) -> SqlResult<[u8; 16]> {
    let raw: &[u8] = row.try_get(column)?;
    raw.try_into().map_err(|e| bad(column, e))
}

pub(super) fn text(row: &SqliteRow, column: &str) -> SqlResult<String> {
    row.try_get(column)
}

pub(super) fn bytes(row: &SqliteRow, column: &str) -> SqlResult<Vec<u8>> {
    row.try_get(column)
}

/// The key in column `key`.
pub(super) fn key(row: &SqliteRow) -> SqlResult<Key> {
    let raw: &[u8] = row.try_get("key")?;
    let text = std::str::from_utf8(raw).map_err(|e| bad("key", e))?;
    Key::new(text).map_err(|e| bad("key", e))
}

/// The decoded `body`.
pub(super) fn body<T: for<'b> minicbor::Decode<'b, ()>>(row: &SqliteRow) -> SqlResult<T> {
    let raw: &[u8] = row.try_get("body")?;
    minicbor::decode(raw).map_err(|e| bad("body", e))
}

/// The place in columns `segment` and `record_offset`; `None` where they are NULL.
pub(super) fn place(row: &SqliteRow) -> SqlResult<Option<BlobPlace>> {
    let Some(segment) = row.try_get::<Option<i64>, _>("segment")? else { return Ok(None) };
    let segment = u64::try_from(segment).map_err(|e| bad("segment", e))?;
    Ok(Some(BlobPlace::Segment { segment, record_offset: count(row, "record_offset")? }))
}

/// A row of `blobs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlobRow {
    pub state: BlobState,
    pub refs: u64,
    pub len: u64,
    pub since: Lsn,
}

pub(super) const STATE_PENDING: i64 = 0;
pub(super) const STATE_LIVE: i64 = 1;
pub(super) const STATE_DEAD: i64 = 2;

pub(super) fn blob_row(row: &SqliteRow) -> SqlResult<(BlobId, BlobRow)> {
    let state = match int(row, "state")? {
        STATE_PENDING => BlobState::Pending,
        STATE_LIVE => BlobState::Live(place(row)?.unwrap_or(BlobPlace::File)),
        STATE_DEAD => BlobState::Dead,
        other => return Err(bad("state", other)),
    };
    let since = Lsn(count(row, "since_lsn")?);
    let blob = BlobRow { state, refs: count(row, "refs")?, len: count(row, "len")?, since };
    Ok((BlobId(id(row, "id")?), blob))
}

pub(super) fn bind_blob(args: &mut Args, id: BlobId, blob: &BlobRow) -> SqlResult<()> {
    let (state, place) = match blob.state {
        BlobState::Pending => (STATE_PENDING, None),
        BlobState::Live(BlobPlace::File) => (STATE_LIVE, None),
        BlobState::Live(BlobPlace::Segment { segment, record_offset }) => {
            (STATE_LIVE, Some((segment as i64, record_offset as i64)))
        }
        BlobState::Dead => (STATE_DEAD, None),
    };
    args.bytes(&id.0)?;
    args.int(state)?;
    args.count(blob.refs)?;
    args.count(blob.len)?;
    args.int_or_null(place.map(|p| p.0))?;
    args.int_or_null(place.map(|p| p.1))?;
    args.count(blob.since.0)
}

/// The columns of `objects` from `lsn` on, in the order of the table.
pub(super) fn bind_version(args: &mut Args, version: &ObjectVersion) -> SqlResult<()> {
    bind_listed(args, version)?;
    args.bytes_or_null(only_packed_blob(version).as_ref().map(|id| id.0.as_slice()))?;
    args.cbor(version)
}

/// The columns of `versions` from `lsn` on, in the order of the table.
pub(super) fn bind_noncurrent(args: &mut Args, version: &ObjectVersion) -> SqlResult<()> {
    bind_listed(args, version)?;
    args.int(version.delete_marker.into())?;
    args.cbor(version)
}

/// The columns that a listing shows.
fn bind_listed(args: &mut Args, version: &ObjectVersion) -> SqlResult<()> {
    args.count(version.lsn.0)?;
    args.bytes(&version.version_id.0)?;
    args.count(version.size)?;
    args.int(version.modified_ms)?;
    args.bytes(&version.etag.md5)?;
    args.int(version.etag.parts.into())?;
    args.text(version.owner.as_str())?;
    args.text_or_null(version.metadata.storage_class.as_deref())?;
    let checksum = version.checksum.as_ref();
    args.int_or_null(checksum.map(|c| algorithm_code(c.algorithm)))?;
    args.int_or_null(checksum.map(|c| kind_code(c.kind)))
}

/// The blob of a version that has one extent, if that is packed.
fn only_packed_blob(version: &ObjectVersion) -> Option<BlobId> {
    match version.extents.as_slice() {
        [only] if only.blob.place != BlobPlace::File => Some(only.blob.id),
        _ => None,
    }
}

/// A version as the listing columns tell it: no extents, parts, checksum value or metadata but
/// the storage class.
pub(super) fn listed_version(row: &SqliteRow) -> SqlResult<ObjectVersion> {
    let storage_class = row.try_get("storage_class")?;
    let checksum = match row.try_get::<Option<i64>, _>("checksum_algorithm")? {
        None => None,
        Some(code) => {
            let algorithm = algorithm_of(code).ok_or_else(|| bad("checksum_algorithm", code))?;
            let kind = kind_of(int(row, "checksum_kind")?);
            Some(Checksum { algorithm, kind, value: Vec::new() })
        }
    };
    let parts = int(row, "etag_parts")?;
    Ok(ObjectVersion {
        lsn: Lsn(count(row, "lsn")?),
        version_id: VersionId(id(row, "version_id")?),
        delete_marker: false,
        size: count(row, "size")?,
        modified_ms: int(row, "modified_ms")?,
        etag: ETag {
            md5: id(row, "etag_md5")?,
            parts: u32::try_from(parts).map_err(|e| bad("etag_parts", e))?,
        },
        owner: OwnerId::new(row.try_get("owner")?),
        metadata: ObjectMetadata { storage_class, ..ObjectMetadata::default() },
        checksum,
        parts: Vec::new(),
        extents: Vec::new(),
    })
}

/// The CBOR number of the algorithm, so that the file and the log agree.
fn algorithm_code(algorithm: ChecksumAlgorithm) -> i64 {
    match algorithm {
        ChecksumAlgorithm::Crc32 => 0,
        ChecksumAlgorithm::Crc32c => 1,
        ChecksumAlgorithm::Crc64Nvme => 2,
        ChecksumAlgorithm::Sha1 => 3,
        ChecksumAlgorithm::Sha256 => 4,
    }
}

fn algorithm_of(code: i64) -> Option<ChecksumAlgorithm> {
    ChecksumAlgorithm::ALL.into_iter().find(|a| algorithm_code(*a) == code)
}

fn kind_code(kind: ChecksumKind) -> i64 {
    match kind {
        ChecksumKind::FullObject => 0,
        ChecksumKind::Composite => 1,
    }
}

fn kind_of(code: i64) -> ChecksumKind {
    if code == 1 { ChecksumKind::Composite } else { ChecksumKind::FullObject }
}
