//! The catalog in SQLite, behind the commit log and with a RAM index in front.
//!
//! Owns `catalog.sqlite` and, through the writer thread, the end of the commit log. SQLite is not
//! flushed for each commit: what a power cut takes from it the log gives back at the next start.
//! It never removes a blob and never answers a write that the log has not flushed.

mod absorb;
mod audit;
mod compact;
mod files;
mod index;
mod list;
mod list_versions;
mod names;
mod noncurrent;
mod persist;
mod prefetch;
mod read;
mod readers;
mod recover;
mod replay;
mod rows;
mod schema;
mod snapshots;
mod start;
mod walk;
mod wanted;
mod working;
mod writer;

#[cfg(test)]
mod compact_tests;
#[cfg(test)]
mod recover_tests;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

pub use self::audit::{Audit, KnownBlob, Problems};
pub use self::compact::{CompactError, CompactSettings, CompactStats, Compactor};
use self::index::Index;
use self::names::Names;
use self::readers::{Reader, Readers};
pub use self::recover::Recovered;
pub use self::walk::blobs_in_copy;
use self::working::Working;
use self::writer::Request;
use super::{
    Catalog, DeadBlob, ListObjects, ListRow, ListedObject, ListedVersion, Page, ReadError,
    ReadResult, Usage,
};
use crate::clock::Clock;
use crate::log::{LogError, LogSettings};
use crate::model::{
    AccessKey, BlobId, BlobRef, Bucket, BucketId, CommitError, Committed, Key, Lsn, ObjectVersion,
    Part, Proposal, Upload, UploadId, User, VersionId,
};

/// What the catalog is made of.
#[derive(Clone, Debug)]
pub struct SqliteSettings {
    /// The database file; created when missing.
    pub path: PathBuf,
    pub log_dir: PathBuf,
    pub log: LogSettings,
    /// Connections that read; each is a thread.
    pub readers: u32,
    /// Bound of the RAM index. **Units** bytes, about.
    pub index_bytes_max: u64,
    /// Commits that may wait before new ones get `Busy`.
    pub queue_max: usize,
    /// Commits in one flush and transaction.
    pub group_max: usize,
}

/// Why the catalog cannot be opened. The files are as they were.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "{} has schema {found}, and this program knows up to {known}: use the later program",
        .path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error(
        "{} is damaged ({detail}); `goblin-store recover` makes it again from a snapshot and the \
         commit log",
        .path.display()
    )]
    Damaged { path: PathBuf, detail: Arc<str> },
    #[error("{} is not a catalog of this program", .path.display())]
    Foreign { path: PathBuf },
    #[error(
        "{} has no checksums: an unreleased version of this program made it, and this one does \
         not read it",
        .path.display()
    )]
    Unsummed { path: PathBuf },
    #[error("the schema cannot be migrated: {0}")]
    Migration(Arc<str>),
    #[error("SQLite has {name} = {found} and not {wanted}")]
    Setting { name: &'static str, wanted: String, found: String },
    #[error("the catalog's database: {0}")]
    Sql(#[from] sqlx::Error),
    #[error("the commit log: {0}")]
    Log(#[from] LogError),
    #[error("opening the catalog: {0}")]
    Io(#[from] std::io::Error),
}

/// What a segment of the log still holds; compaction chooses by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUsage {
    pub segment: u64,
    /// Bytes of packed blobs that something refers to.
    pub live_bytes: u64,
    pub live_blobs: u64,
    pub first_lsn: Lsn,
    pub last_lsn: Lsn,
}

/// Figures of the writer since the start.
#[derive(Debug, Default)]
pub struct CommitFigures {
    /// Changes committed.
    pub commits: AtomicU64,
    /// Groups of changes that shared one flush of the log.
    pub groups: AtomicU64,
    /// Time spent in those appends and flushes. **Units** microseconds.
    pub flush_micros: AtomicU64,
}

impl CommitFigures {
    fn count(&self, commits: usize, flush: Duration) {
        self.commits.fetch_add(commits as u64, Ordering::Relaxed);
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.flush_micros.fetch_add(flush.as_micros() as u64, Ordering::Relaxed);
    }
}

/// What readers and the writer share.
struct Shared {
    figures: CommitFigures,
    clock: Arc<dyn Clock>,
    index: Index,
    names: RwLock<Arc<Names>>,
    readers: Readers,
}

impl Shared {
    fn names(&self) -> Arc<Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows what a group changed, after SQLite has it.
    fn publish(&self, working: &Working) {
        for ((bucket, key), version) in working.objects.changed() {
            self.index.commit(*bucket, key, version.cloned());
        }
        if !working.name_changes.is_empty() {
            let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
            *names = working.names.clone();
        }
    }
}

/// Numbers of the first damaged pages of a copy that `SqliteCatalog::snapshot` made. Blocks.
pub fn damaged_pages_of_copy(path: &Path) -> std::io::Result<Vec<u64>> {
    files::damaged_pages(path, 10)
}

/// See the module. Dropping it without `close` stops the writer after the commits that wait.
pub struct SqliteCatalog {
    path: PathBuf,
    shared: Arc<Shared>,
    queue: Option<mpsc::Sender<Request>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SqliteCatalog {
    /// Live bytes of each segment of the log, and the commits that it holds.
    pub async fn segments(&self) -> ReadResult<Vec<SegmentUsage>> {
        read::segments(&mut *self.reader().await?).await.map_err(read_failed)
    }

    /// Drops the figures of segments whose files are gone.
    pub async fn forget_segments(&self, segments: Vec<u64>) -> Result<(), CommitError> {
        self.ask(|reply| Request::ForgetSegments(segments, reply)).await?
    }

    /// Copies the WAL back into the database file, flushed, and tells the last commit in it.
    ///
    /// **Errors** `Failed` when a long read holds the WAL; try again.
    pub async fn checkpoint(&self) -> Result<Lsn, CommitError> {
        self.ask(Request::Checkpoint).await?
    }

    /// Writes a consistent, flushed copy of the database to `to`, and tells the last commit in it.
    /// Commits go on meanwhile.
    ///
    /// **Errors** When `to` exists, or cannot be written.
    pub async fn snapshot(&self, to: &Path) -> Result<Lsn, OpenError> {
        schema::snapshot(&self.path, to).await?;
        let mut copy = schema::connect_reader(to).await?;
        let lsn = read::applied_lsn(&mut copy).await?;
        sqlx::Connection::close(copy).await?;
        Ok(lsn)
    }

    /// The last commit of each snapshot beside the database, and whether its file is sound. Blocks.
    pub fn check_snapshots(&self) -> std::io::Result<Vec<(Lsn, bool)>> {
        let snapshots = snapshots::Snapshots::of(&self.path);
        snapshots.list()?.into_iter().map(|lsn| Ok((lsn, snapshots.is_sound(lsn)?))).collect()
    }

    /// The last commit that readers see.
    pub async fn applied_lsn(&self) -> ReadResult<Lsn> {
        read::applied_lsn(&mut *self.reader().await?).await.map_err(read_failed)
    }

    /// Counts for the metrics.
    pub fn figures(&self) -> &CommitFigures {
        &self.shared.figures
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    async fn reader(&self) -> ReadResult<Reader<'_>> {
        self.shared.readers.get().await.map_err(read_failed)
    }

    /// Queues a request that must not be refused, and waits for the answer.
    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, CommitError> {
        let (reply, answer) = oneshot::channel();
        let Some(queue) = &self.queue else { return Err(closed()) };
        queue.send(request(reply)).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())
    }

    async fn commit_queued(&self, proposal: Proposal) -> Result<Committed, CommitError> {
        let (reply, answer) = oneshot::channel();
        let Some(queue) = &self.queue else { return Err(closed()) };
        match queue.try_send(Request::Commit(proposal, reply)) {
            Ok(()) => answer.await.map_err(|_| closed())?,
            Err(TrySendError::Full(_)) => Err(CommitError::Busy),
            Err(TrySendError::Closed(_)) => Err(closed()),
        }
    }

    fn is_versioned(&self, bucket: BucketId) -> bool {
        let names = self.shared.names.read().unwrap_or_else(PoisonError::into_inner);
        names.bucket_by_id(bucket).is_some_and(|bucket| bucket.versioning.is_some())
    }

    async fn current(&self, bucket: BucketId, key: &Key) -> ReadResult<Option<Arc<ObjectVersion>>> {
        let index = &self.shared.index;
        let ticket = match index.get(bucket, key) {
            Ok(version) => return Ok(Some(version)),
            Err(ticket) => ticket,
        };
        let mut reader = self.reader().await?;
        let found = read::object(&mut reader, bucket, key).await.map_err(read_failed)?;
        let found = found.map(Arc::new);
        if let Some(version) = &found {
            index.fill(ticket, bucket, key, version.clone());
        }
        Ok(found)
    }
}

impl Drop for SqliteCatalog {
    fn drop(&mut self) {
        self.queue = None;
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the catalog's writer ended in a panic");
        }
    }
}

fn closed() -> CommitError {
    CommitError::Failed("the catalog is closed".into())
}

fn read_failed(error: sqlx::Error) -> ReadError {
    tracing::error!(%error, "reading the catalog");
    ReadError(error.to_string().into())
}

impl Catalog for SqliteCatalog {
    fn commit(&self, proposal: Proposal) -> BoxFuture<'_, Result<Committed, CommitError>> {
        self.commit_queued(proposal).boxed()
    }

    fn cached(&self, bucket: BucketId, key: &Key) -> Option<Arc<ObjectVersion>> {
        self.shared.index.get(bucket, key).ok()
    }

    fn object<'a>(
        &'a self,
        bucket: BucketId,
        key: &'a Key,
        version: Option<VersionId>,
    ) -> BoxFuture<'a, ReadResult<Option<Arc<ObjectVersion>>>> {
        async move {
            let found = match version {
                None => self.current(bucket, key).await?,
                Some(id) => self.cached(bucket, key).filter(|v| v.version_id == id),
            };
            // A key without a current version may have a delete marker, in some buckets.
            if found.is_some() || version.is_none() && !self.is_versioned(bucket) {
                return Ok(found);
            }
            let mut reader = self.reader().await?;
            let found = read::version(&mut reader, bucket, key, version).await;
            Ok(found.map_err(read_failed)?.map(Arc::new))
        }
        .boxed()
    }

    fn bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        let names = self.shared.names.read().unwrap_or_else(PoisonError::into_inner);
        names.bucket(name).cloned()
    }

    fn buckets<'a>(
        &'a self,
        owner: Option<&'a str>,
        prefix: &'a str,
        after: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, ReadResult<Page<Arc<Bucket>>>> {
        let names = self.shared.names();
        let wanted = names.buckets_after(after).filter(|bucket| {
            bucket.name.as_str().starts_with(prefix)
                && owner.is_none_or(|owner| owner == bucket.owner.as_str())
        });
        let mut rows: Vec<_> = wanted.take(limit.saturating_add(1)).cloned().collect();
        let truncated = limit > 0 && rows.len() > limit;
        rows.truncate(limit);
        std::future::ready(Ok(Page { rows, truncated })).boxed()
    }

    fn list_objects<'a>(
        &'a self,
        bucket: BucketId,
        query: &'a ListObjects,
    ) -> BoxFuture<'a, ReadResult<Page<ListRow<ListedObject>>>> {
        async move {
            let mut reader = self.reader().await?;
            list::objects(&mut reader, bucket, query).await.map_err(read_failed)
        }
        .boxed()
    }

    fn list_versions<'a>(
        &'a self,
        bucket: BucketId,
        query: &'a ListObjects,
        after_version: Option<VersionId>,
    ) -> BoxFuture<'a, ReadResult<Page<ListRow<ListedVersion>>>> {
        async move {
            let mut reader = self.reader().await?;
            // A marker with an id is no version of an unversioned bucket, but has its place.
            let named = after_version.is_some_and(|id| id != VersionId::NULL);
            if named || self.is_versioned(bucket) {
                let page = list_versions::versions(&mut reader, bucket, query, after_version);
                return page.await.map_err(read_failed);
            }
            // One version per key: whatever the marker's version, the next row has a later key.
            let page = list::objects(&mut reader, bucket, query).await.map_err(read_failed)?;
            let latest = |row| match row {
                ListRow::CommonPrefix(prefix) => ListRow::CommonPrefix(prefix),
                ListRow::Item(ListedObject { key, version }) => {
                    ListRow::Item(ListedVersion { key, is_latest: true, version })
                }
            };
            let rows = page.rows.into_iter().map(latest).collect();
            Ok(Page { rows, truncated: page.truncated })
        }
        .boxed()
    }

    fn upload<'a>(
        &'a self,
        bucket: BucketId,
        key: &'a Key,
        upload: UploadId,
    ) -> BoxFuture<'a, ReadResult<Option<Arc<Upload>>>> {
        async move {
            let found = read::upload(&mut *self.reader().await?, upload).await;
            let found = found.map_err(read_failed)?;
            Ok(found.filter(|upload| upload.bucket == bucket && upload.key == *key))
        }
        .boxed()
    }

    fn list_uploads<'a>(
        &'a self,
        bucket: BucketId,
        query: &'a ListObjects,
        after_upload: Option<UploadId>,
    ) -> BoxFuture<'a, ReadResult<Page<ListRow<Arc<Upload>>>>> {
        async move {
            let mut reader = self.reader().await?;
            list::uploads(&mut reader, bucket, query, after_upload).await.map_err(read_failed)
        }
        .boxed()
    }

    fn parts(
        &self,
        upload: UploadId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, ReadResult<Page<Part>>> {
        async move {
            let mut reader = self.reader().await?;
            read::parts(&mut reader, upload, after, limit).await.map_err(read_failed)
        }
        .boxed()
    }

    fn access_key(&self, access_key: &str) -> Option<Arc<(AccessKey, User)>> {
        let names = self.shared.names.read().unwrap_or_else(PoisonError::into_inner);
        names.pair(access_key).cloned()
    }

    fn users(&self) -> BoxFuture<'_, ReadResult<Vec<User>>> {
        std::future::ready(Ok(self.shared.names().users())).boxed()
    }

    fn access_keys(&self) -> BoxFuture<'_, ReadResult<Vec<AccessKey>>> {
        std::future::ready(Ok(self.shared.names().access_keys())).boxed()
    }

    fn usage(&self, bucket: BucketId) -> BoxFuture<'_, ReadResult<Usage>> {
        async move { read::usage(&mut *self.reader().await?, bucket).await.map_err(read_failed) }
            .boxed()
    }

    fn locate(&self, blob: BlobId) -> BoxFuture<'_, ReadResult<Option<BlobRef>>> {
        async move { read::locate(&mut *self.reader().await?, blob).await.map_err(read_failed) }
            .boxed()
    }

    fn dead_blobs(&self, limit: usize) -> BoxFuture<'_, ReadResult<Vec<DeadBlob>>> {
        async move {
            read::dead_blobs(&mut *self.reader().await?, limit).await.map_err(read_failed)
        }
        .boxed()
    }

    fn known_blobs(&self, ids: Vec<BlobId>) -> BoxFuture<'_, ReadResult<Vec<BlobId>>> {
        async move {
            read::known_blobs(&mut *self.reader().await?, &ids).await.map_err(read_failed)
        }
        .boxed()
    }

    fn forget(&self, ids: Vec<BlobId>) -> BoxFuture<'_, Result<(), CommitError>> {
        async move { self.ask(|reply| Request::Forget(ids, reply)).await? }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async move {
            // A writer that is gone already has nothing left to finish.
            let _ = self.ask(Request::Close).await;
        }
        .boxed()
    }
}
