//! Deciding deletes: what is removed, what is covered by a delete marker.
//!
//! The entries of one request are decided in order, each on top of those before it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Decided, Decision, Moment, View, locks, require_bucket};
use crate::model::commit::{DeleteEntry, DeleteStep, Deleted, Mutation};
use crate::model::{
    Bucket, BucketId, CommitError, Committed, ETag, Key, ObjectMetadata, ObjectVersion, OwnerId,
    VersionId, Versioning,
};

/// What the entries so far have made of one key.
#[derive(Default)]
struct Touched {
    gone: HashSet<VersionId>,
    /// The delete marker that was made last and is still there.
    marker: Option<Arc<ObjectVersion>>,
}

pub(super) struct Deletes<'v> {
    view: &'v dyn View,
    at: Moment,
    bucket: Arc<Bucket>,
    /// Owns the delete markers.
    owner: OwnerId,
    bypass: bool,
    touched: HashMap<Key, Touched>,
    steps: Vec<DeleteStep>,
}

/// Without markers, the form that a log had before there were any.
fn mutation(bucket: BucketId, steps: Vec<DeleteStep>) -> Mutation {
    let mut keys = Vec::with_capacity(steps.len());
    for step in &steps {
        match step {
            DeleteStep::Remove(key, version) => keys.push((key.clone(), *version)),
            DeleteStep::Mark(..) => return Mutation::DeleteVersions { bucket, steps },
        }
    }
    Mutation::DeleteObjects { bucket, keys }
}

impl<'v> Deletes<'v> {
    pub fn new(
        view: &'v dyn View,
        at: Moment,
        bucket: BucketId,
        owner: OwnerId,
        bypass: bool,
    ) -> Result<Deletes<'v>, CommitError> {
        let bucket = require_bucket(view, bucket)?;
        let (touched, steps) = (HashMap::new(), Vec::new());
        Ok(Deletes { view, at, bucket, owner, bypass, touched, steps })
    }

    pub fn decide(mut self, entries: Vec<DeleteEntry>) -> Decided {
        let answers = entries.into_iter().map(|entry| self.entry(entry)).collect();
        let answer = Committed::Deleted(answers);
        if self.steps.is_empty() {
            return Ok(Decision::nothing(answer));
        }
        Ok(Decision::logged(mutation(self.bucket.id, self.steps), None, answer))
    }

    fn entry(&mut self, entry: DeleteEntry) -> Result<Deleted, CommitError> {
        let DeleteEntry { key, version, condition } = entry;
        let subject = match version {
            Some(version) => self.version(&key, version),
            None => self.latest(&key),
        };
        condition.check(subject.as_deref())?;
        let marker = match (version, self.bucket.versioning) {
            (Some(_), _) | (None, None) => match &subject {
                Some(subject) => {
                    locks::check_removal(subject, self.at, self.bypass)?;
                    self.remove(&key, subject)
                }
                None => None,
            },
            (None, Some(Versioning::Enabled)) => {
                let (bucket, at) = (self.bucket.id, self.at);
                Some(self.mark(&key, VersionId::of_commit(bucket, &key, at.lsn, at.now_ms)))
            }
            (None, Some(Versioning::Suspended)) => Some(self.mark(&key, VersionId::NULL)),
        };
        Ok(Deleted { key, version, marker })
    }

    /// Tells the id of the delete marker, if it is one that goes.
    fn remove(&mut self, key: &Key, version: &ObjectVersion) -> Option<VersionId> {
        let id = version.version_id;
        let touched = self.touched.entry(key.clone()).or_default();
        if touched.marker.as_ref().is_some_and(|marker| marker.version_id == id) {
            touched.marker = None;
        }
        touched.gone.insert(id);
        self.steps.push(DeleteStep::Remove(key.clone(), id));
        version.delete_marker.then_some(id)
    }

    /// Covers a key, also one that does not exist. A key that this request covered already stays
    /// as it is: one commit makes one version of a key.
    fn mark(&mut self, key: &Key, id: VersionId) -> VersionId {
        let latest = self.latest(key);
        let touched = self.touched.entry(key.clone()).or_default();
        if let Some(marker) = &touched.marker {
            return marker.version_id;
        }
        let marker = ObjectVersion {
            lsn: self.at.lsn,
            version_id: id,
            delete_marker: true,
            size: 0,
            modified_ms: super::modified_ms(self.at, latest.as_deref()),
            etag: ETag { md5: [0; 16], parts: 0 },
            owner: self.owner.clone(),
            metadata: ObjectMetadata::default(),
            checksum: None,
            parts: Vec::new(),
            extents: Vec::new(),
        };
        if id == VersionId::NULL {
            touched.gone.insert(id);
        }
        touched.marker = Some(Arc::new(marker.clone()));
        self.steps.push(DeleteStep::Mark(key.clone(), Box::new(marker)));
        id
    }

    /// The newest version of the key by now, also a delete marker.
    fn latest(&self, key: &Key) -> Option<Arc<ObjectVersion>> {
        let none = HashSet::new();
        let touched = self.touched.get(key);
        if let Some(marker) = touched.and_then(|t| t.marker.clone()) {
            return Some(marker);
        }
        self.view.latest_without(self.bucket.id, key, touched.map_or(&none, |t| &t.gone))
    }

    fn version(&self, key: &Key, id: VersionId) -> Option<Arc<ObjectVersion>> {
        let touched = self.touched.get(key);
        if let Some(marker) = touched.and_then(|t| t.marker.as_ref())
            && marker.version_id == id
        {
            return Some(marker.clone());
        }
        if touched.is_some_and(|t| t.gone.contains(&id)) {
            return None;
        }
        self.view.version(self.bucket.id, key, id)
    }
}
