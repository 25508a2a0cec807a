//! The working set of a group of commits: the rows that it reads, loaded beforehand, and what the
//! group makes of them.
//!
//! Proposals are decided against it in order, each on top of the changes of those before; the
//! changed rows are written at the end, in one transaction. Dropping it undoes everything. It does
//! no I/O. Used by the writer thread only.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use super::names::{NameChange, Names};
use super::noncurrent::{Entry, Noncurrent};
use super::rows::BlobRow;
use crate::catalog::Usage;
use crate::catalog::decide::{BlobState, CompletedUpload, View};
use crate::model::{
    BlobId, BlobPlace, Bucket, BucketId, Key, Lsn, ObjectVersion, Part, Upload, UploadId, VersionId,
};

/// Rows of one table: what they are now, and which of them differ from the database.
#[derive(Debug)]
pub(super) struct Rows<K, V> {
    now: HashMap<K, Option<V>>,
    changed: HashSet<K>,
}

impl<K, V> Default for Rows<K, V> {
    fn default() -> Self {
        Rows { now: HashMap::new(), changed: HashSet::new() }
    }
}

impl<K: Eq + Hash + Clone, V> Rows<K, V> {
    /// Records what the database has.
    pub fn load(&mut self, key: K, value: Option<V>) {
        self.now.insert(key, value);
    }

    pub fn is_loaded(&self, key: &K) -> bool {
        self.now.contains_key(key)
    }

    /// The row, if it is loaded and there.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.now.get(key)?.as_ref()
    }

    /// **Errors** Panics when the row was not loaded: a decision on a guess could lose data, and
    /// the writer answers a panic by refusing all further commits.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.now.get(key).expect("a row is loaded before it is looked at").as_ref()
    }

    pub fn set(&mut self, key: K, value: Option<V>) {
        self.changed.insert(key.clone());
        self.now.insert(key, value);
    }

    /// A present row, to be changed.
    pub fn change(&mut self, key: &K) -> Option<&mut V> {
        let value = self.now.get_mut(key)?.as_mut()?;
        self.changed.insert(key.clone());
        Some(value)
    }

    /// Rows that are to be written.
    pub fn upserts(&self) -> impl Iterator<Item = (&K, &V)> {
        self.changed.iter().filter_map(|key| Some((key, self.now.get(key)?.as_ref()?)))
    }

    /// Rows that are to be written, for a last touch.
    pub fn upserts_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let changed = &self.changed;
        self.now
            .iter_mut()
            .filter(|(key, _)| changed.contains(*key))
            .filter_map(|(_, v)| v.as_mut())
    }

    /// Rows that are to be removed.
    pub fn removals(&self) -> impl Iterator<Item = &K> {
        self.changed.iter().filter(|key| matches!(self.now.get(*key), Some(None)))
    }

    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    pub fn changed(&self) -> impl Iterator<Item = (&K, Option<&V>)> {
        self.changed.iter().filter_map(|key| Some((key, self.now.get(key)?.as_ref())))
    }

    pub fn present(&self) -> impl Iterator<Item = (&K, &V)> {
        self.now.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)))
    }
}

/// The parts of one upload.
#[derive(Debug, Default)]
pub(super) struct PartRows {
    /// True when every part of the upload was loaded.
    pub whole: bool,
    pub rows: BTreeMap<u32, Option<Part>>,
}

/// The place of a live blob, where `blobs` knows one.
pub(super) fn placed(blobs: &Rows<BlobId, BlobRow>, id: BlobId) -> Option<BlobPlace> {
    match blobs.peek(&id)?.state {
        BlobState::Live(place) => Some(place),
        BlobState::Pending | BlobState::Dead => None,
    }
}

/// How a segment's figures change.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentChange {
    pub live_bytes: i64,
    pub live_blobs: i64,
    pub first_lsn: u64,
    pub last_lsn: u64,
}

impl SegmentChange {
    /// `first_lsn` of a change that only lowers the figures.
    pub const NO_LSN: u64 = i64::MAX as u64;
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Working {
    pub names: Arc<Names>,
    pub name_changes: Vec<NameChange>,
    /// Figures of the buckets before the group, and of those that it changed.
    base_usage: Arc<HashMap<BucketId, Usage>>,
    pub usage: HashMap<BucketId, Usage>,
    pub objects: Rows<Entry, Arc<ObjectVersion>>,
    /// Loaded for every key of `objects` whose versions a group may meet.
    pub versions: Noncurrent,
    pub blobs: Rows<BlobId, BlobRow>,
    pub uploads: Rows<UploadId, Arc<Upload>>,
    pub parts: HashMap<UploadId, PartRows>,
    pub changed_parts: BTreeSet<(UploadId, u32)>,
    /// Uploads that ended: all their parts go.
    pub ended_uploads: Vec<Arc<Upload>>,
    pub completed: Rows<UploadId, CompletedUpload>,
    pub segments: HashMap<u64, SegmentChange>,
    /// The last commit that the working set contains.
    pub last_lsn: Lsn,
    pub now_ms: i64,
}

impl Working {
    pub fn new(
        names: Arc<Names>,
        base_usage: Arc<HashMap<BucketId, Usage>>,
        last_lsn: Lsn,
        now_ms: i64,
    ) -> Working {
        Working { names, base_usage, last_lsn, now_ms, ..Working::default() }
    }

    pub fn usage_of(&self, bucket: BucketId) -> Usage {
        let known = self.usage.get(&bucket).or_else(|| self.base_usage.get(&bucket));
        known.copied().unwrap_or_default()
    }

    /// True when something is to be written.
    pub fn has_changes(&self) -> bool {
        !self.name_changes.is_empty()
            || !self.usage.is_empty()
            || self.objects.has_changes()
            || self.versions.has_changes()
            || self.blobs.has_changes()
            || self.uploads.has_changes()
            || !self.changed_parts.is_empty()
            || self.completed.has_changes()
            || !self.segments.is_empty()
    }

    /// Hands the figures of the whole store on, after the rows were written.
    pub fn settle(self, names: &mut Arc<Names>, usage: &mut Arc<HashMap<BucketId, Usage>>) {
        let Working { names: new, base_usage, usage: changed, .. } = self;
        drop(base_usage);
        let all = Arc::make_mut(usage);
        for (bucket, figures) in changed {
            all.insert(bucket, figures);
        }
        if !Arc::ptr_eq(&new, names) {
            all.retain(|bucket, _| new.bucket_by_id(*bucket).is_some());
            *names = new;
        }
    }

    pub fn part_row(&self, upload: UploadId, number: u32) -> Option<&Part> {
        let parts = self.parts.get(&upload)?;
        let row = parts.rows.get(&number);
        assert!(parts.whole || row.is_some(), "a part is loaded before it is looked at");
        row?.as_ref()
    }

    pub fn change_segment(&mut self, segment: u64) -> &mut SegmentChange {
        self.segments.entry(segment).or_insert(SegmentChange {
            live_bytes: 0,
            live_blobs: 0,
            first_lsn: SegmentChange::NO_LSN,
            last_lsn: 0,
        })
    }
}

impl View for Working {
    fn bucket_named(&self, name: &str) -> Option<Arc<Bucket>> {
        self.names.bucket(name).cloned()
    }

    fn bucket(&self, id: BucketId) -> Option<Arc<Bucket>> {
        self.names.bucket_by_id(id).cloned()
    }

    fn next_bucket_id(&self) -> BucketId {
        BucketId(self.names.last_bucket + 1)
    }

    fn bucket_is_empty(&self, id: BucketId) -> bool {
        self.usage_of(id).objects == 0
    }

    fn current(&self, bucket: BucketId, key: &Key) -> Option<Arc<ObjectVersion>> {
        self.objects.get(&(bucket, key.clone())).cloned()
    }

    fn version(&self, bucket: BucketId, key: &Key, id: VersionId) -> Option<Arc<ObjectVersion>> {
        let entry = (bucket, key.clone());
        let current = self.objects.get(&entry).filter(|v| v.version_id == id);
        current.or_else(|| self.versions.version(&entry, id)).cloned()
    }

    fn latest_without(
        &self,
        bucket: BucketId,
        key: &Key,
        gone: &HashSet<VersionId>,
    ) -> Option<Arc<ObjectVersion>> {
        let entry = (bucket, key.clone());
        let current = self.objects.get(&entry).filter(|v| !gone.contains(&v.version_id));
        current.or_else(|| self.versions.newest(&entry, |id| gone.contains(&id))).cloned()
    }

    fn blob(&self, id: BlobId) -> Option<BlobState> {
        self.blobs.get(&id).map(|blob| blob.state)
    }

    fn upload(&self, id: UploadId) -> Option<Arc<Upload>> {
        self.uploads.get(&id).cloned()
    }

    fn part(&self, upload: UploadId, number: u32) -> Option<Part> {
        self.part_row(upload, number).cloned()
    }

    fn completed(&self, upload: UploadId) -> Option<CompletedUpload> {
        self.completed.get(&upload).cloned()
    }

    fn user_exists(&self, id: &str) -> bool {
        self.names.user_exists(id)
    }

    fn access_key_exists(&self, access_key: &str) -> bool {
        self.names.access_key_exists(access_key)
    }
}
