//! Copies by reference, and where packed blobs are.

use super::kit::{Kit, blob_id, etag, key, packed, put};
use crate::model::commit::{PackedBytes, ProposedData};
use crate::model::{
    BlobPlace, CommitError, Committed, Extent, ObjectMetadata, ObjectVersion, Proposal, Versioning,
    WriteCondition,
};

pub async fn a_copy_shares_the_blob(kit: &Kit) {
    let (id, source) = kit.put_file("a", 5_000_000).await;
    let mut copy = kit.copy(kit.source("a", &source), "b");
    if let Proposal::CopyObject { metadata, .. } = &mut copy {
        let content_type = Some("image/png".into());
        *metadata = Some(ObjectMetadata { content_type, ..ObjectMetadata::default() });
    }
    let copied = kit.version(copy).await.unwrap();
    assert_eq!(copied.extents, source.extents);
    assert_eq!((copied.size, copied.etag), (source.size, source.etag));
    assert_eq!(copied.metadata.content_type.as_deref(), Some("image/png"));
    assert!(copied.lsn > source.lsn);
    assert_eq!(kit.get("b").await, Some(copied));
    kit.delete_key("a").await;
    assert!(kit.dead().await.is_empty());
    kit.delete_key("b").await;
    assert_eq!(kit.dead().await, [id]);
}

pub async fn a_copy_onto_itself_keeps_the_blob(kit: &Kit) {
    let (id, source) = kit.put_file("a", 5_000_000).await;
    let again = kit.version(kit.copy(kit.source("a", &source), "a")).await.unwrap();
    assert!(kit.dead().await.is_empty());
    assert_eq!(kit.catalog.usage(kit.bucket).await.unwrap().bytes, 5_000_000);
    let (small, source) = kit.put_packed("b", 50).await;
    let copied = kit.version(kit.copy(kit.source("b", &source), "b")).await.unwrap();
    assert_eq!(kit.catalog.locate(small).await.unwrap(), Some(copied.extents[0].blob));
    assert_eq!(kit.get("a").await, Some(again));
    kit.delete_key("a").await;
    kit.delete_key("b").await;
    assert_eq!(kit.dead().await, [id]);
    assert_eq!(kit.catalog.locate(small).await.unwrap(), None);
}

pub async fn a_copy_of_a_changed_source_is_refused(kit: &Kit) {
    let (_, old) = kit.put_packed("a", 10).await;
    kit.put_packed("a", 11).await;
    let stale = kit.copy(kit.source("a", &old), "b");
    assert_eq!(kit.refused(stale.clone()).await, CommitError::SourceChanged);
    kit.delete_key("a").await;
    assert_eq!(kit.refused(stale).await, CommitError::SourceChanged);
    let upload = kit.begin("c").await;
    let part = copy_part(kit, "c", upload, kit.source("a", &old), (0, 5));
    assert_eq!(kit.refused(part).await, CommitError::SourceChanged);
    assert_eq!(kit.get("b").await, None);
}

fn copy_part(
    kit: &Kit,
    name: &str,
    upload: crate::model::UploadId,
    source: crate::model::commit::CopySource,
    range: (u64, u64),
) -> Proposal {
    Proposal::CopyPart {
        bucket: kit.bucket,
        key: key(name),
        upload,
        number: 1,
        source,
        range,
        etag: etag(1),
        checksum: None,
    }
}

pub async fn a_copied_part_shares_the_blob(kit: &Kit) {
    let (id, source) = kit.put_file("a", 1_000).await;
    let upload = kit.begin("b").await;
    let proposal = copy_part(kit, "b", upload, kit.source("a", &source), (100, 300));
    let Committed::Part(part) = kit.catalog.commit(proposal).await.unwrap() else { panic!() };
    assert_eq!((part.size, part.number), (300, 1));
    let blob = source.extents[0].blob;
    assert_eq!(part.extents, [Extent { blob, offset: 100, len: 300 }]);
    kit.delete_key("a").await;
    assert!(kit.dead().await.is_empty());
    let whole = kit.version(kit.complete("b", upload, &[1])).await.unwrap();
    assert_eq!(whole.extents, part.extents);
    kit.delete_key("b").await;
    assert_eq!(kit.dead().await, [id]);
}

pub async fn packed_blobs_follow_their_references(kit: &Kit) {
    let (id, source) = kit.put_packed("a", 100).await;
    let copied = kit.version(kit.copy(kit.source("a", &source), "b")).await.unwrap();
    assert_eq!(copied.extents, source.extents);
    kit.put_packed("a", 100).await;
    assert_eq!(kit.get("b").await, Some(copied.clone()));
    assert_eq!(kit.catalog.locate(id).await.unwrap(), Some(copied.extents[0].blob));
    kit.delete_key("b").await;
    assert_eq!(kit.catalog.locate(id).await.unwrap(), None);
    // Packed blobs have no file to be collected.
    assert!(kit.dead().await.is_empty());
    let twice = put(kit.bucket, "d", 1, packed(77_000, 10));
    kit.version(twice.clone()).await.unwrap();
    assert_eq!(kit.refused(twice).await, CommitError::BlobNotPending(blob_id(77_000)));
}

pub async fn a_relocated_blob_is_found_again(kit: &Kit) {
    let (id, version) = kit.put_packed("a", 100).await;
    let from = version.extents[0].blob.place;
    let ProposedData::Packed(PackedBytes { bytes, .. }) = packed(1, 100) else { panic!() };
    let relocate =
        |from| Proposal::Relocate { data: PackedBytes { id, bytes: bytes.clone() }, from };
    kit.done(relocate(BlobPlace::Segment { segment: 99, record_offset: 99 })).await;
    assert_eq!(kit.catalog.locate(id).await.unwrap().unwrap().place, from);
    kit.done(relocate(from)).await;
    let moved = kit.catalog.locate(id).await.unwrap().unwrap();
    assert_ne!(moved.place, from);
    assert_eq!((moved.id, moved.len), (id, 100));
    // Once more from the old place: nothing happens.
    kit.done(relocate(from)).await;
    assert_eq!(kit.catalog.locate(id).await.unwrap(), Some(moved));
    kit.delete_key("a").await;
    assert_eq!(kit.catalog.locate(id).await.unwrap(), None);
    kit.done(relocate(moved.place)).await;
    assert_eq!(kit.catalog.locate(id).await.unwrap(), None);
}

pub async fn a_rename_moves_everything_but_the_bytes(kit: &Kit) {
    let rename = |source: &ObjectVersion, from: &str, to: &str, condition| {
        let source = kit.source(from, source);
        Proposal::RenameObject { source, key: key(to), condition }
    };
    let any = WriteCondition::default;
    let (id, source) = kit.put_file("a", 7_000_000).await;
    let (replaced, _) = kit.put_file("b", 300_000).await;
    let moved = kit.version(rename(&source, "a", "b", any())).await.unwrap();
    assert_eq!((moved.extents.clone(), moved.etag), (source.extents.clone(), source.etag));
    assert_eq!(kit.get("a").await, None);
    assert_eq!(kit.get("b").await, Some(moved.clone()));
    assert_eq!(kit.dead().await, [replaced]);
    assert_eq!(kit.catalog.usage(kit.bucket).await.unwrap().bytes, 7_000_000);
    // The source that was looked at is gone, or another one.
    let gone = rename(&source, "a", "c", any());
    assert_eq!(kit.refused(gone).await, CommitError::SourceChanged);
    let stale = rename(&source, "b", "c", any());
    assert_eq!(kit.refused(stale).await, CommitError::SourceChanged);
    kit.put_packed("d", 10).await;
    let guarded = rename(&moved, "b", "d", super::objects::if_absent());
    assert_eq!(kit.refused(guarded).await, CommitError::PreconditionFailed("If-None-Match"));
    // Onto itself nothing happens.
    let same = kit.version(rename(&moved, "b", "b", any())).await.unwrap();
    assert_eq!((same.lsn, kit.get("b").await), (moved.lsn, Some(moved.clone())));
    // A packed one, to a key that was not there, and back again.
    let (packed, small) = kit.put_packed("p", 100).await;
    let there = kit.version(rename(&small, "p", "q", any())).await.unwrap();
    let back = kit.version(rename(&there, "q", "p", any())).await.unwrap();
    assert_eq!(back.extents, small.extents);
    assert_eq!(kit.catalog.locate(packed).await.unwrap(), Some(small.extents[0].blob));
    assert_eq!(kit.catalog.known_blobs(vec![id]).await.unwrap(), [id]);
}

pub async fn a_rename_keeps_versions(kit: &Kit) {
    kit.done(Proposal::SetVersioning { bucket: kit.bucket, versioning: Versioning::Enabled }).await;
    let (_, source) = kit.put_packed("a", 100).await;
    let condition = WriteCondition::default();
    let proposal =
        Proposal::RenameObject { source: kit.source("a", &source), key: key("b"), condition };
    let moved = kit.version(proposal).await.unwrap();
    assert_ne!(moved.version_id, source.version_id);
    let marker = kit.catalog.object(kit.bucket, &key("a"), None).await.unwrap().unwrap();
    assert!(marker.delete_marker);
    let old = kit.catalog.object(kit.bucket, &key("a"), Some(source.version_id)).await.unwrap();
    assert_eq!(old, Some(source));
}
