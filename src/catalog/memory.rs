//! The catalog as a model: ordered maps behind one lock, every question answered by a plain walk.
//!
//! Owns nothing on a disk and forgets everything when dropped. It exists to be obviously right:
//! the contract suite and the random tests compare `sqlite` with it. Never use it in a server.

mod apply;

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};

use super::decide::{self, BlobState, Change, CompletedUpload, Moment, View};
use super::{
    Catalog, DeadBlob, ListObjects, ListRow, ListedObject, ListedVersion, Page, ReadResult, Usage,
};
use crate::clock::Clock;
use crate::model::{
    AccessKey, BlobId, BlobPlace, BlobRef, Bucket, BucketId, CommitError, Committed, Key, Lsn,
    ObjectVersion, Part, Proposal, Upload, UploadId, User, VersionId,
};

/// The model. Any number of threads may share it.
pub struct MemoryCatalog {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_lsn: Lsn,
    last_bucket: u64,
    buckets: BTreeMap<String, Arc<Bucket>>,
    /// Versions of each key, newest first, delete markers among them; never empty.
    objects: BTreeMap<(BucketId, Key), Vec<Arc<ObjectVersion>>>,
    blobs: BTreeMap<BlobId, Blob>,
    uploads: BTreeMap<UploadId, Arc<Upload>>,
    parts: BTreeMap<(UploadId, u32), Part>,
    completed: BTreeMap<UploadId, CompletedUpload>,
    users: BTreeMap<String, User>,
    access_keys: BTreeMap<String, AccessKey>,
}

struct Blob {
    state: BlobState,
    refs: u64,
    len: u64,
    /// When it died; orders the dead.
    since: Lsn,
    /// The bytes of a packed blob.
    bytes: Option<Bytes>,
}

impl MemoryCatalog {
    pub fn new(clock: Arc<dyn Clock>) -> MemoryCatalog {
        MemoryCatalog { clock, state: Mutex::new(State::default()) }
    }

    /// The bytes of a packed blob: there is no log from which they could be read.
    pub fn packed_bytes(&self, id: BlobId) -> Option<Bytes> {
        self.state().blobs.get(&id)?.bytes.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn commit_now(&self, proposal: Proposal) -> Result<Committed, CommitError> {
        let state = &mut *self.state();
        let at = Moment { lsn: Lsn(state.last_lsn.0 + 1), now_ms: self.clock.now_ms() };
        let mut decision = decide::decide(state, at, proposal)?;
        // The model's "log" has one segment, in which a record's offset is its commit.
        let place = BlobPlace::Segment { segment: 1, record_offset: at.lsn.0 };
        match decision.change {
            Change::None => {}
            Change::Intent(intent) => state.intend(intent),
            Change::Logged { mut mutation, packed } => {
                let carried = packed.as_ref().map(|p| p.id);
                let placed = |id| (carried == Some(id)).then_some(place);
                decide::place_mutation(&mut mutation, &placed);
                decide::place_answer(&mut decision.answer, &placed);
                state.last_lsn = at.lsn;
                state.apply(at, mutation, place, packed.map(|p| p.bytes));
            }
        }
        Ok(decision.answer)
    }
}

impl View for State {
    fn bucket_named(&self, name: &str) -> Option<Arc<Bucket>> {
        self.buckets.get(name).cloned()
    }

    fn bucket(&self, id: BucketId) -> Option<Arc<Bucket>> {
        self.buckets.values().find(|bucket| bucket.id == id).cloned()
    }

    fn next_bucket_id(&self) -> BucketId {
        BucketId(self.last_bucket + 1)
    }

    fn bucket_is_empty(&self, id: BucketId) -> bool {
        !self.objects.keys().any(|(bucket, _)| *bucket == id)
    }

    fn current(&self, bucket: BucketId, key: &Key) -> Option<Arc<ObjectVersion>> {
        self.versions(bucket, key).first().filter(|v| !v.delete_marker).cloned()
    }

    fn version(&self, bucket: BucketId, key: &Key, id: VersionId) -> Option<Arc<ObjectVersion>> {
        self.versions(bucket, key).iter().find(|v| v.version_id == id).cloned()
    }

    fn latest_without(
        &self,
        bucket: BucketId,
        key: &Key,
        gone: &HashSet<VersionId>,
    ) -> Option<Arc<ObjectVersion>> {
        self.versions(bucket, key).iter().find(|v| !gone.contains(&v.version_id)).cloned()
    }

    fn blob(&self, id: BlobId) -> Option<BlobState> {
        self.blobs.get(&id).map(|blob| blob.state)
    }

    fn upload(&self, id: UploadId) -> Option<Arc<Upload>> {
        self.uploads.get(&id).cloned()
    }

    fn part(&self, upload: UploadId, number: u32) -> Option<Part> {
        self.parts.get(&(upload, number)).cloned()
    }

    fn completed(&self, upload: UploadId) -> Option<CompletedUpload> {
        self.completed.get(&upload).cloned()
    }

    fn user_exists(&self, id: &str) -> bool {
        self.users.contains_key(id)
    }

    fn access_key_exists(&self, access_key: &str) -> bool {
        self.access_keys.contains_key(access_key)
    }
}

/// A future that is ready at once.
fn answer<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    ready(value).boxed()
}

/// The first `limit` of `rows`.
fn page<T>(rows: impl Iterator<Item = T>, limit: usize) -> Page<T> {
    let mut rows: Vec<T> = rows.take(limit.saturating_add(1)).collect();
    let truncated = limit > 0 && rows.len() > limit;
    rows.truncate(limit);
    Page { rows, truncated }
}

/// Rows of a listing from items in order, grouped and cut as `query` says. Items at or before
/// the start are already gone, except those under a common prefix that was the start.
fn grouped<T>(items: impl Iterator<Item = (Key, T)>, query: &ListObjects) -> Page<ListRow<T>> {
    let mut last = query.after_is_prefix.then(|| query.after.clone());
    let rows = items.filter_map(move |(key, item)| {
        let key = key.as_str();
        if last.as_ref().is_some_and(|prefix| key.starts_with(prefix.as_str())) {
            return None;
        }
        let rest = key.strip_prefix(query.prefix.as_str())?;
        let found = if query.delimiter.is_empty() { None } else { rest.find(&query.delimiter) };
        let Some(at) = found else { return Some(ListRow::Item(item)) };
        let prefix = key[..query.prefix.len() + at + query.delimiter.len()].to_owned();
        last = Some(prefix.clone());
        Some(ListRow::CommonPrefix(prefix))
    });
    page(rows, query.limit)
}

impl State {
    /// All versions of a key, newest first.
    fn versions(&self, bucket: BucketId, key: &Key) -> &[Arc<ObjectVersion>] {
        self.objects.get(&(bucket, key.clone())).map_or(&[], Vec::as_slice)
    }

    /// The versions of the keys of a bucket.
    fn keys(&self, bucket: BucketId) -> impl Iterator<Item = (&Key, &[Arc<ObjectVersion>])> {
        let in_bucket = self.objects.iter().filter(move |((b, _), _)| *b == bucket);
        in_bucket.map(|((_, key), versions)| (key, versions.as_slice()))
    }

    /// All versions of a bucket in listing order, after the marker.
    fn versions_after(
        &self,
        bucket: BucketId,
        query: &ListObjects,
        marker: Option<VersionId>,
    ) -> Vec<(Key, ListedVersion)> {
        let mut all = Vec::new();
        for (key, versions) in self.keys(bucket) {
            let bound = match marker.filter(|_| !query.after_is_prefix) {
                None => Lsn(0),
                // A null version that is gone leaves all versions of its key to be shown again.
                Some(id) => {
                    let null = versions.iter().find(|v| v.version_id == id).map(|v| v.lsn);
                    id.lsn().or(null).unwrap_or(Lsn(u64::MAX))
                }
            };
            for (at, version) in versions.iter().enumerate() {
                let name = key.as_str();
                if name > query.after.as_str() || name == query.after && version.lsn < bound {
                    let (key, version) = (key.clone(), version.clone());
                    let row = ListedVersion { key: key.clone(), is_latest: at == 0, version };
                    all.push((key, row));
                }
            }
        }
        all
    }

    /// The uploads of a bucket in listing order, after the marker.
    fn uploads_after(
        &self,
        bucket: BucketId,
        after: &str,
        after_upload: Option<UploadId>,
    ) -> Vec<(Key, Arc<Upload>)> {
        let order = |u: &Upload| (u.key.clone(), u.initiated_ms, u.id);
        let marker = after_upload.map(|id| {
            // A marker that is gone leaves all uploads of its key to be shown again.
            let known = self.uploads.get(&id).filter(|u| u.key.as_str() == after);
            known.map(|u| order(u))
        });
        let mut all: Vec<_> = self.uploads.values().filter(|u| u.bucket == bucket).collect();
        all.sort_by_key(|u| order(u));
        let follows = |u: &Upload| match &marker {
            None => u.key.as_str() > after,
            Some(None) => u.key.as_str() >= after,
            Some(Some(marker)) => order(u) > *marker,
        };
        all.into_iter().filter(|u| follows(u)).map(|u| (u.key.clone(), u.clone())).collect()
    }
}

impl Catalog for MemoryCatalog {
    fn commit(&self, proposal: Proposal) -> BoxFuture<'_, Result<Committed, CommitError>> {
        answer(self.commit_now(proposal))
    }

    fn cached(&self, bucket: BucketId, key: &Key) -> Option<Arc<ObjectVersion>> {
        self.state().current(bucket, key)
    }

    fn object<'a>(
        &'a self,
        bucket: BucketId,
        key: &'a Key,
        version: Option<VersionId>,
    ) -> BoxFuture<'a, ReadResult<Option<Arc<ObjectVersion>>>> {
        let state = self.state();
        answer(Ok(match version {
            None => state.versions(bucket, key).first().cloned(),
            Some(id) => state.version(bucket, key, id),
        }))
    }

    fn bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        self.state().bucket_named(name)
    }

    fn buckets<'a>(
        &'a self,
        owner: Option<&'a str>,
        prefix: &'a str,
        after: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, ReadResult<Page<Arc<Bucket>>>> {
        let state = self.state();
        let range = (Bound::Excluded(after), Bound::Unbounded);
        let rows = state
            .buckets
            .range::<str, _>(range)
            .filter(|(name, bucket)| {
                name.starts_with(prefix) && owner.is_none_or(|o| o == bucket.owner.as_str())
            })
            .map(|(_, bucket)| bucket.clone());
        answer(Ok(page(rows, limit)))
    }

    fn list_objects<'a>(
        &'a self,
        bucket: BucketId,
        query: &'a ListObjects,
    ) -> BoxFuture<'a, ReadResult<Page<ListRow<ListedObject>>>> {
        let state = self.state();
        let live = state.keys(bucket).filter_map(|(key, versions)| {
            let version = versions.first().filter(|v| !v.delete_marker)?.clone();
            Some((key.clone(), ListedObject { key: key.clone(), version }))
        });
        let items = live.filter(|(key, _)| key.as_str() > query.after.as_str());
        answer(Ok(grouped(items, query)))
    }

    fn list_versions<'a>(
        &'a self,
        bucket: BucketId,
        query: &'a ListObjects,
        after_version: Option<VersionId>,
    ) -> BoxFuture<'a, ReadResult<Page<ListRow<ListedVersion>>>> {
        let items = self.state().versions_after(bucket, query, after_version);
        answer(Ok(grouped(items.into_iter(), query)))
    }

    fn upload<'a>(
        &'a self,
        bucket: BucketId,
        key: &'a Key,
        upload: UploadId,
    ) -> BoxFuture<'a, ReadResult<Option<Arc<Upload>>>> {
        let found = self.state().upload(upload);
        answer(Ok(found.filter(|u| u.bucket == bucket && u.key == *key)))
    }

    fn list_uploads<'a>(
        &'a self,
        bucket: BucketId,
        query: &'a ListObjects,
        after_upload: Option<UploadId>,
    ) -> BoxFuture<'a, ReadResult<Page<ListRow<Arc<Upload>>>>> {
        let items = self.state().uploads_after(bucket, &query.after, after_upload);
        answer(Ok(grouped(items.into_iter(), query)))
    }

    fn parts(
        &self,
        upload: UploadId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, ReadResult<Page<Part>>> {
        let state = self.state();
        let of_upload = state.parts.iter().filter(|((u, n), _)| *u == upload && *n > after);
        answer(Ok(page(of_upload.map(|(_, part)| part.clone()), limit)))
    }

    fn access_key(&self, access_key: &str) -> Option<Arc<(AccessKey, User)>> {
        let state = self.state();
        let key = state.access_keys.get(access_key)?;
        let user = state.users.get(&key.user)?;
        Some(Arc::new((key.clone(), user.clone())))
    }

    fn users(&self) -> BoxFuture<'_, ReadResult<Vec<User>>> {
        answer(Ok(self.state().users.values().cloned().collect()))
    }

    fn access_keys(&self) -> BoxFuture<'_, ReadResult<Vec<AccessKey>>> {
        answer(Ok(self.state().access_keys.values().cloned().collect()))
    }

    fn usage(&self, bucket: BucketId) -> BoxFuture<'_, ReadResult<Usage>> {
        let state = self.state();
        let mut usage = Usage::default();
        for version in state.keys(bucket).flat_map(|(_, versions)| versions) {
            usage.objects += 1;
            usage.bytes += version.size;
        }
        answer(Ok(usage))
    }

    fn locate(&self, blob: BlobId) -> BoxFuture<'_, ReadResult<Option<BlobRef>>> {
        let state = self.state();
        let found = state.blobs.get(&blob).and_then(|row| match row.state {
            BlobState::Live(place) => Some(BlobRef { id: blob, place, len: row.len }),
            BlobState::Pending | BlobState::Dead => None,
        });
        answer(Ok(found))
    }

    fn dead_blobs(&self, limit: usize) -> BoxFuture<'_, ReadResult<Vec<DeadBlob>>> {
        let state = self.state();
        let dead = state.blobs.iter().filter(|(_, blob)| blob.state == BlobState::Dead);
        let mut dead: Vec<_> = dead.map(|(id, blob)| (blob.since, *id)).collect();
        dead.sort();
        answer(Ok(dead.into_iter().take(limit).map(|(_, id)| DeadBlob { id }).collect()))
    }

    fn known_blobs(&self, mut ids: Vec<BlobId>) -> BoxFuture<'_, ReadResult<Vec<BlobId>>> {
        let state = self.state();
        ids.retain(|id| state.blobs.contains_key(id));
        answer(Ok(ids))
    }

    fn forget(&self, ids: Vec<BlobId>) -> BoxFuture<'_, Result<(), CommitError>> {
        let state = &mut *self.state();
        state.blobs.retain(|id, blob| blob.state != BlobState::Dead || !ids.contains(id));
        answer(Ok(()))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        answer(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalog::suite;
    use crate::clock::ManualClock;
    use crate::model::commit::ProposedData;

    async fn fresh() -> ((), Arc<dyn Catalog>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(1_000));
        ((), Arc::new(MemoryCatalog::new(clock.clone())), clock)
    }

    suite::catalog_suite!(super::fresh);

    proptest! {
        #[test]
        fn listings_match_the_naive_one((keys, prefix, delimiter, after) in suite::some_keys()) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (_guard, catalog, clock) = fresh().await;
                let kit = suite::Kit::new(catalog.clone(), clock).await;
                for key in &keys {
                    let proposal = suite::put(kit.bucket, key, 1, ProposedData::Empty);
                    kit.version(proposal).await.unwrap();
                }
                let query = ListObjects { prefix, delimiter, after, ..ListObjects::default() };
                suite::pages_agree(catalog, kit.bucket, &keys, query).await;
            });
        }
    }
}
