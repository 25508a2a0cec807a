//! What can go wrong below the fronts.

use std::sync::Arc;

use crate::catalog::ReadError;
use crate::model::{BlobId, CommitError};

/// A failed operation. Fronts map each variant to their protocol's code, without a catch-all.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    #[error("no such key")]
    NoSuchKey,
    #[error("no such version")]
    NoSuchVersion,
    #[error("no such upload")]
    NoSuchUpload,
    #[error("the commit was refused: {0}")]
    Commit(#[from] CommitError),
    /// A limit of the configuration is reached; the client should come back later.
    #[error("the limit of {0} is reached")]
    SlowDown(&'static str),
    /// Writes fail until space returns; reads and deletes go on.
    #[error("no space left on the device")]
    NoSpace,
    /// The bytes on disk are not those that were written; none of them was served.
    #[error("blob {0} is damaged")]
    Corrupt(BlobId),
    #[error(transparent)]
    Catalog(#[from] ReadError),
    /// For the operator; clients are told only that the server failed.
    #[error("input/output failed: {0}")]
    Io(Arc<str>),
}

impl StoreError {
    /// An I/O failure with what was being done.
    pub(super) fn io(what: &str, error: impl std::fmt::Display) -> StoreError {
        StoreError::Io(Arc::from(format!("{what}: {error}")))
    }
}
