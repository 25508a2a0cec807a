//! Configuration documents of a bucket: GET, PUT and DELETE /bucket?cors, ?tagging.
//!
//! A document that arrives is read in full and checked before anything is stored, and what is
//! stored is what was understood, written anew. So a GET answers the stored bytes.

use super::prelude::*;
use crate::s3::{cors, tagging};

/// The name of the tag set among a bucket's configurations.
const TAGGING: &str = "tagging";
/// Tags of one bucket, as AWS has it.
const BUCKET_TAGS_MAX: usize = 50;
/// Bytes of a tag set: 50 tags of the longest keys and values, escaped.
const TAGGING_BYTES_MAX: usize = 256 << 10;

/// **Errors** `NoSuchCORSConfiguration`. **Source** AWS S3 API reference, GetBucketCors.
pub async fn get_bucket_cors(request: &S3Request<'_>) -> S3Result {
    stored_xml(request, cors::NAME, S3ErrorCode::NoSuchCORSConfiguration)
}

/// **Errors** `InvalidRequest` without a checksum, and those of `CorsRules::parse`.
/// **Source** AWS S3 API reference, PutBucketCors.
pub async fn put_bucket_cors(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let body = read_bounded(s3, request, cors::DOCUMENT_BYTES_MAX).await?;
    let rules = cors::CorsRules::parse(&body)?;
    store(s3, request, cors::NAME, rules.to_xml(), StatusCode::OK).await
}

/// **Source** AWS S3 API reference, DeleteBucketCors.
pub async fn delete_bucket_cors(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    remove(s3, request, cors::NAME).await
}

/// **Errors** `NoSuchTagSet`. **Source** AWS S3 API reference, GetBucketTagging.
pub async fn get_bucket_tagging(request: &S3Request<'_>) -> S3Result {
    stored_xml(request, TAGGING, S3ErrorCode::NoSuchTagSet)
}

/// **Errors** those of `tagging::parse`. **Source** AWS S3 API reference, PutBucketTagging.
pub async fn put_bucket_tagging(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let body = read_bounded(s3, request, TAGGING_BYTES_MAX).await?;
    let tags = tagging::parse(&body, BUCKET_TAGS_MAX, "Bucket")?;
    store(s3, request, TAGGING, tagging::to_xml(&tags), StatusCode::NO_CONTENT).await
}

/// **Source** AWS S3 API reference, DeleteBucketTagging.
pub async fn delete_bucket_tagging(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    remove(s3, request, TAGGING).await
}

/// The document in the body, which must come with a digest.
///
/// **Errors** `InvalidRequest` without one, `EntityTooLarge`.
pub async fn read(s3: &S3State, request: &mut S3Request<'_>) -> Result<Vec<u8>, S3Error> {
    request.read_checked_document(s3).await
}

/// The same with a bound of the document's own.
///
/// **Errors** `MalformedXML` for more than `bytes_max` bytes.
async fn read_bounded(
    s3: &S3State,
    request: &mut S3Request<'_>,
    bytes_max: usize,
) -> Result<Vec<u8>, S3Error> {
    let body = read(s3, request).await?;
    if body.len() > bytes_max {
        return Err(S3ErrorCode::MalformedXML.into());
    }
    Ok(body)
}

/// The document that is stored under `name`; `missing` where there is none.
pub fn stored(
    request: &S3Request<'_>,
    name: &str,
    missing: S3ErrorCode,
) -> Result<Vec<u8>, S3Error> {
    let bucket = request.bucket()?;
    match bucket.configs.get(name) {
        Some(config) => Ok(config.document().to_vec()),
        None => Err(S3Error::new(missing).detail("BucketName", bucket.name.as_str())),
    }
}

/// The same as an answer.
pub fn stored_xml(request: &S3Request<'_>, name: &str, missing: S3ErrorCode) -> S3Result {
    stored(request, name, missing).map(response::xml)
}

/// Puts a document in the place of the one of that name.
pub async fn set(
    s3: &S3State,
    request: &S3Request<'_>,
    name: &str,
    document: String,
) -> Result<(), S3Error> {
    let bucket = request.bucket()?.id;
    Ok(s3.store.set_bucket_config(bucket, name, Some(document.into_bytes())).await?)
}

async fn store(
    s3: &S3State,
    request: &S3Request<'_>,
    name: &str,
    document: String,
    status: StatusCode,
) -> S3Result {
    set(s3, request, name, document).await?;
    Ok(response::empty(status))
}

/// Removes the document of that name, if there is one.
pub async fn remove(s3: &S3State, request: &S3Request<'_>, name: &str) -> S3Result {
    s3.store.set_bucket_config(request.bucket()?.id, name, None).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}
