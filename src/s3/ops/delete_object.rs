//! DELETE /bucket/key

use super::prelude::*;
use crate::model::commit::{DeleteEntry, Deleted};
use crate::s3::object_lock;

/// Removes a version, or covers a key with a delete marker. What is not there is no error, unless
/// a condition names it.
///
/// **Source** AWS S3 API reference, DeleteObject.
pub async fn delete_object(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let condition = headers::delete_condition(&request.headers)?;
    let conditional = !condition.is_empty();
    let entry =
        DeleteEntry { key: request.key()?.clone(), version: request.version_id()?, condition };
    let owner = request.caller().canonical_id.clone();
    let bucket = request.bucket()?;
    let bypass = object_lock::bypasses(&request.headers, request.caller(), bucket);
    let outcomes = s3.store.delete_objects(bucket.id, owner, bypass, vec![entry]).await?;
    let outcome = outcomes
        .into_iter()
        .next()
        .ok_or_else(|| S3Error::internal("a delete without an outcome"))?;
    let mut answer = response::empty(StatusCode::NO_CONTENT);
    match outcome {
        // What is not there is deleted already.
        Err(CommitError::NoSuchKey | CommitError::NoSuchVersion) if !conditional => {}
        Err(error) => return Err(error.into()),
        Ok(Deleted { version, marker, .. }) => {
            let headers = answer.headers_mut();
            if marker.is_some() {
                response::add_delete_marker(headers);
            }
            if let Some(id) = version.or(marker) {
                response::add_version_id(headers, id);
            }
        }
    }
    Ok(answer)
}
