//! GET /bucket?list-type=2

use super::listing::{ListParameters, Position, write_owner, write_version_facts};
use super::prelude::*;
use crate::store::{ListRow, ListedObject, Page};

/// **Source** AWS S3 API reference, ListObjectsV2.
pub async fn list_objects_v2(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let query = &request.query;
    if query.get("list-type") != Some("2") {
        return Err(S3Error::new(S3ErrorCode::InvalidArgument)
            .message("Invalid List Type specified in Request")
            .argument("list-type", query.get("list-type").unwrap_or_default()));
    }
    let list = ListParameters::new(query, "max-keys")?;
    let start_after = query.get("start-after").filter(|value| !value.is_empty());
    // An empty token is echoed, and starts at the beginning.
    let token = query.get("continuation-token");
    let after = match (token.filter(|token| !token.is_empty()), start_after) {
        (Some(token), _) => Position::from_token(token)?,
        (None, Some(key)) => Position::after_key(key),
        (None, None) => Position::default(),
    };
    let page = page_of_keys(s3, request, &list, after).await?;
    let mut xml = XmlWriter::document("ListBucketResult", 1024 + 512 * page.rows.len());
    xml.element("Name", request.bucket()?.name.as_str());
    list.echo(&mut xml);
    if let Some(key) = start_after {
        list.show(&mut xml, "StartAfter", key);
    }
    if let Some(token) = token {
        xml.element("ContinuationToken", token);
    }
    if let Some(position) = next_position(&page) {
        xml.element("NextContinuationToken", &position.to_token());
    }
    xml.number("KeyCount", page.rows.len() as u64);
    xml.number("MaxKeys", list.rows_max as u64);
    xml.element("IsTruncated", if page.truncated { "true" } else { "false" });
    let owner = query.get("fetch-owner") == Some("true");
    write_rows(&mut xml, &list, &page, owner.then_some(request.caller()));
    Ok(response::xml(xml.finish()))
}

/// One page of current keys. No rows wanted is no question to the catalog and no truncation.
pub async fn page_of_keys(
    s3: &S3State,
    request: &S3Request<'_>,
    list: &ListParameters,
    after: Position,
) -> Result<Page<ListRow<ListedObject>>, S3Error> {
    if list.rows_max == 0 {
        return Ok(Page { rows: Vec::new(), truncated: false });
    }
    Ok(s3.store.list_objects(request.bucket()?.id, &list.ask(after)).await?)
}

/// Where the next page starts; `None` on the last page.
pub fn next_position(page: &Page<ListRow<ListedObject>>) -> Option<Position> {
    match page.rows.last().filter(|_| page.truncated)? {
        ListRow::Item(object) => Some(Position::after_key(object.key.as_str())),
        ListRow::CommonPrefix(prefix) => Some(Position::after_prefix(prefix)),
    }
}

/// Contents first, CommonPrefixes behind them, as AWS does.
pub fn write_rows(
    xml: &mut XmlWriter,
    list: &ListParameters,
    page: &Page<ListRow<ListedObject>>,
    owner: Option<&User>,
) {
    for row in &page.rows {
        let ListRow::Item(object) = row else { continue };
        xml.open("Contents");
        list.show(xml, "Key", object.key.as_str());
        write_version_facts(xml, &object.version);
        if let Some(caller) = owner {
            write_owner(xml, "Owner", &object.version.owner, caller);
        }
        xml.close("Contents");
    }
    for row in &page.rows {
        if let ListRow::CommonPrefix(prefix) = row {
            list.common_prefix(xml, prefix);
        }
    }
}
