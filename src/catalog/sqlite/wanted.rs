//! Names the rows that a group of commits looks at; `prefetch` loads them.
//!
//! Pure. Must name every row that deciding or absorbing a proposal or mutation looks at: the
//! working set panics on a row that was not loaded.

use std::collections::{BTreeMap, BTreeSet};

use super::noncurrent::{Entry, Need};
use crate::model::commit::{DeleteStep, Mutation, ProposedData};
use crate::model::{BlobId, BucketId, Extent, Key, Proposal, UploadId, VersionId};

/// Names the rows that a group looks at.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Keys, and what is needed of their versions beside the current one.
    pub objects: BTreeMap<Entry, Need>,
    pub blobs: BTreeSet<BlobId>,
    pub uploads: BTreeSet<UploadId>,
    /// Uploads all of whose parts are needed.
    pub whole_uploads: BTreeSet<UploadId>,
    pub parts: BTreeSet<(UploadId, u32)>,
    pub completed: BTreeSet<UploadId>,
    /// Buckets that go, with all uploads in them.
    pub buckets: BTreeSet<BucketId>,
}

impl Wanted {
    pub fn for_proposal(&mut self, proposal: &Proposal) {
        match proposal {
            Proposal::BeginBlob { id } | Proposal::AbandonBlob { id } => {
                self.blobs.insert(*id);
            }
            Proposal::DeleteBucket { id } => {
                self.buckets.insert(*id);
            }
            Proposal::PutObject { bucket, key, data, .. } => {
                self.install(*bucket, key);
                self.data(data);
            }
            Proposal::CopyObject { bucket, key, source, .. } => {
                self.install(*bucket, key);
                self.version(source.bucket, &source.key, source.version);
            }
            Proposal::DeleteObjects { bucket, entries, .. } => {
                entries.iter().for_each(|e| self.delete(*bucket, &e.key, e.version));
            }
            Proposal::RenameObject { source, key, .. } => {
                self.install(source.bucket, key);
                self.install(source.bucket, &source.key);
                self.delete(source.bucket, &source.key, source.version);
            }
            Proposal::CreateUpload { upload } => {
                self.uploads.insert(upload.id);
            }
            Proposal::PutPart { upload, number, data, .. } => {
                self.part(*upload, *number);
                self.data(data);
            }
            Proposal::CopyPart { upload, number, source, .. } => {
                self.part(*upload, *number);
                self.version(source.bucket, &source.key, source.version);
            }
            Proposal::CompleteUpload { bucket, key, upload, .. } => {
                self.install(*bucket, key);
                self.whole_upload(*upload);
                self.completed.insert(*upload);
            }
            Proposal::AbortUpload { upload, .. } => self.whole_upload(*upload),
            Proposal::Relocate { data, .. } => {
                self.blobs.insert(data.id);
            }
            Proposal::SetObjectAcl { bucket, key, version, .. }
            | Proposal::SetObjectTags { bucket, key, version, .. }
            | Proposal::SetRetention { bucket, key, version, .. }
            | Proposal::SetLegalHold { bucket, key, version, .. } => {
                self.version(*bucket, key, *version);
            }
            Proposal::SetVersioning { .. }
            | Proposal::SetObjectLock { .. }
            | Proposal::SetBucketAcl { .. }
            | Proposal::SetBucketConfig { .. }
            | Proposal::CreateBucket { .. }
            | Proposal::PutUser { .. }
            | Proposal::PutAccessKey { .. }
            | Proposal::DeleteAccessKey { .. } => {}
        }
    }

    pub fn for_mutation(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::DeleteBucket(id) => {
                self.buckets.insert(*id);
            }
            Mutation::PutObject { bucket, key, version, upload, .. } => {
                self.install(*bucket, key);
                self.extents(&version.extents);
                if let Some(upload) = upload {
                    self.whole_upload(*upload);
                }
            }
            Mutation::DeleteObjects { bucket, keys } => {
                keys.iter().for_each(|(key, version)| self.delete(*bucket, key, Some(*version)));
            }
            Mutation::DeleteVersions { bucket, steps } => {
                steps.iter().for_each(|step| self.step(*bucket, step));
            }
            Mutation::RenameObject { bucket, key, version, step } => {
                self.install(*bucket, key);
                self.extents(&version.extents);
                self.step(*bucket, step);
            }
            Mutation::CreateUpload(upload) => {
                self.uploads.insert(upload.id);
            }
            Mutation::PutPart { upload, part, .. } => {
                self.part(*upload, part.number);
                self.extents(&part.extents);
            }
            Mutation::AbortUpload(id) => self.whole_upload(*id),
            Mutation::Relocate(id) => {
                self.blobs.insert(*id);
            }
            Mutation::SetObjectAcl { bucket, key, version, .. }
            | Mutation::SetObjectTags { bucket, key, version, .. }
            | Mutation::SetRetention { bucket, key, version, .. }
            | Mutation::SetLegalHold { bucket, key, version, .. } => {
                self.version(*bucket, key, Some(*version));
            }
            Mutation::SetVersioning { .. }
            | Mutation::SetObjectLock { .. }
            | Mutation::SetBucketAcl { .. }
            | Mutation::SetBucketConfig { .. }
            | Mutation::CreateBucket(_)
            | Mutation::PutUser(_)
            | Mutation::PutAccessKey(_)
            | Mutation::DeleteAccessKey(_) => {}
        }
    }

    fn need(&mut self, bucket: BucketId, key: &Key) -> &mut Need {
        self.objects.entry((bucket, key.clone())).or_default()
    }

    /// A key that gets a new version, which may replace the null version.
    fn install(&mut self, bucket: BucketId, key: &Key) {
        self.need(bucket, key).null = true;
    }

    fn step(&mut self, bucket: BucketId, step: &DeleteStep) {
        match step {
            DeleteStep::Remove(key, id) => self.delete(bucket, key, Some(*id)),
            DeleteStep::Mark(key, _) => self.install(bucket, key),
        }
    }

    /// A version that is looked at or changed.
    fn version(&mut self, bucket: BucketId, key: &Key, version: Option<VersionId>) {
        let need = self.need(bucket, key);
        version.into_iter().for_each(|id| need.version(id));
    }

    /// A version that may go: the next one may come to the front. Each of several deletes of a
    /// key may lay bare one more.
    fn delete(&mut self, bucket: BucketId, key: &Key, version: Option<VersionId>) {
        let need = self.need(bucket, key);
        need.newest = need.newest.max(1) + 1;
        need.version(version.unwrap_or(VersionId::NULL));
    }

    fn data(&mut self, data: &ProposedData) {
        match data {
            ProposedData::Empty => {}
            ProposedData::Packed(packed) => {
                self.blobs.insert(packed.id);
            }
            ProposedData::File { id, .. } => {
                self.blobs.insert(*id);
            }
        }
    }

    fn part(&mut self, upload: UploadId, number: u32) {
        self.uploads.insert(upload);
        self.parts.insert((upload, number));
    }

    fn whole_upload(&mut self, upload: UploadId) {
        self.uploads.insert(upload);
        self.whole_uploads.insert(upload);
    }

    pub fn extents(&mut self, extents: &[Extent]) {
        self.blobs.extend(extents.iter().map(|e| e.blob.id));
    }
}
