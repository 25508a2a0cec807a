//! PUT /bucket/key with x-amz-copy-source

use super::prelude::*;
use crate::model::ObjectMetadata;
use crate::store::CopyObject;

/// Whether the copy keeps what the source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directive {
    Copy,
    Replace,
}

/// Makes a key from another one's bytes; no byte is copied.
///
/// **Errors** `InvalidRequest` for a copy onto itself that changes nothing.
/// **Source** AWS S3 API reference, CopyObject.
pub async fn copy_object(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let headers = &request.headers;
    let (bucket, key) = (request.bucket()?, request.key()?);
    let metadata_directive = directive(headers, "x-amz-metadata-directive")?;
    let tagging_directive = directive(headers, "x-amz-tagging-directive")?;
    let condition = headers::write_condition(headers)?;
    let written = super::metadata::of_write(headers)?;
    public_access::check_acl(request.bucket()?, written.acl)?;
    let source = super::copy_source::find(s3, request).await?;
    let onto_itself = source.bucket.id == bucket.id && source.key == *key;
    let changes = metadata_directive == Directive::Replace
        || headers.contains_key("x-amz-storage-class")
        || headers.contains_key("x-amz-website-redirect-location");
    if onto_itself && !changes && !source.named {
        return Err(S3Error::new(S3ErrorCode::InvalidRequest).message(
            "This copy request is illegal because it is trying to copy an object to itself \
             without changing the object's metadata, storage class, website redirect location or \
             encryption attributes.",
        ));
    }
    if source.version.size > s3.settings.limits.put_bytes_max {
        return Err(S3Error::new(S3ErrorCode::InvalidRequest).message(
            "The specified copy source is larger than the maximum allowable size for a copy \
             source: 5368709120",
        ));
    }
    let metadata = merge(&source.version.metadata, written, metadata_directive, tagging_directive);
    let checksum = wanted_checksum(headers, &source.version)?;
    let source_id = source.version_id();
    let copy = CopyObject {
        bucket: bucket.id,
        key: key.clone(),
        owner: request.caller().canonical_id.clone(),
        source_bucket: source.bucket.id,
        source_key: source.key,
        source: source.version,
        metadata: Some(metadata),
        checksum,
        condition,
    };
    let version = s3.store.copy_object(copy).await?;
    let mut xml = XmlWriter::document("CopyObjectResult", 512);
    xml.element("LastModified", &iso_date(version.modified_ms));
    xml.element("ETag", &quoted_etag(&version.etag));
    super::listing::write_checksum(
        &mut xml,
        version.checksum.as_ref(),
        version.etag.parts as usize,
    );
    let mut answer = response::xml(xml.finish());
    response::add_new_version(answer.headers_mut(), &version);
    if let Some(id) = source_id {
        super::copy_source::add_version_id(answer.headers_mut(), id);
    }
    Ok(answer)
}

fn directive(headers: &HeaderMap, name: &str) -> Result<Directive, S3Error> {
    match headers.get(name).map(HeaderValue::as_bytes) {
        None | Some(b"COPY") => Ok(Directive::Copy),
        Some(b"REPLACE") => Ok(Directive::Replace),
        Some(other) => Err(S3Error::new(S3ErrorCode::InvalidArgument)
            .message("Unknown directive.")
            .argument(name, &String::from_utf8_lossy(other))),
    }
}

/// The copy's metadata. Storage class, website redirect, access list and lock are never the
/// source's.
fn merge(
    source: &ObjectMetadata,
    written: ObjectMetadata,
    metadata: Directive,
    tagging: Directive,
) -> ObjectMetadata {
    let tags = match tagging {
        Directive::Copy => source.tags.clone(),
        Directive::Replace => written.tags.clone(),
    };
    match metadata {
        Directive::Replace => ObjectMetadata { tags, ..written },
        Directive::Copy => ObjectMetadata {
            tags,
            storage_class: written.storage_class,
            website_redirect: written.website_redirect,
            acl: written.acl,
            retention: written.retention,
            legal_hold: written.legal_hold,
            ..source.clone()
        },
    }
}

/// An algorithm whose value the source does not have, so that its bytes must be read once.
fn wanted_checksum(
    headers: &HeaderMap,
    source: &ObjectVersion,
) -> Result<Option<ChecksumAlgorithm>, S3Error> {
    let has = source.checksum.as_ref().map(|checksum| checksum.algorithm);
    let Some(value) = headers.get("x-amz-checksum-algorithm") else { return Ok(None) };
    let wanted = value.to_str().ok().and_then(ChecksumAlgorithm::parse).ok_or_else(|| {
        S3Error::new(S3ErrorCode::InvalidRequest)
            .message("Checksum algorithm provided is unsupported.")
    })?;
    Ok(Some(wanted).filter(|wanted| has != Some(*wanted)))
}
