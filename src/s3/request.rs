//! One authenticated request, as the operations see it.
//!
//! Owns reading what many operations read from it: ids in the query, documents in the body. The
//! router makes it; by then the caller is known and allowed to do what it asks for.

use std::sync::Arc;

use http::HeaderMap;
use http::header::TRANSFER_ENCODING;

use super::auth::Payload;
use super::body::RequestBody;
use super::claims::Claims;
use super::error::{S3Error, S3ErrorCode};
use super::headers;
use super::operation::Operation;
use super::payload::PayloadReader;
use super::query::Query;
use super::state::S3State;
use crate::digest::digest;
use crate::http::trace::RequestTrace;
use crate::model::{AccessKey, Bucket, Key, ObjectVersion, UploadId, User, VersionId};

/// A request that was authenticated and authorised.
pub struct S3Request<'r> {
    pub operation: Operation,
    pub headers: HeaderMap,
    pub query: Query,
    /// As the client wrote it; CreateBucket checks it.
    pub bucket_name: Option<String>,
    pub bucket: Option<Arc<Bucket>>,
    pub key: Option<Key>,
    pub identity: Arc<(AccessKey, User)>,
    /// The version that the caller's right was judged by, when that took looking at it.
    pub judged: Option<Arc<ObjectVersion>>,
    /// How the signature covers the body.
    pub payload: Payload,
    pub body: &'r mut RequestBody,
    /// Where the operation says what the log and the metrics show.
    pub trace: Option<&'r RequestTrace>,
}

impl S3Request<'_> {
    pub fn caller(&self) -> &User {
        &self.identity.1
    }

    /// The bucket of an operation that needs one, which the router has checked.
    pub fn bucket(&self) -> Result<&Arc<Bucket>, S3Error> {
        self.bucket.as_ref().ok_or_else(|| S3Error::internal("the operation has no bucket"))
    }

    /// The key of an operation that needs one, which the router has checked.
    pub fn key(&self) -> Result<&Key, S3Error> {
        self.key.as_ref().ok_or_else(|| S3Error::internal("the operation has no key"))
    }

    /// The version that the query names. **Errors** `InvalidArgument` for what is no version id.
    pub fn version_id(&self) -> Result<Option<VersionId>, S3Error> {
        let Some(text) = self.query.get("versionId") else { return Ok(None) };
        match VersionId::parse(text) {
            Some(version) => Ok(Some(version)),
            None => Err(S3Error::new(S3ErrorCode::InvalidArgument)
                .message("Invalid version id specified")
                .argument("versionId", text)),
        }
    }

    /// **Errors** `NoSuchUpload` for what cannot be an upload's id.
    pub fn upload_id(&self) -> Result<UploadId, S3Error> {
        let text = self.query.get("uploadId").unwrap_or_default();
        UploadId::from_hex(text).ok_or_else(|| S3Error::new(S3ErrorCode::NoSuchUpload))
    }

    /// **Errors** `InvalidArgument` unless it is a number from 1 to 10,000.
    pub fn part_number(&self) -> Result<u32, S3Error> {
        parse_part_number(self.query.get("partNumber").unwrap_or_default())
    }

    /// Length of the payload without its framing; `None` when only its end will tell.
    ///
    /// **Errors** `MissingContentLength` when the request has neither a length nor a framing.
    pub fn payload_size(&self) -> Result<Option<u64>, S3Error> {
        if self.payload.is_chunked() {
            let size = headers::number(&self.headers, "x-amz-decoded-content-length")?;
            return size.map(Some).ok_or_else(|| S3ErrorCode::MissingContentLength.into());
        }
        match self.body.declared() {
            Some(size) => Ok(Some(size)),
            None if self.headers.contains_key(TRANSFER_ENCODING) => Ok(None),
            None => Err(S3ErrorCode::MissingContentLength.into()),
        }
    }

    /// A document in the body, checked against every digest that the client sent.
    ///
    /// **Errors** `EntityTooLarge`, `BadDigest`, `InvalidDigest`, `XAmzContentSHA256Mismatch`.
    pub async fn read_document(&mut self, s3: &S3State) -> Result<Vec<u8>, S3Error> {
        let claims = Claims::new(&self.headers, &self.payload)?;
        self.read_claimed(s3, claims).await
    }

    /// The same, when the checksum headers are those of the object that the document is about.
    pub async fn read_document_about_object(&mut self, s3: &S3State) -> Result<Vec<u8>, S3Error> {
        let claims = Claims::without_checksum(&self.headers, &self.payload)?;
        self.read_claimed(s3, claims).await
    }

    /// The same, for operations whose document must come with a digest.
    pub async fn read_checked_document(&mut self, s3: &S3State) -> Result<Vec<u8>, S3Error> {
        let claims = Claims::new(&self.headers, &self.payload)?;
        if !claims.has_digest() {
            return Err(S3Error::new(S3ErrorCode::InvalidRequest).message(
                "Missing required header for this request: Content-MD5 OR x-amz-checksum-*",
            ));
        }
        self.read_claimed(s3, claims).await
    }

    async fn read_claimed(&mut self, s3: &S3State, mut claims: Claims) -> Result<Vec<u8>, S3Error> {
        let size = if self.payload.is_chunked() { self.payload_size()? } else { None };
        let mut reader = PayloadReader::new(self.body, &self.payload, size);
        let mut whole = Vec::new();
        while let Some(piece) = reader.next().await? {
            if whole.len() + piece.len() > s3.settings.limits.document_bytes_max {
                return Err(S3ErrorCode::EntityTooLarge.into());
            }
            whole.extend_from_slice(&piece);
        }
        claims.add_trailers(reader.trailers())?;
        claims.verify(&digest(&claims.digests(None), &whole))?;
        Ok(whole)
    }
}

/// **Errors** `InvalidArgument` unless `text` is a number from 1 to 10,000.
pub fn parse_part_number(text: &str) -> Result<u32, S3Error> {
    match text.parse::<u32>() {
        Ok(number) if (1..=10_000).contains(&number) => Ok(number),
        _ => Err(S3Error::new(S3ErrorCode::InvalidArgument)
            .message("Part number must be an integer between 1 and 10000, inclusive")
            .argument("partNumber", text)),
    }
}
