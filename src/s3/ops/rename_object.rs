//! PUT /bucket/key?renameObject

use super::prelude::*;
use crate::s3::etag;
use crate::store::StoreError;

/// Moves an object to another key of its bucket in one commit; no byte is copied. Here it works in
/// every bucket, also where versions are kept: the old key then gets a delete marker.
///
/// **Errors** `InvalidRequest` without a source, `NoSuchKey`, `PreconditionFailed` for conditions
/// on the source (`x-amz-rename-source-if-*`) or on what stands under the new key (`If-*`);
/// `ConditionalRequestConflict` when the source changes meanwhile.
/// **Source** AWS S3 API reference, RenameObject.
pub async fn rename_object(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let (bucket, to) = (request.bucket()?.id, request.key()?.clone());
    let from = source_key(&request.headers, request.bucket()?.name.as_str())?;
    let source = s3.store.lookup(bucket, &from, None).await?;
    if source.delete_marker {
        return Err(S3Error::new(S3ErrorCode::NoSuchKey).detail("Key", from.as_str()));
    }
    etag::check_rename_source(&request.headers, &source)?;
    if from == to {
        return Err(S3Error::new(S3ErrorCode::InvalidRequest)
            .message("The source and the destination of a rename are the same key."));
    }
    let condition = headers::write_condition(&request.headers)?;
    check_destination(s3, request, &to).await?;
    s3.store.rename_object(bucket, from, &source, to, condition).await?;
    Ok(response::empty(StatusCode::OK))
}

/// The key in the header: percent-encoded, alone or behind `/bucket/`.
fn source_key(headers: &HeaderMap, bucket: &str) -> Result<Key, S3Error> {
    let Some(value) = headers.get("x-amz-rename-source") else {
        return Err(S3Error::new(S3ErrorCode::InvalidRequest)
            .message("Missing required header for this request: x-amz-rename-source"));
    };
    let invalid = || {
        S3Error::new(S3ErrorCode::InvalidArgument)
            .argument("x-amz-rename-source", &String::from_utf8_lossy(value.as_bytes()))
    };
    let text = value.to_str().ok().and_then(crate::s3::host::percent_decode);
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(invalid)?;
    let in_bucket = text.strip_prefix('/').and_then(|rest| rest.strip_prefix(bucket));
    let key = in_bucket.and_then(|rest| rest.strip_prefix('/')).unwrap_or(&text);
    Key::new(key).map_err(|_| invalid())
}

/// The conditions on what stands under the new key. Entity tags are judged again at the commit;
/// times are judged here alone.
async fn check_destination(s3: &S3State, request: &S3Request<'_>, to: &Key) -> Result<(), S3Error> {
    match s3.store.lookup(request.bucket()?.id, to, None).await {
        Ok(found) if !found.delete_marker => etag::check_destination(&request.headers, &found),
        Ok(_) | Err(StoreError::NoSuchKey) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
