//! Object lock: retentions, legal holds, defaults, and what they keep from being removed.

use std::sync::Arc;

use super::kit::{Kit, entry, key, owner, put};
use crate::clock::Clock;
use crate::model::commit::{DeleteEntry, ProposedData};
use crate::model::lock::{DefaultRetention, ObjectLock, Retention, RetentionMode, RetentionPeriod};
use crate::model::{
    BucketName, CommitError, Committed, ObjectMetadata, ObjectVersion, Proposal, VersionId,
    Versioning, WriteCondition,
};

const DAY_MS: i64 = 24 * 3600 * 1000;
use RetentionMode::{Compliance, Governance};

fn lock(kit: &Kit, default: Option<DefaultRetention>) -> Proposal {
    Proposal::SetObjectLock { bucket: kit.bucket, lock: ObjectLock { default } }
}

async fn locked(kit: &Kit) {
    let versioning = Versioning::Enabled;
    kit.done(Proposal::SetVersioning { bucket: kit.bucket, versioning }).await;
    kit.done(lock(kit, None)).await;
}

fn days(kit: &Kit, mode: RetentionMode, days: i64) -> Option<Retention> {
    Some(Retention { mode, until_ms: kit.clock.now_ms() + days * DAY_MS })
}

fn retain(kit: &Kit, retention: Option<Retention>, bypass_governance: bool) -> Proposal {
    let (bucket, key, version) = (kit.bucket, key("a"), None);
    Proposal::SetRetention { bucket, key, version, retention, bypass_governance }
}

fn hold(kit: &Kit, on: bool) -> Proposal {
    Proposal::SetLegalHold { bucket: kit.bucket, key: key("a"), version: None, on }
}

async fn remove(kit: &Kit, version: &ObjectVersion, bypass: bool) -> Result<(), CommitError> {
    let entries = vec![DeleteEntry { version: Some(version.version_id), ..entry("a") }];
    let proposal = Proposal::DeleteObjects {
        bucket: kit.bucket,
        owner: owner(),
        bypass_governance: bypass,
        entries,
    };
    match kit.catalog.commit(proposal).await.unwrap() {
        Committed::Deleted(mut answers) => answers.remove(0).map(|_| ()),
        other => panic!("{other:?}"),
    }
}

async fn put_locked(
    kit: &Kit,
    retention: Option<Retention>,
    legal_hold: Option<bool>,
) -> Result<Arc<ObjectVersion>, CommitError> {
    let mut proposal = put(kit.bucket, "a", kit.fresh(), ProposedData::Empty);
    if let Proposal::PutObject { metadata, .. } = &mut proposal {
        *metadata = ObjectMetadata { retention, legal_hold, ..ObjectMetadata::default() };
    }
    kit.version(proposal).await
}

pub async fn a_bucket_is_locked_for_good(kit: &Kit) {
    assert_eq!(kit.refused(lock(kit, None)).await, CommitError::NotVersioned);
    let set = |versioning| Proposal::SetVersioning { bucket: kit.bucket, versioning };
    kit.done(set(Versioning::Suspended)).await;
    assert_eq!(kit.refused(lock(kit, None)).await, CommitError::NotVersioned);
    let retention = days(kit, Governance, 1);
    let refused = put_locked(kit, retention, None).await;
    assert_eq!(refused.unwrap_err(), CommitError::NoObjectLock);
    let refused = put_locked(kit, None, Some(false)).await;
    assert_eq!(refused.unwrap_err(), CommitError::NoObjectLock);
    kit.put_packed("a", 10).await;
    assert_eq!(kit.refused(hold(kit, true)).await, CommitError::NoObjectLock);
    assert_eq!(kit.refused(retain(kit, retention, true)).await, CommitError::NoObjectLock);
    kit.done(set(Versioning::Enabled)).await;
    kit.done(lock(kit, None)).await;
    assert_eq!(kit.refused(set(Versioning::Suspended)).await, CommitError::VersioningLocked);
    kit.done(set(Versioning::Enabled)).await;
    let proposal = Proposal::CreateBucket {
        name: BucketName::new("locked").unwrap(),
        owner: owner(),
        location: String::new(),
        object_lock: true,
    };
    let Committed::Bucket { bucket, .. } = kit.catalog.commit(proposal).await.unwrap() else {
        panic!("no bucket");
    };
    assert_eq!(bucket.versioning, Some(Versioning::Enabled));
    assert_eq!(kit.catalog.bucket("locked").unwrap().object_lock, Some(ObjectLock::default()));
}

pub async fn a_governance_retention_can_be_bypassed(kit: &Kit) {
    locked(kit).await;
    let version = put_locked(kit, days(kit, Governance, 2), None).await.unwrap();
    assert_eq!(remove(kit, &version, false).await, Err(CommitError::Locked));
    let shorter = retain(kit, days(kit, Governance, 1), false);
    assert_eq!(kit.refused(shorter).await, CommitError::Locked);
    let stricter = retain(kit, days(kit, Compliance, 3), false);
    assert_eq!(kit.refused(stricter).await, CommitError::Locked);
    assert_eq!(kit.refused(retain(kit, None, false)).await, CommitError::Locked);
    kit.done(retain(kit, days(kit, Governance, 3), false)).await;
    kit.done(retain(kit, days(kit, Governance, 1), true)).await;
    let now = kit.get("a").await.unwrap();
    assert_eq!(now.metadata.retention, days(kit, Governance, 1));
    assert_eq!((now.lsn, now.modified_ms), (version.lsn, version.modified_ms));
    // A delete marker covers it; itself it stays.
    kit.delete_key("a").await;
    assert_eq!(remove(kit, &version, false).await, Err(CommitError::Locked));
    remove(kit, &version, true).await.unwrap();
    assert_eq!(remove(kit, &version, false).await, Ok(()));
}

pub async fn a_compliance_retention_ends_by_time_alone(kit: &Kit) {
    locked(kit).await;
    let version = put_locked(kit, days(kit, Compliance, 2), None).await.unwrap();
    for bypass in [false, true] {
        assert_eq!(remove(kit, &version, bypass).await, Err(CommitError::Locked));
        for new in [None, days(kit, Compliance, 1), days(kit, Governance, 9)] {
            assert_eq!(kit.refused(retain(kit, new, bypass)).await, CommitError::Locked);
        }
    }
    kit.done(retain(kit, days(kit, Compliance, 3), false)).await;
    kit.clock.advance(3 * DAY_MS - 1);
    assert_eq!(remove(kit, &version, true).await, Err(CommitError::Locked));
    kit.clock.advance(1);
    let past = retain(kit, days(kit, Compliance, 0), false);
    assert_eq!(kit.refused(past).await, CommitError::RetainUntilPast);
    remove(kit, &version, false).await.unwrap();
}

pub async fn a_legal_hold_has_no_end(kit: &Kit) {
    locked(kit).await;
    let version = put_locked(kit, None, Some(true)).await.unwrap();
    kit.clock.advance(1000 * DAY_MS);
    assert_eq!(remove(kit, &version, true).await, Err(CommitError::Locked));
    kit.done(hold(kit, false)).await;
    assert_eq!(kit.get("a").await.unwrap().metadata.legal_hold, Some(false));
    kit.done(hold(kit, true)).await;
    assert_eq!(remove(kit, &version, true).await, Err(CommitError::Locked));
    kit.done(hold(kit, false)).await;
    remove(kit, &version, false).await.unwrap();
    assert_eq!(kit.refused(hold(kit, true)).await, CommitError::NoSuchKey);
}

pub async fn new_versions_get_the_default(kit: &Kit) {
    locked(kit).await;
    let (_, before) = kit.put_packed("a", 10).await;
    assert_eq!(before.metadata.retention, None);
    let period = RetentionPeriod::Days(2);
    kit.done(lock(kit, Some(DefaultRetention { mode: Compliance, period }))).await;
    let wanted = days(kit, Compliance, 2);
    assert_eq!(kit.put_packed("a", 10).await.1.metadata.retention, wanted);
    let source = kit.source_version("a", &before);
    let copy = kit.version(kit.copy(source, "copy")).await.unwrap();
    assert_eq!(copy.metadata.retention, wanted);
    let upload = kit.begin("parts").await;
    kit.part("parts", upload, 1, ProposedData::Empty).await.unwrap();
    let whole = kit.version(kit.complete("parts", upload, &[1])).await.unwrap();
    assert_eq!(whole.metadata.retention, wanted);
    let own = days(kit, Governance, 1);
    let version = put_locked(kit, own, None).await.unwrap();
    assert_eq!(version.metadata.retention, own);
    // A copy takes neither hold nor retention of its source.
    kit.done(lock(kit, None)).await;
    kit.done(hold(kit, true)).await;
    let copy = kit.version(kit.copy(kit.source_version("a", &version), "copy")).await.unwrap();
    assert_eq!((copy.metadata.retention, copy.metadata.legal_hold), (None, None));
}

pub async fn a_batch_goes_on_behind_a_lock(kit: &Kit) {
    locked(kit).await;
    let version = put_locked(kit, None, Some(true)).await.unwrap();
    let (_, free) = kit.put_packed("b", 10).await;
    let of = |name: &str, id: VersionId| DeleteEntry { version: Some(id), ..entry(name) };
    let answers =
        kit.delete(vec![of("a", version.version_id), of("b", free.version_id), entry("a")]).await;
    assert_eq!(answers[0], Err(CommitError::Locked));
    assert!(answers[1].is_ok() && answers[2].as_ref().unwrap().marker.is_some());
    assert_eq!(kit.get("b").await, None);
    let found = kit.catalog.object(kit.bucket, &key("a"), Some(version.version_id)).await;
    assert_eq!(found.unwrap(), Some(version));
}

pub async fn a_renamed_object_stays_locked(kit: &Kit) {
    locked(kit).await;
    let version = put_locked(kit, None, Some(true)).await.unwrap();
    let source = kit.source_version("a", &version);
    let (key, condition) = (key("b"), WriteCondition::default());
    let renamed = kit.version(Proposal::RenameObject { source, key, condition }).await.unwrap();
    assert_eq!(renamed.metadata.legal_hold, Some(true));
    assert_eq!(remove(kit, &version, true).await, Err(CommitError::Locked));
    assert!(kit.get("a").await.unwrap().delete_marker);
}
