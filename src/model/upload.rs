//! Multipart uploads in progress.

use minicbor::{Decode, Encode};

use super::{
    BucketId, Checksum, ChecksumAlgorithm, ChecksumKind, Extent, Key, ObjectMetadata, OwnerId,
    UploadId,
};

/// An upload that CreateMultipartUpload began.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Upload {
    #[n(0)]
    pub id: UploadId,
    #[n(1)]
    pub bucket: BucketId,
    #[n(2)]
    pub key: Key,
    #[n(3)]
    pub initiated_ms: i64,
    /// Canonical id of the initiator, who will own the object.
    #[n(4)]
    pub owner: OwnerId,
    #[n(5)]
    pub metadata: ObjectMetadata,
    /// What the client asked for, if anything.
    #[n(6)]
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
}

/// One part that was sent; a part sent again under its number replaces the former.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Part {
    /// 1 to 10,000.
    #[n(0)]
    pub number: u32,
    #[n(1)]
    pub size: u64,
    #[cbor(n(2), with = "minicbor::bytes")]
    pub md5: [u8; 16],
    #[n(3)]
    pub modified_ms: i64,
    #[n(4)]
    pub checksum: Option<Checksum>,
    #[n(5)]
    pub extents: Vec<Extent>,
}
