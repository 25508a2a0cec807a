//! What the store asks the catalog to commit, what it gets back, and what the log records.
//!
//! A `Proposal` is decided by the catalog's single writer against the state of that moment and
//! becomes a `Mutation`: the fully determined change, which the commit log carries and which
//! replay applies without deciding anything again.

use std::sync::Arc;

use bytes::Bytes;

pub use super::mutation::{DeleteStep, Mutation};
pub use super::object::slice_extents;
use super::{
    AccessKey, BlobId, BlobPlace, Bucket, BucketId, BucketName, CannedAcl, Checksum, ETag, Key,
    Lsn, ObjectMetadata, ObjectVersion, OwnerId, Part, Upload, UploadId, User, VersionId,
    Versioning, WriteCondition,
};
use crate::model::condition::Refusal;
use crate::model::lock::{ObjectLock, Retention};

/// The bytes of a small object or part, which travel inside the commit's log record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedBytes {
    pub id: BlobId,
    pub bytes: Bytes,
}

/// Where the bytes of a proposed object or part are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposedData {
    Empty,
    /// Packed into the log with the commit; at most `pack_max` bytes.
    Packed(PackedBytes),
    /// A sealed, flushed blob file of `len` bytes whose id `BeginBlob` announced.
    File {
        id: BlobId,
        len: u64,
    },
}

impl ProposedData {
    pub fn len(&self) -> u64 {
        match self {
            ProposedData::Empty => 0,
            ProposedData::Packed(p) => p.bytes.len() as u64,
            ProposedData::File { len, .. } => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Names an object version as the source of a copy, with its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySource {
    pub bucket: BucketId,
    pub key: Key,
    pub version: Option<VersionId>,
    /// The version that the caller looked at and judged; the commit fails with
    /// `CommitError::SourceChanged` when the source's commit is another one by then.
    pub lsn: Lsn,
}

/// One entry of a DeleteObjects request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteEntry {
    pub key: Key,
    pub version: Option<VersionId>,
    pub condition: WriteCondition,
}

/// One `<Part>` of CompleteMultipartUpload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedPart {
    pub number: u32,
    /// Hex MD5 without quotes, as the client sent it.
    pub etag: String,
    pub checksum: Option<Checksum>,
}

/// A change that the store wants.
#[derive(Clone, Debug)]
pub enum Proposal {
    CreateBucket {
        name: BucketName,
        owner: OwnerId,
        location: String,
        /// With object lock, and with versioning enabled then.
        object_lock: bool,
    },
    DeleteBucket {
        id: BucketId,
    },
    /// Announces a blob file before its first byte is written. Not logged, not flushed: what a
    /// crash leaves is found because no committed version refers to it.
    BeginBlob {
        id: BlobId,
    },
    /// Gives up a blob that `BeginBlob` announced. Not logged.
    AbandonBlob {
        id: BlobId,
    },
    PutObject {
        bucket: BucketId,
        key: Key,
        owner: OwnerId,
        metadata: ObjectMetadata,
        etag: ETag,
        checksum: Option<Checksum>,
        data: ProposedData,
        condition: WriteCondition,
    },
    /// Makes `key` from `source` by reference: its extents, size and ETag; no byte moves.
    CopyObject {
        bucket: BucketId,
        key: Key,
        owner: OwnerId,
        source: CopySource,
        /// `None` keeps the source's metadata.
        metadata: Option<ObjectMetadata>,
        /// Replaces the source's checksum, when the client asked for another algorithm and the
        /// store computed it; `None` keeps the source's.
        checksum: Option<Checksum>,
        condition: WriteCondition,
    },
    DeleteObjects {
        bucket: BucketId,
        /// Who will own the delete markers.
        owner: OwnerId,
        /// Versions under a governance retention go, too.
        bypass_governance: bool,
        entries: Vec<DeleteEntry>,
    },
    CreateUpload {
        upload: Upload,
    },
    PutPart {
        bucket: BucketId,
        key: Key,
        upload: UploadId,
        number: u32,
        etag: ETag,
        checksum: Option<Checksum>,
        data: ProposedData,
    },
    /// A part made of a range of an object, by reference. The store has read the range to know
    /// its MD5 and checksum.
    CopyPart {
        bucket: BucketId,
        key: Key,
        upload: UploadId,
        number: u32,
        source: CopySource,
        /// First byte and length within the source object.
        range: (u64, u64),
        etag: ETag,
        checksum: Option<Checksum>,
    },
    CompleteUpload {
        bucket: BucketId,
        key: Key,
        upload: UploadId,
        parts: Vec<CompletedPart>,
        /// `x-amz-mp-object-size`.
        expected_size: Option<u64>,
        /// A whole-object checksum that the client sent with the request.
        expected_checksum: Option<Checksum>,
        condition: WriteCondition,
    },
    AbortUpload {
        bucket: BucketId,
        key: Key,
        upload: UploadId,
    },
    PutUser {
        user: User,
    },
    PutAccessKey {
        key: AccessKey,
    },
    DeleteAccessKey {
        access_key: String,
    },
    /// Moves a packed blob to the record that carries it now (compaction). Skipped when the blob
    /// is no longer where `from` says.
    Relocate {
        data: PackedBytes,
        from: BlobPlace,
    },
    SetBucketAcl {
        bucket: BucketId,
        acl: CannedAcl,
    },
    SetObjectAcl {
        bucket: BucketId,
        key: Key,
        version: Option<VersionId>,
        acl: CannedAcl,
    },
    SetVersioning {
        bucket: BucketId,
        versioning: Versioning,
    },
    /// Replaces all tags of the named or current version.
    SetObjectTags {
        bucket: BucketId,
        key: Key,
        version: Option<VersionId>,
        tags: Vec<(String, String)>,
    },
    /// Replaces the retention of the named or current version.
    SetRetention {
        bucket: BucketId,
        key: Key,
        version: Option<VersionId>,
        /// `None` takes it off.
        retention: Option<Retention>,
        /// Also where that shortens or loosens a governance retention.
        bypass_governance: bool,
    },
    SetLegalHold {
        bucket: BucketId,
        key: Key,
        version: Option<VersionId>,
        on: bool,
    },
    /// Gives a bucket object lock, or changes its default.
    SetObjectLock {
        bucket: BucketId,
        lock: ObjectLock,
    },
    /// Moves the current version to another key of its bucket, by reference; no byte moves.
    /// `condition` is about what stands under that key.
    RenameObject {
        source: CopySource,
        key: Key,
        condition: WriteCondition,
    },
    /// Puts a configuration document in the place of the one of that name; `None` removes it.
    SetBucketConfig {
        bucket: BucketId,
        name: String,
        document: Option<Vec<u8>>,
    },
}

/// What a commit did.
#[derive(Clone, Debug)]
pub enum Committed {
    Bucket {
        bucket: Arc<Bucket>,
        existed: bool,
    },
    Object(Arc<ObjectVersion>),
    Deleted(Vec<Result<Deleted, CommitError>>),
    Part(Part),
    /// Nothing to tell beyond that it is done.
    Done,
}

/// The outcome of one delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    pub key: Key,
    /// The version removed, when one was named.
    pub version: Option<VersionId>,
    /// The delete marker made or removed.
    pub marker: Option<VersionId>,
}

/// Why a proposal was not committed. Nothing of it is visible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("no such bucket")]
    NoSuchBucket,
    #[error("no such key")]
    NoSuchKey,
    #[error("no such version")]
    NoSuchVersion,
    #[error("no such upload")]
    NoSuchUpload,
    #[error("the bucket name belongs to another user")]
    BucketAlreadyExists,
    #[error("the bucket is not empty")]
    BucketNotEmpty,
    #[error("condition {0} does not hold")]
    PreconditionFailed(&'static str),
    #[error("the copy source changed while it was read")]
    SourceChanged,
    #[error("part {number} is missing or its ETag differs")]
    InvalidPart { number: u32 },
    #[error("parts are not in ascending order")]
    InvalidPartOrder,
    #[error("part {number} is smaller than 5 MiB")]
    EntityTooSmall { number: u32, size: u64 },
    #[error("the completed object has another size than the request says")]
    SizeMismatch,
    #[error("a checksum of the request differs from the stored one")]
    BadDigest,
    #[error("the object would exceed 5 TiB")]
    EntityTooLarge,
    #[error("the version is under a legal hold or a retention")]
    Locked,
    #[error("the bucket has no object lock")]
    NoObjectLock,
    #[error("the retention would end in the past")]
    RetainUntilPast,
    /// Object lock is wanted for a bucket without versioning.
    #[error("versioning is not enabled")]
    NotVersioned,
    #[error("versioning cannot be suspended in a bucket with object lock")]
    VersioningLocked,
    #[error("no such access key")]
    NoSuchAccessKey,
    /// The announced blob is no longer pending; the client should send it again (503).
    #[error("the blob {0} is no longer pending")]
    BlobNotPending(BlobId),
    /// The commit queue is full (503 SlowDown).
    #[error("too many commits are waiting")]
    Busy,
    /// The disk is full: a clear error on writes; reads and deletes go on.
    #[error("no space left on the device")]
    NoSpace,
    /// The log or the database failed; the message is for the operator only (500).
    #[error("the catalog failed: {0}")]
    Failed(Arc<str>),
}

impl From<Refusal> for CommitError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoSuchKey => CommitError::NoSuchKey,
            Refusal::Failed(header) => CommitError::PreconditionFailed(header),
        }
    }
}
