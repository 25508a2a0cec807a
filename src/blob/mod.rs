//! Blob files: immutable bytes with an id, one O_DIRECT file each.
//!
//! Owns the directory `blobs/` and the format of its files (docs/on-disk-format.md). A file is
//! written once, sealed, flushed, and never changed again; every byte that is read is verified
//! against the checksums in its footer. Must never decide which blobs live: the catalog does, and
//! only the garbage collector calls `remove`. All types stay on the thread that made them.

mod cache;
mod files;
pub mod layout;
mod reader;
#[cfg(test)]
mod suite;
mod writer;

use std::io;

use crate::model::BlobId;

pub use files::BlobFiles;
pub use layout::{BLOB_BYTES_MAX, BLOCK_BYTES, READ_BYTES_MAX};
pub use reader::BlobReader;
pub use writer::BlobWriter;

/// Why a blob could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("blob {0} does not exist")]
    NotFound(BlobId),
    /// The bytes on disk are not those that were written. Never retry; other blobs are fine.
    #[error("blob {blob} is damaged: {damage}")]
    Corrupt { blob: BlobId, damage: Damage },
    /// The file system or a quota is full.
    #[error("no space for the blob")]
    NoSpace,
    #[error("blob {blob}: {doing} failed: {source}")]
    Io { blob: BlobId, doing: &'static str, source: io::Error },
}

/// What of a blob file is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("the file has {found} bytes instead of {expected}")]
    FileLength { expected: u64, found: u64 },
    #[error("the footer's checksum does not match")]
    FooterChecksum,
    #[error("the footer is not of a known format")]
    FooterFormat,
    #[error("the footer is that of blob {0}")]
    OtherBlob(BlobId),
    #[error("the footer says {found} bytes, the catalog {expected}")]
    Length { expected: u64, found: u64 },
    #[error("the checksum table's own checksum does not match")]
    Table,
    #[error("block {0} does not match its checksum")]
    Block(u64),
}

impl BlobError {
    /// Sorts an I/O error: what callers treat apart has its own variant.
    fn from_io(blob: BlobId, doing: &'static str, source: io::Error) -> BlobError {
        match source.kind() {
            io::ErrorKind::NotFound => BlobError::NotFound(blob),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => BlobError::NoSpace,
            _ => BlobError::Io { blob, doing, source },
        }
    }
}
