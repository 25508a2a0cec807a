//! Receiving object bytes: what PutObject and UploadPart share.
//!
//! Owns the order in which an upload is judged: everything that can be known from the header is
//! refused before the first body byte is polled, which is also when hyper sends 100-continue.
//! Nothing is visible until the caller commits what `receive` returns.

use super::prelude::*;
use crate::model::Checksum;
use crate::s3::claims::Claims;
use crate::s3::object_lock;
use crate::s3::payload::PayloadReader;
use crate::store::{WriteOptions, Written};

/// What the header says about the bytes to come.
pub struct UploadPlan {
    /// Length of the object's bytes, framing taken off; `None` when only the end will tell.
    size: Option<u64>,
    claims: Claims,
}

/// Bytes that arrived whole and agree with everything the client said about them.
pub struct Received {
    pub written: Written,
    /// The checksum to store and show.
    pub checksum: Option<Checksum>,
}

impl UploadPlan {
    /// Reads and checks the header.
    ///
    /// **Errors** `MissingContentLength`, `EntityTooLarge`, and those of `Claims::new`.
    pub fn new(s3: &S3State, request: &S3Request<'_>) -> Result<UploadPlan, S3Error> {
        let size = request.payload_size()?;
        check_size(s3, size.unwrap_or(0))?;
        Ok(UploadPlan { size, claims: Claims::new(&request.headers, &request.payload)? })
    }

    /// **Errors** `InvalidRequest` when a lock is asked for without a digest of what is locked.
    pub fn check_lock(&self, headers: &HeaderMap) -> Result<(), S3Error> {
        if !object_lock::is_wanted(headers) || self.claims.has_digest() {
            return Ok(());
        }
        Err(S3Error::new(S3ErrorCode::InvalidRequest).message(
            "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with \
             Object Lock parameters",
        ))
    }

    /// **Errors** `InvalidRequest` when the client sends another checksum than its upload has.
    pub fn check_algorithm(&self, upload: Option<ChecksumAlgorithm>) -> Result<(), S3Error> {
        match (upload, self.claims.algorithm()) {
            (Some(wanted), Some(sent)) if wanted != sent => {
                Err(S3Error::new(S3ErrorCode::InvalidRequest).message(format!(
                    "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum \
                     Type: {}",
                    wanted.name().to_ascii_lowercase(),
                    sent.name().to_ascii_lowercase()
                )))
            }
            _ => Ok(()),
        }
    }
}

fn check_size(s3: &S3State, size: u64) -> Result<(), S3Error> {
    let limit = s3.settings.limits.put_bytes_max;
    if size <= limit {
        return Ok(());
    }
    Err(S3Error::new(S3ErrorCode::EntityTooLarge)
        .detail("ProposedSize", size.to_string())
        .detail("MaxSizeAllowed", limit.to_string()))
}

/// Reads the body into the store and compares it with what the client said.
///
/// `otherwise` is the checksum to compute when the client sends none, as AWS does.
///
/// **Errors** those of the payload, `BadDigest`, `XAmzContentSHA256Mismatch`,
/// `MalformedTrailerError`, `EntityTooLarge`, and the store's. **Cancel** What was written is given
/// up and collected.
pub async fn receive(
    s3: &S3State,
    request: &mut S3Request<'_>,
    plan: UploadPlan,
    otherwise: ChecksumAlgorithm,
) -> Result<Received, S3Error> {
    let UploadPlan { size, mut claims } = plan;
    let digests = claims.digests(Some(otherwise));
    let mut writer = s3.store.writer(WriteOptions { size_hint: size, digests }).await?;
    let mut reader = PayloadReader::new(request.body, &request.payload, size);
    let mut received = 0;
    while let Some(piece) = reader.next().await? {
        received += piece.len() as u64;
        check_size(s3, received)?;
        writer.write(piece).await?;
    }
    claims.add_trailers(reader.trailers())?;
    let written = writer.finish().await?;
    claims.verify(&written.digests)?;
    let checksum = written.digests.checksum.clone();
    Ok(Received { written, checksum })
}
