//! Writes the changed rows of a working set, with the log position, in one transaction.

use sqlx::SqliteConnection;

use super::names::NameChange;
use super::rows::{self, Args, Batch, RowsStatement, SqlResult, query};
use super::working::{SegmentChange, Working};
use crate::model::{BucketId, Key, Lsn};

const PUT_OBJECTS: RowsStatement = RowsStatement {
    text: "INSERT OR REPLACE INTO objects (bucket_id, key, lsn, version_id, size, modified_ms, \
           etag_md5, etag_parts, owner, storage_class, checksum_algorithm, checksum_kind, \
           blob_id, body) VALUES {rows}",
    tuple: "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
};
/// Bucket by bucket: SQLite seeks for this form, and reads the whole table for a list of pairs.
const DELETE_OBJECTS: RowsStatement = RowsStatement {
    text: "DELETE FROM objects WHERE bucket_id = ? AND key IN ({rows})",
    tuple: "?",
};
const PUT_VERSIONS: RowsStatement = RowsStatement {
    text: "INSERT OR REPLACE INTO versions (bucket_id, key, lsn, version_id, size, modified_ms, \
           etag_md5, etag_parts, owner, storage_class, checksum_algorithm, checksum_kind, \
           delete_marker, body) VALUES {rows}",
    tuple: "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
};
/// One condition for each row: SQLite seeks for each, and scans for a list of tuples.
const DELETE_VERSIONS: RowsStatement = RowsStatement {
    text: "DELETE FROM versions WHERE {rows}",
    tuple: "(bucket_id = ? AND key = ? AND lsn = ?)",
};
const PUT_BLOBS: RowsStatement = RowsStatement {
    text: "INSERT OR REPLACE INTO blobs (id, state, refs, len, segment, record_offset, since_lsn) \
           VALUES {rows}",
    tuple: "(?, ?, ?, ?, ?, ?, ?)",
};
const DELETE_BLOBS: RowsStatement =
    RowsStatement { text: "DELETE FROM blobs WHERE id IN ({rows})", tuple: "?" };
const PUT_UPLOADS: RowsStatement = RowsStatement {
    text: "INSERT OR REPLACE INTO uploads (bucket_id, key, initiated_ms, id, body) VALUES {rows}",
    tuple: "(?, ?, ?, ?, ?)",
};
const DELETE_UPLOADS: RowsStatement =
    RowsStatement { text: "DELETE FROM uploads WHERE id IN ({rows})", tuple: "?" };
const DELETE_PARTS: RowsStatement =
    RowsStatement { text: "DELETE FROM parts WHERE upload_id IN ({rows})", tuple: "?" };
const PUT_PARTS: RowsStatement = RowsStatement {
    text: "INSERT OR REPLACE INTO parts (upload_id, number, body) VALUES {rows}",
    tuple: "(?, ?, ?)",
};
const PUT_COMPLETED: RowsStatement = RowsStatement {
    text: "INSERT OR REPLACE INTO completed_uploads \
           (upload_id, bucket_id, key, digest, completed_ms, body) VALUES {rows}",
    tuple: "(?, ?, ?, ?, ?, ?)",
};
const CHANGE_SEGMENTS: RowsStatement = RowsStatement {
    text: "INSERT INTO segments (segment, live_bytes, live_blobs, first_lsn, last_lsn) \
           VALUES {rows} ON CONFLICT (segment) DO UPDATE SET \
           live_bytes = live_bytes + excluded.live_bytes, \
           live_blobs = live_blobs + excluded.live_blobs, \
           first_lsn = min(first_lsn, excluded.first_lsn), \
           last_lsn = max(last_lsn, excluded.last_lsn)",
    tuple: "(?, ?, ?, ?, ?)",
};
const SET_USAGE: &str = "UPDATE buckets SET object_count = ?, object_bytes = ? WHERE id = ?";
const PUT_BUCKET: &str = "INSERT INTO buckets \
                          (id, name, object_count, object_bytes, body) VALUES (?, ?, 0, 0, ?) \
                          ON CONFLICT (id) DO UPDATE SET body = excluded.body";
const PUT_CONFIG: &str =
    "INSERT OR REPLACE INTO bucket_config (bucket_id, name, document) VALUES (?, ?, ?)";
const DELETE_CONFIG: &str = "DELETE FROM bucket_config WHERE bucket_id = ? AND name = ?";
const PUT_USER: &str = "INSERT OR REPLACE INTO users (id, body) VALUES (?, ?)";
const PUT_ACCESS_KEY: &str = "INSERT OR REPLACE INTO access_keys (access_key, body) VALUES (?, ?)";
const SET_META: &str = "UPDATE meta SET value = max(value, ?) WHERE name = ?";

/// Carries out the changes. After an error nothing of them is in the database, and the same
/// working set can be tried again.
pub(super) async fn persist(conn: &mut SqliteConnection, working: &Working) -> SqlResult<()> {
    let mut batch = Batch::new(conn);
    let done = persist_all(&mut batch, working).await;
    if done.is_err() {
        // Fails where SQLite has ended the transaction itself, or none was begun.
        let _ = sqlx::raw_sql("ROLLBACK").execute(conn).await;
    }
    done
}

async fn persist_all(batch: &mut Batch<'_>, working: &Working) -> SqlResult<()> {
    batch.add("BEGIN IMMEDIATE", |_| Ok(()))?;
    persist_names(batch, working)?;
    persist_objects(batch, working).await?;
    persist_versions(batch, working).await?;
    persist_uploads(batch, working).await?;
    persist_blobs(batch, working).await?;
    persist_counters(batch, working).await?;
    batch.add("COMMIT", |_| Ok(()))?;
    batch.send().await
}

fn persist_names(batch: &mut Batch<'_>, working: &Working) -> SqlResult<()> {
    for change in &working.name_changes {
        match change {
            NameChange::PutBucket(bucket) => batch.add(PUT_BUCKET, |args| {
                args.count(bucket.id.0)?;
                args.text(bucket.name.as_str())?;
                args.cbor(&**bucket)
            })?,
            NameChange::DeleteBucket(id) => {
                let config = "DELETE FROM bucket_config WHERE bucket_id = ?";
                batch.add(config, |args| args.count(id.0))?;
                batch.add("DELETE FROM buckets WHERE id = ?", |args| args.count(id.0))?;
            }
            NameChange::SetConfig(id, name, Some(config)) => batch.add(PUT_CONFIG, |args| {
                args.count(id.0)?;
                args.text(name)?;
                args.bytes(config.document())
            })?,
            NameChange::SetConfig(id, name, None) => batch.add(DELETE_CONFIG, |args| {
                args.count(id.0)?;
                args.text(name)
            })?,
            NameChange::PutUser(user) => batch.add(PUT_USER, |args| {
                args.text(&user.id)?;
                args.cbor(user)
            })?,
            NameChange::PutAccessKey(key) => batch.add(PUT_ACCESS_KEY, |args| {
                args.text(&key.access_key)?;
                args.cbor(key)
            })?,
            NameChange::DeleteAccessKey(access_key) => {
                let text = "DELETE FROM access_keys WHERE access_key = ?";
                batch.add(text, |args| args.text(access_key))?;
            }
        }
    }
    if !working.name_changes.is_empty() {
        set_meta(batch, "last_bucket_id", working.names.last_bucket)?;
    }
    Ok(())
}

async fn persist_objects(batch: &mut Batch<'_>, working: &Working) -> SqlResult<()> {
    // In key order neighbours share pages.
    let mut puts: Vec<_> = working.objects.upserts().collect();
    puts.sort_by_key(|(entry, _)| *entry);
    PUT_OBJECTS
        .execute(batch, &puts, |args, (entry, version)| {
            bind_entry(args, entry)?;
            rows::bind_version(args, version)
        })
        .await?;
    let mut deletes: Vec<_> = working.objects.removals().collect();
    deletes.sort();
    for of_bucket in deletes.chunk_by(|a, b| a.0 == b.0) {
        let bucket = of_bucket[0].0;
        let bind =
            |args: &mut Args, entry: &&(BucketId, Key)| args.bytes(entry.1.as_str().as_bytes());
        DELETE_OBJECTS.execute_after(batch, |args| args.count(bucket.0), of_bucket, bind).await?;
    }
    Ok(())
}

fn bind_entry(args: &mut Args, (bucket, key): &(BucketId, Key)) -> SqlResult<()> {
    args.count(bucket.0)?;
    args.bytes(key.as_str().as_bytes())
}

async fn persist_uploads(batch: &mut Batch<'_>, working: &Working) -> SqlResult<()> {
    let ended = &working.ended_uploads;
    DELETE_UPLOADS.execute(batch, ended, |args, upload| args.bytes(&upload.id.0)).await?;
    DELETE_PARTS.execute(batch, ended, |args, upload| args.bytes(&upload.id.0)).await?;
    let begun: Vec<_> = working.uploads.upserts().map(|(_, upload)| upload).collect();
    PUT_UPLOADS
        .execute(batch, &begun, |args, upload| {
            args.count(upload.bucket.0)?;
            args.bytes(upload.key.as_str().as_bytes())?;
            args.int(upload.initiated_ms)?;
            args.bytes(&upload.id.0)?;
            args.cbor(&***upload)
        })
        .await?;
    let parts: Vec<_> = working
        .changed_parts
        .iter()
        .filter_map(|(upload, number)| Some((*upload, working.part_row(*upload, *number)?)))
        .collect();
    PUT_PARTS
        .execute(batch, &parts, |args, (upload, part)| {
            args.bytes(&upload.0)?;
            args.int(part.number.into())?;
            args.cbor(*part)
        })
        .await?;
    let completed: Vec<_> = working.completed.upserts().collect();
    PUT_COMPLETED
        .execute(batch, &completed, |args, (id, done)| {
            args.bytes(&id.0)?;
            args.count(done.bucket.0)?;
            args.bytes(done.key.as_str().as_bytes())?;
            args.bytes(&done.digest)?;
            args.int(working.now_ms)?;
            args.cbor(&*done.version)
        })
        .await
}

async fn persist_versions(batch: &mut Batch<'_>, working: &Working) -> SqlResult<()> {
    // A null version that is replaced goes before its successor comes: there may be one.
    let deletes: Vec<_> = working.versions.removals().collect();
    DELETE_VERSIONS
        .execute(batch, &deletes, |args, (entry, lsn)| {
            bind_entry(args, entry)?;
            args.count(lsn.0)
        })
        .await?;
    let puts: Vec<_> = working.versions.upserts().collect();
    PUT_VERSIONS
        .execute(batch, &puts, |args, (entry, version)| {
            bind_entry(args, entry)?;
            rows::bind_noncurrent(args, version)
        })
        .await
}

async fn persist_blobs(batch: &mut Batch<'_>, working: &Working) -> SqlResult<()> {
    let puts: Vec<_> = working.blobs.upserts().collect();
    PUT_BLOBS.execute(batch, &puts, |args, (id, blob)| rows::bind_blob(args, **id, blob)).await?;
    let deletes: Vec<_> = working.blobs.removals().collect();
    DELETE_BLOBS.execute(batch, &deletes, |args, id| args.bytes(&id.0)).await
}

async fn persist_counters(batch: &mut Batch<'_>, working: &Working) -> SqlResult<()> {
    for (bucket, usage) in &working.usage {
        batch.add(SET_USAGE, |args| {
            args.count(usage.objects)?;
            args.count(usage.bytes)?;
            args.count(bucket.0)
        })?;
    }
    let segments: Vec<(u64, SegmentChange)> =
        working.segments.iter().map(|(segment, change)| (*segment, *change)).collect();
    CHANGE_SEGMENTS
        .execute(batch, &segments, |args, (segment, change)| {
            args.count(*segment)?;
            args.int(change.live_bytes)?;
            args.int(change.live_blobs)?;
            args.count(change.first_lsn)?;
            args.count(change.last_lsn)
        })
        .await?;
    set_meta(batch, "applied_lsn", working.last_lsn.0)
}

fn set_meta(batch: &mut Batch<'_>, name: &str, value: u64) -> SqlResult<()> {
    batch.add(SET_META, |args| {
        args.count(value)?;
        args.text(name)
    })
}

/// The last commit of the log that the database contains.
pub(super) async fn applied_lsn(conn: &mut SqliteConnection) -> SqlResult<Lsn> {
    let row = query("SELECT value FROM meta WHERE name = 'applied_lsn'", Args::default())
        .fetch_one(conn)
        .await?;
    Ok(Lsn(rows::count(&row, "value")?))
}

#[cfg(test)]
pub(super) fn statements() -> Vec<String> {
    let of_rows = [
        PUT_OBJECTS,
        DELETE_OBJECTS,
        PUT_VERSIONS,
        DELETE_VERSIONS,
        PUT_BLOBS,
        DELETE_BLOBS,
        PUT_UPLOADS,
        DELETE_UPLOADS,
        DELETE_PARTS,
        PUT_PARTS,
        PUT_COMPLETED,
        CHANGE_SEGMENTS,
    ];
    let single =
        [SET_USAGE, PUT_BUCKET, PUT_CONFIG, DELETE_CONFIG, PUT_USER, PUT_ACCESS_KEY, SET_META];
    let of_rows = of_rows.iter().map(|statement| statement.sized(3).0);
    of_rows.chain(single.map(str::to_owned)).collect()
}
