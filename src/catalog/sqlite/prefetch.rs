//! Loads the rows that a group of commits looks at, with few statements for all of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use super::index::Index;
use super::noncurrent::{Entry, Need};
use super::rows::{self, Args, Batch, RowsStatement, SqlResult};
use super::wanted::Wanted;
use super::working::Working;
use crate::catalog::decide::CompletedUpload;
use crate::model::{BlobId, BlobPlace, BucketId, Lsn, ObjectVersion, Part, UploadId};

const OBJECTS: RowsStatement = RowsStatement {
    text: "WITH wanted (bucket_id, key) AS (VALUES {rows}) \
           SELECT 1 AS of, o.bucket_id, o.key, o.body FROM wanted CROSS JOIN objects o \
           ON o.bucket_id = wanted.bucket_id AND o.key = wanted.key",
    tuple: "(?, ?)",
};
const BLOBS: RowsStatement = RowsStatement {
    text: "SELECT 2 AS of, id, state, refs, len, segment, record_offset, since_lsn FROM blobs \
           WHERE id IN ({rows})",
    tuple: "?",
};
const UPLOADS: RowsStatement = RowsStatement {
    text: "SELECT 3 AS of, id, body FROM uploads WHERE id IN ({rows})",
    tuple: "?",
};
const UPLOADS_OF_BUCKETS: RowsStatement = RowsStatement {
    text: "SELECT 4 AS of, id, body FROM uploads WHERE bucket_id IN ({rows})",
    tuple: "?",
};
const PARTS_OF_UPLOADS: RowsStatement = RowsStatement {
    text: "SELECT 5 AS of, upload_id, body FROM parts WHERE upload_id IN ({rows})",
    tuple: "?",
};
const PARTS: RowsStatement = RowsStatement {
    text: "WITH wanted (upload_id, number) AS (VALUES {rows}) \
           SELECT 5 AS of, p.upload_id, p.body FROM wanted CROSS JOIN parts p \
           ON p.upload_id = wanted.upload_id AND p.number = wanted.number",
    tuple: "(?, ?)",
};
const COMPLETED: RowsStatement = RowsStatement {
    text: "SELECT 6 AS of, upload_id, bucket_id, key, digest, body FROM completed_uploads \
           WHERE upload_id IN ({rows})",
    tuple: "?",
};

const NULL_VERSIONS: RowsStatement = RowsStatement {
    text: "WITH wanted (bucket_id, key) AS (VALUES {rows}) \
           SELECT 8 AS of, v.bucket_id, v.key, v.body FROM wanted CROSS JOIN versions v \
           ON v.bucket_id = wanted.bucket_id AND v.key = wanted.key \
           AND v.version_id = x'00000000000000000000000000000000'",
    tuple: "(?, ?)",
};
const VERSIONS: RowsStatement = RowsStatement {
    text: "WITH wanted (bucket_id, key, lsn) AS (VALUES {rows}) \
           SELECT 8 AS of, v.bucket_id, v.key, v.body FROM wanted CROSS JOIN versions v \
           ON v.bucket_id = wanted.bucket_id AND v.key = wanted.key AND v.lsn = wanted.lsn",
    tuple: "(?, ?, ?)",
};

macro_rules! newest_versions {
    ($($limit:literal)*) => {
        /// The newest versions of keys, by how many of each. Few sizes, so few texts.
        const NEWEST_VERSIONS: &[(usize, RowsStatement)] = &[$(($limit, RowsStatement {
            text: concat!(
                "WITH wanted (bucket_id, key) AS (VALUES {rows}) \
                 SELECT 7 AS of, v.bucket_id, v.key, v.body FROM wanted CROSS JOIN versions v \
                 ON v.bucket_id = wanted.bucket_id AND v.key = wanted.key AND v.lsn IN \
                 (SELECT n.lsn FROM versions n WHERE n.bucket_id = wanted.bucket_id \
                 AND n.key = wanted.key ORDER BY n.lsn DESC LIMIT ", $limit, ")"
            ),
            tuple: "(?, ?)",
        })),*];
    };
}
// The last one is more than SQLite can hold of one key.
newest_versions!(2 16 128 1024 16384 4294967295);

/// Values of the column `of` in those statements.
const NEWEST: i64 = 7;
const NAMED: i64 = 8;

/// Versions of keys as they were found: the newest, and those asked for by name.
type VersionsFound = HashMap<Entry, (Vec<Arc<ObjectVersion>>, Vec<Arc<ObjectVersion>>)>;

impl Wanted {
    /// Loads everything named, and then the blobs of the objects and parts that were found. What
    /// is not found is loaded as absent.
    ///
    /// The index, where given, answers for the objects that it has.
    pub async fn load(
        mut self,
        conn: &mut SqliteConnection,
        index: Option<&Index>,
        working: &mut Working,
    ) -> SqlResult<()> {
        let mut batch = Batch::new(conn);
        let objects = std::mem::take(&mut self.objects);
        let versioned = self.ask_versions(&mut batch, &objects, working).await?;
        self.ask_objects(&mut batch, objects, index, working).await?;
        self.ask_uploads(&mut batch, working).await?;
        self.ask_parts(&mut batch, working).await?;
        self.ask_blobs(&mut batch, working).await?;
        let mut found = VersionsFound::new();
        for row in batch.rows().await? {
            match rows::int(&row, "of")? {
                of @ (NEWEST | NAMED) => self.take_version(&row, of, &mut found)?,
                _ => self.take(&row, working)?,
            }
        }
        for (entry, need) in versioned {
            let (newest, named) = found.remove(&entry).unwrap_or_default();
            working.versions.load(entry, &need, newest, named);
        }
        let mut batch = Batch::new(conn);
        self.ask_parts(&mut batch, working).await?;
        for row in batch.rows().await? {
            self.take(&row, working)?;
        }
        let mut batch = Batch::new(conn);
        self.ask_blobs(&mut batch, working).await?;
        for row in batch.rows().await? {
            self.take(&row, working)?;
        }
        Ok(())
    }

    /// Puts one row where it belongs, and names the blobs that it refers to.
    fn take(&mut self, row: &SqliteRow, working: &mut Working) -> SqlResult<()> {
        match rows::int(row, "of")? {
            1 => {
                let bucket = BucketId(rows::count(row, "bucket_id")?);
                let version: ObjectVersion = rows::body(row)?;
                self.extents(&version.extents);
                working.objects.load((bucket, rows::key(row)?), Some(Arc::new(version)));
            }
            2 => {
                let (id, blob) = rows::blob_row(row)?;
                working.blobs.load(id, Some(blob));
            }
            of @ (3 | 4) => {
                let id = UploadId(rows::id(row, "id")?);
                if of == 4 {
                    self.whole_uploads.insert(id);
                }
                working.uploads.load(id, Some(Arc::new(rows::body(row)?)));
            }
            5 => {
                let upload = UploadId(rows::id(row, "upload_id")?);
                let part: Part = rows::body(row)?;
                self.extents(&part.extents);
                working.parts.entry(upload).or_default().rows.insert(part.number, Some(part));
            }
            _ => {
                let completed = CompletedUpload {
                    bucket: BucketId(rows::count(row, "bucket_id")?),
                    key: rows::key(row)?,
                    digest: rows::bytes(row, "digest")?,
                    version: Arc::new(rows::body(row)?),
                };
                working.completed.load(UploadId(rows::id(row, "upload_id")?), Some(completed));
            }
        }
        Ok(())
    }

    fn take_version(
        &mut self,
        row: &SqliteRow,
        of: i64,
        found: &mut VersionsFound,
    ) -> SqlResult<()> {
        let version: ObjectVersion = rows::body(row)?;
        self.extents(&version.extents);
        let entry = (BucketId(rows::count(row, "bucket_id")?), rows::key(row)?);
        let (newest, named) = found.entry(entry).or_default();
        if of == NEWEST { newest } else { named }.push(Arc::new(version));
        Ok(())
    }

    /// Asks for versions that are not current, and tells of which keys. A bucket that had no
    /// versioning before the group has none.
    async fn ask_versions(
        &self,
        batch: &mut Batch<'_>,
        objects: &BTreeMap<Entry, Need>,
        working: &mut Working,
    ) -> SqlResult<Vec<(Entry, Need)>> {
        let mut versioned = Vec::new();
        for (entry, need) in objects {
            let bucket = working.names.bucket_by_id(entry.0);
            if bucket.is_some_and(|bucket| bucket.versioning.is_some()) {
                versioned.push((entry.clone(), need.clone()));
            } else {
                working.versions.load_none(entry.clone());
            }
        }
        let null: Vec<_> = versioned.iter().filter(|(_, need)| need.null).collect();
        NULL_VERSIONS.execute(batch, &null, |args, (entry, _)| bind_entry(args, entry)).await?;
        let named = versioned
            .iter()
            .flat_map(|(entry, need)| need.lsns.iter().map(move |lsn| (entry, *lsn)));
        let bind = |args: &mut Args, (entry, lsn): &(&Entry, Lsn)| {
            bind_entry(args, entry)?;
            args.named_lsn(*lsn)
        };
        VERSIONS.execute(batch, &named.collect::<Vec<_>>(), bind).await?;
        let mut over = 0;
        for (limit, statement) in NEWEST_VERSIONS {
            let fits = |need: &Need| need.newest > over && need.newest <= *limit;
            let of_size: Vec<_> = versioned.iter().filter(|(_, need)| fits(need)).collect();
            statement.execute(batch, &of_size, |args, (entry, _)| bind_entry(args, entry)).await?;
            over = *limit;
        }
        Ok(versioned)
    }

    async fn ask_objects(
        &mut self,
        batch: &mut Batch<'_>,
        objects: BTreeMap<Entry, Need>,
        index: Option<&Index>,
        working: &mut Working,
    ) -> SqlResult<()> {
        let mut missing = Vec::new();
        for entry in objects.into_keys() {
            match index.and_then(|index| index.get(entry.0, &entry.1).ok()) {
                Some(version) => {
                    self.extents(&version.extents);
                    working.objects.load(entry, Some(version));
                }
                None => {
                    working.objects.load(entry.clone(), None);
                    missing.push(entry);
                }
            }
        }
        OBJECTS.execute(batch, &missing, bind_entry).await
    }

    async fn ask_uploads(&mut self, batch: &mut Batch<'_>, working: &mut Working) -> SqlResult<()> {
        let uploads: Vec<UploadId> = std::mem::take(&mut self.uploads).into_iter().collect();
        uploads.iter().for_each(|id| working.uploads.load(*id, None));
        UPLOADS.execute(batch, &uploads, |args, id| args.bytes(&id.0)).await?;
        let buckets: Vec<BucketId> = std::mem::take(&mut self.buckets).into_iter().collect();
        UPLOADS_OF_BUCKETS.execute(batch, &buckets, |args, id| args.count(id.0)).await?;
        let completed: Vec<UploadId> = std::mem::take(&mut self.completed).into_iter().collect();
        completed.iter().for_each(|id| working.completed.load(*id, None));
        COMPLETED.execute(batch, &completed, |args, id| args.bytes(&id.0)).await
    }

    async fn ask_parts(&mut self, batch: &mut Batch<'_>, working: &mut Working) -> SqlResult<()> {
        let mut whole = Vec::new();
        for upload in std::mem::take(&mut self.whole_uploads) {
            let parts = working.parts.entry(upload).or_default();
            if !std::mem::replace(&mut parts.whole, true) {
                whole.push(upload);
            }
        }
        PARTS_OF_UPLOADS.execute(batch, &whole, |args, id| args.bytes(&id.0)).await?;
        let mut single = Vec::new();
        for (upload, number) in std::mem::take(&mut self.parts) {
            let parts = working.parts.entry(upload).or_default();
            if !parts.whole {
                parts.rows.insert(number, None);
                single.push((upload, number));
            }
        }
        let bind = |args: &mut Args, (upload, number): &(UploadId, u32)| {
            args.bytes(&upload.0)?;
            args.int((*number).into())
        };
        PARTS.execute(batch, &single, bind).await
    }

    async fn ask_blobs(&mut self, batch: &mut Batch<'_>, working: &mut Working) -> SqlResult<()> {
        let mut ids: Vec<BlobId> = std::mem::take(&mut self.blobs).into_iter().collect();
        ids.retain(|id| !working.blobs.is_loaded(id));
        ids.iter().for_each(|id| working.blobs.load(*id, None));
        BLOBS.execute(batch, &ids, |args, id| args.bytes(&id.0)).await
    }
}

fn bind_entry(args: &mut Args, (bucket, key): &Entry) -> SqlResult<()> {
    args.count(bucket.0)?;
    args.bytes(key.as_str().as_bytes())
}

/// Reads the present places of the packed blobs of versions; false when one of them is gone.
pub(super) async fn place_version(
    conn: &mut SqliteConnection,
    version: &mut ObjectVersion,
) -> SqlResult<bool> {
    let packed: BTreeSet<BlobId> = version
        .extents
        .iter()
        .filter(|e| e.blob.place != BlobPlace::File)
        .map(|e| e.blob.id)
        .collect();
    let ids: Vec<BlobId> = packed.into_iter().collect();
    let mut batch = Batch::new(conn);
    BLOBS.execute(&mut batch, &ids, |args, id| args.bytes(&id.0)).await?;
    let mut places = HashMap::new();
    for row in batch.rows().await? {
        let (id, _) = rows::blob_row(&row)?;
        places.insert(id, rows::place(&row)?);
    }
    crate::catalog::decide::place_extents(&mut version.extents, &|id| {
        places.get(&id).copied().flatten()
    });
    Ok(places.len() == ids.len())
}

#[cfg(test)]
pub(super) fn statements() -> Vec<String> {
    let all = [
        OBJECTS,
        BLOBS,
        UPLOADS,
        UPLOADS_OF_BUCKETS,
        PARTS_OF_UPLOADS,
        PARTS,
        COMPLETED,
        NULL_VERSIONS,
        VERSIONS,
    ];
    let newest = NEWEST_VERSIONS.iter().map(|(_, statement)| statement);
    all.iter().chain(newest).map(|statement| statement.sized(3).0).collect()
}
