//! Buckets, objects, conditions, blobs, users.

use super::kit::{Kit, blob_id, entry, etag, key, owner, put};
use crate::catalog::Usage;
use crate::model::commit::ProposedData;
use crate::model::{
    AccessKey, BucketId, CannedAcl, CommitError, EtagMatch, ObjectVersion, OwnerId, Proposal, User,
    VersionId, WriteCondition,
};

pub async fn bucket_names_are_taken_once(kit: &Kit) {
    let (again, existed) = kit.try_bucket("bucket-1", owner().as_str()).await.unwrap();
    assert!(existed);
    assert_eq!(again.id, kit.bucket);
    let other = kit.try_bucket("bucket-1", "somebody-else").await;
    assert_eq!(other.unwrap_err(), CommitError::BucketAlreadyExists);
    assert_eq!(kit.catalog.bucket("bucket-1").unwrap().id, kit.bucket);
    assert!(kit.catalog.bucket("bucket-2").is_none());
}

pub async fn bucket_ids_are_never_reused(kit: &Kit) {
    kit.done(Proposal::DeleteBucket { id: kit.bucket }).await;
    assert!(kit.catalog.bucket("bucket-1").is_none());
    assert!(kit.make_bucket("bucket-1").await.id > kit.bucket);
    let gone = kit.refused(Proposal::DeleteBucket { id: kit.bucket }).await;
    assert_eq!(gone, CommitError::NoSuchBucket);
}

pub async fn buckets_are_listed_by_owner_and_name(kit: &Kit) {
    for (name, by) in [("bb-2", "x"), ("aa-1", "x"), ("bb-1", "y"), ("cc-1", "x")] {
        kit.try_bucket(name, by).await.unwrap();
    }
    let list = async |by: Option<&str>, prefix: &str, after: &str, limit: usize| {
        let page = kit.catalog.buckets(by, prefix, after, limit).await.unwrap();
        let names: Vec<String> = page.rows.iter().map(|b| b.name.to_string()).collect();
        (names.join(" "), page.truncated)
    };
    assert_eq!(list(Some("x"), "", "", 10).await, ("aa-1 bb-2 cc-1".into(), false));
    assert_eq!(list(Some("x"), "", "", 2).await, ("aa-1 bb-2".into(), true));
    assert_eq!(list(Some("x"), "", "bb-2", 2).await, ("cc-1".into(), false));
    assert_eq!(list(None, "bb", "", 10).await, ("bb-1 bb-2".into(), false));
    assert_eq!(list(Some("x"), "", "", 0).await, ("".into(), false));
    assert_eq!(list(Some("x"), "", "", 3).await, ("aa-1 bb-2 cc-1".into(), false));
}

pub async fn a_bucket_with_objects_stays(kit: &Kit) {
    kit.put_packed("a", 10).await;
    let full = kit.refused(Proposal::DeleteBucket { id: kit.bucket }).await;
    assert_eq!(full, CommitError::BucketNotEmpty);
    kit.delete_key("a").await;
    kit.done(Proposal::DeleteBucket { id: kit.bucket }).await;
}

pub async fn a_put_is_read_back_whole(kit: &Kit) {
    let mut proposal = put(kit.bucket, "a/ä b", 7, kit.file(300_000).await);
    if let Proposal::PutObject { metadata, .. } = &mut proposal {
        metadata.content_type = Some("text/plain".into());
        metadata.storage_class = Some("STANDARD_IA".into());
        metadata.user = vec![("name".into(), "wert ü".into())];
    }
    kit.clock.set(5_000);
    let put = kit.version(proposal).await.unwrap();
    assert_eq!((put.size, put.modified_ms, put.etag), (300_000, 5_000, etag(7)));
    assert_eq!(put.metadata.user[0].1, "wert ü");
    assert_eq!(kit.get("a/ä b").await, Some(put));
    assert_eq!(kit.get("a/ä").await, None);
    assert_eq!(kit.catalog.object(BucketId(77), &key("a"), None).await.unwrap(), None);
    let (_, empty) = kit.put_packed("empty", 0).await;
    assert!(empty.extents.is_empty());
    assert_eq!(kit.get("empty").await, Some(empty));
    let (id, small) = kit.put_packed("small", 100).await;
    assert_eq!(kit.get("small").await.as_ref(), Some(&small));
    assert_eq!(small.extents[0].blob.id, id);
    let located = kit.catalog.locate(id).await.unwrap();
    assert_eq!(located, Some(small.extents[0].blob));
}

pub async fn an_overwrite_replaces_the_version(kit: &Kit) {
    let (_, first) = kit.put_packed("a", 10).await;
    let (_, second) = kit.put_packed("a", 20).await;
    assert!(second.lsn > first.lsn);
    assert_eq!(kit.get("a").await, Some(second));
    assert_eq!(kit.list(super::listing::all()).await.rows.len(), 1);
}

pub async fn modification_times_of_a_key_never_go_back(kit: &Kit) {
    kit.clock.set(90_000);
    kit.put_packed("a", 10).await;
    kit.clock.set(10_000);
    assert_eq!(kit.put_packed("a", 10).await.1.modified_ms, 90_000);
    assert_eq!(kit.put_packed("b", 10).await.1.modified_ms, 10_000);
}

fn none_match(tag: &str) -> WriteCondition {
    let tags = EtagMatch::Tags(vec![tag.into()]);
    WriteCondition { if_none_match: Some(tags), ..WriteCondition::default() }
}

pub fn if_match(tag: &str) -> WriteCondition {
    let tags = EtagMatch::Tags(vec![tag.into()]);
    WriteCondition { if_match: Some(tags), ..WriteCondition::default() }
}

pub fn if_absent() -> WriteCondition {
    WriteCondition { if_none_match: Some(EtagMatch::Any), ..WriteCondition::default() }
}

pub async fn conditions_guard_puts(kit: &Kit) {
    let missing = kit.put_if("a", if_match("00")).await;
    assert_eq!(missing.unwrap_err(), CommitError::NoSuchKey);
    let first = kit.put_if("a", if_absent()).await.unwrap();
    let taken = kit.put_if("a", if_absent()).await;
    assert_eq!(taken.unwrap_err(), CommitError::PreconditionFailed("If-None-Match"));
    let wrong = kit.put_if("a", if_match("00")).await;
    assert_eq!(wrong.unwrap_err(), CommitError::PreconditionFailed("If-Match"));
    let second = kit.put_if("a", if_match(&first.etag.to_string())).await.unwrap();
    let stale = kit.put_if("a", if_match(&first.etag.to_string())).await;
    assert_eq!(stale.unwrap_err(), CommitError::PreconditionFailed("If-Match"));
    kit.put_if("a", none_match(&first.etag.to_string())).await.unwrap();
    assert_ne!(kit.get("a").await, Some(second));
}

pub async fn conditions_guard_deletes(kit: &Kit) {
    kit.clock.set(12_345);
    let (_, version) = kit.put_packed("a", 10).await;
    let mut wrong = entry("a");
    wrong.condition = if_match("00");
    let mut wrong_size = entry("a");
    wrong_size.condition.if_match_size = Some(11);
    let mut missing = entry("b");
    missing.condition = if_match("00");
    let answers = kit.delete(vec![wrong, wrong_size, missing]).await;
    assert_eq!(answers[0], Err(CommitError::PreconditionFailed("If-Match")));
    assert_eq!(answers[1], Err(CommitError::PreconditionFailed("x-amz-if-match-size")));
    assert_eq!(answers[2], Err(CommitError::NoSuchKey));
    assert!(kit.get("a").await.is_some());
    let mut right = entry("a");
    right.condition = if_match(&version.etag.to_string());
    right.condition.if_match_size = Some(10);
    right.condition.if_match_modified_secs = Some(12);
    assert!(kit.delete(vec![right]).await[0].is_ok());
    assert_eq!(kit.get("a").await, None);
}

pub async fn deletes_answer_each_entry(kit: &Kit) {
    kit.put_packed("a", 10).await;
    kit.put_packed("b", 10).await;
    let mut guarded = entry("a");
    guarded.condition = if_match("00");
    let entries = vec![entry("b"), entry("missing"), entry("a"), guarded, entry("b")];
    let answers = kit.delete(entries).await;
    let keys: Vec<_> = answers.iter().map(|a| a.as_ref().map(|d| d.key.to_string())).collect();
    assert_eq!(keys[0], Ok("b".into()));
    assert_eq!(keys[1], Ok("missing".into()));
    assert_eq!(keys[2], Ok("a".into()));
    // The entry before it has removed the key.
    assert_eq!(keys[3], Err(&CommitError::NoSuchKey));
    assert_eq!(keys[4], Ok("b".into()));
    assert_eq!(kit.catalog.usage(kit.bucket).await.unwrap(), Usage::default());
}

pub async fn a_deleted_key_is_gone(kit: &Kit) {
    kit.put_packed("a", 10).await;
    kit.delete_key("a").await;
    assert_eq!(kit.get("a").await, None);
    assert!(kit.list(super::listing::all()).await.rows.is_empty());
    kit.delete_key("a").await;
    let (_, again) = kit.put_packed("a", 11).await;
    assert_eq!(kit.get("a").await, Some(again));
}

pub async fn versions_of_unversioned_buckets_are_null(kit: &Kit) {
    let (_, version) = kit.put_packed("a", 10).await;
    assert_eq!(version.version_id, VersionId::NULL);
    let other = VersionId([9; 16]);
    let at = async |id| kit.catalog.object(kit.bucket, &key("a"), Some(id)).await.unwrap();
    assert_eq!(at(VersionId::NULL).await, Some(version));
    assert_eq!(at(other).await, None);
    let mut named = entry("a");
    named.version = Some(other);
    assert!(kit.delete(vec![named]).await[0].is_ok());
    assert!(kit.get("a").await.is_some());
    let mut named = entry("a");
    named.version = Some(VersionId::NULL);
    let answers = kit.delete(vec![named]).await;
    assert_eq!(answers[0].as_ref().unwrap().version, Some(VersionId::NULL));
    assert_eq!(kit.get("a").await, None);
}

pub async fn usage_is_exact(kit: &Kit) {
    let usage = async || {
        let usage = kit.catalog.usage(kit.bucket).await.unwrap();
        (usage.objects, usage.bytes)
    };
    assert_eq!(usage().await, (0, 0));
    kit.put_packed("a", 10).await;
    let (_, b) = kit.put_file("b", 1_000_000).await;
    assert_eq!(usage().await, (2, 1_000_010));
    kit.put_packed("b", 5).await;
    assert_eq!(usage().await, (2, 15));
    assert!(kit.version(kit.copy(kit.source("b", &b), "c")).await.is_err());
    let b = kit.get("b").await.unwrap();
    kit.version(kit.copy(kit.source("b", &b), "c")).await.unwrap();
    assert_eq!(usage().await, (3, 20));
    kit.delete_key("a").await;
    kit.delete_key("a").await;
    assert_eq!(usage().await, (2, 10));
}

pub async fn a_file_must_be_pending(kit: &Kit) {
    let unknown = ProposedData::File { id: blob_id(999), len: 5 };
    let error = kit.refused(put(kit.bucket, "a", 1, unknown)).await;
    assert_eq!(error, CommitError::BlobNotPending(blob_id(999)));
    let (id, _) = kit.put_file("a", 5).await;
    let used = ProposedData::File { id, len: 5 };
    let error = kit.refused(put(kit.bucket, "b", 1, used)).await;
    assert_eq!(error, CommitError::BlobNotPending(id));
    let error = kit.refused(Proposal::BeginBlob { id }).await;
    assert_eq!(error, CommitError::BlobNotPending(id));
    assert_eq!(kit.get("b").await, None);
}

pub async fn blobs_die_once(kit: &Kit) {
    let (first, _) = kit.put_file("a", 5).await;
    assert!(kit.dead().await.is_empty());
    let (second, _) = kit.put_file("a", 6).await;
    assert_eq!(kit.dead().await, [first]);
    kit.delete_key("a").await;
    kit.delete_key("a").await;
    assert_eq!(kit.dead().await, [first, second]);
    assert_eq!(kit.catalog.dead_blobs(1).await.unwrap().len(), 1);
    kit.catalog.forget(vec![first]).await.unwrap();
    assert_eq!(kit.dead().await, [second]);
    assert_eq!(kit.catalog.locate(first).await.unwrap(), None);
    let (alive, _) = kit.put_file("b", 6).await;
    kit.catalog.forget(vec![alive, second]).await.unwrap();
    assert!(kit.catalog.locate(alive).await.unwrap().is_some());
    assert!(kit.dead().await.is_empty());
}

pub async fn abandoned_blobs_die(kit: &Kit) {
    let id = kit.pending().await;
    kit.done(Proposal::AbandonBlob { id }).await;
    assert_eq!(kit.dead().await, [id]);
    kit.done(Proposal::AbandonBlob { id }).await;
    kit.done(Proposal::AbandonBlob { id: blob_id(999) }).await;
    assert_eq!(kit.dead().await, [id]);
    let late = ProposedData::File { id, len: 5 };
    let error = kit.refused(put(kit.bucket, "a", 1, late)).await;
    assert_eq!(error, CommitError::BlobNotPending(id));
    let (live, _) = kit.put_file("a", 5).await;
    kit.done(Proposal::AbandonBlob { id: live }).await;
    assert_eq!(kit.dead().await, [id]);
}

pub async fn unknown_buckets_are_refused(kit: &Kit) {
    let nowhere = BucketId(77);
    let error = kit.refused(put(nowhere, "a", 1, ProposedData::Empty)).await;
    assert_eq!(error, CommitError::NoSuchBucket);
    let entries = vec![entry("a")];
    let deletes = Proposal::DeleteObjects {
        bucket: nowhere,
        owner: owner(),
        bypass_governance: false,
        entries,
    };
    let error = kit.refused(deletes).await;
    assert_eq!(error, CommitError::NoSuchBucket);
    assert_eq!(kit.catalog.usage(nowhere).await.unwrap(), Usage::default());
}

pub async fn users_and_keys_come_and_go(kit: &Kit) {
    let user = |disabled| User {
        id: "ann".into(),
        canonical_id: OwnerId::new("canonical-ann"),
        display_name: "Ann".into(),
        email: "ann@example.org".into(),
        disabled,
    };
    let pair = AccessKey {
        access_key: "AKANN".into(),
        secret_key: "secret".into(),
        user: "ann".into(),
        disabled: false,
    };
    let early = kit.refused(Proposal::PutAccessKey { key: pair.clone() }).await;
    assert!(matches!(early, CommitError::Failed(_)));
    kit.done(Proposal::PutUser { user: user(false) }).await;
    kit.done(Proposal::PutAccessKey { key: pair.clone() }).await;
    let known = kit.catalog.access_key("AKANN").unwrap();
    assert_eq!((known.0.clone(), known.1.clone()), (pair.clone(), user(false)));
    kit.done(Proposal::PutUser { user: user(true) }).await;
    assert!(kit.catalog.access_key("AKANN").unwrap().1.disabled);
    assert_eq!(kit.catalog.users().await.unwrap(), [user(true)]);
    assert_eq!(kit.catalog.access_keys().await.unwrap(), [pair]);
    let delete = || Proposal::DeleteAccessKey { access_key: "AKANN".into() };
    kit.done(delete()).await;
    assert!(kit.catalog.access_key("AKANN").is_none());
    assert_eq!(kit.refused(delete()).await, CommitError::NoSuchAccessKey);
}

pub async fn known_blobs_are_told_apart(kit: &Kit) {
    let pending = kit.pending().await;
    let (live, _) = kit.put_file("a", 5).await;
    let (dead, _) = kit.put_file("b", 5).await;
    kit.delete_key("b").await;
    let asked = vec![blob_id(900), dead, blob_id(901), pending, live];
    let known = kit.catalog.known_blobs(asked).await.unwrap();
    assert_eq!(known, [dead, pending, live]);
}

pub async fn access_lists_are_kept(kit: &Kit) {
    let (_, before) = kit.put_packed("a", 10).await;
    let acl = CannedAcl::PublicRead;
    let set = |name: &str, version| Proposal::SetObjectAcl {
        bucket: kit.bucket,
        key: key(name),
        version,
        acl,
    };
    kit.done(set("a", None)).await;
    let mut want = ObjectVersion::clone(&before);
    want.metadata.acl = Some(acl);
    assert_eq!(kit.get("a").await.as_deref(), Some(&want));
    kit.done(set("a", Some(VersionId::NULL))).await;
    assert_eq!(kit.refused(set("b", None)).await, CommitError::NoSuchKey);
    assert_eq!(kit.refused(set("b", Some(VersionId::NULL))).await, CommitError::NoSuchVersion);

    let usage = kit.catalog.usage(kit.bucket).await.unwrap();
    kit.done(Proposal::SetBucketAcl { bucket: kit.bucket, acl: CannedAcl::PublicReadWrite }).await;
    let bucket = kit.catalog.bucket("bucket-1").unwrap();
    assert_eq!((bucket.id, bucket.acl), (kit.bucket, Some(CannedAcl::PublicReadWrite)));
    assert_eq!(kit.catalog.usage(kit.bucket).await.unwrap(), usage);
    let nowhere = Proposal::SetBucketAcl { bucket: BucketId(77), acl };
    assert_eq!(kit.refused(nowhere).await, CommitError::NoSuchBucket);
}

pub async fn configurations_come_and_go(kit: &Kit) {
    let set = |bucket, name: &str, text: &str| Proposal::SetBucketConfig {
        bucket,
        name: name.into(),
        document: Some(text.as_bytes().to_vec()),
    };
    let shown = |bucket: &str| {
        let bucket = kit.catalog.bucket(bucket).unwrap();
        let all = bucket.configs.with_prefix("");
        all.map(|(name, config)| (name.to_owned(), config.document().to_vec())).collect::<Vec<_>>()
    };
    let row = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    kit.done(set(kit.bucket, "cors", "one")).await;
    kit.done(set(kit.bucket, "website", "w")).await;
    kit.done(set(kit.bucket, "cors", "two")).await;
    assert_eq!(shown("bucket-1"), [row("cors", "two"), row("website", "w")]);
    // What else changes in the bucket leaves them alone.
    let acl = CannedAcl::PublicRead;
    kit.done(Proposal::SetBucketAcl { bucket: kit.bucket, acl }).await;
    let remove = |name: &str| Proposal::SetBucketConfig {
        bucket: kit.bucket,
        name: name.into(),
        document: None,
    };
    kit.done(remove("cors")).await;
    kit.done(remove("cors")).await;
    assert_eq!(shown("bucket-1"), [row("website", "w")]);
    let listed = kit.catalog.buckets(None, "", "", 10).await.unwrap().rows;
    assert_eq!(listed[0].configs.get("website").map(|c| c.document()), Some(b"w".as_slice()));
    // They end with their bucket, and another one of that name begins without.
    let other = kit.make_bucket("bucket-2").await.id;
    kit.done(set(other, "cors", "three")).await;
    kit.done(Proposal::DeleteBucket { id: other }).await;
    assert_eq!(kit.refused(set(other, "cors", "four")).await, CommitError::NoSuchBucket);
    kit.make_bucket("bucket-2").await;
    assert_eq!(shown("bucket-2"), []);
}
