//! Start: loads what is kept in RAM and applies the commits of the log that SQLite lacks.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use sqlx::SqliteConnection;

use super::OpenError;
use super::names::{NameChange, Names};
use super::persist::{applied_lsn, persist};
use super::rows::{self, Args, SqlResult, query};
use super::wanted::Wanted;
use super::working::Working;
use crate::catalog::Usage;
use crate::log::{Replay, ReplayEnd};
use crate::model::commit::Mutation;
use crate::model::{AccessKey, BlobId, BlobPlace, Bucket, BucketConfig, BucketId, Lsn, User};
use crate::sys::engine::IoEngine;

/// Commits of the log that go into SQLite in one transaction.
const BATCH_RECORDS: usize = 256;

/// What the writer starts from.
pub(super) struct State {
    pub names: Arc<Names>,
    pub usage: Arc<HashMap<BucketId, Usage>>,
    pub last_lsn: Lsn,
}

pub(super) async fn load_state(conn: &mut SqliteConnection) -> SqlResult<State> {
    let mut names = Names::default();
    let mut usage = HashMap::new();
    let text = "SELECT object_count, object_bytes, body FROM buckets";
    for row in query(text, Args::default()).fetch_all(&mut *conn).await? {
        let bucket: Bucket = rows::body(&row)?;
        let figures = Usage {
            objects: rows::count(&row, "object_count")?,
            bytes: rows::count(&row, "object_bytes")?,
        };
        usage.insert(bucket.id, figures);
        names.apply(&NameChange::PutBucket(Arc::new(bucket)));
    }
    let text = "SELECT bucket_id, name, document FROM bucket_config";
    for row in query(text, Args::default()).fetch_all(&mut *conn).await? {
        let id = BucketId(rows::count(&row, "bucket_id")?);
        let config = Some(Arc::new(BucketConfig::new(rows::bytes(&row, "document")?)));
        names.apply(&NameChange::SetConfig(id, rows::text(&row, "name")?, config));
    }
    for row in query("SELECT body FROM users", Args::default()).fetch_all(&mut *conn).await? {
        names.apply(&NameChange::PutUser(rows::body::<User>(&row)?));
    }
    let text = "SELECT body FROM access_keys";
    for row in query(text, Args::default()).fetch_all(&mut *conn).await? {
        names.apply(&NameChange::PutAccessKey(rows::body::<AccessKey>(&row)?));
    }
    let text = "SELECT value FROM meta WHERE name = 'last_bucket_id'";
    let row = query(text, Args::default()).fetch_one(&mut *conn).await?;
    names.last_bucket = names.last_bucket.max(rows::count(&row, "value")?);
    let last_lsn = applied_lsn(conn).await?;
    Ok(State { names: Arc::new(names), usage: Arc::new(usage), last_lsn })
}

/// Applies what the log has and SQLite lacks, and tells where the log ends.
pub(super) async fn replay(
    conn: &mut SqliteConnection,
    engine: Rc<dyn IoEngine>,
    log_dir: &Path,
    now_ms: i64,
    state: &mut State,
) -> Result<ReplayEnd, OpenError> {
    let start = state.last_lsn;
    let mut replay = Replay::open(engine, log_dir, start).await?;
    loop {
        let mut batch = Vec::new();
        while batch.len() < BATCH_RECORDS
            && let Some(record) = replay.next().await?
        {
            let packed = record.packed.map(|(id, _)| id);
            batch.push(Replayed {
                lsn: record.lsn,
                mutation: record.mutation,
                packed,
                place: record.place,
            });
        }
        if batch.is_empty() {
            break;
        }
        apply_batch(conn, &batch, now_ms, state).await?;
    }
    let end = replay.finish().await?;
    if end.last_in_log.is_none_or(|last| last < start) && start > Lsn(0) {
        tracing::info!(catalog = start.0, "the log ends before the catalog's last commit");
    }
    if state.last_lsn > start {
        tracing::info!(from = start.0, to = state.last_lsn.0, "commits replayed from the log");
    }
    abandon_pending(conn, state.last_lsn).await?;
    Ok(end)
}

/// A record of the log, without the packed bytes.
struct Replayed {
    lsn: Lsn,
    mutation: Mutation,
    packed: Option<BlobId>,
    place: BlobPlace,
}

async fn apply_batch(
    conn: &mut SqliteConnection,
    batch: &[Replayed],
    now_ms: i64,
    state: &mut State,
) -> SqlResult<()> {
    let (names, usage) = (state.names.clone(), state.usage.clone());
    let mut working = Working::new(names, usage, state.last_lsn, now_ms);
    let mut wanted = Wanted::default();
    batch.iter().for_each(|record| wanted.for_mutation(&record.mutation));
    wanted.load(conn, None, &mut working).await?;
    for record in batch {
        working.absorb(record.lsn, &record.mutation);
    }
    for record in batch {
        working.place_record(record.lsn, record.packed, record.place);
    }
    working.place_rows();
    persist(conn, &working).await?;
    state.last_lsn = working.last_lsn;
    working.settle(&mut state.names, &mut state.usage);
    Ok(())
}

/// Uploads of blobs that the last process did not finish: their files may go.
async fn abandon_pending(conn: &mut SqliteConnection, last_lsn: Lsn) -> SqlResult<()> {
    let mut args = Args::default();
    args.count(last_lsn.0)?;
    let text = "UPDATE blobs SET state = 2, since_lsn = ? WHERE state <> 1 AND state = 0";
    query(text, args).execute(conn).await.map(|_| ())
}
