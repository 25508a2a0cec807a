//! The writer: the one thread that decides and commits.
//!
//! ```text
//!  any thread --Request--> bounded queue --> writer thread (its own io_uring runtime)
//!                                             group: load rows, decide each in order,
//!                                             one log append + flush, one SQLite transaction,
//!                                             RAM index and names, answers
//! ```
//! Nothing is answered before the log is flushed, and nothing is visible before SQLite has it.
//! When the log fails nothing of the group happened. When SQLite fails after the flush the group
//! is durable: it is kept and tried again before anything else is committed, and its callers are
//! told of a failure whose outcome they cannot know.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::SqliteConnection;
use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::names::Names;
use super::persist::persist;
use super::rows::{Args, Batch, RowsStatement, SqlResult, query};
use super::schema;
use super::wanted::Wanted;
use super::working::{Working, placed};
use crate::catalog::Usage;
use crate::catalog::decide::{self, Change, Moment};
use crate::log::{LogError, LogWriter, Record};
use crate::model::commit::Mutation;
use crate::model::{BlobId, BucketId, CommitError, Committed, Lsn, Proposal};
use crate::sabotage::{self, Sabotage};

/// Tries to carry a durable group into SQLite before its callers are told of the trouble.
const PERSIST_TRIES: u32 = 5;
const PERSIST_PAUSE: Duration = Duration::from_millis(20);
/// Packed bytes of one group: bounds the log's buffer.
const GROUP_BYTES_MAX: u64 = 8 << 20;
/// Keys and parts that the proposals of one group name: bounds its working set.
const GROUP_ROWS_MAX: usize = 4096;
/// How long the answer for a repeated CompleteMultipartUpload is kept: as long as AWS lets an
/// idle client wait before its lifecycle rules usually end an upload.
const COMPLETED_KEEP_MS: i64 = 7 * 24 * 3600 * 1000;
/// How often old answers are dropped.
const PURGE_EVERY_MS: i64 = 3600 * 1000;

type Reply<T> = oneshot::Sender<T>;

/// A proposal and where its answer goes.
type Waiting = (Proposal, Reply<Result<Committed, CommitError>>);

/// What other threads ask of the writer.
#[expect(clippy::large_enum_variant, reason = "nearly all requests are commits")]
pub(super) enum Request {
    Commit(Proposal, Reply<Result<Committed, CommitError>>),
    Forget(Vec<BlobId>, Reply<Result<(), CommitError>>),
    ForgetSegments(Vec<u64>, Reply<Result<(), CommitError>>),
    /// Copies the WAL back and answers with the commit up to which the file itself is flushed.
    Checkpoint(Reply<Result<Lsn, CommitError>>),
    Close(Reply<()>),
}

pub(super) struct Writer {
    pub conn: SqliteConnection,
    pub log: LogWriter,
    pub shared: Arc<Shared>,
    pub names: Arc<Names>,
    pub usage: Arc<HashMap<BucketId, Usage>>,
    pub last_lsn: Lsn,
    pub group_max: usize,
    /// A group that the log has and SQLite could not take yet.
    pub behind: Option<Working>,
    pub next_purge_ms: i64,
}

/// A proposal of a group, decided.
struct Decided {
    reply: Reply<Result<Committed, CommitError>>,
    answer: Result<Committed, CommitError>,
}

#[derive(Default)]
struct Group {
    decided: Vec<Decided>,
    records: Vec<Record>,
}

impl Writer {
    /// Serves until the queue is closed or `Close` comes.
    pub async fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        let mut held = None;
        loop {
            let Some(request) = (match held.take() {
                Some(request) => Some(request),
                None => queue.recv().await,
            }) else {
                break;
            };
            match request {
                Request::Commit(proposal, reply) => {
                    let (group, next) = self.gather((proposal, reply), &mut queue);
                    held = next;
                    self.commit_group(group).await;
                }
                Request::Forget(ids, reply) => {
                    let _ = reply.send(self.forget(&ids).await.map_err(|e| sql_failed(&e)));
                }
                Request::ForgetSegments(segments, reply) => {
                    let done = self.forget_segments(&segments).await;
                    let _ = reply.send(done.map_err(|e| sql_failed(&e)));
                }
                Request::Checkpoint(reply) => {
                    let _ = reply.send(self.checkpoint().await.map_err(|e| sql_failed(&e)));
                }
                Request::Close(reply) => {
                    queue.close();
                    self.close().await;
                    let _ = reply.send(());
                    return;
                }
            }
        }
    }

    /// The commits that wait, up to the limits, and the first request that is of another kind.
    fn gather(
        &self,
        first: (Proposal, Reply<Result<Committed, CommitError>>),
        queue: &mut mpsc::Receiver<Request>,
    ) -> (Vec<Waiting>, Option<Request>) {
        let (mut bytes, mut rows) = (packed_len(&first.0), row_count(&first.0));
        let mut group = vec![first];
        while group.len() < self.group_max && bytes < GROUP_BYTES_MAX && rows < GROUP_ROWS_MAX {
            match queue.try_recv() {
                Ok(Request::Commit(proposal, reply)) => {
                    bytes += packed_len(&proposal);
                    rows += row_count(&proposal);
                    group.push((proposal, reply));
                }
                Ok(other) => return (group, Some(other)),
                Err(_) => break,
            }
        }
        (group, None)
    }

    async fn commit_group(
        &mut self,
        proposals: Vec<(Proposal, Reply<Result<Committed, CommitError>>)>,
    ) {
        if let Err(error) = self.ready().await {
            for (_, reply) in proposals {
                let _ = reply.send(Err(error.clone()));
            }
            return;
        }
        let now_ms = self.shared.clock.now_ms();
        let (names, usage) = (self.names.clone(), self.usage.clone());
        let mut working = Working::new(names, usage, self.last_lsn, now_ms);
        let mut wanted = Wanted::default();
        proposals.iter().for_each(|(proposal, _)| wanted.for_proposal(proposal));
        let index = Some(&self.shared.index);
        if let Err(error) = wanted.load(&mut self.conn, index, &mut working).await {
            let failed = sql_failed(&error);
            tracing::error!(%error, "loading the rows of a group of commits");
            for (_, reply) in proposals {
                let _ = reply.send(Err(failed.clone()));
            }
            return;
        }
        let mut group = decide_group(&mut working, proposals, now_ms);
        let outcome = self.make_durable(&mut group, working).await;
        for Decided { reply, answer } in group.decided {
            // A caller that went away does not undo its commit.
            let _ = reply.send(outcome.clone().and(answer));
        }
        if let Err(error) = self.purge_completed().await {
            tracing::warn!(%error, "dropping old answers of completed uploads");
        }
    }

    /// Appends, flushes, persists and publishes a decided group.
    async fn make_durable(
        &mut self,
        group: &mut Group,
        mut working: Working,
    ) -> Result<(), CommitError> {
        let logged = !group.records.is_empty();
        if sabotage::is(Sabotage::PublishEarly) {
            self.shared.publish(&working);
        }
        if logged {
            let began = Instant::now();
            let places = self.log.append(&group.records).await.map_err(log_failed)?;
            self.shared.figures.count(group.records.len(), began.elapsed());
            for (record, place) in group.records.iter().zip(places) {
                let packed = record.packed.as_ref().map(|packed| packed.id);
                working.place_record(record.lsn, packed, place);
            }
            working.place_rows();
            for decided in &mut group.decided {
                if let Ok(answer) = &mut decided.answer {
                    decide::place_answer(answer, &|id| placed(&working.blobs, id));
                }
            }
            self.last_lsn = working.last_lsn;
        } else if !working.has_changes() {
            return Ok(());
        }
        match self.persist_with_retries(&working).await {
            Ok(()) => {
                self.publish(working);
                Ok(())
            }
            Err(error) => {
                if logged {
                    self.behind = Some(working);
                }
                Err(sql_failed(&error))
            }
        }
    }

    /// Carries a group that is behind into SQLite; until that is done nothing else is committed.
    async fn ready(&mut self) -> Result<(), CommitError> {
        let Some(behind) = self.behind.take() else { return Ok(()) };
        match persist(&mut self.conn, &behind).await {
            Ok(()) => {
                tracing::info!("the database takes commits again");
                self.publish(behind);
                Ok(())
            }
            Err(error) => {
                self.behind = Some(behind);
                Err(sql_failed(&error))
            }
        }
    }

    async fn persist_with_retries(&mut self, working: &Working) -> SqlResult<()> {
        let mut tries = 0;
        loop {
            match persist(&mut self.conn, working).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tries += 1;
                    tracing::error!(%error, tries, "carrying commits from the log to SQLite");
                    if tries == PERSIST_TRIES {
                        return Err(error);
                    }
                    tokio::time::sleep(PERSIST_PAUSE * tries).await;
                }
            }
        }
    }

    /// Shows a persisted group to the readers.
    fn publish(&mut self, working: Working) {
        self.shared.publish(&working);
        working.settle(&mut self.names, &mut self.usage);
    }

    async fn forget(&mut self, ids: &[BlobId]) -> SqlResult<()> {
        const FORGET: RowsStatement = RowsStatement {
            text: "DELETE FROM blobs WHERE state = 2 AND id IN ({rows})",
            tuple: "?",
        };
        let mut batch = Batch::new(&mut self.conn);
        FORGET.execute(&mut batch, ids, |args, id| args.bytes(&id.0)).await?;
        batch.send().await?;
        self.purge_completed().await
    }

    async fn forget_segments(&mut self, segments: &[u64]) -> SqlResult<()> {
        const FORGET: RowsStatement =
            RowsStatement { text: "DELETE FROM segments WHERE segment IN ({rows})", tuple: "?" };
        let mut batch = Batch::new(&mut self.conn);
        FORGET.execute(&mut batch, segments, |args, segment| args.count(*segment)).await?;
        batch.send().await?;
        self.shared.index.forget_segments(segments);
        Ok(())
    }

    /// Drops answers of completions that are too old to be repeated.
    pub(super) async fn purge_completed(&mut self) -> SqlResult<()> {
        let now_ms = self.shared.clock.now_ms();
        if now_ms < self.next_purge_ms {
            return Ok(());
        }
        self.next_purge_ms = now_ms + PURGE_EVERY_MS;
        let mut args = Args::default();
        args.int(now_ms - COMPLETED_KEEP_MS)?;
        let text = "DELETE FROM completed_uploads WHERE completed_ms < ?";
        query(text, args).execute(&mut self.conn).await.map(|_| ())
    }

    async fn checkpoint(&mut self) -> SqlResult<Lsn> {
        // The file must not be ahead of the log, also when groups are not flushed.
        self.log.flush().await.map_err(|e| sqlx::Error::Protocol(e.to_string()))?;
        let lsn = super::persist::applied_lsn(&mut self.conn).await?;
        let busy = schema::pragma(&mut self.conn, "wal_checkpoint(TRUNCATE)").await?;
        if busy != "0" {
            return Err(sqlx::Error::Protocol("readers keep the WAL from being copied".into()));
        }
        Ok(lsn)
    }

    async fn close(mut self) {
        if let Err(error) = self.ready().await {
            tracing::error!(%error, "closing the catalog; the log keeps what SQLite lacks");
        }
        if let Err(error) = self.checkpoint().await {
            tracing::warn!(%error, "checkpoint at close");
        }
        self.shared.readers.close().await;
        if let Err(error) = sqlx::Connection::close(self.conn).await {
            tracing::warn!(%error, "closing the catalog");
        }
    }
}

/// Decides each proposal on top of those before it.
fn decide_group(
    working: &mut Working,
    proposals: Vec<(Proposal, Reply<Result<Committed, CommitError>>)>,
    now_ms: i64,
) -> Group {
    let mut group = Group::default();
    for (proposal, reply) in proposals {
        let lsn = Lsn(working.last_lsn.0 + 1);
        let decision = decide::decide(working, Moment { lsn, now_ms }, proposal);
        let answer = decision.map(|decision| {
            match decision.change {
                Change::None => {}
                Change::Intent(intent) => working.intend(intent),
                Change::Logged { mutation, packed } => {
                    working.absorb(lsn, &mutation);
                    let mutation = spoiled(mutation);
                    group.records.push(Record { lsn, mutation, packed });
                }
            }
            decision.answer
        });
        group.decided.push(Decided { reply, answer });
    }
    group
}

/// What the log is told: the change, but for one defect of the tests.
fn spoiled(mutation: Mutation) -> Mutation {
    let is_acl = matches!(mutation, Mutation::SetObjectAcl { .. } | Mutation::SetBucketAcl { .. });
    match is_acl && sabotage::is(Sabotage::UnloggedChange) {
        true => Mutation::DeleteAccessKey(String::new()),
        false => mutation,
    }
}

fn row_count(proposal: &Proposal) -> usize {
    match proposal {
        Proposal::DeleteObjects { entries, .. } => entries.len(),
        Proposal::CompleteUpload { parts, .. } => parts.len(),
        _ => 1,
    }
}

fn packed_len(proposal: &Proposal) -> u64 {
    use crate::model::commit::ProposedData::Packed;
    match proposal {
        Proposal::PutObject { data: Packed(packed), .. }
        | Proposal::PutPart { data: Packed(packed), .. }
        | Proposal::Relocate { data: packed, .. } => packed.bytes.len() as u64,
        Proposal::SetBucketConfig { document: Some(text), .. } => text.len() as u64,
        _ => 0,
    }
}

/// The log fences a failed group off: it never happened, and its positions are free again.
fn log_failed(error: LogError) -> CommitError {
    if matches!(error, LogError::NoSpace) {
        tracing::warn!("no space left for the commit log");
        return CommitError::NoSpace;
    }
    tracing::error!(%error, "appending a group of commits to the log");
    CommitError::Failed(format!("the commit log failed: {error}").into())
}

fn sql_failed(error: &sqlx::Error) -> CommitError {
    // SQLITE_FULL (13): the file system or a quota has no room.
    let code = error.as_database_error().and_then(|e| e.code()).and_then(|c| c.parse().ok());
    match code.map(|code: i32| code & 0xff) {
        Some(13) => CommitError::NoSpace,
        _ => CommitError::Failed(error.to_string().into()),
    }
}
