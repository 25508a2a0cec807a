//! OPTIONS: the question that a browser asks before a request to another origin.

use super::prelude::*;

/// No bucket has CORS rules, so that no origin is allowed. Needs no signature.
///
/// **Errors** `BadRequest` for what is no preflight request, else `AccessForbidden`.
/// **Source** AWS S3 user guide, "Using cross-origin resource sharing".
pub fn preflight(headers: &HeaderMap) -> S3Result {
    if !headers.contains_key("origin") {
        return Err(S3Error::new(S3ErrorCode::BadRequest)
            .message("Insufficient information. Origin request header needed."));
    }
    if !headers.contains_key("access-control-request-method") {
        return Err(S3Error::new(S3ErrorCode::BadRequest)
            .message("Invalid Access-Control-Request-Method: null"));
    }
    Err(S3Error::new(S3ErrorCode::AccessForbidden)
        .message("CORSResponse: CORS is not enabled for this bucket."))
}
