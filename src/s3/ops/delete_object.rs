//! DELETE /bucket/key

use super::prelude::*;
use crate::model::commit::DeleteEntry;

/// Removes a key. A key that is not there is no error, unless a condition names it.
///
/// **Source** AWS S3 API reference, DeleteObject.
pub async fn delete_object(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let condition = headers::delete_condition(&request.headers)?;
    let conditional = !condition.is_empty();
    let entry =
        DeleteEntry { key: request.key()?.clone(), version: request.version_id()?, condition };
    let outcomes = s3.store.delete_objects(request.bucket()?.id, vec![entry]).await?;
    let outcome = outcomes
        .into_iter()
        .next()
        .ok_or_else(|| S3Error::internal("a delete without an outcome"))?;
    match outcome {
        // What is not there is deleted already.
        Err(CommitError::NoSuchKey | CommitError::NoSuchVersion) if !conditional => {}
        Err(error) => return Err(error.into()),
        Ok(_) => {}
    }
    Ok(response::empty(StatusCode::NO_CONTENT))
}
