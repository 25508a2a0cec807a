//! PUT /bucket

use super::prelude::*;
use crate::model::CannedAcl;

/// Makes a bucket. For its owner a repeated request is a success, as in us-east-1.
///
/// **Errors** `InvalidBucketName`, `BucketAlreadyExists`,
/// `IllegalLocationConstraintException` for another region than this server's.
/// **Source** AWS S3 API reference, CreateBucket.
pub async fn create_bucket(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let acl = super::acl::canned(&request.headers)?.unwrap_or(CannedAcl::Private);
    let lock = headers::text(&request.headers, "x-amz-bucket-object-lock-enabled");
    let object_lock = lock.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let text = request.bucket_name.clone().unwrap_or_default();
    let name = BucketName::new(&text).ok_or_else(|| {
        S3Error::new(S3ErrorCode::InvalidBucketName).detail("BucketName", text.as_str())
    })?;
    let body = request.read_document(s3).await?;
    let location = if body.is_empty() { String::new() } else { location_of(&body)? };
    let here = &s3.settings.region;
    let is_here = location.is_empty() || location == *here || location == "us-east-1";
    let is_old_name = location == "EU" && here == "eu-west-1";
    if !is_here && !is_old_name {
        return Err(S3Error::new(S3ErrorCode::IllegalLocationConstraintException).message(
            format!(
                "The {location} location constraint is incompatible with the region {here} of this \
             server."
            ),
        ));
    }
    let stored = if location.is_empty() { here.clone() } else { location };
    let owner = request.caller().canonical_id.clone();
    let (bucket, _) = s3.store.create_bucket(name, owner, stored, object_lock).await?;
    // Until then the bucket is private; a repeated request resets the list, as in us-east-1.
    if bucket.acl.unwrap_or(CannedAcl::Private) != acl {
        s3.store.set_bucket_acl(bucket.id, acl).await?;
    }
    let mut answer = response::empty(StatusCode::OK);
    answer.headers_mut().insert(LOCATION, response::header_value(&format!("/{text}")));
    Ok(answer)
}

fn location_of(body: &[u8]) -> Result<String, S3Error> {
    let root = xml::parse(body)?;
    root.expect_name("CreateBucketConfiguration")?;
    Ok(root.child_text("LocationConstraint").unwrap_or_default().to_owned())
}
