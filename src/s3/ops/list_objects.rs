//! GET /bucket

use super::list_objects_v2::{next_position, page_of_keys, write_rows};
use super::listing::{ListParameters, Position, text};
use super::prelude::*;

/// **Source** AWS S3 API reference, ListObjects.
pub async fn list_objects(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let list = ListParameters::new(&request.query, "max-keys")?;
    let marker = text(&request.query, "marker");
    // A page that ended with a common prefix gave it as NextMarker.
    let is_prefix = list.is_common_prefix(&marker);
    let after = Position { name: marker.clone(), is_prefix };
    let page = page_of_keys(s3, request, &list, after).await?;
    let mut xml = XmlWriter::document("ListBucketResult", 1024 + 640 * page.rows.len());
    xml.element("Name", request.bucket()?.name.as_str());
    // Clients of this version decode the names below, but not the prefix that they sent.
    xml.element("Prefix", &list.prefix);
    list.echo_rest(&mut xml);
    list.show(&mut xml, "Marker", &marker);
    if let Some(position) = next_position(&page).filter(|_| !list.delimiter.is_empty()) {
        list.show(&mut xml, "NextMarker", &position.name);
    }
    xml.number("MaxKeys", list.rows_max as u64);
    xml.element("IsTruncated", if page.truncated { "true" } else { "false" });
    write_rows(&mut xml, &list, &page, Some(request.caller()));
    Ok(response::xml(xml.finish()))
}
