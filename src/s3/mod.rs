//! The S3 front: parses requests, calls the store, composes answers.
//!
//! Owns everything that is S3 and nothing else. It never touches the catalog, the log, blobs or
//! the arena; those are behind the store.

pub mod auth;
pub mod authorise;
pub mod aws_chunked;
pub mod body;
pub mod claims;
pub mod cors;
pub mod error;
pub mod etag;
pub mod form;
pub mod headers;
pub mod host;
pub mod object_lock;
mod operation;
mod ops;
pub mod payload;
pub mod policy;
pub mod post_policy;
pub mod public_access;
pub mod query;
pub mod range;
pub mod request;
pub mod response;
pub mod router;
pub mod state;
pub mod tagging;
pub mod time;
pub mod xml;

pub use router::router;
pub use state::{S3FrontSettings, S3Limits, S3State};

#[cfg(test)]
mod tests;
