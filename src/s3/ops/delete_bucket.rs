//! DELETE /bucket

use super::prelude::*;

/// **Errors** `BucketNotEmpty` while it has objects or uploads in progress.
/// **Source** AWS S3 API reference, DeleteBucket.
pub async fn delete_bucket(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    s3.store.delete_bucket(request.bucket()?.id).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}
