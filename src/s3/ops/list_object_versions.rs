//! GET /bucket?versions

use super::listing::{ListParameters, Position, text, write_owner, write_version_facts};
use super::prelude::*;
use crate::store::{ListRow, ListedVersion, Page};

/// **Source** AWS S3 API reference, ListObjectVersions.
pub async fn list_object_versions(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let list = ListParameters::new(&request.query, "max-keys")?;
    let key_marker = text(&request.query, "key-marker");
    let version_marker = text(&request.query, "version-id-marker");
    let after_version = version_marker_of(&key_marker, &version_marker)?;
    let is_prefix = list.is_common_prefix(&key_marker);
    let after = Position { name: key_marker.clone(), is_prefix };
    let page = if list.rows_max == 0 {
        Page { rows: Vec::new(), truncated: false }
    } else {
        let bucket = request.bucket()?.id;
        s3.store.list_versions(bucket, &list.ask(after), after_version).await?
    };
    let mut xml = XmlWriter::document("ListVersionsResult", 1024 + 700 * page.rows.len());
    xml.element("Name", request.bucket()?.name.as_str());
    list.echo(&mut xml);
    list.show(&mut xml, "KeyMarker", &key_marker);
    xml.element("VersionIdMarker", &version_marker);
    write_next(&mut xml, &list, &page);
    xml.number("MaxKeys", list.rows_max as u64);
    xml.element("IsTruncated", if page.truncated { "true" } else { "false" });
    for row in &page.rows {
        match row {
            ListRow::Item(listed) => write_version(&mut xml, &list, listed, request.caller()),
            ListRow::CommonPrefix(prefix) => list.common_prefix(&mut xml, prefix),
        }
    }
    Ok(response::xml(xml.finish()))
}

fn version_marker_of(key_marker: &str, marker: &str) -> Result<Option<VersionId>, S3Error> {
    let error = |message| {
        let error = S3Error::new(S3ErrorCode::InvalidArgument).message(message);
        Err(error.argument("version-id-marker", marker))
    };
    match marker {
        "" => Ok(None),
        _ if key_marker.is_empty() => {
            error("A version-id marker cannot be specified without a key marker.")
        }
        _ => match VersionId::parse(marker) {
            Some(version) => Ok(Some(version)),
            None => error("Invalid version id specified"),
        },
    }
}

fn write_next(xml: &mut XmlWriter, list: &ListParameters, page: &Page<ListRow<ListedVersion>>) {
    match page.rows.last().filter(|_| page.truncated) {
        None => {}
        Some(ListRow::CommonPrefix(prefix)) => list.show(xml, "NextKeyMarker", prefix),
        Some(ListRow::Item(listed)) => {
            list.show(xml, "NextKeyMarker", listed.key.as_str());
            xml.element("NextVersionIdMarker", &listed.version.version_id.to_string());
        }
    }
}

fn write_version(
    xml: &mut XmlWriter,
    list: &ListParameters,
    listed: &ListedVersion,
    caller: &User,
) {
    let element = if listed.version.delete_marker { "DeleteMarker" } else { "Version" };
    xml.open(element);
    list.show(xml, "Key", listed.key.as_str());
    xml.element("VersionId", &listed.version.version_id.to_string());
    xml.element("IsLatest", if listed.is_latest { "true" } else { "false" });
    if listed.version.delete_marker {
        xml.element("LastModified", &iso_date(listed.version.modified_ms));
    } else {
        write_version_facts(xml, &listed.version);
    }
    write_owner(xml, "Owner", &listed.version.owner, caller);
    xml.close(element);
}
