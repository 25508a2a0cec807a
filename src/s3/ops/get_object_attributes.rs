//! GET /bucket/key?attributes

use super::listing::write_checksum;
use super::prelude::*;
use crate::s3::response::checksum_text;

/// The most parts of one answer.
const PARTS_MAX: usize = 1000;

/// **Errors** `InvalidArgument` for an attribute that there is not, or for none.
/// **Source** AWS S3 API reference, GetObjectAttributes.
pub async fn get_object_attributes(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let wanted = wanted(&request.headers)?;
    let version = super::get_object::find(s3, request).await?;
    let mut xml = XmlWriter::document("GetObjectAttributesResponse", 1024);
    for attribute in ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"] {
        if !wanted.iter().any(|name| name == attribute) {
            continue;
        }
        match attribute {
            "ETag" => xml.element("ETag", &version.etag.to_string()),
            "Checksum" if version.checksum.is_some() => {
                xml.open("Checksum");
                write_checksum(&mut xml, version.checksum.as_ref(), version.etag.parts as usize);
                xml.close("Checksum");
            }
            "ObjectParts" if !version.parts.is_empty() => write_parts(&mut xml, request, &version)?,
            "StorageClass" => {
                let class = version.metadata.storage_class.as_deref().unwrap_or("STANDARD");
                xml.element("StorageClass", class);
            }
            "ObjectSize" => xml.number("ObjectSize", version.size),
            _ => {}
        }
    }
    let mut response = response::xml(xml.finish());
    let modified = response::displayed(crate::s3::time::http_date(version.modified_ms));
    response.headers_mut().insert(http::header::LAST_MODIFIED, modified);
    response::add_version_of(response.headers_mut(), request.bucket()?, &version);
    Ok(response)
}

fn wanted(headers: &HeaderMap) -> Result<Vec<String>, S3Error> {
    const KNOWN: [&str; 5] = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];
    let invalid = |value: &str| {
        S3Error::new(S3ErrorCode::InvalidArgument)
            .message("Invalid attribute name specified.")
            .argument("x-amz-object-attributes", value)
    };
    let mut wanted = Vec::new();
    for value in headers.get_all("x-amz-object-attributes") {
        for name in value.to_str().unwrap_or_default().split(',').map(str::trim) {
            if !KNOWN.contains(&name) {
                return Err(invalid(name));
            }
            wanted.push(name.to_owned());
        }
    }
    if wanted.is_empty() {
        return Err(S3Error::new(S3ErrorCode::InvalidRequest).message(
            "The x-amz-object-attributes header specifying the attributes to be \
                      retrieved is either missing or empty",
        ));
    }
    Ok(wanted)
}

fn write_parts(
    xml: &mut XmlWriter,
    request: &S3Request<'_>,
    version: &ObjectVersion,
) -> Result<(), S3Error> {
    let number = |name| headers::number(&request.headers, name);
    let limit = number("x-amz-max-parts")?.map_or(PARTS_MAX, |n| (n as usize).min(PARTS_MAX));
    let marker = number("x-amz-part-number-marker")?.unwrap_or(0);
    let after = version.parts.iter().filter(|part| u64::from(part.number) > marker);
    let rest: Vec<_> = after.collect();
    let shown = &rest[..rest.len().min(limit)];
    xml.open("ObjectParts");
    xml.number("PartsCount", version.parts.len() as u64);
    xml.number("PartNumberMarker", marker);
    if let Some(last) = shown.last() {
        xml.number("NextPartNumberMarker", u64::from(last.number));
    }
    xml.number("MaxParts", limit as u64);
    xml.element("IsTruncated", if shown.len() < rest.len() { "true" } else { "false" });
    for part in shown {
        xml.open("Part");
        xml.number("PartNumber", u64::from(part.number));
        xml.number("Size", part.size);
        if let Some(checksum) = &part.checksum {
            xml.element(checksum.algorithm.element(), &checksum_text(checksum, 0));
        }
        xml.close("Part");
    }
    xml.close("ObjectParts");
    Ok(())
}
