//! GET /bucket?location

use super::prelude::*;

/// **Source** AWS S3 API reference, GetBucketLocation: us-east-1 is an empty element.
pub async fn get_bucket_location(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let mut xml = XmlWriter::document("LocationConstraint", 256);
    let region = s3.region_of(request.bucket()?);
    if region != "us-east-1" {
        xml.text(region);
    }
    Ok(response::xml(xml.finish()))
}
