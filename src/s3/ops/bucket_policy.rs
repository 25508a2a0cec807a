//! GET, PUT and DELETE /bucket?policy and ?publicAccessBlock, GET /bucket?policyStatus.

use super::bucket_config::{read, remove, stored, stored_xml};
use super::prelude::*;
use crate::model::CannedAcl;
use crate::s3::policy::{self, BucketPolicy};
use crate::s3::public_access::PublicAccessBlock;

/// The policy as it was sent. **Errors** `NoSuchBucketPolicy`.
/// **Source** AWS S3 API reference, GetBucketPolicy.
pub async fn get_bucket_policy(request: &S3Request<'_>) -> S3Result {
    let document = stored(request, policy::NAME, S3ErrorCode::NoSuchBucketPolicy)?;
    let mut answer = response::xml(document);
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    Ok(answer)
}

/// **Errors** those of `BucketPolicy::parse`; `AccessDenied` where public policies are blocked.
/// **Source** AWS S3 API reference, PutBucketPolicy.
pub async fn put_bucket_policy(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let body = read(s3, request).await?;
    if body.len() > policy::DOCUMENT_BYTES_MAX {
        return Err(S3Error::new(S3ErrorCode::MalformedPolicy)
            .message("Policy exceeds the maximum allowed document size."));
    }
    let bucket = request.bucket()?;
    BucketPolicy::parse(&body, bucket.name.as_str())?;
    // Every policy that is carried out is public.
    if public_access::block_of(bucket).block_policy {
        return Err(S3Error::new(S3ErrorCode::AccessDenied).message(
            "Access Denied: public policies are blocked by the bucket's BlockPublicPolicy setting",
        ));
    }
    s3.store.set_bucket_config(bucket.id, policy::NAME, Some(body)).await?;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

/// **Source** AWS S3 API reference, DeleteBucketPolicy.
pub async fn delete_bucket_policy(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    remove(s3, request, policy::NAME).await
}

/// Whether the bucket's policy or list lets others in, as far as nothing blocks them.
///
/// **Source** AWS S3 API reference, GetBucketPolicyStatus; AWS S3 user guide, "The meaning of
/// 'public'".
pub async fn get_bucket_policy_status(request: &S3Request<'_>) -> S3Result {
    let bucket = request.bucket()?;
    let block = public_access::block_of(bucket);
    let listed = bucket.acl.is_some_and(|acl| acl != CannedAcl::Private) && !block.ignore_acls;
    let allowed = policy::policy_of(bucket).is_some_and(BucketPolicy::is_public);
    let public = listed || (allowed && !block.restrict_buckets);
    let mut xml = XmlWriter::document("PolicyStatus", 128);
    xml.element("IsPublic", if public { "true" } else { "false" });
    Ok(response::xml(xml.finish()))
}

/// **Errors** `NoSuchPublicAccessBlockConfiguration`.
/// **Source** AWS S3 API reference, GetPublicAccessBlock.
pub async fn get_public_access_block(request: &S3Request<'_>) -> S3Result {
    let missing = S3ErrorCode::NoSuchPublicAccessBlockConfiguration;
    stored_xml(request, public_access::NAME, missing)
}

/// **Errors** `MalformedXML`. **Source** AWS S3 API reference, PutPublicAccessBlock.
pub async fn put_public_access_block(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let block = PublicAccessBlock::parse(&read(s3, request).await?)?;
    let bucket = request.bucket()?.id;
    let document = block.to_xml().into_bytes();
    s3.store.set_bucket_config(bucket, public_access::NAME, Some(document)).await?;
    Ok(response::empty(StatusCode::OK))
}

/// **Source** AWS S3 API reference, DeletePublicAccessBlock.
pub async fn delete_public_access_block(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    remove(s3, request, public_access::NAME).await
}
