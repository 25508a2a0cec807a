//! Multipart uploads.

use std::sync::Arc;

use super::kit::{Kit, MIB, etag, key, owner, packed, upload_id};
use super::objects::{if_absent, if_match};
use crate::catalog::{ListObjects, ListRow};
use crate::digest::{combine, multipart_etag};
use crate::model::commit::ProposedData;
use crate::model::{
    Checksum, ChecksumAlgorithm, ChecksumKind, CommitError, Committed, ObjectMetadata, Proposal,
    Upload, UploadId,
};

/// An upload with parts 1, 2 and 7.
async fn three_parts(kit: &Kit, name: &str) -> UploadId {
    let upload = kit.begin(name).await;
    for (number, len) in [(7, 3), (1, 5 * MIB), (2, 6 * MIB)] {
        let data = kit.file(len).await;
        kit.part(name, upload, number, data).await.unwrap();
    }
    upload
}

pub async fn an_upload_becomes_an_object(kit: &Kit) {
    let upload = three_parts(kit, "a").await;
    assert_eq!(kit.get("a").await, None);
    kit.clock.set(77_000);
    let version = kit.version(kit.complete("a", upload, &[1, 2, 7])).await.unwrap();
    assert_eq!(version.size, 11 * MIB + 3);
    assert_eq!(version.etag, multipart_etag(&[etag(1).md5, etag(2).md5, etag(7).md5]));
    assert_eq!(version.etag.parts, 3);
    assert_eq!(version.modified_ms, 77_000);
    let parts: Vec<_> = version.parts.iter().map(|p| (p.number, p.size)).collect();
    assert_eq!(parts, [(1, 5 * MIB), (2, 6 * MIB), (7, 3)]);
    assert_eq!(version.extents.len(), 3);
    assert_eq!(kit.get("a").await, Some(version));
    assert_eq!(kit.catalog.upload(kit.bucket, &key("a"), upload).await.unwrap(), None);
    assert!(kit.catalog.parts(upload, 0, 10).await.unwrap().rows.is_empty());
    let late = kit.part("a", upload, 3, ProposedData::Empty).await;
    assert_eq!(late.unwrap_err(), CommitError::NoSuchUpload);
    kit.delete_key("a").await;
    assert_eq!(kit.dead().await.len(), 3);
}

pub async fn a_repeated_completion_answers_the_same(kit: &Kit) {
    let upload = three_parts(kit, "a").await;
    let mut request = kit.complete("a", upload, &[1, 2]);
    if let Proposal::CompleteUpload { condition, .. } = &mut request {
        *condition = if_absent();
    }
    let first = kit.version(request.clone()).await.unwrap();
    kit.put_packed("a", 10).await;
    let again = kit.version(request).await.unwrap();
    assert_eq!((again.lsn, again.etag, again.size), (first.lsn, first.etag, first.size));
    assert_eq!(kit.get("a").await.unwrap().size, 10);
    let other = kit.refused(kit.complete("a", upload, &[1, 2, 7])).await;
    assert_eq!(other, CommitError::NoSuchUpload);
    let elsewhere = kit.refused(kit.complete("b", upload, &[1, 2])).await;
    assert_eq!(elsewhere, CommitError::NoSuchUpload);
    let (bucket, key) = (kit.bucket, key("a"));
    let abort = kit.refused(Proposal::AbortUpload { bucket, key, upload }).await;
    assert_eq!(abort, CommitError::NoSuchUpload);
}

pub async fn wrong_part_lists_are_refused(kit: &Kit) {
    let upload = three_parts(kit, "a").await;
    let refused = async |numbers: &[u32]| kit.refused(kit.complete("a", upload, numbers)).await;
    assert_eq!(refused(&[2, 1]).await, CommitError::InvalidPartOrder);
    assert_eq!(refused(&[1, 1]).await, CommitError::InvalidPartOrder);
    assert_eq!(refused(&[1, 2, 3]).await, CommitError::InvalidPart { number: 3 });
    assert!(matches!(refused(&[]).await, CommitError::InvalidPart { .. }));
    let mut wrong = kit.complete("a", upload, &[1, 2]);
    if let Proposal::CompleteUpload { parts, .. } = &mut wrong {
        parts[1].etag = etag(99).to_string();
    }
    assert_eq!(kit.refused(wrong).await, CommitError::InvalidPart { number: 2 });
    let unknown = kit.refused(kit.complete("a", upload_id(999), &[1])).await;
    assert_eq!(unknown, CommitError::NoSuchUpload);
    let elsewhere = kit.refused(kit.complete("b", upload, &[1])).await;
    assert_eq!(elsewhere, CommitError::NoSuchUpload);
    let mut upper = kit.complete("a", upload, &[1, 7]);
    if let Proposal::CompleteUpload { parts, .. } = &mut upper {
        parts[0].etag = parts[0].etag.to_uppercase();
    }
    kit.version(upper).await.unwrap();
}

pub async fn small_parts_are_refused(kit: &Kit) {
    let upload = kit.begin("a").await;
    for (number, len) in [(1, 5 * MIB - 1), (2, 1)] {
        kit.part("a", upload, number, kit.file(len).await).await.unwrap();
    }
    let refused = kit.refused(kit.complete("a", upload, &[1, 2])).await;
    assert_eq!(refused, CommitError::EntityTooSmall { number: 1, size: 5 * MIB - 1 });
    kit.part("a", upload, 1, kit.file(5 * MIB).await).await.unwrap();
    let version = kit.version(kit.complete("a", upload, &[1, 2])).await.unwrap();
    assert_eq!(version.size, 5 * MIB + 1);
    let empty = kit.begin("b").await;
    kit.part("b", empty, 1, ProposedData::Empty).await.unwrap();
    let version = kit.version(kit.complete("b", empty, &[1])).await.unwrap();
    assert_eq!((version.size, version.extents.len()), (0, 0));
}

pub async fn a_part_is_replaced(kit: &Kit) {
    let upload = kit.begin("a").await;
    let first = kit.pending().await;
    let data = ProposedData::File { id: first, len: 10 };
    kit.part("a", upload, 1, data).await.unwrap();
    let n = kit.fresh();
    kit.part("a", upload, 1, packed(n, 20)).await.unwrap();
    assert_eq!(kit.dead().await, [first]);
    let page = kit.catalog.parts(upload, 0, 10).await.unwrap();
    assert_eq!(page.rows.iter().map(|p| p.size).collect::<Vec<_>>(), [20]);
    let version = kit.version(kit.complete("a", upload, &[1])).await.unwrap();
    let located = kit.catalog.locate(super::kit::blob_id(n)).await.unwrap();
    assert_eq!(located, Some(version.extents[0].blob));
    assert_eq!(kit.get("a").await, Some(version));
}

pub async fn an_aborted_upload_leaves_nothing(kit: &Kit) {
    let upload = three_parts(kit, "a").await;
    let abort = || Proposal::AbortUpload { bucket: kit.bucket, key: key("a"), upload };
    let (bucket, wrong) = (kit.bucket, key("b"));
    let other = kit.refused(Proposal::AbortUpload { bucket, key: wrong, upload }).await;
    assert_eq!(other, CommitError::NoSuchUpload);
    kit.done(abort()).await;
    assert_eq!(kit.refused(abort()).await, CommitError::NoSuchUpload);
    assert_eq!(kit.dead().await.len(), 3);
    let gone = kit.refused(kit.complete("a", upload, &[1])).await;
    assert_eq!(gone, CommitError::NoSuchUpload);
    let late = kit.part("a", upload, 3, ProposedData::Empty).await;
    assert_eq!(late.unwrap_err(), CommitError::NoSuchUpload);
    assert!(
        uploads(kit, ListObjects { limit: 10, ..ListObjects::default() }, None).await.0.is_empty()
    );
}

pub async fn parts_are_paged(kit: &Kit) {
    let upload = three_parts(kit, "a").await;
    let page = async |after: u32, limit: usize| {
        let page = kit.catalog.parts(upload, after, limit).await.unwrap();
        (page.rows.iter().map(|p| p.number).collect::<Vec<_>>(), page.truncated)
    };
    assert_eq!(page(0, 10).await, (vec![1, 2, 7], false));
    assert_eq!(page(0, 2).await, (vec![1, 2], true));
    assert_eq!(page(2, 2).await, (vec![7], false));
    assert_eq!(page(0, 3).await, (vec![1, 2, 7], false));
    assert_eq!(page(7, 3).await, (vec![], false));
    assert_eq!(page(0, 0).await, (vec![], false));
}

pub async fn unlisted_parts_are_released(kit: &Kit) {
    let upload = three_parts(kit, "a").await;
    kit.version(kit.complete("a", upload, &[1, 7])).await.unwrap();
    assert_eq!(kit.dead().await.len(), 1);
}

/// A part of `len` bytes with checksum `value`.
async fn summed_part(kit: &Kit, upload: UploadId, number: u32, len: u64, sum: &Checksum) {
    let proposal = Proposal::PutPart {
        bucket: kit.bucket,
        key: key("a"),
        upload,
        number,
        etag: etag(number.into()),
        checksum: Some(sum.clone()),
        data: kit.file(len).await,
    };
    assert!(matches!(kit.catalog.commit(proposal).await, Ok(Committed::Part(_))));
}

pub async fn checksums_are_combined_and_verified(kit: &Kit) {
    let algorithm = ChecksumAlgorithm::Crc32c;
    for kind in [ChecksumKind::FullObject, ChecksumKind::Composite] {
        let sum =
            |n| Checksum { algorithm, kind: ChecksumKind::FullObject, value: vec![n, 2, 3, 4] };
        let upload = kit.begin_with("a", Some((algorithm, kind))).await;
        summed_part(kit, upload, 1, 5 * MIB, &sum(1)).await;
        summed_part(kit, upload, 2, 10, &sum(2)).await;
        let whole = combine(algorithm, kind, &[(sum(1), 5 * MIB), (sum(2), 10)]).unwrap();
        let with = |whole: Option<Checksum>, first: Option<Checksum>| {
            let mut proposal = kit.complete("a", upload, &[1, 2]);
            if let Proposal::CompleteUpload { expected_checksum, parts, .. } = &mut proposal {
                *expected_checksum = whole;
                parts[0].checksum = first;
            }
            proposal
        };
        let wrong = Checksum { value: vec![0; 4], ..whole.clone() };
        let refused = kit.refused(with(Some(wrong), None)).await;
        assert_eq!(refused, CommitError::BadDigest);
        let refused = kit.refused(with(None, Some(sum(9)))).await;
        assert_eq!(refused, CommitError::InvalidPart { number: 1 });
        let version = kit.version(with(Some(whole.clone()), Some(sum(1)))).await.unwrap();
        assert_eq!(version.checksum, Some(whole));
        assert_eq!(version.parts[1].checksum, Some(sum(2)));
    }
}

pub async fn sizes_are_verified(kit: &Kit) {
    let upload = three_parts(kit, "a").await;
    let with = |size| {
        let mut proposal = kit.complete("a", upload, &[1, 2]);
        if let Proposal::CompleteUpload { expected_size, .. } = &mut proposal {
            *expected_size = Some(size);
        }
        proposal
    };
    assert_eq!(kit.refused(with(11 * MIB + 1)).await, CommitError::SizeMismatch);
    kit.version(with(11 * MIB)).await.unwrap();
    let upload = kit.begin("b").await;
    for number in 1..=2 {
        kit.part("b", upload, number, kit.file(5 << 40).await).await.unwrap();
    }
    let refused = kit.refused(kit.complete("b", upload, &[1, 2])).await;
    assert_eq!(refused, CommitError::EntityTooLarge);
}

pub async fn completions_heed_conditions(kit: &Kit) {
    let (_, there) = kit.put_packed("a", 10).await;
    let upload = three_parts(kit, "a").await;
    let with = |wanted| {
        let mut proposal = kit.complete("a", upload, &[1]);
        if let Proposal::CompleteUpload { condition, .. } = &mut proposal {
            *condition = wanted;
        }
        proposal
    };
    let refused = kit.refused(with(if_absent())).await;
    assert_eq!(refused, CommitError::PreconditionFailed("If-None-Match"));
    assert_eq!(kit.get("a").await, Some(there.clone()));
    kit.version(with(if_match(&there.etag.to_string()))).await.unwrap();
}

pub async fn uploads_end_with_their_bucket(kit: &Kit) {
    let upload = three_parts(kit, "a").await;
    kit.done(Proposal::DeleteBucket { id: kit.bucket }).await;
    assert_eq!(kit.dead().await.len(), 3);
    let gone = kit.refused(kit.complete("a", upload, &[1])).await;
    assert_eq!(gone, CommitError::NoSuchBucket);
    assert!(kit.catalog.parts(upload, 0, 10).await.unwrap().rows.is_empty());
}

/// Begins an upload with a given id and time.
async fn begin_at(kit: &Kit, name: &str, id: u64, initiated_ms: i64) {
    let upload = Upload {
        id: upload_id(id),
        bucket: kit.bucket,
        key: key(name),
        initiated_ms,
        owner: owner(),
        metadata: ObjectMetadata::default(),
        checksum: None,
    };
    kit.done(Proposal::CreateUpload { upload }).await;
}

/// A page as text: `key:id` and common prefixes; with the last upload.
async fn uploads(
    kit: &Kit,
    query: ListObjects,
    after: Option<UploadId>,
) -> (Vec<String>, bool, Option<Arc<Upload>>) {
    let page = kit.catalog.list_uploads(kit.bucket, &query, after).await.unwrap();
    let mut last = None;
    let text = page.rows.into_iter().map(|row| match row {
        ListRow::CommonPrefix(prefix) => {
            last = None;
            prefix
        }
        ListRow::Item(upload) => {
            last = Some(upload.clone());
            let id: [u8; 8] = upload.id.0[..8].try_into().unwrap();
            format!("{}:{}", upload.key, u64::from_be_bytes(id))
        }
    });
    (text.collect(), page.truncated, last)
}

const SOME: [(&str, u64, i64); 7] = [
    ("b", 11, 500),
    ("b", 10, 600),
    ("b", 12, 500),
    ("a", 13, 900),
    ("c/x", 14, 100),
    ("c/y", 15, 100),
    ("d", 16, 1),
];

pub async fn uploads_are_listed_in_order(kit: &Kit) {
    for (name, id, at) in SOME {
        begin_at(kit, name, id, at).await;
    }
    let all = ListObjects { limit: 100, ..ListObjects::default() };
    let rows = uploads(kit, all.clone(), None).await.0;
    assert_eq!(rows, ["a:13", "b:11", "b:12", "b:10", "c/x:14", "c/y:15", "d:16"]);
    let grouped = ListObjects { delimiter: "/".into(), ..all.clone() };
    let rows = uploads(kit, grouped.clone(), None).await.0;
    assert_eq!(rows, ["a:13", "b:11", "b:12", "b:10", "c/", "d:16"]);
    let behind = ListObjects { after: "c/".into(), after_is_prefix: true, ..grouped };
    assert_eq!(uploads(kit, behind, None).await.0, ["d:16"]);
    let within = ListObjects { prefix: "c/".into(), ..all.clone() };
    assert_eq!(uploads(kit, within, None).await.0, ["c/x:14", "c/y:15"]);
    let from = ListObjects { after: "b".into(), ..all };
    assert_eq!(uploads(kit, from.clone(), None).await.0, ["c/x:14", "c/y:15", "d:16"]);
    let rows = uploads(kit, from, Some(upload_id(11))).await.0;
    assert_eq!(rows, ["b:12", "b:10", "c/x:14", "c/y:15", "d:16"]);
}

pub async fn uploads_are_paged(kit: &Kit) {
    for (name, id, at) in SOME {
        begin_at(kit, name, id, at).await;
    }
    for delimiter in ["", "/"] {
        let all = ListObjects { delimiter: delimiter.into(), limit: 100, ..Default::default() };
        let whole = uploads(kit, all.clone(), None).await.0;
        for limit in 1..=7 {
            let mut got = Vec::new();
            let (mut query, mut after) = (ListObjects { limit, ..all.clone() }, None);
            loop {
                let (rows, truncated, last) = uploads(kit, query.clone(), after).await;
                assert!(rows.len() <= limit);
                got.extend(rows);
                if !truncated {
                    break;
                }
                query.after_is_prefix = last.is_none();
                after = last.as_ref().map(|upload| upload.id);
                query.after = match last {
                    Some(upload) => upload.key.to_string(),
                    None => got.last().unwrap().clone(),
                };
            }
            assert_eq!(got, whole, "limit {limit}");
        }
    }
}
