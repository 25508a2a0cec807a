//! PUT /bucket/key?partNumber=N&uploadId=U

use super::prelude::*;
use super::upload::{UploadPlan, receive};
use crate::store::PutPart;

/// **Errors** `NoSuchUpload`, before the body and again at the commit.
/// **Source** AWS S3 API reference, UploadPart.
pub async fn upload_part(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let bucket = request.bucket()?.id;
    let key = request.key()?.clone();
    let (id, number) = (request.upload_id()?, request.part_number()?);
    let plan = UploadPlan::new(s3, request)?;
    let upload = s3.store.upload(bucket, &key, id).await?;
    let wanted = upload.checksum.map(|(algorithm, _)| algorithm);
    plan.check_algorithm(wanted)?;
    let received =
        receive(s3, request, plan, wanted.unwrap_or(ChecksumAlgorithm::Crc64Nvme)).await?;
    let put = PutPart {
        bucket,
        key,
        upload: id,
        number,
        checksum: received.checksum,
        written: received.written,
    };
    let part = s3.store.put_part(put).await?;
    let mut response = response::empty(StatusCode::OK);
    let headers = response.headers_mut();
    let etag = ETag { md5: part.md5, parts: 0 };
    headers.insert(ETAG, response::header_value(&quoted_etag(&etag)));
    if let Some(checksum) = &part.checksum {
        response::add_checksum_value(headers, checksum, 0);
    }
    Ok(response)
}
