//! Copies by reference, and where packed blobs are.

use super::kit::{Kit, blob_id, etag, key, packed, put};
use crate::model::commit::{PackedBytes, ProposedData};
use crate::model::{BlobPlace, CommitError, Committed, Extent, ObjectMetadata, Proposal};

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
