//! Names and values of the checksums that clients may ask for; computing them is `crate::digest`.

use minicbor::{Decode, Encode};

/// **Source** AWS S3 API reference, `ChecksumAlgorithm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum ChecksumAlgorithm {
    #[n(0)]
    Crc32,
    #[n(1)]
    Crc32c,
    #[n(2)]
    Crc64Nvme,
    #[n(3)]
    Sha1,
    #[n(4)]
    Sha256,
}

impl ChecksumAlgorithm {
    pub const ALL: [ChecksumAlgorithm; 5] =
        [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// The value of `x-amz-checksum-algorithm`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// The header or trailer that carries the base64 value.
    pub fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// The XML element that carries the base64 value.
    pub fn element(self) -> &'static str {
        match self {
            Self::Crc32 => "ChecksumCRC32",
            Self::Crc32c => "ChecksumCRC32C",
            Self::Crc64Nvme => "ChecksumCRC64NVME",
            Self::Sha1 => "ChecksumSHA1",
            Self::Sha256 => "ChecksumSHA256",
        }
    }

    /// Length of the raw value in bytes.
    pub fn len_bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// Case-insensitive parse of an algorithm's name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name().eq_ignore_ascii_case(name))
    }
}

/// Whether a value covers the object's bytes or its parts' checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum ChecksumKind {
    #[n(0)]
    FullObject,
    #[n(1)]
    Composite,
}

impl ChecksumKind {
    /// The value of `x-amz-checksum-type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::FullObject => "FULL_OBJECT",
            Self::Composite => "COMPOSITE",
        }
    }
}

/// One checksum of an object or part. Clients see base64, with `-N` behind a composite value.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Checksum {
    #[n(0)]
    pub algorithm: ChecksumAlgorithm,
    #[n(1)]
    pub kind: ChecksumKind,
    /// Raw, big-endian for the CRCs; `algorithm.len_bytes()` long.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub value: Vec<u8>,
}
