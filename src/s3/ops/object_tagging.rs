//! GET, PUT and DELETE /bucket/key?tagging

use super::get_object::find;
use super::metadata::TAGS_MAX;
use super::prelude::*;
use crate::s3::tagging;

/// **Source** AWS S3 API reference, GetObjectTagging.
pub async fn get_object_tagging(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let version = find(s3, request).await?;
    let answer = response::xml(tagging::to_xml(&version.metadata.tags));
    of_version(answer, request, &version)
}

/// Replaces all tags.
///
/// **Errors** those of `tagging::parse`, `NoSuchKey`, `NoSuchVersion`.
/// **Source** AWS S3 API reference, PutObjectTagging.
pub async fn put_object_tagging(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let body = request.read_document(s3).await?;
    let tags = tagging::parse(&body, TAGS_MAX, "Object")?;
    set(s3, request, tags, StatusCode::OK).await
}

/// **Errors** `NoSuchKey`, `NoSuchVersion`. **Source** AWS S3 API reference, DeleteObjectTagging.
pub async fn delete_object_tagging(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    set(s3, request, Vec::new(), StatusCode::NO_CONTENT).await
}

/// Sets the tags of the version that is found, also when it is not current any more by then.
async fn set(
    s3: &S3State,
    request: &S3Request<'_>,
    tags: Vec<(String, String)>,
    status: StatusCode,
) -> S3Result {
    let version = find(s3, request).await?;
    let (bucket, key) = (request.bucket()?.id, request.key()?.clone());
    s3.store.set_object_tags(bucket, key, Some(version.version_id), tags).await?;
    of_version(response::empty(status), request, &version)
}

fn of_version(mut answer: Response, request: &S3Request<'_>, version: &ObjectVersion) -> S3Result {
    response::add_version_of(answer.headers_mut(), request.bucket()?, version);
    Ok(answer)
}
