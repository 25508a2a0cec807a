//! POST /bucket/key?uploads

use super::prelude::*;
use crate::model::{ChecksumKind, Upload, UploadId};

/// **Errors** `InvalidRequest` for a checksum type that the algorithm does not have.
/// **Source** AWS S3 API reference, CreateMultipartUpload.
pub async fn create_multipart_upload(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let metadata = super::metadata::of_write(&request.headers)?;
    public_access::check_acl(request.bucket()?, metadata.acl)?;
    let checksum = checksum_of(&request.headers)?;
    let id = UploadId(s3.rng.bytes());
    let upload = Upload {
        id,
        bucket: request.bucket()?.id,
        key: request.key()?.clone(),
        initiated_ms: s3.clock.now_ms(),
        owner: request.caller().canonical_id.clone(),
        metadata,
        checksum,
    };
    s3.store.create_upload(upload).await?;
    let mut xml = XmlWriter::document("InitiateMultipartUploadResult", 512);
    xml.element("Bucket", request.bucket()?.name.as_str());
    xml.element("Key", request.key()?.as_str());
    xml.element("UploadId", &id.to_string());
    let mut response = response::xml(xml.finish());
    if let Some((algorithm, kind)) = checksum {
        let headers = response.headers_mut();
        let name = HeaderValue::from_static(algorithm.name());
        headers.insert(HeaderName::from_static("x-amz-checksum-algorithm"), name);
        let kind = HeaderValue::from_static(kind.name());
        headers.insert(HeaderName::from_static("x-amz-checksum-type"), kind);
    }
    Ok(response)
}

/// The checksum that the upload's parts will have. Without a type CRC64NVME is of the whole
/// object and all others are composite, as AWS has it.
fn checksum_of(headers: &HeaderMap) -> Result<Option<(ChecksumAlgorithm, ChecksumKind)>, S3Error> {
    let invalid = |message: String| S3Error::new(S3ErrorCode::InvalidRequest).message(message);
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(name) = text("x-amz-checksum-algorithm") else {
        return match text("x-amz-checksum-type") {
            None => Ok(None),
            Some(_) => Err(invalid(
                "The x-amz-checksum-type header can only be used with the \
                 x-amz-checksum-algorithm header."
                    .into(),
            )),
        };
    };
    let algorithm = ChecksumAlgorithm::parse(name).ok_or_else(|| {
        invalid(
            "Checksum algorithm provided is unsupported. Please try again with any of the \
                 valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]"
                .into(),
        )
    })?;
    use ChecksumAlgorithm::{Crc64Nvme, Sha1, Sha256};
    let kind = match text("x-amz-checksum-type").map(str::to_ascii_uppercase).as_deref() {
        None if algorithm == Crc64Nvme => ChecksumKind::FullObject,
        None | Some("COMPOSITE") if algorithm != Crc64Nvme => ChecksumKind::Composite,
        Some("FULL_OBJECT") if !matches!(algorithm, Sha1 | Sha256) => ChecksumKind::FullObject,
        Some(kind @ ("COMPOSITE" | "FULL_OBJECT")) => {
            return Err(invalid(format!(
                "The {kind} checksum type cannot be used with the {} checksum algorithm.",
                algorithm.name().to_ascii_lowercase()
            )));
        }
        None | Some(_) => {
            return Err(invalid("Value for x-amz-checksum-type header is invalid.".into()));
        }
    };
    Ok(Some((algorithm, kind)))
}
