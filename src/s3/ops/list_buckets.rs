//! GET /

use super::listing::{text, write_owner};
use super::prelude::*;

/// The most buckets of one page, and of an answer without `max-buckets`.
const BUCKETS_MAX: usize = 10_000;

/// **Source** AWS S3 API reference, ListBuckets.
pub async fn list_buckets(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let caller = request.caller();
    let prefix = text(&request.query, "prefix");
    let after = match request.query.get("continuation-token") {
        None => String::new(),
        Some(token) => super::listing::Position::from_token(token)?.name,
    };
    let limit = buckets_max(&request.query)?;
    let owner = Some(caller.canonical_id.as_str());
    let page = s3.store.list_buckets(owner, &prefix, &after, limit).await?;
    let mut xml = XmlWriter::document("ListAllMyBucketsResult", 512 + 160 * page.rows.len());
    xml.open("Buckets");
    for bucket in &page.rows {
        xml.open("Bucket");
        xml.element("Name", bucket.name.as_str());
        xml.element("CreationDate", &iso_date(bucket.created_ms));
        xml.element("BucketRegion", s3.region_of(bucket));
        xml.close("Bucket");
    }
    xml.close("Buckets");
    write_owner(&mut xml, "Owner", &caller.canonical_id, caller);
    if let Some(last) = page.rows.last().filter(|_| page.truncated) {
        let next = super::listing::Position::after_key(last.name.as_str());
        xml.element("ContinuationToken", &next.to_token());
    }
    if !prefix.is_empty() {
        xml.element("Prefix", &prefix);
    }
    Ok(response::xml(xml.finish()))
}

fn buckets_max(query: &Query) -> Result<usize, S3Error> {
    let Some(value) = query.get("max-buckets") else { return Ok(BUCKETS_MAX) };
    match value.parse::<usize>() {
        Ok(n) if (1..=BUCKETS_MAX).contains(&n) => Ok(n),
        _ => Err(S3Error::new(S3ErrorCode::InvalidArgument)
            .message("max-buckets must be a number from 1 to 10000")
            .argument("max-buckets", value)),
    }
}
