//! How a mutation changes the working set. Live commits and replay share this code.

use std::sync::Arc;

use super::names::{NameChange, Names};
use super::rows::BlobRow;
use super::working::{Working, placed};
use crate::catalog::decide::{
    BlobState, CompletedUpload, Intent, UNPLACED, completion_record, place_extents,
};
use crate::model::commit::{DeleteStep, Mutation};
use crate::model::{
    BlobId, BlobPlace, Bucket, BucketConfig, BucketId, Extent, Key, Lsn, ObjectVersion, Part,
    UploadId, VersionId,
};
use crate::sabotage::{self, Sabotage};

impl Working {
    pub fn intend(&mut self, intent: Intent) {
        let (id, state) = match intent {
            Intent::Begin(id) => (id, BlobState::Pending),
            Intent::Abandon(id) => (id, BlobState::Dead),
        };
        let since = self.last_lsn;
        self.blobs.set(id, Some(BlobRow { state, refs: 0, len: 0, since }));
    }

    /// Applies one commit. Packed blobs that it carries stay `UNPLACED` until `place_record`.
    pub fn absorb(&mut self, lsn: Lsn, mutation: &Mutation) {
        self.last_lsn = lsn;
        match mutation {
            Mutation::CreateBucket(bucket) => {
                self.rename(NameChange::PutBucket(Arc::new(bucket.clone())));
            }
            Mutation::DeleteBucket(id) => self.delete_bucket(*id),
            Mutation::PutObject { bucket, key, version, upload, complete_digest, .. } => {
                if let (Some(upload), Some(digest)) = (upload, complete_digest) {
                    let completed = CompletedUpload {
                        bucket: *bucket,
                        key: key.clone(),
                        digest: digest.clone(),
                        version: Arc::new(completion_record(version)),
                    };
                    self.completed.set(*upload, Some(completed));
                }
                // New references come before the release of old ones: a copy onto itself keeps
                // its blobs alive.
                self.retain_extents(&version.extents);
                if let Some(upload) = upload {
                    self.end_upload(*upload);
                }
                self.install(*bucket, key, Arc::new(version.clone()));
            }
            Mutation::DeleteObjects { bucket, keys } => {
                for (key, version) in keys {
                    self.remove(*bucket, key, *version);
                }
            }
            Mutation::DeleteVersions { bucket, steps } => {
                steps.iter().for_each(|step| self.step(*bucket, step));
            }
            Mutation::RenameObject { bucket, key, version, step } => {
                self.retain_extents(&version.extents);
                self.install(*bucket, key, Arc::new(version.clone()));
                self.step(*bucket, step);
            }
            Mutation::CreateUpload(upload) => {
                self.uploads.set(upload.id, Some(Arc::new(upload.clone())));
                self.parts.entry(upload.id).or_default().whole = true;
            }
            Mutation::PutPart { upload, part, .. } => self.put_part(*upload, part),
            Mutation::AbortUpload(id) => self.end_upload(*id),
            Mutation::PutUser(user) => self.rename(NameChange::PutUser(user.clone())),
            Mutation::PutAccessKey(key) => self.rename(NameChange::PutAccessKey(key.clone())),
            Mutation::DeleteAccessKey(access_key) => {
                self.rename(NameChange::DeleteAccessKey(access_key.clone()));
            }
            Mutation::Relocate(id) => self.unplace(*id),
            other => self.absorb_setting(other),
        }
    }

    /// What changes a bucket's settings, or what is said of a version beside its bytes.
    fn absorb_setting(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::SetBucketAcl { bucket, acl } => {
                self.change_bucket(*bucket, |bucket| bucket.acl = Some(*acl));
            }
            Mutation::SetObjectAcl { bucket, key, version, acl } => {
                self.change_version(*bucket, key, *version, |v| v.metadata.acl = Some(*acl));
            }
            Mutation::SetObjectTags { bucket, key, version, tags } => {
                self.change_version(*bucket, key, *version, |v| v.metadata.tags = tags.clone());
            }
            Mutation::SetRetention { bucket, key, version, retention } => {
                self.change_version(*bucket, key, *version, |v| v.metadata.retention = *retention);
            }
            Mutation::SetLegalHold { bucket, key, version, on } => {
                self.change_version(*bucket, key, *version, |v| v.metadata.legal_hold = Some(*on));
            }
            Mutation::SetObjectLock { bucket, lock } => {
                self.change_bucket(*bucket, |bucket| bucket.object_lock = Some(*lock));
            }
            Mutation::SetVersioning { bucket, versioning } => {
                self.change_bucket(*bucket, |bucket| bucket.versioning = Some(*versioning));
            }
            Mutation::SetBucketConfig { bucket, name, document } => {
                let config = document.clone().map(|text| Arc::new(BucketConfig::new(text)));
                self.rename(NameChange::SetConfig(*bucket, name.clone(), config));
            }
            other => unreachable!("not a setting: {other:?}"),
        }
    }

    /// Tells the working set where the log put a record, and the packed blob in it.
    pub fn place_record(&mut self, lsn: Lsn, packed: Option<BlobId>, place: BlobPlace) {
        let BlobPlace::Segment { segment, .. } = place else { return };
        let change = self.change_segment(segment);
        change.first_lsn = change.first_lsn.min(lsn.0);
        change.last_lsn = change.last_lsn.max(lsn.0);
        let Some(id) = packed else { return };
        // A blob that was replaced within the group is gone by now; one that was carried twice
        // (put, then moved) has its last place.
        let Some(blob) = self.blobs.change(&id) else { return };
        let was = std::mem::replace(&mut blob.state, BlobState::Live(place));
        let len = blob.len as i64;
        if let BlobState::Live(BlobPlace::Segment { segment, .. }) = was
            && was != BlobState::Live(UNPLACED)
        {
            let change = self.change_segment(segment);
            change.live_bytes -= len;
            change.live_blobs -= 1;
        }
        let change = self.change_segment(segment);
        change.live_bytes += len;
        change.live_blobs += 1;
    }

    /// Gives every changed row that names packed blobs their places; after all `place_record`s.
    pub fn place_rows(&mut self) {
        let blobs = &self.blobs;
        let packed = |extents: &[Extent]| extents.iter().any(|e| e.blob.place != BlobPlace::File);
        let versions = self.objects.upserts_mut().chain(self.versions.upserts_mut());
        for version in versions.filter(|v| packed(&v.extents)) {
            place_extents(&mut Arc::make_mut(version).extents, &|id| placed(blobs, id));
        }
        for (upload, number) in &self.changed_parts {
            let parts = self.parts.get_mut(upload);
            if let Some(Some(part)) = parts.and_then(|parts| parts.rows.get_mut(number)) {
                place_extents(&mut part.extents, &|id| placed(blobs, id));
            }
        }
    }

    fn step(&mut self, bucket: BucketId, step: &DeleteStep) {
        match step {
            DeleteStep::Remove(key, version) => self.remove(bucket, key, *version),
            DeleteStep::Mark(key, marker) => {
                self.install(bucket, key, Arc::from(marker.clone()));
            }
        }
    }

    fn rename(&mut self, change: NameChange) {
        Names::apply(Arc::make_mut(&mut self.names), &change);
        self.name_changes.push(change);
    }

    fn delete_bucket(&mut self, id: BucketId) {
        let uploads = self.uploads.present().filter(|(_, upload)| upload.bucket == id);
        for upload in uploads.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_upload(upload);
        }
        self.rename(NameChange::DeleteBucket(id));
    }

    fn change_bucket(&mut self, id: BucketId, change: impl FnOnce(&mut Bucket)) {
        if let Some(mut bucket) = self.names.bucket_by_id(id).cloned() {
            change(Arc::make_mut(&mut bucket));
            self.rename(NameChange::PutBucket(bucket));
        }
    }

    fn change_version(
        &mut self,
        bucket: BucketId,
        key: &Key,
        id: VersionId,
        change: impl FnOnce(&mut ObjectVersion),
    ) {
        let entry = (bucket, key.clone());
        if self.objects.get(&entry).is_some_and(|v| v.version_id == id) {
            if let Some(version) = self.objects.change(&entry) {
                change(Arc::make_mut(version));
            }
        } else if let Some(version) = self.versions.change(&entry, id) {
            change(version);
        }
    }

    /// Makes `version` the newest of its key. The one that was current stays as a version behind
    /// it; of null versions there is only one.
    fn install(&mut self, bucket: BucketId, key: &Key, version: Arc<ObjectVersion>) {
        let entry = (bucket, key.clone());
        let replaced = match version.version_id {
            VersionId::NULL => self.take_version(&entry, VersionId::NULL),
            _ => None,
        };
        if let Some(former) = self.objects.get(&entry).cloned() {
            self.versions.insert(&entry, former);
        }
        let mut usage = self.usage_of(bucket);
        usage.objects += 1;
        usage.bytes += version.size;
        if version.delete_marker {
            self.versions.insert(&entry, version);
            if self.objects.get(&entry).is_some() {
                self.objects.set(entry, None);
            }
        } else {
            self.objects.set(entry, Some(version));
        }
        self.usage.insert(bucket, usage);
        if let Some(replaced) = replaced {
            self.release_version(bucket, &replaced);
        }
    }

    /// Removes a version. When it was the newest, the next one comes to the front.
    fn remove(&mut self, bucket: BucketId, key: &Key, id: VersionId) {
        let entry = (bucket, key.clone());
        let Some(old) = self.take_version(&entry, id) else { return };
        self.release_version(bucket, &old);
        if self.objects.get(&entry).is_none()
            && let Some(next) = self.versions.newest(&entry, |_| false).cloned()
            && !next.delete_marker
        {
            self.versions.remove(&entry, next.lsn);
            self.objects.set(entry, Some(next));
        }
    }

    /// Takes a version out of its row.
    fn take_version(
        &mut self,
        entry: &(BucketId, Key),
        id: VersionId,
    ) -> Option<Arc<ObjectVersion>> {
        if let Some(current) = self.objects.get(entry).filter(|v| v.version_id == id).cloned() {
            self.objects.set(entry.clone(), None);
            return Some(current);
        }
        let found = self.versions.version(entry, id).cloned()?;
        self.versions.remove(entry, found.lsn);
        Some(found)
    }

    fn release_version(&mut self, bucket: BucketId, old: &ObjectVersion) {
        let mut usage = self.usage_of(bucket);
        usage.objects -= 1;
        usage.bytes -= old.size;
        self.usage.insert(bucket, usage);
        self.release_extents(&old.extents);
    }

    fn put_part(&mut self, upload: UploadId, part: &Part) {
        self.retain_extents(&part.extents);
        if let Some(old) = self.part_row(upload, part.number).map(|old| old.extents.clone()) {
            self.release_extents(&old);
        }
        let rows = self.parts.entry(upload).or_default();
        rows.rows.insert(part.number, Some(part.clone()));
        self.changed_parts.insert((upload, part.number));
    }

    fn end_upload(&mut self, id: UploadId) {
        let Some(upload) = self.uploads.get(&id).cloned() else { return };
        let rows = self.parts.remove(&id).unwrap_or_default();
        assert!(rows.whole, "all parts of an upload are loaded before it ends");
        for (number, part) in rows.rows {
            self.changed_parts.remove(&(id, number));
            if let Some(part) = part {
                self.release_extents(&part.extents);
            }
        }
        self.uploads.set(id, None);
        self.ended_uploads.push(upload);
    }

    fn retain_extents(&mut self, extents: &[Extent]) {
        for extent in extents {
            let known = self.blobs.get(&extent.blob.id).copied();
            let mut blob = known.filter(|b| matches!(b.state, BlobState::Live(_))).unwrap_or({
                // The first reference: a file that was announced, a packed blob that this commit
                // carries, or in replay a blob that the database has not seen.
                let place = match extent.blob.place {
                    BlobPlace::File => BlobPlace::File,
                    BlobPlace::Segment { .. } => UNPLACED,
                };
                let state = BlobState::Live(place);
                BlobRow { state, refs: 0, len: extent.blob.len, since: self.last_lsn }
            });
            blob.refs += 1;
            self.blobs.set(extent.blob.id, Some(blob));
        }
    }

    /// Takes one reference per extent. A packed blob goes with its last one; a file stays, dead.
    fn release_extents(&mut self, extents: &[Extent]) {
        for extent in extents {
            let id = extent.blob.id;
            let Some(mut blob) = self.blobs.get(&id).copied() else {
                debug_assert!(false, "a referenced blob has a row");
                continue;
            };
            blob.refs = blob.refs.saturating_sub(1);
            if blob.refs > 0 {
                self.blobs.set(id, Some(blob));
                continue;
            }
            match blob.state {
                BlobState::Live(BlobPlace::Segment { .. }) => {
                    self.unplace(id);
                    self.blobs.set(id, None);
                }
                _ if sabotage::is(Sabotage::LeakBlob) => {}
                _ => {
                    let dead = BlobRow { state: BlobState::Dead, since: self.last_lsn, ..blob };
                    self.blobs.set(id, Some(dead));
                }
            }
        }
    }

    /// Takes a packed blob out of the figures of its segment.
    fn unplace(&mut self, id: BlobId) {
        let Some(blob) = self.blobs.get(&id).copied() else { return };
        let BlobState::Live(place @ BlobPlace::Segment { segment, .. }) = blob.state else {
            return;
        };
        if place == UNPLACED {
            return;
        }
        if !sabotage::is(Sabotage::LeakSegment) {
            let change = self.change_segment(segment);
            change.live_bytes -= blob.len as i64;
            change.live_blobs -= 1;
        }
        self.blobs.set(id, Some(BlobRow { state: BlobState::Live(UNPLACED), ..blob }));
    }
}
