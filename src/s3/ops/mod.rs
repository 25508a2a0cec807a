//! The operations, one file each, and the table that leads to them.
//!
//! An operation is handed a request that was authenticated and authorised. It calls the store and
//! composes the answer; it never looks at signatures, never touches a connection.

mod abort_multipart_upload;
mod acl;
mod bucket_config;
mod bucket_policy;
mod bucket_settings;
mod bucket_versioning;
mod complete_multipart_upload;
mod copy_object;
mod copy_source;
mod create_bucket;
mod create_multipart_upload;
mod delete_bucket;
mod delete_object;
mod delete_objects;
mod get_bucket_location;
mod get_object;
mod get_object_attributes;
mod head_bucket;
mod list_buckets;
mod list_multipart_uploads;
mod list_object_versions;
mod list_objects;
mod list_objects_v2;
mod list_parts;
mod listing;
mod metadata;
mod object_lock;
mod object_tagging;
mod post_object;
mod preflight;
mod prelude;
mod probes;
mod put_object;
mod rename_object;
mod upload;
mod upload_part;
mod upload_part_copy;

pub use post_object::post_object;
pub use preflight::preflight;

use prelude::{Operation, S3Request, S3Result, S3State};

/// Carries out the request's operation. Reads are waited for in place; the others' larger state is
/// kept out of theirs.
pub async fn carry_out(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    match request.operation {
        Operation::GetObject => get_object::get_object(s3, request).await,
        Operation::HeadObject => get_object::head_object(s3, request).await,
        _ => Box::pin(change_or_ask(s3, request)).await,
    }
}

/// Everything but reads of objects.
async fn change_or_ask(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    match request.operation {
        Operation::PutObject => put_object::put_object(s3, request).await,
        Operation::DeleteObject => delete_object::delete_object(s3, request).await,
        Operation::DeleteObjects => delete_objects::delete_objects(s3, request).await,
        Operation::CopyObject => copy_object::copy_object(s3, request).await,
        Operation::GetObjectAttributes => {
            get_object_attributes::get_object_attributes(s3, request).await
        }
        Operation::ListObjects => list_objects::list_objects(s3, request).await,
        Operation::ListObjectsV2 => list_objects_v2::list_objects_v2(s3, request).await,
        Operation::ListObjectVersions => {
            list_object_versions::list_object_versions(s3, request).await
        }
        Operation::ListBuckets => list_buckets::list_buckets(s3, request).await,
        Operation::CreateBucket => create_bucket::create_bucket(s3, request).await,
        Operation::HeadBucket => head_bucket::head_bucket(s3, request).await,
        Operation::DeleteBucket => delete_bucket::delete_bucket(s3, request).await,
        Operation::GetBucketLocation => get_bucket_location::get_bucket_location(s3, request).await,
        Operation::GetBucketAcl => acl::get_bucket_acl(request).await,
        Operation::PutBucketAcl => acl::put_bucket_acl(s3, request).await,
        Operation::PutObjectAcl => acl::put_object_acl(s3, request).await,
        Operation::GetObjectAcl => acl::get_object_acl(s3, request).await,
        _ => multipart(s3, request).await,
    }
}

/// The multipart family, then what is said of versions.
async fn multipart(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    match request.operation {
        Operation::CreateMultipartUpload => {
            create_multipart_upload::create_multipart_upload(s3, request).await
        }
        Operation::UploadPart => upload_part::upload_part(s3, request).await,
        Operation::UploadPartCopy => upload_part_copy::upload_part_copy(s3, request).await,
        Operation::CompleteMultipartUpload => {
            complete_multipart_upload::complete_multipart_upload(s3, request).await
        }
        Operation::AbortMultipartUpload => {
            abort_multipart_upload::abort_multipart_upload(s3, request).await
        }
        Operation::ListParts => list_parts::list_parts(s3, request).await,
        Operation::ListMultipartUploads => {
            list_multipart_uploads::list_multipart_uploads(s3, request).await
        }
        _ => of_versions(s3, request).await,
    }
}

/// What is said of versions beside their bytes, then the configurations of buckets.
async fn of_versions(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    match request.operation {
        Operation::GetBucketVersioning => bucket_versioning::get_bucket_versioning(request).await,
        Operation::PutBucketVersioning => {
            bucket_versioning::put_bucket_versioning(s3, request).await
        }
        Operation::GetObjectTagging => object_tagging::get_object_tagging(s3, request).await,
        Operation::PutObjectTagging => object_tagging::put_object_tagging(s3, request).await,
        Operation::DeleteObjectTagging => object_tagging::delete_object_tagging(s3, request).await,
        Operation::GetObjectLockConfiguration => {
            object_lock::get_object_lock_configuration(request).await
        }
        Operation::PutObjectLockConfiguration => {
            object_lock::put_object_lock_configuration(s3, request).await
        }
        Operation::GetObjectRetention => object_lock::get_object_retention(s3, request).await,
        Operation::PutObjectRetention => object_lock::put_object_retention(s3, request).await,
        Operation::GetObjectLegalHold => object_lock::get_object_legal_hold(s3, request).await,
        Operation::PutObjectLegalHold => object_lock::put_object_legal_hold(s3, request).await,
        Operation::RenameObject => rename_object::rename_object(s3, request).await,
        _ => configuration(s3, request).await,
    }
}

/// What a bucket is configured with, then what is only probed for.
async fn configuration(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    match request.operation {
        Operation::GetBucketCors => bucket_config::get_bucket_cors(request).await,
        Operation::PutBucketCors => bucket_config::put_bucket_cors(s3, request).await,
        Operation::DeleteBucketCors => bucket_config::delete_bucket_cors(s3, request).await,
        Operation::GetBucketTagging => bucket_config::get_bucket_tagging(request).await,
        Operation::PutBucketTagging => bucket_config::put_bucket_tagging(s3, request).await,
        Operation::DeleteBucketTagging => bucket_config::delete_bucket_tagging(s3, request).await,
        Operation::GetBucketPolicy => bucket_policy::get_bucket_policy(request).await,
        Operation::PutBucketPolicy => bucket_policy::put_bucket_policy(s3, request).await,
        Operation::DeleteBucketPolicy => bucket_policy::delete_bucket_policy(s3, request).await,
        Operation::GetBucketPolicyStatus => bucket_policy::get_bucket_policy_status(request).await,
        Operation::GetPublicAccessBlock => bucket_policy::get_public_access_block(request).await,
        Operation::PutPublicAccessBlock => {
            bucket_policy::put_public_access_block(s3, request).await
        }
        Operation::DeletePublicAccessBlock => {
            bucket_policy::delete_public_access_block(s3, request).await
        }
        _ => settings(s3, request).await,
    }
}

/// Settings that change nothing, then what is only probed for.
async fn settings(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    match request.operation {
        Operation::GetBucketAccelerateConfiguration => {
            bucket_settings::get_bucket_accelerate(request).await
        }
        Operation::PutBucketAccelerateConfiguration => {
            bucket_settings::put_bucket_accelerate(s3, request).await
        }
        Operation::PutBucketRequestPayment => {
            bucket_settings::put_bucket_request_payment(s3, request).await
        }
        Operation::PutBucketLogging => bucket_settings::put_bucket_logging(s3, request).await,
        Operation::PutBucketNotificationConfiguration => {
            bucket_settings::put_bucket_notification(s3, request).await
        }
        _ => probes::probe(s3, request).await,
    }
}
