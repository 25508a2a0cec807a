//! The names that every operation uses.

pub use std::sync::Arc;

pub use axum::body::Body;
pub use axum::response::Response;
pub use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, ETAG, EXPIRES, LOCATION, RANGE,
};
pub use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

pub use crate::model::{
    Bucket, BucketName, ChecksumAlgorithm, CommitError, ETag, Key, ObjectVersion, OwnerId, Part,
    User, VersionId,
};
pub use crate::s3::authorise::{Asked, authorise};
pub use crate::s3::error::{S3Error, S3ErrorCode};
pub use crate::s3::headers;
pub use crate::s3::operation::Operation;
pub use crate::s3::public_access;
pub use crate::s3::query::Query;
pub use crate::s3::request::S3Request;
pub use crate::s3::response::{self, quoted_etag};
pub use crate::s3::state::S3State;
pub use crate::s3::xml::{self, XmlWriter, iso_date};

/// The outcome of an operation.
pub type S3Result = Result<Response, S3Error>;
