//! Buckets and the rules for their names.

use std::sync::Arc;

use minicbor::{Decode, Encode};

use super::lock::ObjectLock;
use super::{BucketConfigs, BucketId, CannedAcl, OwnerId};

/// A bucket as the catalog keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Bucket {
    #[n(0)]
    pub id: BucketId,
    #[n(1)]
    pub name: BucketName,
    /// Canonical id of the owner.
    #[n(2)]
    pub owner: OwnerId,
    #[n(3)]
    pub created_ms: i64,
    /// What GetBucketLocation answers; empty is us-east-1.
    #[n(4)]
    pub location: String,
    /// `None` is private.
    #[n(5)]
    pub acl: Option<CannedAcl>,
    /// `None` until versioning is first enabled: the bucket has only null versions.
    #[n(6)]
    pub versioning: Option<Versioning>,
    /// `None` without object lock.
    #[n(7)]
    pub object_lock: Option<ObjectLock>,
    /// Kept apart from the bucket's own row and record.
    #[cbor(skip)]
    pub configs: BucketConfigs,
}

/// What a write to a key does with the version that was current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Versioning {
    /// Every version is kept, and new ones get an id.
    #[n(0)]
    Enabled,
    /// Versions with an id are kept; new ones are null and replace the null version.
    #[n(1)]
    Suspended,
}

/// A valid bucket name.
///
/// **Source** AWS S3 user guide, "General purpose bucket naming rules": 3 to 63 of `a-z 0-9 . -`,
/// beginning and ending with a letter or digit, no two dots in a row, not an IPv4 address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketName(Arc<str>);

impl BucketName {
    /// Checks the rules; `None` when one is broken.
    pub fn new(name: &str) -> Option<BucketName> {
        let bytes = name.as_bytes();
        let edge = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let inner = |b: &u8| edge(b) || *b == b'.' || *b == b'-';
        let ok = (3..=63).contains(&bytes.len())
            && bytes.first().is_some_and(edge)
            && bytes.last().is_some_and(edge)
            && bytes.iter().all(inner)
            && !name.contains("..")
            && name.parse::<std::net::Ipv4Addr>().is_err();
        ok.then(|| BucketName(Arc::from(name)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

super::ids::text_id!(BucketName);
