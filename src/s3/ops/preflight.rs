//! OPTIONS: the question that a browser asks before a request to another origin.

use super::prelude::*;
use crate::s3::cors;

/// Answers by the bucket's CORS rules. Needs no signature: browsers send none.
///
/// **Errors** `BadRequest` for what is no preflight request, else `AccessForbidden`.
/// **Source** AWS S3 user guide, "Using cross-origin resource sharing".
pub fn preflight(bucket: Option<&Bucket>, names_object: bool, headers: &HeaderMap) -> S3Result {
    let allowed = cors::preflight(bucket, names_object, headers)?;
    let mut answer = response::empty(StatusCode::OK);
    answer.headers_mut().extend(allowed);
    answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    Ok(answer)
}
