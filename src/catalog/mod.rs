//! The catalog: which versions, buckets, uploads, users and blobs there are.
//!
//! Owns every name in the store and the order of all commits. It never touches the bytes of an
//! object file and never deletes bytes; it never shows SQL or a transaction across its trait.
//! Any thread may call it; commits are carried out by one writer thread, in groups.

mod decide;
pub mod memory;
pub mod sqlite;
#[cfg(test)]
mod suite;

pub use memory::MemoryCatalog;

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::model::{
    AccessKey, BlobId, BlobRef, Bucket, BucketId, CommitError, Committed, Key, ObjectVersion, Part,
    Proposal, Upload, UploadId, User, VersionId,
};

/// A failed read. Writes fail with `CommitError`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the catalog cannot be read: {0}")]
pub struct ReadError(pub Arc<str>);

pub type ReadResult<T> = Result<T, ReadError>;

/// One page of keys wanted: strictly after `after`, within `prefix`, at most `limit` rows where a
/// common prefix counts as one row.
#[derive(Clone, Debug, Default)]
pub struct ListObjects {
    pub prefix: String,
    /// Empty: no grouping.
    pub delimiter: String,
    /// Exclusive start. When it ends in, or lies under, a common prefix of an earlier page, the
    /// caller passes that common prefix and `after_is_prefix`, and all keys under it are skipped.
    pub after: String,
    pub after_is_prefix: bool,
    pub limit: usize,
}

/// A row of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListRow<T> {
    Item(T),
    CommonPrefix(String),
}

/// An object as a listing shows it. The version has what ListObjectsV2 answers (size, times,
/// ETag, owner, storage class, names of the checksum's algorithm and kind); extents, parts, other
/// metadata and the checksum's value may be left out: read the object to get them.
#[derive(Clone, Debug)]
pub struct ListedObject {
    pub key: Key,
    pub version: Arc<ObjectVersion>,
}

/// A version as a listing shows it; see `ListedObject` for what may be left out.
#[derive(Clone, Debug)]
pub struct ListedVersion {
    pub key: Key,
    pub is_latest: bool,
    pub version: Arc<ObjectVersion>,
}

/// Rows in UTF-8 byte order, and whether more follow.
#[derive(Clone, Debug)]
pub struct Page<T> {
    pub rows: Vec<T>,
    pub truncated: bool,
}

/// Exact figures of a bucket, kept in the same transaction as the commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Versions of keys, current or not, and delete markers.
    pub objects: u64,
    pub bytes: u64,
}

/// A blob that no version refers to any more and that the garbage collector may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadBlob {
    pub id: BlobId,
}

/// The verbs of a catalog. Implementations: `sqlite` (with the commit log and the RAM index behind
/// it) and `memory`, the model that the tests compare with. `suite` runs the same checks on both.
pub trait Catalog: Send + Sync {
    /// Decides and commits one change, durable before it returns.
    ///
    /// **Cancel** Dropping the future does not undo: the commit may still happen.
    fn commit(&self, proposal: Proposal) -> BoxFuture<'_, Result<Committed, CommitError>>;

    /// The current version of a key if RAM knows it. Never blocks, never reads a disk.
    fn cached(&self, bucket: BucketId, key: &Key) -> Option<Arc<ObjectVersion>>;

    /// The named or current version of a key. A delete marker is returned as such, with
    /// `delete_marker` set; `None` when the key has no such version.
    fn object<'a>(
        &'a self,
        bucket: BucketId,
        key: &'a Key,
        version: Option<VersionId>,
    ) -> BoxFuture<'a, ReadResult<Option<Arc<ObjectVersion>>>>;

    /// A bucket by name. Answered from RAM.
    fn bucket(&self, name: &str) -> Option<Arc<Bucket>>;

    /// Buckets of `owner` (`None`: of everybody) in name order, names after `after`, with `prefix`.
    fn buckets<'a>(
        &'a self,
        owner: Option<&'a str>,
        prefix: &'a str,
        after: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, ReadResult<Page<Arc<Bucket>>>>;

    fn list_objects<'a>(
        &'a self,
        bucket: BucketId,
        query: &'a ListObjects,
    ) -> BoxFuture<'a, ReadResult<Page<ListRow<ListedObject>>>>;

    /// Versions of each key, newest first, delete markers among them, after (`query.after`,
    /// `after_version`). A marker whose version is gone still marks its place, but for a null
    /// version that is gone: then all versions of its key are shown again.
    fn list_versions<'a>(
        &'a self,
        bucket: BucketId,
        query: &'a ListObjects,
        after_version: Option<VersionId>,
    ) -> BoxFuture<'a, ReadResult<Page<ListRow<ListedVersion>>>>;

    fn upload<'a>(
        &'a self,
        bucket: BucketId,
        key: &'a Key,
        upload: UploadId,
    ) -> BoxFuture<'a, ReadResult<Option<Arc<Upload>>>>;

    /// Uploads in order of (key, initiation, id), after (`query.after`, `after_upload`).
    fn list_uploads<'a>(
        &'a self,
        bucket: BucketId,
        query: &'a ListObjects,
        after_upload: Option<UploadId>,
    ) -> BoxFuture<'a, ReadResult<Page<ListRow<Arc<Upload>>>>>;

    /// Parts with a number greater than `after`, in order.
    fn parts(
        &self,
        upload: UploadId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, ReadResult<Page<Part>>>;

    /// A key pair with its user. Answered from RAM: every request asks.
    fn access_key(&self, access_key: &str) -> Option<Arc<(AccessKey, User)>>;

    fn users(&self) -> BoxFuture<'_, ReadResult<Vec<User>>>;
    fn access_keys(&self) -> BoxFuture<'_, ReadResult<Vec<AccessKey>>>;
    fn usage(&self, bucket: BucketId) -> BoxFuture<'_, ReadResult<Usage>>;

    /// Where a packed blob is now, for a reader that found its place gone.
    fn locate(&self, blob: BlobId) -> BoxFuture<'_, ReadResult<Option<BlobRef>>>;

    /// File blobs whose last reference is gone, oldest first. They stay listed until `forget`.
    fn dead_blobs(&self, limit: usize) -> BoxFuture<'_, ReadResult<Vec<DeadBlob>>>;

    /// Of `ids`, those that the catalog knows in any state: the orphan sweep spares them.
    fn known_blobs(&self, ids: Vec<BlobId>) -> BoxFuture<'_, ReadResult<Vec<BlobId>>>;

    /// Drops the rows of blobs whose bytes are gone.
    fn forget(&self, ids: Vec<BlobId>) -> BoxFuture<'_, Result<(), CommitError>>;

    /// Finishes what is queued and closes the database cleanly.
    fn close(&self) -> BoxFuture<'_, ()>;
}
