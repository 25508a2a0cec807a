//! How the model's state changes.

use std::sync::Arc;

use bytes::Bytes;

use super::{Blob, State};
use crate::catalog::decide::{BlobState, CompletedUpload, Intent, Moment, completion_record};
use crate::model::commit::Mutation;
use crate::model::{BlobId, BlobPlace, BucketConfig, BucketId, Extent, Lsn, UploadId};

impl State {
    pub(super) fn intend(&mut self, intent: Intent) {
        let since = self.last_lsn;
        match intent {
            Intent::Begin(id) => {
                let state = BlobState::Pending;
                self.blobs.insert(id, Blob { state, refs: 0, len: 0, since, bytes: None });
            }
            Intent::Abandon(id) => {
                if let Some(blob) = self.blobs.get_mut(&id) {
                    blob.state = BlobState::Dead;
                    blob.since = since;
                }
            }
        }
    }

    pub(super) fn apply(
        &mut self,
        at: Moment,
        mutation: Mutation,
        place: BlobPlace,
        bytes: Option<Bytes>,
    ) {
        match mutation {
            Mutation::CreateBucket(bucket) => {
                self.last_bucket = self.last_bucket.max(bucket.id.0);
                self.buckets.insert(bucket.name.as_str().to_owned(), Arc::new(bucket));
            }
            Mutation::DeleteBucket(id) => self.delete_bucket(at.lsn, id),
            Mutation::PutObject { bucket, key, version, upload, complete_digest, .. } => {
                self.retain_extents(&version.extents, bytes);
                let version = Arc::new(version);
                if let (Some(id), Some(digest)) = (upload, complete_digest) {
                    let key = key.clone();
                    let version = Arc::new(completion_record(&version));
                    self.completed.insert(id, CompletedUpload { bucket, key, digest, version });
                    self.end_upload(at.lsn, id);
                }
                if let Some(old) = self.objects.insert((bucket, key), version) {
                    self.release_extents(at.lsn, &old.extents);
                }
            }
            Mutation::DeleteObjects { bucket, keys } => {
                for (key, _) in keys {
                    if let Some(old) = self.objects.remove(&(bucket, key)) {
                        self.release_extents(at.lsn, &old.extents);
                    }
                }
            }
            Mutation::CreateUpload(upload) => {
                self.uploads.insert(upload.id, Arc::new(upload));
            }
            Mutation::PutPart { upload, part, .. } => {
                self.retain_extents(&part.extents, bytes);
                if let Some(old) = self.parts.insert((upload, part.number), part) {
                    self.release_extents(at.lsn, &old.extents);
                }
            }
            Mutation::AbortUpload(id) => self.end_upload(at.lsn, id),
            Mutation::PutUser(user) => {
                self.users.insert(user.id.clone(), user);
            }
            Mutation::PutAccessKey(key) => {
                self.access_keys.insert(key.access_key.clone(), key);
            }
            Mutation::DeleteAccessKey(access_key) => {
                self.access_keys.remove(&access_key);
            }
            Mutation::Relocate(id) => self.relocate(id, place),
            Mutation::SetBucketAcl { bucket, acl } => {
                if let Some(found) = self.buckets.values_mut().find(|b| b.id == bucket) {
                    Arc::make_mut(found).acl = Some(acl);
                }
            }
            Mutation::SetObjectAcl { bucket, key, acl, .. } => {
                if let Some(version) = self.objects.get_mut(&(bucket, key)) {
                    Arc::make_mut(version).metadata.acl = Some(acl);
                }
            }
            Mutation::SetBucketConfig { bucket, name, document } => {
                self.configure(bucket, &name, document);
            }
        }
    }

    fn configure(&mut self, bucket: BucketId, name: &str, document: Option<Vec<u8>>) {
        if let Some(found) = self.buckets.values_mut().find(|b| b.id == bucket) {
            let config = document.map(|document| Arc::new(BucketConfig::new(document)));
            Arc::make_mut(found).configs.set(name, config);
        }
    }

    fn delete_bucket(&mut self, lsn: Lsn, id: BucketId) {
        self.buckets.retain(|_, bucket| bucket.id != id);
        let uploads: Vec<UploadId> =
            self.uploads.values().filter(|u| u.bucket == id).map(|u| u.id).collect();
        for upload in uploads {
            self.end_upload(lsn, upload);
        }
        self.completed.retain(|_, done| done.bucket != id);
    }

    fn end_upload(&mut self, lsn: Lsn, id: UploadId) {
        self.uploads.remove(&id);
        let ended = self.parts.extract_if(.., |(upload, _), _| *upload == id);
        let ended: Vec<_> = ended.map(|(_, part)| part).collect();
        for part in ended {
            self.release_extents(lsn, &part.extents);
        }
    }

    fn retain_extents(&mut self, extents: &[Extent], bytes: Option<Bytes>) {
        for extent in extents {
            let blob = self.blobs.entry(extent.blob.id).or_insert(Blob {
                state: BlobState::Pending,
                refs: 0,
                len: extent.blob.len,
                since: Lsn(0),
                bytes: bytes.clone(),
            });
            blob.refs += 1;
            blob.len = extent.blob.len;
            blob.state = BlobState::Live(extent.blob.place);
        }
    }

    /// Takes one reference per extent. A packed blob goes with its last one; a file stays, dead.
    fn release_extents(&mut self, lsn: Lsn, extents: &[Extent]) {
        for extent in extents {
            let Some(blob) = self.blobs.get_mut(&extent.blob.id) else { continue };
            blob.refs -= 1;
            if blob.refs > 0 {
                continue;
            }
            if blob.state == BlobState::Live(BlobPlace::File) {
                blob.state = BlobState::Dead;
                blob.since = lsn;
            } else {
                self.blobs.remove(&extent.blob.id);
            }
        }
    }

    fn relocate(&mut self, id: BlobId, place: BlobPlace) {
        if let Some(blob) = self.blobs.get_mut(&id) {
            blob.state = BlobState::Live(place);
        }
        self.move_extents(id, place);
    }

    /// Shows the new place in every version and part that refers to the blob.
    fn move_extents(&mut self, id: BlobId, place: BlobPlace) {
        let versions = self.objects.values_mut().map(|v| &mut Arc::make_mut(v).extents);
        let parts = self.parts.values_mut().map(|part| &mut part.extents);
        for extent in versions.chain(parts).flatten() {
            if extent.blob.id == id {
                extent.blob.place = place;
            }
        }
    }
}
