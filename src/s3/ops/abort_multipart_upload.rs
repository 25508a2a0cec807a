//! DELETE /bucket/key?uploadId=U

use super::prelude::*;

/// **Errors** `NoSuchUpload`, also after the upload was completed.
/// **Source** AWS S3 API reference, AbortMultipartUpload.
pub async fn abort_multipart_upload(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let (bucket, key) = (request.bucket()?.id, request.key()?.clone());
    s3.store.abort_upload(bucket, key, request.upload_id()?).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}
