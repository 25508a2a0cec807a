//! Identifiers. Each is a distinct type so that two of them can never be swapped by mistake.

use std::fmt;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use sha2::{Digest, Sha256};

/// The position of a commit in the commit log. The first commit is 1; 0 means "before any".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Lsn(#[n(0)] pub u64);

/// A bucket's internal number. Never reused, so that a bucket created again under an old name
/// shares nothing with its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct BucketId(#[n(0)] pub u64);

/// 128 random bits that name immutable bytes. Never derived from a key, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct BlobId(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

/// 128 random bits that name a multipart upload; clients see 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct UploadId(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

/// Names one version of a key. `NULL` (all zero) is the version that S3 calls "null".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct VersionId(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

impl VersionId {
    /// The version of a bucket that never had versioning enabled.
    pub const NULL: VersionId = VersionId([0; 16]);

    /// The id of the version that commit `lsn` makes of `key`: the commit's position, from which
    /// the version is found again, and a digest, so that no id follows from another. Two keys may
    /// get versions in one commit; a key gets at most one.
    pub fn of_commit(bucket: BucketId, key: &Key, lsn: Lsn, now_ms: i64) -> VersionId {
        let mut hash = Sha256::new();
        hash.update(bucket.0.to_be_bytes());
        hash.update(lsn.0.to_be_bytes());
        hash.update(now_ms.to_be_bytes());
        hash.update(key.as_str());
        let digest = hash.finalize();
        let mut id = [0u8; 16];
        id[..8].copy_from_slice(&lsn.0.to_be_bytes());
        id[8..].copy_from_slice(&digest[..8]);
        VersionId(id)
    }

    /// The commit that made the version; `None` for the null version, whose id does not tell.
    pub fn lsn(&self) -> Option<Lsn> {
        let mut lsn = [0u8; 8];
        lsn.copy_from_slice(&self.0[..8]);
        (*self != VersionId::NULL).then(|| Lsn(u64::from_be_bytes(lsn)))
    }
}

macro_rules! hex_id {
    ($name:ident) => {
        impl $name {
            /// Parses exactly 32 hex digits, else `None`.
            pub fn from_hex(text: &str) -> Option<Self> {
                let mut raw = [0u8; 16];
                hex::decode_to_slice(text, &mut raw).ok()?;
                Some($name(raw))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    };
}
hex_id!(BlobId);
hex_id!(UploadId);
hex_id!(VersionId);

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == VersionId::NULL {
            return f.write_str("null");
        }
        f.write_str(&hex::encode(self.0))
    }
}

impl VersionId {
    /// Parses what a client sends as `versionId`: "null" or 32 hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "null" { Some(VersionId::NULL) } else { VersionId::from_hex(text) }
    }
}

/// An object key: 1 to 1024 UTF-8 bytes, compared and ordered as bytes, never normalised.
///
/// **Source** AWS S3 user guide, "Naming Amazon S3 objects".
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The longest key, in UTF-8 bytes.
    pub const BYTES_MAX: usize = 1024;

    /// Checks the length; the caller has already decoded the text.
    pub fn new(text: &str) -> Result<Key, KeyError> {
        match text.len() {
            0 => Err(KeyError::Empty),
            n if n > Key::BYTES_MAX => Err(KeyError::TooLong { bytes: n }),
            _ => Ok(Key(Arc::from(text))),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("a key has at least one byte")]
    Empty,
    #[error("the key has {bytes} bytes; the limit is 1024")]
    TooLong { bytes: usize },
}

/// A user's canonical id, as Owner and Initiator elements show it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    pub fn new(canonical_id: &str) -> OwnerId {
        OwnerId(Arc::from(canonical_id))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Text forms and the CBOR form (a text string) of a newtype around `Arc<str>`.
macro_rules! text_id {
    ($name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<C> minicbor::Encode<C> for $name {
            fn encode<W: minicbor::encode::Write>(
                &self,
                e: &mut minicbor::Encoder<W>,
                _: &mut C,
            ) -> Result<(), minicbor::encode::Error<W::Error>> {
                e.str(&self.0)?.ok()
            }
        }

        impl<'b, C> minicbor::Decode<'b, C> for $name {
            fn decode(
                d: &mut minicbor::Decoder<'b>,
                _: &mut C,
            ) -> Result<Self, minicbor::decode::Error> {
                Ok($name(std::sync::Arc::from(d.str()?)))
            }
        }
    };
}
pub(crate) use text_id;
text_id!(Key);
text_id!(OwnerId);
