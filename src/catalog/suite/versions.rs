//! Versions and delete markers.

use std::sync::Arc;

use super::kit::{Kit, entry, key, owner};
use crate::catalog::{ListObjects, ListRow, ListedVersion, Usage};
use crate::model::commit::{DeleteEntry, Deleted};
use crate::model::{
    CannedAcl, CommitError, Lsn, ObjectVersion, Proposal, VersionId, Versioning, WriteCondition,
};

async fn set(kit: &Kit, versioning: Versioning) {
    kit.done(Proposal::SetVersioning { bucket: kit.bucket, versioning }).await;
}

/// Three versions of `name`, oldest first.
async fn three(kit: &Kit, name: &str) -> Vec<Arc<ObjectVersion>> {
    set(kit, Versioning::Enabled).await;
    let mut versions = Vec::new();
    for len in [10, 20, 30] {
        versions.push(kit.put_packed(name, len).await.1);
    }
    versions
}

async fn version(kit: &Kit, name: &str, id: VersionId) -> Option<Arc<ObjectVersion>> {
    kit.catalog.object(kit.bucket, &key(name), Some(id)).await.unwrap()
}

fn of_version(name: &str, id: VersionId) -> DeleteEntry {
    DeleteEntry { version: Some(id), ..entry(name) }
}

async fn remove(kit: &Kit, name: &str, id: VersionId) -> Deleted {
    kit.delete(vec![of_version(name, id)]).await.remove(0).unwrap()
}

/// Covers `name` and gives the marker's id.
async fn cover(kit: &Kit, name: &str) -> VersionId {
    kit.delete(vec![entry(name)]).await.remove(0).unwrap().marker.unwrap()
}

async fn page(
    kit: &Kit,
    query: &ListObjects,
    after: Option<VersionId>,
) -> (Vec<ListRow<ListedVersion>>, bool) {
    let page = kit.catalog.list_versions(kit.bucket, query, after).await.unwrap();
    (page.rows, page.truncated)
}

/// Rows as "key lsn", with `*` for the latest and `x` for a delete marker.
fn shown(rows: &[ListRow<ListedVersion>]) -> Vec<String> {
    let one = |row: &ListRow<ListedVersion>| match row {
        ListRow::CommonPrefix(prefix) => format!("{prefix}..."),
        ListRow::Item(row) => {
            let latest = if row.is_latest { "*" } else { "" };
            let marker = if row.version.delete_marker { "x" } else { "" };
            format!("{} {}{latest}{marker}", row.key, row.version.lsn.0)
        }
    };
    rows.iter().map(one).collect()
}

async fn all(kit: &Kit) -> Vec<String> {
    let query = ListObjects { limit: 1000, ..ListObjects::default() };
    shown(&page(kit, &query, None).await.0)
}

pub async fn every_version_is_kept(kit: &Kit) {
    let versions = three(kit, "a").await;
    let ids: Vec<_> = versions.iter().map(|v| v.version_id).collect();
    assert!(ids.iter().all(|id| *id != VersionId::NULL) && ids[0] != ids[1]);
    for wanted in &versions {
        assert_eq!(version(kit, "a", wanted.version_id).await.as_ref(), Some(wanted));
        assert_eq!(wanted.version_id.lsn(), Some(wanted.lsn));
    }
    assert_eq!(kit.get("a").await.as_ref(), Some(&versions[2]));
    assert_eq!(version(kit, "b", ids[0]).await, None);
    assert_eq!(version(kit, "a", VersionId::NULL).await, None);
    let mut wrong = ids[1];
    wrong.0[15] ^= 1;
    assert_eq!(version(kit, "a", wrong).await, None);
    assert_eq!(version(kit, "a", VersionId([0xFF; 16])).await, None);
    let usage = kit.catalog.usage(kit.bucket).await.unwrap();
    assert_eq!(usage, Usage { objects: 3, bytes: 60 });
}

pub async fn what_was_there_before_is_the_null_version(kit: &Kit) {
    let (_, old) = kit.put_packed("a", 5).await;
    let versions = three(kit, "a").await;
    assert_eq!(version(kit, "a", VersionId::NULL).await, Some(old));
    assert_eq!(remove(kit, "a", VersionId::NULL).await.marker, None);
    assert_eq!(version(kit, "a", VersionId::NULL).await, None);
    assert_eq!(kit.get("a").await.as_ref(), Some(&versions[2]));
}

pub async fn a_delete_covers_and_can_be_undone(kit: &Kit) {
    let versions = three(kit, "a").await;
    let marker = cover(kit, "a").await;
    let found = kit.catalog.object(kit.bucket, &key("a"), None).await.unwrap().unwrap();
    assert!(found.delete_marker && found.version_id == marker && found.owner == owner());
    assert_eq!(kit.catalog.cached(kit.bucket, &key("a")), None);
    assert!(kit.list(ListObjects { limit: 10, ..ListObjects::default() }).await.rows.is_empty());
    let second = cover(kit, "a").await;
    assert_ne!(marker, second);
    assert_eq!(remove(kit, "a", second).await.marker, Some(second));
    assert!(kit.get("a").await.unwrap().delete_marker);
    assert_eq!(remove(kit, "a", marker).await.marker, Some(marker));
    assert_eq!(kit.get("a").await.as_ref(), Some(&versions[2]));
    let usage = kit.catalog.usage(kit.bucket).await.unwrap();
    assert_eq!(usage, Usage { objects: 3, bytes: 60 });
    // A key that never was gets a marker, too.
    let marker = cover(kit, "never").await;
    assert_eq!(kit.get("never").await.unwrap().version_id, marker);
}

pub async fn the_next_version_comes_to_the_front(kit: &Kit) {
    let versions = three(kit, "a").await;
    for n in (0..3).rev() {
        assert_eq!(kit.get("a").await.as_ref(), Some(&versions[n]));
        let listed = kit.list(ListObjects { limit: 10, ..ListObjects::default() }).await;
        assert_eq!(listed.rows.len(), 1);
        remove(kit, "a", versions[n].version_id).await;
    }
    assert_eq!(kit.get("a").await, None);
    let made_up = remove(kit, "a", VersionId([0xFF; 16])).await;
    assert_eq!(made_up.marker, None);
    let absent = remove(kit, "a", versions[0].version_id).await;
    assert_eq!((absent.marker, absent.version), (None, Some(versions[0].version_id)));
}

pub async fn a_suspended_bucket_has_one_null_version(kit: &Kit) {
    let versions = three(kit, "a").await;
    set(kit, Versioning::Suspended).await;
    let (first, one) = kit.put_packed("a", 40).await;
    assert_eq!(one.version_id, VersionId::NULL);
    let (second, two) = kit.put_packed("a", 50).await;
    assert_eq!(version(kit, "a", VersionId::NULL).await, Some(two));
    let known = kit.catalog.known_blobs(vec![first, second]).await.unwrap();
    assert_eq!(known, [second]);
    assert_eq!(cover(kit, "a").await, VersionId::NULL);
    assert!(kit.catalog.known_blobs(vec![second]).await.unwrap().is_empty());
    assert_eq!(cover(kit, "a").await, VersionId::NULL);
    let usage = kit.catalog.usage(kit.bucket).await.unwrap();
    assert_eq!(usage, Usage { objects: 4, bytes: 60 });
    assert_eq!(remove(kit, "a", VersionId::NULL).await.marker, Some(VersionId::NULL));
    assert_eq!(kit.get("a").await.as_ref(), Some(&versions[2]));
    // A null version in the middle is replaced in its place by the new one at the front.
    kit.put_packed("a", 1).await;
    set(kit, Versioning::Enabled).await;
    let (_, middle) = kit.put_packed("a", 2).await;
    set(kit, Versioning::Suspended).await;
    let (_, null) = kit.put_packed("a", 3).await;
    let order = [&null, &middle, &versions[2], &versions[1], &versions[0]];
    let order: Vec<_> = order.iter().map(|v| format!("a {}", v.lsn.0)).collect();
    let listed: Vec<_> = all(kit).await.iter().map(|row| row.replace('*', "")).collect();
    assert_eq!(listed, order);
}

pub async fn blobs_live_as_long_as_a_version(kit: &Kit) {
    set(kit, Versioning::Enabled).await;
    let (blob, first) = kit.put_file("a", 300_000).await;
    let (_, second) = kit.put_file("a", 400_000).await;
    cover(kit, "a").await;
    assert!(kit.dead().await.is_empty());
    let copy = kit.copy(kit.source_version("a", &first), "b");
    let copied = kit.version(copy).await.unwrap();
    remove(kit, "a", first.version_id).await;
    assert!(kit.dead().await.is_empty());
    remove(kit, "b", copied.version_id).await;
    assert_eq!(kit.dead().await, [blob]);
    remove(kit, "a", second.version_id).await;
    assert_eq!(kit.dead().await.len(), 2);
}

pub async fn a_bucket_with_versions_stays(kit: &Kit) {
    set(kit, Versioning::Enabled).await;
    let marker = cover(kit, "a").await;
    let full = kit.refused(Proposal::DeleteBucket { id: kit.bucket }).await;
    assert_eq!(full, CommitError::BucketNotEmpty);
    remove(kit, "a", marker).await;
    kit.done(Proposal::DeleteBucket { id: kit.bucket }).await;
    let gone = kit
        .refused(Proposal::SetVersioning { bucket: kit.bucket, versioning: Versioning::Enabled })
        .await;
    assert_eq!(gone, CommitError::NoSuchBucket);
}

pub async fn entries_are_decided_in_order(kit: &Kit) {
    let versions = three(kit, "a").await;
    let id = |n: usize| versions[n].version_id;
    let guarded = |tag: &ObjectVersion, entry: DeleteEntry| DeleteEntry {
        condition: super::objects::if_match(&tag.etag.to_string()),
        ..entry
    };
    let entries = vec![
        of_version("a", id(2)),
        of_version("a", id(2)),
        // What is current by now is the second version.
        guarded(&versions[2], entry("a")),
        guarded(&versions[1], entry("a")),
        entry("a"),
        of_version("a", id(1)),
    ];
    let answers = kit.delete(entries).await;
    assert_eq!(answers[0].as_ref().unwrap().marker, None);
    assert!(answers[1].is_ok());
    assert_eq!(answers[2], Err(CommitError::PreconditionFailed("If-Match")));
    let marker = answers[3].as_ref().unwrap().marker;
    assert!(marker.is_some());
    assert_eq!(answers[4].as_ref().unwrap().marker, marker);
    let lsn = marker.unwrap().lsn().unwrap();
    assert_eq!(all(kit).await, [format!("a {}*x", lsn.0), format!("a {}", versions[0].lsn.0)]);
    set(kit, Versioning::Suspended).await;
    let null = || of_version("a", VersionId::NULL);
    kit.delete(vec![entry("a"), null(), entry("a"), null()]).await;
    assert_eq!(all(kit).await[0], format!("a {}*x", lsn.0));
}

pub async fn many_versions_go_at_once(kit: &Kit) {
    set(kit, Versioning::Enabled).await;
    let mut versions = Vec::new();
    for _ in 0..40 {
        versions.push(kit.put_packed("a", 10).await.1);
    }
    let (oldest, rest) = versions.split_first().unwrap();
    let newest_first = rest.iter().rev().map(|v| of_version("a", v.version_id)).collect();
    assert!(kit.delete(newest_first).await.iter().all(Result::is_ok));
    assert_eq!(kit.get("a").await.as_ref(), Some(oldest));
    assert_eq!(all(kit).await, [format!("a {}*", oldest.lsn.0)]);
}

pub async fn versions_are_copied_and_changed(kit: &Kit) {
    let versions = three(kit, "a").await;
    cover(kit, "a").await;
    let restored = kit.version(kit.copy(kit.source_version("a", &versions[0]), "a")).await;
    let restored = restored.unwrap();
    assert_eq!(restored.extents, versions[0].extents);
    assert_eq!(kit.get("a").await, Some(restored.clone()));
    let marker = cover(kit, "a").await;
    let mut of_marker = kit.source_version("a", &versions[0]);
    (of_marker.version, of_marker.lsn) = (Some(marker), marker.lsn().unwrap());
    let refused = kit.refused(kit.copy(of_marker, "b")).await;
    assert_eq!(refused, CommitError::SourceChanged);
    let acl = |version| Proposal::SetObjectAcl {
        bucket: kit.bucket,
        key: key("a"),
        version,
        acl: CannedAcl::PublicRead,
    };
    kit.done(acl(Some(versions[1].version_id))).await;
    let changed = version(kit, "a", versions[1].version_id).await.unwrap();
    assert_eq!(changed.metadata.acl, Some(CannedAcl::PublicRead));
    assert_eq!(version(kit, "a", restored.version_id).await, Some(restored));
    assert_eq!(kit.refused(acl(None)).await, CommitError::NoSuchKey);
    assert_eq!(kit.refused(acl(Some(marker))).await, CommitError::NoSuchVersion);
    assert_eq!(kit.refused(acl(Some(VersionId::NULL))).await, CommitError::NoSuchVersion);
}

pub async fn conditions_see_through_markers(kit: &Kit) {
    three(kit, "a").await;
    cover(kit, "a").await;
    let absent = super::objects::if_absent();
    assert!(kit.put_if("a", absent.clone()).await.is_ok());
    let refused = kit.put_if("a", absent).await.unwrap_err();
    assert_eq!(refused, CommitError::PreconditionFailed("If-None-Match"));
    cover(kit, "a").await;
    let sized = WriteCondition { if_match_size: Some(1), ..WriteCondition::default() };
    let answers = kit.delete(vec![DeleteEntry { condition: sized, ..entry("a") }]).await;
    assert_eq!(answers[0], Err(CommitError::PreconditionFailed("x-amz-if-match-size")));
}

pub async fn versions_are_listed_and_paged(kit: &Kit) {
    let a = three(kit, "a").await;
    let b = kit.put_packed("b/1", 1).await.1;
    let marker = cover(kit, "b/1").await;
    kit.put_packed("b/2", 1).await;
    let c = kit.put_packed("c", 1).await.1;
    let row = |name: &str, lsn: Lsn, signs: &str| format!("{name} {}{signs}", lsn.0);
    let wanted = [
        row("a", a[2].lsn, "*"),
        row("a", a[1].lsn, ""),
        row("a", a[0].lsn, ""),
        row("b/1", marker.lsn().unwrap(), "*x"),
        row("b/1", b.lsn, ""),
    ];
    let query =
        |after: &str, limit| ListObjects { after: after.into(), limit, ..ListObjects::default() };
    let (rows, truncated) = page(kit, &query("", 5), None).await;
    assert!(truncated);
    assert_eq!(shown(&rows), wanted);
    // Behind a version, also when it is gone since; behind a whole key without one.
    let middle = Some(a[1].version_id);
    assert_eq!(shown(&page(kit, &query("a", 2), middle).await.0), wanted[2..4]);
    remove(kit, "a", a[1].version_id).await;
    assert_eq!(shown(&page(kit, &query("a", 2), middle).await.0), wanted[2..4]);
    assert_eq!(shown(&page(kit, &query("a", 2), None).await.0), wanted[3..5]);
    let null = Some(VersionId::NULL);
    assert_eq!(shown(&page(kit, &query("a", 1), null).await.0), wanted[..1]);
    let grouped = ListObjects { delimiter: "/".into(), ..query("", 100) };
    let (rows, truncated) = page(kit, &grouped, None).await;
    assert!(!truncated);
    let last = row("c", c.lsn, "*");
    assert_eq!(shown(&rows), [&wanted[0], &wanted[2], "b/...", &last]);
    let behind = ListObjects { after: "b/".into(), after_is_prefix: true, limit: 1, ..grouped };
    assert_eq!(shown(&page(kit, &behind, None).await.0), [last]);
    let within = ListObjects { prefix: "b/1".into(), ..query("", 1) };
    let (rows, truncated) = page(kit, &within, None).await;
    assert_eq!((shown(&rows), truncated), (wanted[3..4].to_vec(), true));
}
