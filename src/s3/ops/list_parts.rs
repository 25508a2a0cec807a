//! GET /bucket/key?uploadId=U

use super::listing::{rows_max, write_owner};
use super::prelude::*;

/// **Source** AWS S3 API reference, ListParts.
pub async fn list_parts(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let (bucket, key, id) = (request.bucket()?, request.key()?, request.upload_id()?);
    let upload = s3.store.upload(bucket.id, key, id).await?;
    let limit = rows_max(&request.query, "max-parts")?;
    let marker = marker_of(&request.query)?;
    let page = s3.store.list_parts(id, marker, limit.max(1)).await?;
    let shown = &page.rows[..page.rows.len().min(limit)];
    let mut xml = XmlWriter::document("ListPartsResult", 1024 + 300 * shown.len());
    xml.element("Bucket", bucket.name.as_str());
    xml.element("Key", key.as_str());
    xml.element("UploadId", &id.to_string());
    xml.number("PartNumberMarker", u64::from(marker));
    if let Some(last) = shown.last() {
        xml.number("NextPartNumberMarker", u64::from(last.number));
    }
    xml.number("MaxParts", limit as u64);
    xml.element("IsTruncated", if page.truncated && limit > 0 { "true" } else { "false" });
    if let Some((algorithm, kind)) = upload.checksum {
        xml.element("ChecksumAlgorithm", algorithm.name());
        xml.element("ChecksumType", kind.name());
    }
    for part in shown {
        write_part(&mut xml, part);
    }
    write_owner(&mut xml, "Initiator", &upload.owner, request.caller());
    write_owner(&mut xml, "Owner", &upload.owner, request.caller());
    let class = upload.metadata.storage_class.as_deref().unwrap_or("STANDARD");
    xml.element("StorageClass", class);
    Ok(response::xml(xml.finish()))
}

fn write_part(xml: &mut XmlWriter, part: &Part) {
    xml.open("Part");
    xml.number("PartNumber", u64::from(part.number));
    xml.element("LastModified", &iso_date(part.modified_ms));
    xml.element("ETag", &quoted_etag(&ETag { md5: part.md5, parts: 0 }));
    xml.number("Size", part.size);
    if let Some(checksum) = &part.checksum {
        xml.element(checksum.algorithm.element(), &response::checksum_text(checksum, 0));
    }
    xml.close("Part");
}

fn marker_of(query: &Query) -> Result<u32, S3Error> {
    match query.get("part-number-marker") {
        None | Some("") => Ok(0),
        Some(text) => text.parse().map_err(|_| {
            S3Error::new(S3ErrorCode::InvalidArgument).argument("part-number-marker", text)
        }),
    }
}
