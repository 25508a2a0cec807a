//! POST /bucket/key?uploadId=U

use super::prelude::*;
use crate::model::Checksum;
use crate::model::commit::CompletedPart;
use crate::store::CompleteUpload;

/// The most parts of an upload.
const PARTS_MAX: usize = 10_000;

/// Makes the object of its parts. It is catalog work only, so that the answer needs no early
/// white space; a repeated request gets the same answer.
///
/// **Errors** `MalformedXML`, `InvalidPart`, `InvalidPartOrder`, `EntityTooSmall`, `NoSuchUpload`,
/// `PreconditionFailed`, `BadDigest`, `InvalidRequest` when `x-amz-mp-object-size` differs.
/// **Source** AWS S3 API reference, CompleteMultipartUpload.
pub async fn complete_multipart_upload(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let id = request.upload_id()?;
    let condition = headers::write_condition(&request.headers)?;
    let expected_checksum = headers::whole_object_checksum(&request.headers)?;
    let expected_size = headers::number(&request.headers, "x-amz-mp-object-size")?;
    let (bucket, key) = (request.bucket()?.clone(), request.key()?.clone());
    let body = request.read_document_about_object(s3).await?;
    let parts = parts_of(&body)?;
    let complete = CompleteUpload {
        bucket: bucket.id,
        key: key.clone(),
        upload: id,
        parts,
        expected_size,
        expected_checksum,
        condition,
    };
    let version = s3.store.complete_upload(complete).await?;
    let location = format!("/{}/{}", bucket.name, key);
    let mut xml = XmlWriter::document("CompleteMultipartUploadResult", 1024);
    xml.element("Location", &location);
    xml.element("Bucket", bucket.name.as_str());
    xml.element("Key", key.as_str());
    xml.element("ETag", &quoted_etag(&version.etag));
    // The answer to a repeated request comes without its parts; the ETag has their number.
    let parts = version.etag.parts as usize;
    super::listing::write_checksum(&mut xml, version.checksum.as_ref(), parts);
    let mut answer = response::xml(xml.finish());
    response::add_new_version(answer.headers_mut(), &version);
    Ok(answer)
}

fn parts_of(body: &[u8]) -> Result<Vec<CompletedPart>, S3Error> {
    let root = xml::parse(body)?;
    root.expect_name("CompleteMultipartUpload")?;
    let malformed = || S3Error::new(S3ErrorCode::MalformedXML);
    let mut parts = Vec::new();
    for part in root.children_named("Part") {
        let number = part.child_text("PartNumber").and_then(|text| text.trim().parse().ok());
        let etag = part.child_text("ETag").map(|text| text.trim().trim_matches('"').to_owned());
        parts.push(CompletedPart {
            number: number.ok_or_else(malformed)?,
            etag: etag.ok_or_else(malformed)?,
            checksum: checksum_of(part)?,
        });
    }
    if parts.is_empty() || parts.len() > PARTS_MAX {
        return Err(malformed());
    }
    Ok(parts)
}

/// The first checksum element of a part.
fn checksum_of(part: &xml::Element<'_>) -> Result<Option<Checksum>, S3Error> {
    for algorithm in ChecksumAlgorithm::ALL {
        let Some(text) = part.child_text(algorithm.element()) else { continue };
        return headers::checksum_value(algorithm, text.trim()).map(Some);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(parts: &str) -> String {
        format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
    }

    #[test]
    fn cli_02_unknown_elements_are_ignored_and_an_etag_is_needed() {
        let part = "<Part>\n <X/><ETag>&quot;e&quot;</ETag> <PartNumber>1</PartNumber></Part>";
        let parts = parts_of(document(part).as_bytes()).expect("parses");
        assert_eq!((parts[0].number, parts[0].etag.as_str()), (1, "e"));
        for wrong in ["", "<Part><PartNumber>1</PartNumber></Part>", "<Part><ETag>e</ETag></Part>"]
        {
            let error = parts_of(document(wrong).as_bytes()).expect_err("malformed");
            assert_eq!(error.code(), S3ErrorCode::MalformedXML);
        }
    }

    #[test]
    fn mpu_05_an_empty_body_is_malformed() {
        assert!(parts_of(b"").is_err());
    }
}
