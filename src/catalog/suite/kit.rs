//! A catalog with one bucket, and short ways to commit and read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::catalog::{Catalog, ListObjects, ListRow, ListedObject, Page};
use crate::clock::ManualClock;
use crate::model::commit::{
    CompletedPart, CopySource, DeleteEntry, Deleted, PackedBytes, ProposedData,
};
use crate::model::{
    BlobId, Bucket, BucketId, BucketName, CommitError, Committed, ETag, Key, ObjectMetadata,
    ObjectVersion, OwnerId, Part, Proposal, Upload, UploadId, WriteCondition,
};

pub const MIB: u64 = 1 << 20;

pub struct Kit {
    pub catalog: Arc<dyn Catalog>,
    pub clock: Arc<ManualClock>,
    pub bucket: BucketId,
    next: AtomicU64,
}

pub fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub fn owner() -> OwnerId {
    OwnerId::new("owner-1")
}

pub fn etag(n: u64) -> ETag {
    let mut md5 = [0u8; 16];
    md5[..8].copy_from_slice(&n.to_le_bytes());
    ETag { md5, parts: 0 }
}

pub fn blob_id(n: u64) -> BlobId {
    let mut id = [0xB1; 16];
    id[..8].copy_from_slice(&n.to_le_bytes());
    BlobId(id)
}

pub fn upload_id(n: u64) -> UploadId {
    let mut id = [0xA0; 16];
    id[..8].copy_from_slice(&n.to_be_bytes());
    UploadId(id)
}

pub fn packed(n: u64, len: usize) -> ProposedData {
    let bytes = Bytes::from(vec![n as u8; len]);
    ProposedData::Packed(PackedBytes { id: blob_id(n), bytes })
}

pub fn put(bucket: BucketId, name: &str, tag: u64, data: ProposedData) -> Proposal {
    Proposal::PutObject {
        bucket,
        key: key(name),
        owner: owner(),
        metadata: ObjectMetadata::default(),
        etag: etag(tag),
        checksum: None,
        data,
        condition: WriteCondition::default(),
    }
}

impl Kit {
    pub async fn new(catalog: Arc<dyn Catalog>, clock: Arc<ManualClock>) -> Kit {
        let mut kit = Kit { catalog, clock, bucket: BucketId(0), next: AtomicU64::new(1) };
        kit.bucket = kit.make_bucket("bucket-1").await.id;
        kit
    }

    /// A number that the kit has not given before.
    pub fn fresh(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub async fn try_bucket(
        &self,
        name: &str,
        by: &str,
    ) -> Result<(Arc<Bucket>, bool), CommitError> {
        let proposal = Proposal::CreateBucket {
            name: BucketName::new(name).unwrap(),
            owner: OwnerId::new(by),
            location: String::new(),
            object_lock: false,
        };
        match self.catalog.commit(proposal).await? {
            Committed::Bucket { bucket, existed } => Ok((bucket, existed)),
            other => panic!("{other:?}"),
        }
    }

    pub async fn make_bucket(&self, name: &str) -> Arc<Bucket> {
        self.try_bucket(name, owner().as_str()).await.unwrap().0
    }

    pub async fn done(&self, proposal: Proposal) {
        match self.catalog.commit(proposal).await.unwrap() {
            Committed::Done => {}
            other => panic!("{other:?}"),
        }
    }

    pub async fn refused(&self, proposal: Proposal) -> CommitError {
        self.catalog.commit(proposal).await.unwrap_err()
    }

    pub async fn version(&self, proposal: Proposal) -> Result<Arc<ObjectVersion>, CommitError> {
        match self.catalog.commit(proposal).await? {
            Committed::Object(version) => Ok(version),
            other => panic!("{other:?}"),
        }
    }

    /// A blob that is announced.
    pub async fn pending(&self) -> BlobId {
        let id = blob_id(self.fresh());
        self.done(Proposal::BeginBlob { id }).await;
        id
    }

    pub async fn file(&self, len: u64) -> ProposedData {
        ProposedData::File { id: self.pending().await, len }
    }

    /// Puts a file of `len` bytes; answers with the blob, too.
    pub async fn put_file(&self, name: &str, len: u64) -> (BlobId, Arc<ObjectVersion>) {
        let id = self.pending().await;
        let data = ProposedData::File { id, len };
        let version = self.version(put(self.bucket, name, self.fresh(), data)).await.unwrap();
        (id, version)
    }

    pub async fn put_packed(&self, name: &str, len: usize) -> (BlobId, Arc<ObjectVersion>) {
        let n = self.fresh();
        let version = self.version(put(self.bucket, name, n, packed(n, len))).await.unwrap();
        (blob_id(n), version)
    }

    pub async fn put_if(
        &self,
        name: &str,
        condition: WriteCondition,
    ) -> Result<Arc<ObjectVersion>, CommitError> {
        let mut proposal = put(self.bucket, name, self.fresh(), ProposedData::Empty);
        if let Proposal::PutObject { condition: slot, .. } = &mut proposal {
            *slot = condition;
        }
        self.version(proposal).await
    }

    pub async fn get(&self, name: &str) -> Option<Arc<ObjectVersion>> {
        let name = key(name);
        let found = self.catalog.object(self.bucket, &name, None).await.unwrap();
        if let Some(cached) = self.catalog.cached(self.bucket, &name) {
            assert_eq!(Some(cached), found, "RAM and database differ on {name}");
        }
        found
    }

    pub async fn delete(&self, entries: Vec<DeleteEntry>) -> Vec<Result<Deleted, CommitError>> {
        let proposal = Proposal::DeleteObjects {
            bucket: self.bucket,
            owner: owner(),
            bypass_governance: false,
            entries,
        };
        match self.catalog.commit(proposal).await.unwrap() {
            Committed::Deleted(answers) => answers,
            other => panic!("{other:?}"),
        }
    }

    pub async fn delete_key(&self, name: &str) {
        let answers = self.delete(vec![entry(name)]).await;
        assert!(answers[0].is_ok(), "{answers:?}");
    }

    pub fn source(&self, name: &str, version: &ObjectVersion) -> CopySource {
        CopySource { bucket: self.bucket, key: key(name), version: None, lsn: version.lsn }
    }

    /// A version as the source of a copy, by its id.
    pub fn source_version(&self, name: &str, version: &ObjectVersion) -> CopySource {
        let id = Some(version.version_id);
        CopySource { version: id, ..self.source(name, version) }
    }

    pub fn copy(&self, from: CopySource, to: &str) -> Proposal {
        Proposal::CopyObject {
            bucket: self.bucket,
            key: key(to),
            owner: owner(),
            source: from,
            metadata: None,
            checksum: None,
            condition: WriteCondition::default(),
        }
    }

    pub async fn dead(&self) -> Vec<BlobId> {
        let dead = self.catalog.dead_blobs(1000).await.unwrap();
        dead.into_iter().map(|blob| blob.id).collect()
    }

    pub async fn begin(&self, name: &str) -> UploadId {
        self.begin_with(name, None).await
    }

    pub async fn begin_with(
        &self,
        name: &str,
        checksum: Option<(crate::model::ChecksumAlgorithm, crate::model::ChecksumKind)>,
    ) -> UploadId {
        let id = upload_id(self.fresh());
        let upload = Upload {
            id,
            bucket: self.bucket,
            key: key(name),
            initiated_ms: crate::clock::Clock::now_ms(&*self.clock),
            owner: owner(),
            metadata: ObjectMetadata::default(),
            checksum,
        };
        self.done(Proposal::CreateUpload { upload }).await;
        id
    }

    pub async fn part(
        &self,
        name: &str,
        upload: UploadId,
        number: u32,
        data: ProposedData,
    ) -> Result<Part, CommitError> {
        let proposal = Proposal::PutPart {
            bucket: self.bucket,
            key: key(name),
            upload,
            number,
            etag: etag(number.into()),
            checksum: None,
            data,
        };
        match self.catalog.commit(proposal).await? {
            Committed::Part(part) => Ok(part),
            other => panic!("{other:?}"),
        }
    }

    pub fn complete(&self, name: &str, upload: UploadId, numbers: &[u32]) -> Proposal {
        let parts = numbers.iter().map(|number| CompletedPart {
            number: *number,
            etag: etag((*number).into()).to_string(),
            checksum: None,
        });
        Proposal::CompleteUpload {
            bucket: self.bucket,
            key: key(name),
            upload,
            parts: parts.collect(),
            expected_size: None,
            expected_checksum: None,
            condition: WriteCondition::default(),
        }
    }

    pub async fn list(&self, query: ListObjects) -> Page<ListRow<ListedObject>> {
        self.catalog.list_objects(self.bucket, &query).await.unwrap()
    }
}

pub fn entry(name: &str) -> DeleteEntry {
    DeleteEntry { key: key(name), version: None, condition: WriteCondition::default() }
}
