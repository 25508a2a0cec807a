//! How the model's state changes.

use std::sync::Arc;

use bytes::Bytes;

use super::{Blob, State};
use crate::catalog::decide::{BlobState, CompletedUpload, Intent, Moment, completion_record};
use crate::model::commit::{DeleteStep, Mutation};
use crate::model::{
    BlobId, BlobPlace, BucketConfig, BucketId, Extent, Key, Lsn, ObjectVersion, UploadId, VersionId,
};

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
                self.install(at.lsn, bucket, key, version);
            }
            Mutation::DeleteObjects { bucket, keys } => {
                for (key, version) in keys {
                    self.remove(at.lsn, bucket, key, version);
                }
            }
            Mutation::DeleteVersions { bucket, steps } => {
                for step in steps {
                    self.step(at.lsn, bucket, step);
                }
            }
            Mutation::RenameObject { bucket, key, version, step } => {
                self.retain_extents(&version.extents, None);
                self.install(at.lsn, bucket, key, Arc::new(version));
                self.step(at.lsn, bucket, step);
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
            other => self.apply_setting(other),
        }
    }

    /// Changes a bucket's settings or what is said of a version beside its bytes.
    fn apply_setting(&mut self, mutation: Mutation) {
        match mutation {
            Mutation::SetBucketAcl { bucket, acl } => {
                if let Some(found) = self.buckets.values_mut().find(|b| b.id == bucket) {
                    Arc::make_mut(found).acl = Some(acl);
                }
            }
            Mutation::SetObjectAcl { bucket, key, version, acl } => {
                if let Some(version) = self.version_mut(bucket, key, version) {
                    version.metadata.acl = Some(acl);
                }
            }
            Mutation::SetBucketConfig { bucket, name, document } => {
                if let Some(found) = self.buckets.values_mut().find(|b| b.id == bucket) {
                    let config = document.map(|document| Arc::new(BucketConfig::new(document)));
                    Arc::make_mut(found).configs.set(&name, config);
                }
            }
            Mutation::SetObjectTags { bucket, key, version, tags } => {
                if let Some(version) = self.version_mut(bucket, key, version) {
                    version.metadata.tags = tags;
                }
            }
            Mutation::SetRetention { bucket, key, version, retention } => {
                if let Some(version) = self.version_mut(bucket, key, version) {
                    version.metadata.retention = retention;
                }
            }
            Mutation::SetLegalHold { bucket, key, version, on } => {
                if let Some(version) = self.version_mut(bucket, key, version) {
                    version.metadata.legal_hold = Some(on);
                }
            }
            Mutation::SetObjectLock { bucket, lock } => {
                if let Some(found) = self.buckets.values_mut().find(|b| b.id == bucket) {
                    Arc::make_mut(found).object_lock = Some(lock);
                }
            }
            Mutation::SetVersioning { bucket, versioning } => {
                if let Some(found) = self.buckets.values_mut().find(|b| b.id == bucket) {
                    Arc::make_mut(found).versioning = Some(versioning);
                }
            }
            other => unreachable!("not a setting: {other:?}"),
        }
    }

    fn step(&mut self, lsn: Lsn, bucket: BucketId, step: DeleteStep) {
        match step {
            DeleteStep::Remove(key, id) => self.remove(lsn, bucket, key, id),
            DeleteStep::Mark(key, marker) => self.install(lsn, bucket, key, Arc::from(marker)),
        }
    }

    fn version_mut(
        &mut self,
        bucket: BucketId,
        key: Key,
        id: VersionId,
    ) -> Option<&mut ObjectVersion> {
        let versions = self.objects.get_mut(&(bucket, key))?;
        versions.iter_mut().find(|v| v.version_id == id).map(Arc::make_mut)
    }

    /// Makes `version` the newest of its key; of null versions there is one.
    fn install(&mut self, lsn: Lsn, bucket: BucketId, key: Key, version: Arc<ObjectVersion>) {
        if version.version_id == VersionId::NULL {
            self.remove(lsn, bucket, key.clone(), VersionId::NULL);
        }
        self.objects.entry((bucket, key)).or_default().insert(0, version);
    }

    fn remove(&mut self, lsn: Lsn, bucket: BucketId, key: Key, id: VersionId) {
        let entry = (bucket, key);
        let Some(versions) = self.objects.get_mut(&entry) else { return };
        let Some(at) = versions.iter().position(|v| v.version_id == id) else { return };
        let old = versions.remove(at);
        if versions.is_empty() {
            self.objects.remove(&entry);
        }
        self.release_extents(lsn, &old.extents);
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
        let versions = self.objects.values_mut().flatten();
        let versions = versions.map(|v| &mut Arc::make_mut(v).extents);
        let parts = self.parts.values_mut().map(|part| &mut part.extents);
        for extent in versions.chain(parts).flatten() {
            if extent.blob.id == id {
                extent.blob.place = place;
            }
        }
    }
}
