//! Deciding renames: the object under its new key and the end of the old one, in one commit.

use std::sync::Arc;

use super::{
    Decided, Decision, Moment, View, copy_source, locks, modified_ms, new_version_id,
    require_bucket,
};
use crate::model::commit::{CopySource, DeleteStep, Mutation};
use crate::model::{
    Bucket, CommitError, Committed, ETag, Key, ObjectMetadata, ObjectVersion, WriteCondition,
};

/// Everything of the object stays but its key and time. Where versions are kept, the old key gets
/// a delete marker and keeps its versions.
pub(super) fn rename_object(
    view: &dyn View,
    at: Moment,
    source: CopySource,
    key: Key,
    condition: &WriteCondition,
) -> Decided {
    let bucket = require_bucket(view, source.bucket)?;
    let object = copy_source(view, source.bucket, &source)?;
    let current = view.current(bucket.id, &source.key);
    if current.is_none_or(|current| current.lsn != object.lsn) {
        return Err(CommitError::SourceChanged);
    }
    let replaced = view.current(bucket.id, &key);
    condition.check(replaced.as_deref())?;
    if key == source.key {
        return Ok(Decision::nothing(Committed::Object(object)));
    }
    let mut version = ObjectVersion {
        lsn: at.lsn,
        version_id: new_version_id(&bucket, &key, at),
        modified_ms: modified_ms(at, replaced.as_deref()),
        ..ObjectVersion::clone(&object)
    };
    locks::add_default(&bucket, &mut version.metadata, at);
    let answer = Committed::Object(Arc::new(version.clone()));
    let step = end_of(&bucket, at, source.key, &object);
    let mutation = Mutation::RenameObject { bucket: bucket.id, key, version, step };
    Ok(Decision::logged(mutation, None, answer))
}

fn end_of(bucket: &Bucket, at: Moment, key: Key, object: &ObjectVersion) -> DeleteStep {
    if bucket.versioning.is_none() {
        return DeleteStep::Remove(key, object.version_id);
    }
    let marker = ObjectVersion {
        lsn: at.lsn,
        version_id: new_version_id(bucket, &key, at),
        delete_marker: true,
        size: 0,
        modified_ms: modified_ms(at, Some(object)),
        etag: ETag { md5: [0; 16], parts: 0 },
        owner: object.owner.clone(),
        metadata: ObjectMetadata::default(),
        checksum: None,
        parts: Vec::new(),
        extents: Vec::new(),
    };
    DeleteStep::Mark(key, Box::new(marker))
}
