//! PUT /bucket/key?partNumber=N&uploadId=U with x-amz-copy-source

use super::prelude::*;
use crate::store::CopyPart;

/// Makes a part from an object or a range of it.
///
/// **Errors** `InvalidArgument` for a range that is not `bytes=first-last`, `InvalidRange` for one
/// that ends behind the source.
/// **Source** AWS S3 API reference, UploadPartCopy.
pub async fn upload_part_copy(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let (bucket, key) = (request.bucket()?.id, request.key()?.clone());
    let (id, number) = (request.upload_id()?, request.part_number()?);
    let upload = s3.store.upload(bucket, &key, id).await?;
    let source = super::copy_source::find(s3, request).await?;
    let range = match request.headers.get("x-amz-copy-source-range") {
        None => (0, source.version.size),
        Some(value) => range_of(value, source.version.size)?,
    };
    if range.1 > s3.settings.limits.put_bytes_max {
        return Err(S3Error::new(S3ErrorCode::InvalidRequest).message(
            "The specified copy source is larger than the maximum allowable size for a copy \
             source: 5368709120",
        ));
    }
    let algorithm = upload.checksum.map_or(ChecksumAlgorithm::Crc64Nvme, |(wanted, _)| wanted);
    let source_id = source.version_id();
    let copy = CopyPart {
        bucket,
        key,
        upload: id,
        number,
        source_bucket: source.bucket.id,
        source_key: source.key,
        source: source.version,
        range,
        checksum: Some(algorithm),
    };
    let part = s3.store.copy_part(copy).await?;
    let mut xml = XmlWriter::document("CopyPartResult", 512);
    xml.element("LastModified", &iso_date(part.modified_ms));
    xml.element("ETag", &quoted_etag(&ETag { md5: part.md5, parts: 0 }));
    super::listing::write_checksum(&mut xml, part.checksum.as_ref(), 0);
    let mut answer = response::xml(xml.finish());
    if let Some(id) = source_id {
        super::copy_source::add_version_id(answer.headers_mut(), id);
    }
    Ok(answer)
}

/// First byte and length. Only the full form is allowed here, unlike on GET.
fn range_of(value: &HeaderValue, size: u64) -> Result<(u64, u64), S3Error> {
    let text = String::from_utf8_lossy(value.as_bytes());
    let invalid = |message: String| {
        S3Error::new(S3ErrorCode::InvalidArgument)
            .message(message)
            .argument("x-amz-copy-source-range", &text)
    };
    let (first, last) = parse_range(&text).ok_or_else(|| {
        invalid(
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first \
             and last are the zero-based offsets of the first and last bytes to copy"
                .into(),
        )
    })?;
    if last >= size {
        return Err(S3Error::new(S3ErrorCode::InvalidRange)
            .message(format!("Range specified is not valid for source object of size: {size}")));
    }
    Ok((first, last - first + 1))
}

fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(first) || !digits(last) {
        return None;
    }
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mpu_14_only_first_and_last_are_a_range() {
        let wrong = [
            "0-2",
            "bytes=0",
            "bytes=abc-def",
            "bytes=0-",
            "bytes=-3",
            "bytes=0-2,3-5",
            "bytes=5-2",
        ];
        for text in wrong {
            assert_eq!(parse_range(text), None, "{text}");
        }
        assert_eq!(parse_range("bytes=0-2"), Some((0, 2)));
        assert!(range_of(&HeaderValue::from_static("bytes=0-9"), 10).is_ok());
        assert!(range_of(&HeaderValue::from_static("bytes=0-10"), 10).is_err());
    }
}
