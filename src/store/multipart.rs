//! Multipart uploads. Completing one is catalog work only: its parts' extents become the object's.

use std::sync::Arc;

use super::objects::{object_of, source_of, unexpected};
use super::writer::Written;
use super::{ObjectStore, StoreError, StoreResult};
use crate::catalog::{ListObjects, ListRow, Page};
use crate::digest::DigestRequest;
use crate::model::commit::CompletedPart;
use crate::model::{
    BucketId, Checksum, ChecksumAlgorithm, Committed, ETag, Key, ObjectVersion, Part, Proposal,
    Upload, UploadId, WriteCondition,
};

/// A finished write on its way to a part.
pub struct PutPart {
    pub bucket: BucketId,
    pub key: Key,
    pub upload: UploadId,
    /// 1 to 10,000.
    pub number: u32,
    pub checksum: Option<Checksum>,
    pub written: Written,
}

/// A part made of a range of an object.
pub struct CopyPart {
    pub bucket: BucketId,
    pub key: Key,
    pub upload: UploadId,
    pub number: u32,
    pub source_bucket: BucketId,
    pub source_key: Key,
    pub source: Arc<ObjectVersion>,
    /// First byte and length.
    pub range: (u64, u64),
    pub checksum: Option<ChecksumAlgorithm>,
}

/// What CompleteMultipartUpload says.
pub struct CompleteUpload {
    pub bucket: BucketId,
    pub key: Key,
    pub upload: UploadId,
    pub parts: Vec<CompletedPart>,
    pub expected_size: Option<u64>,
    pub expected_checksum: Option<Checksum>,
    pub condition: WriteCondition,
}

impl ObjectStore {
    pub async fn create_upload(&self, upload: Upload) -> StoreResult<()> {
        self.commit(Proposal::CreateUpload { upload }).await.map(drop)
    }

    /// **Errors** `NoSuchUpload`, also when the upload is of another key.
    pub async fn upload(
        &self,
        bucket: BucketId,
        key: &Key,
        upload: UploadId,
    ) -> StoreResult<Arc<Upload>> {
        let found = self.shared.catalog.upload(bucket, key, upload).await?;
        found.ok_or(StoreError::NoSuchUpload)
    }

    /// Commits a finished write as a part. The first part's head becomes resident: it will be the
    /// object's.
    pub async fn put_part(&self, put: PutPart) -> StoreResult<Part> {
        let Written { digests, data, head, pending, .. } = put.written;
        let proposal = Proposal::PutPart {
            bucket: put.bucket,
            key: put.key,
            upload: put.upload,
            number: put.number,
            etag: ETag { md5: digests.md5, parts: 0 },
            checksum: put.checksum,
            data,
        };
        let part = part_of(self.commit(proposal).await?)?;
        if let Some(mut pending) = pending {
            pending.disarm();
        }
        if let (1, Some(extent), Some(head)) = (put.number, part.extents.first(), head) {
            self.shared.arena.insert(extent.blob.id, &head);
        }
        Ok(part)
    }

    /// A part by reference; the range is read once for its MD5 and checksum.
    pub async fn copy_part(&self, copy: CopyPart) -> StoreResult<Part> {
        let request = DigestRequest { checksum: copy.checksum, payload_sha256: false };
        let digests = self.digest(&copy.source, copy.range, &request).await?;
        let proposal = Proposal::CopyPart {
            bucket: copy.bucket,
            key: copy.key,
            upload: copy.upload,
            number: copy.number,
            source: source_of(copy.source_bucket, copy.source_key, &copy.source),
            range: copy.range,
            etag: ETag { md5: digests.md5, parts: 0 },
            checksum: digests.checksum,
        };
        part_of(self.commit(proposal).await?)
    }

    /// Makes the object. A repeated request with the same parts gets the same answer.
    pub async fn complete_upload(
        &self,
        request: CompleteUpload,
    ) -> StoreResult<Arc<ObjectVersion>> {
        let proposal = Proposal::CompleteUpload {
            bucket: request.bucket,
            key: request.key,
            upload: request.upload,
            parts: request.parts,
            expected_size: request.expected_size,
            expected_checksum: request.expected_checksum,
            condition: request.condition,
        };
        object_of(self.commit(proposal).await?)
    }

    pub async fn abort_upload(
        &self,
        bucket: BucketId,
        key: Key,
        upload: UploadId,
    ) -> StoreResult<()> {
        self.commit(Proposal::AbortUpload { bucket, key, upload }).await.map(drop)
    }

    pub async fn list_uploads(
        &self,
        bucket: BucketId,
        query: &ListObjects,
        after_upload: Option<UploadId>,
    ) -> StoreResult<Page<ListRow<Arc<Upload>>>> {
        Ok(self.shared.catalog.list_uploads(bucket, query, after_upload).await?)
    }

    /// Parts with a number greater than `after`.
    pub async fn list_parts(
        &self,
        upload: UploadId,
        after: u32,
        limit: usize,
    ) -> StoreResult<Page<Part>> {
        Ok(self.shared.catalog.parts(upload, after, limit).await?)
    }
}

fn part_of(committed: Committed) -> StoreResult<Part> {
    match committed {
        Committed::Part(part) => Ok(part),
        other => Err(unexpected(&other)),
    }
}
