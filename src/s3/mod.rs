//! The S3 front: parses requests, calls the store, composes answers.
//!
//! Owns everything that is S3 and nothing else. It never touches the catalog, the log, blobs or
//! the arena; those are behind the store.

pub mod auth;
pub mod aws_chunked;
pub mod error;
pub mod host;
pub mod query;
pub mod time;
pub mod xml;
