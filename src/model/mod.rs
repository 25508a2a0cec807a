//! The vocabulary that every layer shares: ids, object versions, extents, conditions, commits.
//!
//! Plain data and pure functions only. Nothing here does I/O, spawns, locks, reads a clock or
//! knows of HTTP, XML or SQL. Each type that reaches a disk derives its CBOR form (RFC 8949) with
//! numbered fields: a number is never reused, a new field is optional.

pub mod acl;
pub mod bucket;
pub mod bucket_config;
pub mod checksum;
pub mod commit;
pub mod condition;
pub mod ids;
pub mod lock;
pub mod mutation;
pub mod object;
pub mod upload;
pub mod user;

pub use acl::CannedAcl;
pub use bucket::{Bucket, BucketName, Versioning};
pub use bucket_config::{BucketConfig, BucketConfigs};
pub use checksum::{Checksum, ChecksumAlgorithm, ChecksumKind};
pub use commit::{CommitError, Committed, Proposal};
pub use condition::{EtagMatch, WriteCondition};
pub use ids::{BlobId, BucketId, Key, Lsn, OwnerId, UploadId, VersionId};
pub use object::{BlobPlace, BlobRef, ETag, Extent, ObjectMetadata, ObjectVersion, PartRecord};
pub use upload::{Part, Upload};
pub use user::{AccessKey, User};
