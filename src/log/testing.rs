//! Records for the tests of the log.

use bytes::Bytes;

use super::record::Record;
use crate::model::commit::{Mutation, PackedBytes};
use crate::model::{
    BlobId, BlobPlace, BlobRef, BucketId, ETag, Extent, Key, Lsn, ObjectMetadata, ObjectVersion,
    OwnerId, VersionId,
};

/// Deterministic bytes that differ between records and within each.
pub fn data(seed: u64, len: usize) -> Bytes {
    (0..len as u64).map(|i| (i.wrapping_mul(31) ^ seed ^ (i >> 8)) as u8).collect()
}

pub fn blob_id(lsn: u64) -> BlobId {
    let mut raw = [0xB1; 16];
    raw[..8].copy_from_slice(&lsn.to_le_bytes());
    BlobId(raw)
}

/// A PutObject that carries `len` packed bytes.
pub fn packed_put(lsn: u64, len: usize) -> Record {
    let bytes = data(lsn, len);
    let id = blob_id(lsn);
    let place = BlobPlace::Segment { segment: 0, record_offset: 0 };
    let extent =
        Extent { blob: BlobRef { id, place, len: len as u64 }, offset: 0, len: len as u64 };
    let version = ObjectVersion {
        lsn: Lsn(lsn),
        version_id: VersionId::NULL,
        delete_marker: false,
        size: len as u64,
        modified_ms: 1_700_000_000_000,
        etag: ETag { md5: [7; 16], parts: 0 },
        owner: OwnerId::new("owner"),
        metadata: ObjectMetadata::default(),
        checksum: None,
        parts: Vec::new(),
        extents: vec![extent],
    };
    let mutation = Mutation::PutObject {
        bucket: BucketId(1),
        key: Key::new(&format!("key-{lsn}")).expect("a valid key"),
        version,
        upload: None,
        packed: Some(id),
        complete_digest: None,
    };
    Record { lsn: Lsn(lsn), mutation, packed: Some(PackedBytes { id, bytes }) }
}

/// A small record without packed bytes.
pub fn small(lsn: u64) -> Record {
    Record { lsn: Lsn(lsn), mutation: Mutation::DeleteBucket(BucketId(lsn)), packed: None }
}

pub mod mutation {
    use super::*;
    use crate::model::{AccessKey, Bucket, BucketName, UploadId, User};

    pub const KINDS: usize = 6;

    /// One of `KINDS` changes without packed bytes.
    pub fn of_kind(kind: usize) -> Mutation {
        let upload = UploadId([4; 16]);
        match kind {
            0 => Mutation::CreateBucket(Bucket {
                id: BucketId(1),
                name: BucketName::new("bucket").expect("a valid name"),
                owner: OwnerId::new("owner"),
                created_ms: 1,
                location: String::new(),
                acl: None,
                configs: Default::default(),
                versioning: None,
                object_lock: None,
            }),
            1 => Mutation::DeleteBucket(BucketId(u64::MAX)),
            2 => Mutation::DeleteObjects {
                bucket: BucketId(2),
                keys: vec![(Key::new("k").expect("a valid key"), VersionId::NULL); 1000],
            },
            3 => Mutation::AbortUpload(upload),
            4 => Mutation::PutUser(User {
                id: "user".into(),
                canonical_id: OwnerId::new("owner"),
                display_name: "User".into(),
                email: String::new(),
                disabled: false,
            }),
            _ => Mutation::PutAccessKey(AccessKey {
                access_key: "AK".into(),
                secret_key: "SK".into(),
                user: "user".into(),
                disabled: true,
            }),
        }
    }
}
