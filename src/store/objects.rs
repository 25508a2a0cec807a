//! Buckets and whole objects: look up, put, copy, delete, list.

use std::sync::Arc;

use futures_util::StreamExt;

use super::writer::Written;
use super::{ObjectBody, ObjectStore, StoreError, StoreResult};
use crate::catalog::{ListObjects, ListRow, ListedObject, ListedVersion, Page};
use crate::digest::{DigestRequest, Digester, Digests};
use crate::model::commit::{CopySource, DeleteEntry, Deleted};
use crate::model::lock::{ObjectLock, Retention};
use crate::model::{
    Bucket, BucketId, BucketName, CannedAcl, Checksum, ChecksumAlgorithm, CommitError, Committed,
    ETag, Key, ObjectMetadata, ObjectVersion, OwnerId, Proposal, VersionId, Versioning,
    WriteCondition,
};

/// A finished write on its way to a key.
pub struct PutObject {
    pub bucket: BucketId,
    pub key: Key,
    pub owner: OwnerId,
    pub metadata: ObjectMetadata,
    /// What is stored and shown; the front has compared it with what the client sent.
    pub checksum: Option<Checksum>,
    pub condition: WriteCondition,
    pub written: Written,
}

/// A copy by reference.
pub struct CopyObject {
    pub bucket: BucketId,
    pub key: Key,
    pub owner: OwnerId,
    pub source_bucket: BucketId,
    pub source_key: Key,
    pub source: Arc<ObjectVersion>,
    /// `None` keeps the source's.
    pub metadata: Option<ObjectMetadata>,
    /// Another checksum than the source has: its bytes are read once to compute it.
    pub checksum: Option<ChecksumAlgorithm>,
    pub condition: WriteCondition,
}

impl ObjectStore {
    /// The bucket and whether it existed before (then it is its owner's, by S3's rule for
    /// us-east-1). **Errors** `BucketAlreadyExists` when somebody else owns the name.
    pub async fn create_bucket(
        &self,
        name: BucketName,
        owner: OwnerId,
        location: String,
        object_lock: bool,
    ) -> StoreResult<(Arc<Bucket>, bool)> {
        match self.commit(Proposal::CreateBucket { name, owner, location, object_lock }).await? {
            Committed::Bucket { bucket, existed } => Ok((bucket, existed)),
            other => Err(unexpected(&other)),
        }
    }

    /// Uploads in progress end with it. **Errors** `BucketNotEmpty` while it has objects.
    pub async fn delete_bucket(&self, id: BucketId) -> StoreResult<()> {
        self.commit(Proposal::DeleteBucket { id }).await.map(drop)
    }

    pub async fn list_buckets(
        &self,
        owner: Option<&str>,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> StoreResult<Page<Arc<Bucket>>> {
        Ok(self.shared.catalog.buckets(owner, prefix, after, limit).await?)
    }

    /// The named or current version; a delete marker is returned as such.
    ///
    /// **Errors** `NoSuchKey`, or `NoSuchVersion` when a version was named.
    pub async fn lookup(
        &self,
        bucket: BucketId,
        key: &Key,
        version: Option<VersionId>,
    ) -> StoreResult<Arc<ObjectVersion>> {
        if version.is_none()
            && let Some(found) = self.shared.catalog.cached(bucket, key)
        {
            return Ok(found);
        }
        let found = self.shared.catalog.object(bucket, key, version).await?;
        found.ok_or(match version {
            None => StoreError::NoSuchKey,
            Some(_) => StoreError::NoSuchVersion,
        })
    }

    /// An early answer for a conditional write, before its body is read. The commit decides again.
    pub async fn check_write(
        &self,
        bucket: BucketId,
        key: &Key,
        condition: &WriteCondition,
    ) -> StoreResult<()> {
        if condition.is_empty() {
            return Ok(());
        }
        let current = match self.lookup(bucket, key, None).await {
            Ok(version) if version.delete_marker => None,
            Ok(version) => Some(version),
            Err(StoreError::NoSuchKey) => None,
            Err(error) => return Err(error),
        };
        condition.check(current.as_deref()).map_err(|refusal| CommitError::from(refusal).into())
    }

    /// Commits a finished write. When it returns, the object survives a power cut.
    ///
    /// **Cancel** the commit may still happen; the bytes are never lost or leaked either way.
    pub async fn put_object(&self, put: PutObject) -> StoreResult<Arc<ObjectVersion>> {
        let Written { digests, data, head, pending, .. } = put.written;
        let proposal = Proposal::PutObject {
            bucket: put.bucket,
            key: put.key,
            owner: put.owner,
            metadata: put.metadata,
            etag: ETag { md5: digests.md5, parts: 0 },
            checksum: put.checksum,
            data,
            condition: put.condition,
        };
        let committed = self.commit(proposal).await?;
        if let Some(mut pending) = pending {
            pending.disarm();
        }
        let version = object_of(committed)?;
        if let (Some(extent), Some(head)) = (version.extents.first(), head) {
            self.shared.arena.insert(extent.blob.id, &head);
        }
        Ok(version)
    }

    /// Makes a key from another one's bytes, by reference.
    pub async fn copy_object(&self, copy: CopyObject) -> StoreResult<Arc<ObjectVersion>> {
        let checksum = match copy.checksum {
            Some(algorithm) => {
                let request = DigestRequest { checksum: Some(algorithm), payload_sha256: false };
                self.digest(&copy.source, (0, copy.source.size), &request).await?.checksum
            }
            None => None,
        };
        let proposal = Proposal::CopyObject {
            bucket: copy.bucket,
            key: copy.key,
            owner: copy.owner,
            source: source_of(copy.source_bucket, copy.source_key, &copy.source),
            metadata: copy.metadata,
            checksum,
            condition: copy.condition,
        };
        object_of(self.commit(proposal).await?)
    }

    /// Moves a version that is current to another key of its bucket. No byte moves.
    pub async fn rename_object(
        &self,
        bucket: BucketId,
        from: Key,
        version: &ObjectVersion,
        to: Key,
        condition: WriteCondition,
    ) -> StoreResult<Arc<ObjectVersion>> {
        let source = source_of(bucket, from, version);
        object_of(self.commit(Proposal::RenameObject { source, key: to, condition }).await?)
    }

    /// Deletes keys or versions in one commit; each entry has its own outcome, in order. `owner`
    /// will own the delete markers.
    ///
    /// **Errors** `Locked` in an outcome, for a version under a hold or a retention.
    pub async fn delete_objects(
        &self,
        bucket: BucketId,
        owner: OwnerId,
        bypass_governance: bool,
        entries: Vec<DeleteEntry>,
    ) -> StoreResult<Vec<Result<Deleted, CommitError>>> {
        let proposal = Proposal::DeleteObjects { bucket, owner, bypass_governance, entries };
        match self.commit(proposal).await? {
            Committed::Deleted(outcomes) => Ok(outcomes),
            other => Err(unexpected(&other)),
        }
    }

    /// Enables or suspends versioning.
    pub async fn set_versioning(
        &self,
        bucket: BucketId,
        versioning: Versioning,
    ) -> StoreResult<()> {
        self.commit(Proposal::SetVersioning { bucket, versioning }).await.map(drop)
    }

    /// Replaces a bucket's access control list.
    pub async fn set_bucket_acl(&self, bucket: BucketId, acl: CannedAcl) -> StoreResult<()> {
        self.commit(Proposal::SetBucketAcl { bucket, acl }).await.map(drop)
    }

    /// Puts a configuration document in the place of the one of that name; `None` removes it.
    pub async fn set_bucket_config(
        &self,
        bucket: BucketId,
        name: &str,
        document: Option<Vec<u8>>,
    ) -> StoreResult<()> {
        let name = name.to_owned();
        self.commit(Proposal::SetBucketConfig { bucket, name, document }).await.map(drop)
    }

    /// Replaces the access control list of the named or current version.
    pub async fn set_object_acl(
        &self,
        bucket: BucketId,
        key: Key,
        version: Option<VersionId>,
        acl: CannedAcl,
    ) -> StoreResult<()> {
        self.commit(Proposal::SetObjectAcl { bucket, key, version, acl }).await.map(drop)
    }

    /// Replaces all tags of the named or current version.
    pub async fn set_object_tags(
        &self,
        bucket: BucketId,
        key: Key,
        version: Option<VersionId>,
        tags: Vec<(String, String)>,
    ) -> StoreResult<()> {
        self.commit(Proposal::SetObjectTags { bucket, key, version, tags }).await.map(drop)
    }

    /// Replaces the retention of the named or current version.
    ///
    /// **Errors** `NoObjectLock`, `RetainUntilPast`, `Locked`.
    pub async fn set_retention(
        &self,
        bucket: BucketId,
        key: Key,
        version: Option<VersionId>,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> StoreResult<()> {
        let proposal =
            Proposal::SetRetention { bucket, key, version, retention, bypass_governance };
        self.commit(proposal).await.map(drop)
    }

    /// **Errors** `NoObjectLock`.
    pub async fn set_legal_hold(
        &self,
        bucket: BucketId,
        key: Key,
        version: Option<VersionId>,
        on: bool,
    ) -> StoreResult<()> {
        self.commit(Proposal::SetLegalHold { bucket, key, version, on }).await.map(drop)
    }

    /// **Errors** `NotVersioned`.
    pub async fn set_object_lock(&self, bucket: BucketId, lock: ObjectLock) -> StoreResult<()> {
        self.commit(Proposal::SetObjectLock { bucket, lock }).await.map(drop)
    }

    pub async fn list_objects(
        &self,
        bucket: BucketId,
        query: &ListObjects,
    ) -> StoreResult<Page<ListRow<ListedObject>>> {
        Ok(self.shared.catalog.list_objects(bucket, query).await?)
    }

    pub async fn list_versions(
        &self,
        bucket: BucketId,
        query: &ListObjects,
        after_version: Option<VersionId>,
    ) -> StoreResult<Page<ListRow<ListedVersion>>> {
        Ok(self.shared.catalog.list_versions(bucket, query, after_version).await?)
    }

    pub(super) async fn commit(&self, proposal: Proposal) -> StoreResult<Committed> {
        Ok(self.shared.catalog.commit(proposal).await?)
    }

    /// Hashes `range` (first byte, length) of a version by reading it once, verified.
    pub(super) async fn digest(
        &self,
        version: &Arc<ObjectVersion>,
        range: (u64, u64),
        request: &DigestRequest,
    ) -> StoreResult<Digests> {
        let hashes = self.shared.hash_pool.stream(request);
        match self.read(version, range.0, range.1).await? {
            ObjectBody::Empty => return Ok(Digester::new(request).finish()),
            ObjectBody::Resident(bytes) | ObjectBody::Bytes(bytes) => hashes.update(bytes).await,
            ObjectBody::Stream(mut stream) => {
                while let Some(bytes) = stream.next().await {
                    hashes.update(bytes?).await;
                }
            }
        }
        hashes.finish().await.ok_or_else(|| StoreError::io("hash", "no hashing thread"))
    }
}

pub(super) fn source_of(bucket: BucketId, key: Key, version: &ObjectVersion) -> CopySource {
    CopySource { bucket, key, version: Some(version.version_id), lsn: version.lsn }
}

pub(super) fn object_of(committed: Committed) -> StoreResult<Arc<ObjectVersion>> {
    match committed {
        Committed::Object(version) => Ok(version),
        other => Err(unexpected(&other)),
    }
}

/// The catalog answered a proposal with the wrong kind of outcome: a bug, told to the operator.
pub(super) fn unexpected(committed: &Committed) -> StoreError {
    StoreError::io("commit", format_args!("unexpected outcome {committed:?}"))
}
