//! What the commit log records: decided changes, which replay applies without deciding again.

use minicbor::{Decode, Encode};

use super::lock::{ObjectLock, Retention};
use super::{
    AccessKey, BlobId, Bucket, BucketId, CannedAcl, Key, ObjectVersion, Part, Upload, UploadId,
    User, VersionId, Versioning,
};

/// A decided change, as the commit log records it. Append variants, never renumber.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Mutation {
    #[n(0)]
    CreateBucket(#[n(0)] Bucket),
    #[n(1)]
    DeleteBucket(#[n(0)] BucketId),
    /// Installs a version as the current one. Also copies and completed uploads: `upload` is then
    /// the upload that ends with this commit. `packed` names the blob that this record carries.
    #[n(2)]
    PutObject {
        #[n(0)]
        bucket: BucketId,
        #[n(1)]
        key: Key,
        #[n(2)]
        version: ObjectVersion,
        #[n(3)]
        upload: Option<UploadId>,
        #[n(4)]
        packed: Option<BlobId>,
        /// What a retried CompleteMultipartUpload must repeat: a digest of the part list.
        #[cbor(n(5), with = "minicbor::bytes")]
        complete_digest: Option<Vec<u8>>,
    },
    /// Removes versions.
    #[n(3)]
    DeleteObjects {
        #[n(0)]
        bucket: BucketId,
        #[n(1)]
        keys: Vec<(Key, VersionId)>,
    },
    #[n(4)]
    CreateUpload(#[n(0)] Upload),
    #[n(5)]
    PutPart {
        #[n(0)]
        upload: UploadId,
        #[n(1)]
        part: Part,
        #[n(2)]
        packed: Option<BlobId>,
    },
    #[n(6)]
    AbortUpload(#[n(0)] UploadId),
    #[n(7)]
    PutUser(#[n(0)] User),
    #[n(8)]
    PutAccessKey(#[n(0)] AccessKey),
    #[n(9)]
    DeleteAccessKey(#[n(0)] String),
    /// Compaction moved a packed blob into this record.
    #[n(10)]
    Relocate(#[n(0)] BlobId),
    #[n(11)]
    SetBucketAcl {
        #[n(0)]
        bucket: BucketId,
        #[n(1)]
        acl: CannedAcl,
    },
    /// Changes nothing else of the version.
    #[n(12)]
    SetObjectAcl {
        #[n(0)]
        bucket: BucketId,
        #[n(1)]
        key: Key,
        #[n(2)]
        version: VersionId,
        #[n(3)]
        acl: CannedAcl,
    },
    #[n(13)]
    SetVersioning {
        #[n(0)]
        bucket: BucketId,
        #[n(1)]
        versioning: Versioning,
    },
    /// Removes versions and installs delete markers, in order.
    #[n(14)]
    DeleteVersions {
        #[n(0)]
        bucket: BucketId,
        #[n(1)]
        steps: Vec<DeleteStep>,
    },
    /// Changes nothing else of the version.
    #[n(15)]
    SetObjectTags {
        #[n(0)]
        bucket: BucketId,
        #[n(1)]
        key: Key,
        #[n(2)]
        version: VersionId,
        #[n(3)]
        tags: Vec<(String, String)>,
    },
    #[n(16)]
    SetRetention {
        #[n(0)]
        bucket: BucketId,
        #[n(1)]
        key: Key,
        #[n(2)]
        version: VersionId,
        #[n(3)]
        retention: Option<Retention>,
    },
    #[n(17)]
    SetLegalHold {
        #[n(0)]
        bucket: BucketId,
        #[n(1)]
        key: Key,
        #[n(2)]
        version: VersionId,
        #[n(3)]
        on: bool,
    },
    #[n(18)]
    SetObjectLock {
        #[n(0)]
        bucket: BucketId,
        #[n(1)]
        lock: ObjectLock,
    },
    #[n(20)]
    SetBucketConfig {
        #[n(0)]
        bucket: BucketId,
        #[n(1)]
        name: String,
        #[cbor(n(2), with = "minicbor::bytes")]
        document: Option<Vec<u8>>,
    },
    /// Installs `version` as the current one of `key`, and then does what `step` says of the key
    /// that it had.
    #[n(21)]
    RenameObject {
        #[n(0)]
        bucket: BucketId,
        #[n(1)]
        key: Key,
        #[n(2)]
        version: ObjectVersion,
        #[n(3)]
        step: DeleteStep,
    },
}

/// One change of `Mutation::DeleteVersions`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum DeleteStep {
    #[n(0)]
    Remove(#[n(0)] Key, #[n(1)] VersionId),
    /// Installs a delete marker as the newest version.
    #[n(1)]
    Mark(#[n(0)] Key, #[n(1)] Box<ObjectVersion>),
}
