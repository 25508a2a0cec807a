//! Object versions and the extents that hold their bytes.

use minicbor::{Decode, Encode};
use std::fmt;

use super::lock::Retention;
use super::{BlobId, CannedAcl, Checksum, Lsn, OwnerId, VersionId};

/// MD5 of the bytes, or of the parts' MD5s with the number of parts behind a dash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ETag {
    #[cbor(n(0), with = "minicbor::bytes")]
    pub md5: [u8; 16],
    /// 0 for an object that was not made of parts.
    #[n(1)]
    pub parts: u32,
}

impl fmt::Display for ETag {
    /// Without quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut hex = [0; 32];
        hex::encode_to_slice(self.md5, &mut hex).map_err(|_| fmt::Error)?;
        f.write_str(std::str::from_utf8(&hex).map_err(|_| fmt::Error)?)?;
        if self.parts > 0 { write!(f, "-{}", self.parts) } else { Ok(()) }
    }
}

/// Where a blob's bytes are now. A file never moves; a packed blob moves when its segment is
/// compacted, so a reader that finds a place gone asks the catalog again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum BlobPlace {
    /// A file of its own under `blobs/`.
    #[n(0)]
    File,
    /// Inside a segment of the commit log.
    #[n(1)]
    Segment {
        #[n(0)]
        segment: u64,
        /// Byte offset of the record that carries the bytes.
        #[n(1)]
        record_offset: u64,
    },
}

/// An immutable blob, as extents name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct BlobRef {
    #[n(0)]
    pub id: BlobId,
    #[n(1)]
    pub place: BlobPlace,
    /// Length of the whole blob in bytes.
    #[n(2)]
    pub len: u64,
}

/// `len` bytes of a blob, from `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Extent {
    #[n(0)]
    pub blob: BlobRef,
    #[n(1)]
    pub offset: u64,
    #[n(2)]
    pub len: u64,
}

/// What a client says about an object beside its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ObjectMetadata {
    #[n(0)]
    pub content_type: Option<String>,
    #[n(1)]
    pub content_encoding: Option<String>,
    #[n(2)]
    pub cache_control: Option<String>,
    #[n(3)]
    pub content_disposition: Option<String>,
    #[n(4)]
    pub content_language: Option<String>,
    #[n(5)]
    pub expires: Option<String>,
    #[n(6)]
    pub website_redirect: Option<String>,
    /// `None` is STANDARD.
    #[n(7)]
    pub storage_class: Option<String>,
    /// `x-amz-meta-*`: lower-case names without the prefix, values as UTF-8 text, in name order.
    #[n(8)]
    pub user: Vec<(String, String)>,
    #[n(9)]
    pub tags: Vec<(String, String)>,
    /// `None` is private.
    #[n(10)]
    pub acl: Option<CannedAcl>,
    #[n(11)]
    pub retention: Option<Retention>,
    /// `None` when it never was set.
    #[n(12)]
    pub legal_hold: Option<bool>,
}

/// One part of a completed multipart object, kept for `partNumber` reads and GetObjectAttributes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PartRecord {
    #[n(0)]
    pub number: u32,
    #[n(1)]
    pub size: u64,
    #[n(2)]
    pub checksum: Option<Checksum>,
}

/// One committed version of a key, whole.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ObjectVersion {
    /// The commit that made it; orders the versions of a key.
    #[n(0)]
    pub lsn: Lsn,
    #[n(1)]
    pub version_id: VersionId,
    /// True for a delete marker, which has no bytes.
    #[n(2)]
    pub delete_marker: bool,
    #[n(3)]
    pub size: u64,
    /// Milliseconds since the Unix epoch.
    #[n(4)]
    pub modified_ms: i64,
    #[n(5)]
    pub etag: ETag,
    /// Canonical id of the owner.
    #[n(6)]
    pub owner: OwnerId,
    #[n(7)]
    pub metadata: ObjectMetadata,
    #[n(8)]
    pub checksum: Option<Checksum>,
    /// Empty unless the object was made by a multipart upload.
    #[n(9)]
    pub parts: Vec<PartRecord>,
    /// In order; their lengths sum to `size`. Empty for an empty object.
    #[n(10)]
    pub extents: Vec<Extent>,
}

/// Extents of `range` (first byte, length) of an object made of `extents`.
pub fn slice_extents(extents: &[Extent], range: (u64, u64)) -> Vec<Extent> {
    let (start, end) = (range.0, range.0.saturating_add(range.1));
    let mut out = Vec::new();
    let mut at = 0u64;
    for extent in extents {
        let next = at + extent.len;
        let (from, to) = (start.max(at), end.min(next));
        if from < to {
            out.push(Extent {
                blob: extent.blob,
                offset: extent.offset + (from - at),
                len: to - from,
            });
        }
        at = next;
    }
    out
}
