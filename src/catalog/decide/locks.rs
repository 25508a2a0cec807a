//! Deciding what object lock allows: at the commit, against the version as it is then.

use super::{Decided, Decision, Moment, View, require_bucket, settings::require_version};
use crate::model::commit::Mutation;
use crate::model::lock::{ObjectLock, Retention, RetentionMode};
use crate::model::{
    Bucket, BucketId, CommitError, Key, ObjectMetadata, ObjectVersion, VersionId, Versioning,
};

/// Checks the lock that a write asks for.
///
/// **Errors** `NoObjectLock` in a bucket without it, `RetainUntilPast`.
pub(super) fn check_wanted(
    bucket: &Bucket,
    metadata: &ObjectMetadata,
    at: Moment,
) -> Result<(), CommitError> {
    let asked = metadata.retention.is_some() || metadata.legal_hold.is_some();
    if asked && bucket.object_lock.is_none() {
        return Err(CommitError::NoObjectLock);
    }
    check_future(metadata.retention, at)
}

fn check_future(retention: Option<Retention>, at: Moment) -> Result<(), CommitError> {
    match retention {
        Some(retention) if retention.until_ms <= at.now_ms => Err(CommitError::RetainUntilPast),
        _ => Ok(()),
    }
}

/// Gives a new version the bucket's default, unless it brings a retention of its own.
pub(super) fn add_default(bucket: &Bucket, metadata: &mut ObjectMetadata, at: Moment) {
    if metadata.retention.is_none() {
        let default = bucket.object_lock.and_then(|lock| lock.default);
        metadata.retention = default.map(|default| default.from(at.now_ms));
    }
}

/// **Errors** `Locked` when the version may not be removed.
pub(super) fn check_removal(
    version: &ObjectVersion,
    at: Moment,
    bypass: bool,
) -> Result<(), CommitError> {
    let metadata = &version.metadata;
    let held = metadata.legal_hold == Some(true);
    let retained = metadata.retention.filter(|retention| retention.until_ms > at.now_ms);
    let kept = retained.is_some_and(|r| r.mode == RetentionMode::Compliance || !bypass);
    if held || kept { Err(CommitError::Locked) } else { Ok(()) }
}

/// **Errors** `Locked` when `new` may not take the place of `old`.
fn check_change(
    old: Option<Retention>,
    new: Option<Retention>,
    at: Moment,
    bypass: bool,
) -> Result<(), CommitError> {
    let Some(old) = old.filter(|old| old.until_ms > at.now_ms) else { return Ok(()) };
    let extends = new.is_some_and(|new| new.mode == old.mode && new.until_ms >= old.until_ms);
    let may = extends || (old.mode == RetentionMode::Governance && bypass);
    if may { Ok(()) } else { Err(CommitError::Locked) }
}

/// What is asked of one version.
pub(super) struct Subject {
    pub bucket: BucketId,
    pub key: Key,
    pub version: Option<VersionId>,
}

pub(super) fn set_retention(
    view: &dyn View,
    at: Moment,
    subject: Subject,
    retention: Option<Retention>,
    bypass: bool,
) -> Decided {
    let Subject { bucket, key, version } = subject;
    require_lock(view, bucket)?;
    let found = require_version(view, bucket, &key, version)?;
    check_future(retention, at)?;
    check_change(found.metadata.retention, retention, at, bypass)?;
    let version = found.version_id;
    Ok(Decision::done(Mutation::SetRetention { bucket, key, version, retention }))
}

pub(super) fn set_legal_hold(view: &dyn View, subject: Subject, on: bool) -> Decided {
    let Subject { bucket, key, version } = subject;
    require_lock(view, bucket)?;
    let version = require_version(view, bucket, &key, version)?.version_id;
    Ok(Decision::done(Mutation::SetLegalHold { bucket, key, version, on }))
}

fn require_lock(view: &dyn View, bucket: BucketId) -> Result<(), CommitError> {
    match require_bucket(view, bucket)?.object_lock {
        Some(_) => Ok(()),
        None => Err(CommitError::NoObjectLock),
    }
}

/// Object lock needs versioning, which can then not be suspended any more.
pub(super) fn set_object_lock(view: &dyn View, bucket: BucketId, lock: ObjectLock) -> Decided {
    if require_bucket(view, bucket)?.versioning != Some(Versioning::Enabled) {
        return Err(CommitError::NotVersioned);
    }
    Ok(Decision::done(Mutation::SetObjectLock { bucket, lock }))
}
