//! Object lock: GET and PUT /bucket?object-lock, /bucket/key?retention, /bucket/key?legal-hold

use super::get_object::find;
use super::prelude::*;
use crate::s3::object_lock;

/// **Errors** `ObjectLockConfigurationNotFoundError`.
/// **Source** AWS S3 API reference, GetObjectLockConfiguration.
pub async fn get_object_lock_configuration(request: &S3Request<'_>) -> S3Result {
    let bucket = request.bucket()?;
    match &bucket.object_lock {
        Some(lock) => Ok(response::xml(object_lock::configuration_xml(lock))),
        None => Err(S3Error::new(S3ErrorCode::ObjectLockConfigurationNotFoundError)
            .detail("BucketName", bucket.name.as_str())),
    }
}

/// Gives a bucket object lock, or changes its default retention. It cannot be taken off again.
///
/// **Errors** those of `object_lock::configuration_of`, `InvalidBucketState` without versioning.
/// **Source** AWS S3 API reference, PutObjectLockConfiguration.
pub async fn put_object_lock_configuration(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let body = request.read_document(s3).await?;
    let lock = object_lock::configuration_of(&body)?;
    s3.store.set_object_lock(request.bucket()?.id, lock).await?;
    Ok(response::empty(StatusCode::OK))
}

/// **Errors** `NoSuchObjectLockConfiguration`, `InvalidRequest` in a bucket without object lock.
/// **Source** AWS S3 API reference, GetObjectRetention.
pub async fn get_object_retention(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let version = locked_version(s3, request).await?;
    match &version.metadata.retention {
        Some(retention) => Ok(response::xml(object_lock::retention_xml(retention))),
        None => Err(S3ErrorCode::NoSuchObjectLockConfiguration.into()),
    }
}

/// **Errors** `MalformedXML`, `InvalidRequest` in a bucket without object lock, `InvalidArgument`
/// for a time in the past, `AccessDenied` for what the present retention does not allow.
/// **Source** AWS S3 API reference, PutObjectRetention.
pub async fn put_object_retention(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let body = request.read_document(s3).await?;
    let retention = object_lock::retention_of(&body)?;
    let version = locked_version(s3, request).await?;
    let bucket = request.bucket()?;
    let bypass = object_lock::bypasses(&request.headers, request.caller(), bucket);
    let (key, id) = (request.key()?.clone(), Some(version.version_id));
    s3.store.set_retention(bucket.id, key, id, retention, bypass).await?;
    Ok(response::empty(StatusCode::OK))
}

/// **Errors** `NoSuchObjectLockConfiguration`, `InvalidRequest` in a bucket without object lock.
/// **Source** AWS S3 API reference, GetObjectLegalHold.
pub async fn get_object_legal_hold(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let version = locked_version(s3, request).await?;
    match version.metadata.legal_hold {
        Some(on) => Ok(response::xml(object_lock::legal_hold_xml(on))),
        None => Err(S3ErrorCode::NoSuchObjectLockConfiguration.into()),
    }
}

/// **Errors** `MalformedXML`, `InvalidRequest` in a bucket without object lock.
/// **Source** AWS S3 API reference, PutObjectLegalHold.
pub async fn put_object_legal_hold(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let body = request.read_document(s3).await?;
    let on = object_lock::legal_hold_of(&body)?;
    let version = locked_version(s3, request).await?;
    let (bucket, key) = (request.bucket()?.id, request.key()?.clone());
    s3.store.set_legal_hold(bucket, key, Some(version.version_id), on).await?;
    Ok(response::empty(StatusCode::OK))
}

/// The version that the request names, in a bucket with object lock.
async fn locked_version(
    s3: &S3State,
    request: &S3Request<'_>,
) -> Result<Arc<ObjectVersion>, S3Error> {
    if request.bucket()?.object_lock.is_none() {
        return Err(CommitError::NoObjectLock.into());
    }
    find(s3, request).await
}
