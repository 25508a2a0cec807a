//! POST /bucket?delete

use super::prelude::*;
use crate::model::WriteCondition;
use crate::model::commit::DeleteEntry;
use crate::model::ids::KeyError;
use crate::s3::{etag, object_lock, time};

/// The most entries of one request, as AWS has it.
const ENTRIES_MAX: usize = 1000;

/// An entry as the client named it.
struct Named {
    key: String,
    version: Option<String>,
    /// True when a condition is set on it, so that a missing key is an error.
    conditional: bool,
}

/// Deletes up to 1,000 keys in one commit; each has its own outcome.
///
/// **Errors** `InvalidRequest` without a checksum of the document, `BadDigest` when it differs,
/// `MalformedXML`. **Source** AWS S3 API reference, DeleteObjects.
pub async fn delete_objects(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let body = request.read_checked_document(s3).await?;
    let root = xml::parse(&body)?;
    root.expect_name("Delete")?;
    let quiet = root.child_text("Quiet").is_some_and(|text| text.trim() == "true");
    let objects: Vec<_> = root.children_named("Object").collect();
    if objects.is_empty() || objects.len() > ENTRIES_MAX {
        return Err(S3Error::new(S3ErrorCode::MalformedXML));
    }
    let mut xml = XmlWriter::document("DeleteResult", 256 + 128 * objects.len());
    let mut names = Vec::with_capacity(objects.len());
    let mut entries = Vec::with_capacity(objects.len());
    for object in objects {
        let key = object.child_text("Key").ok_or(S3ErrorCode::MalformedXML)?.to_owned();
        let version = object.child_text("VersionId").filter(|text| !text.is_empty());
        let mut named = Named { key, version: version.map(str::to_owned), conditional: false };
        let entry = entry_of(object, &mut named);
        match entry.and_then(|entry| may_remove(request, &entry).map(|()| entry)) {
            Ok(entry) => {
                entries.push(entry);
                names.push(named);
            }
            Err(error) => write_error(&mut xml, &named, &error),
        }
    }
    let (bucket, owner) = (request.bucket()?, request.caller().canonical_id.clone());
    let bypass = object_lock::bypasses(&request.headers, request.caller(), bucket);
    let outcomes = match entries.is_empty() {
        true => Vec::new(),
        false => s3.store.delete_objects(bucket.id, owner, bypass, entries).await?,
    };
    for (named, outcome) in names.iter().zip(outcomes) {
        match outcome {
            Ok(deleted) if !quiet => write_deleted(&mut xml, named, deleted.marker),
            Ok(_) => {}
            Err(CommitError::NoSuchKey | CommitError::NoSuchVersion) if !named.conditional => {
                if !quiet {
                    write_deleted(&mut xml, named, None);
                }
            }
            Err(error) => write_error(&mut xml, named, &error.into()),
        }
    }
    Ok(response::xml(xml.finish()))
}

/// **Errors** those of one entry, which do not stop the others.
fn entry_of(object: &xml::Element<'_>, named: &mut Named) -> Result<DeleteEntry, S3Error> {
    let mut condition = WriteCondition::default();
    if let Some(text) = object.child_text("ETag") {
        condition.if_match = Some(etag::parse_list(text));
    }
    if let Some(text) = object.child_text("Size") {
        let size = text.trim().parse().map_err(|_| S3ErrorCode::InvalidArgument)?;
        condition.if_match_size = Some(size);
    }
    if let Some(text) = object.child_text("LastModifiedTime") {
        let secs = time::parse_http_date(text).or_else(|| time::parse_iso_date(text));
        condition.if_match_modified_secs = Some(secs.ok_or(S3ErrorCode::InvalidArgument)?);
    }
    named.conditional = !condition.is_empty();
    let version = match named.version.as_deref() {
        None => None,
        Some(text) => Some(VersionId::parse(text).ok_or(S3ErrorCode::NoSuchVersion)?),
    };
    let key = Key::new(&named.key).map_err(|error| match error {
        KeyError::Empty => S3ErrorCode::MalformedXML,
        KeyError::TooLong { .. } => S3ErrorCode::KeyTooLongError,
    })?;
    Ok(DeleteEntry { key, version, condition })
}

/// What the whole request was not judged by: that an entry names a version.
///
/// **Errors** `AccessDenied`.
fn may_remove(request: &S3Request<'_>, entry: &DeleteEntry) -> Result<(), S3Error> {
    let asked = Asked {
        operation: Operation::DeleteObject,
        bucket: Some(request.bucket()?),
        key: Some(&entry.key),
        versioned: entry.version.is_some(),
        object: None,
        expected_owner: None,
    };
    authorise(request.caller(), asked)
}

fn write_deleted(xml: &mut XmlWriter, named: &Named, marker: Option<VersionId>) {
    xml.open("Deleted");
    xml.element("Key", &named.key);
    if let Some(version) = &named.version {
        xml.element("VersionId", version);
    }
    if let Some(marker) = marker {
        xml.element("DeleteMarker", "true");
        xml.element("DeleteMarkerVersionId", &marker.to_string());
    }
    xml.close("Deleted");
}

fn write_error(xml: &mut XmlWriter, named: &Named, error: &S3Error) {
    xml.open("Error");
    xml.element("Key", &named.key);
    if let Some(version) = &named.version {
        xml.element("VersionId", version);
    }
    xml.element("Code", error.code().as_str());
    xml.element("Message", error.client_message());
    xml.close("Error");
}
