//! Deciding what changes a bucket's settings, or what is said of a version beside its bytes.

use std::sync::Arc;

use super::locks::{self, Subject};
use super::{Decided, Decision, Moment, View, require_bucket};
use crate::model::commit::Mutation;
use crate::model::{
    BucketId, CannedAcl, CommitError, Committed, Key, ObjectVersion, Proposal, VersionId,
    Versioning,
};

/// The proposals that `super::decide` leaves to this module.
pub(super) fn decide(view: &dyn View, at: Moment, proposal: Proposal) -> Decided {
    match proposal {
        Proposal::SetBucketAcl { bucket, acl } => set_bucket_acl(view, bucket, acl),
        Proposal::SetObjectAcl { bucket, key, version, acl } => {
            set_object_acl(view, bucket, key, version, acl)
        }
        Proposal::SetBucketConfig { bucket, name, document } => {
            set_bucket_config(view, bucket, name, document)
        }
        Proposal::SetObjectTags { bucket, key, version, tags } => {
            let version = require_version(view, bucket, &key, version)?.version_id;
            Ok(Decision::done(Mutation::SetObjectTags { bucket, key, version, tags }))
        }
        Proposal::SetRetention { bucket, key, version, retention, bypass_governance } => {
            let subject = Subject { bucket, key, version };
            locks::set_retention(view, at, subject, retention, bypass_governance)
        }
        Proposal::SetLegalHold { bucket, key, version, on } => {
            locks::set_legal_hold(view, Subject { bucket, key, version }, on)
        }
        Proposal::SetObjectLock { bucket, lock } => locks::set_object_lock(view, bucket, lock),
        Proposal::SetVersioning { bucket, versioning } => set_versioning(view, bucket, versioning),
        // `super::decide` has a form for every other proposal.
        other => Err(CommitError::Failed(format!("not decided: {other:?}").into())),
    }
}

fn set_bucket_acl(view: &dyn View, bucket: BucketId, acl: CannedAcl) -> Decided {
    require_bucket(view, bucket)?;
    Ok(Decision::done(Mutation::SetBucketAcl { bucket, acl }))
}

fn set_bucket_config(
    view: &dyn View,
    bucket: BucketId,
    name: String,
    document: Option<Vec<u8>>,
) -> Decided {
    require_bucket(view, bucket)?;
    Ok(Decision::done(Mutation::SetBucketConfig { bucket, name, document }))
}

fn set_object_acl(
    view: &dyn View,
    bucket: BucketId,
    key: Key,
    named: Option<VersionId>,
    acl: CannedAcl,
) -> Decided {
    let version = require_version(view, bucket, &key, named)?.version_id;
    Ok(Decision::done(Mutation::SetObjectAcl { bucket, key, version, acl }))
}

/// The named or current version of a key, if it is an object.
///
/// **Errors** `NoSuchBucket`, `NoSuchVersion`, `NoSuchKey`, also for a delete marker.
pub(super) fn require_version(
    view: &dyn View,
    bucket: BucketId,
    key: &Key,
    named: Option<VersionId>,
) -> Result<Arc<ObjectVersion>, CommitError> {
    require_bucket(view, bucket)?;
    let live = |version: &Arc<ObjectVersion>| !version.delete_marker;
    match named {
        None => view.current(bucket, key).ok_or(CommitError::NoSuchKey),
        Some(id) => view.version(bucket, key, id).filter(live).ok_or(CommitError::NoSuchVersion),
    }
}

fn set_versioning(view: &dyn View, bucket: BucketId, versioning: Versioning) -> Decided {
    let found = require_bucket(view, bucket)?;
    if found.versioning == Some(versioning) {
        return Ok(Decision::nothing(Committed::Done));
    }
    if found.object_lock.is_some() {
        return Err(CommitError::VersioningLocked);
    }
    Ok(Decision::done(Mutation::SetVersioning { bucket, versioning }))
}
