//! HEAD /bucket and GET /bucket?location

use super::prelude::*;

/// **Source** AWS S3 API reference, HeadBucket.
pub async fn head_bucket(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let mut response = response::empty(StatusCode::OK);
    let region = response::header_value(s3.region_of(request.bucket()?));
    response.headers_mut().insert(HeaderName::from_static("x-amz-bucket-region"), region);
    Ok(response)
}
