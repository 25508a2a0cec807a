//! PUT /bucket/key

use super::prelude::*;
use super::upload::{UploadPlan, receive};
use crate::store::PutObject;

/// Stores an object. Everything that can be refused is refused before the body is asked for.
///
/// **Errors** see docs/semantics.md. **Cancel** Nothing is stored unless the commit was reached.
/// **Source** AWS S3 API reference, PutObject.
pub async fn put_object(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let bucket = request.bucket()?.id;
    let key = request.key()?.clone();
    let metadata = super::metadata::of_write(&request.headers)?;
    public_access::check_acl(request.bucket()?, metadata.acl)?;
    let condition = headers::write_condition(&request.headers)?;
    let plan = UploadPlan::new(s3, request)?;
    plan.check_lock(&request.headers)?;
    s3.store.check_write(bucket, &key, &condition).await?;
    let received = receive(s3, request, plan, ChecksumAlgorithm::Crc64Nvme).await?;
    let put = PutObject {
        bucket,
        key,
        owner: request.caller().canonical_id.clone(),
        metadata,
        checksum: received.checksum,
        condition,
        written: received.written,
    };
    let version = s3.store.put_object(put).await?;
    let mut response = response::empty(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(ETAG, response::header_value(&quoted_etag(&version.etag)));
    response::add_new_version(headers, &version);
    if let Some(checksum) = &version.checksum {
        response::add_checksum(headers, checksum, 0);
    }
    Ok(response)
}
