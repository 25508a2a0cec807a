//! GET ?acl of buckets and objects, and the ACL headers of writes.
//!
//! There are no ACLs here: the owner of a bucket has full control of all in it, nobody else has
//! any. Canned ACLs are accepted, because SDKs and tools send them by default, and open nothing:
//! what a client stores is never more public than it asked for. Grants to named users, which
//! somebody would rely on, are refused.

use super::prelude::*;

/// The canned ACLs that there are.
const CANNED: [&str; 8] = [
    "private",
    "public-read",
    "public-read-write",
    "authenticated-read",
    "aws-exec-read",
    "bucket-owner-read",
    "bucket-owner-full-control",
    "log-delivery-write",
];

/// Judges the ACL headers of a write.
///
/// **Errors** `InvalidArgument` for an unknown canned ACL, `AccessControlListNotSupported` for
/// grants, as a bucket with ACLs turned off answers.
/// **Source** AWS S3 user guide, "Controlling ownership of objects and disabling ACLs".
pub fn check_headers(headers: &HeaderMap) -> Result<(), S3Error> {
    if headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-")) {
        return Err(S3Error::new(S3ErrorCode::AccessControlListNotSupported));
    }
    let Some(value) = headers.get("x-amz-acl") else { return Ok(()) };
    let text = String::from_utf8_lossy(value.as_bytes());
    if CANNED.contains(&&*text) {
        return Ok(());
    }
    Err(S3Error::new(S3ErrorCode::InvalidArgument).argument("x-amz-acl", &text))
}

/// **Source** AWS S3 API reference, GetObjectAcl.
pub async fn get_object_acl(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let version = super::get_object::find(s3, request).await?;
    Ok(full_control(&version.owner, request.caller()))
}

/// **Source** AWS S3 API reference, GetBucketAcl.
pub async fn get_bucket_acl(request: &S3Request<'_>) -> S3Result {
    Ok(full_control(&request.bucket()?.owner, request.caller()))
}

/// The document of an ACL with one grant: FULL_CONTROL for the owner.
fn full_control(owner: &OwnerId, caller: &User) -> Response {
    let mut xml = XmlWriter::document("AccessControlPolicy", 512);
    super::listing::write_owner(&mut xml, "Owner", owner, caller);
    xml.open("AccessControlList");
    xml.open("Grant");
    let schema = "http://www.w3.org/2001/XMLSchema-instance";
    xml.open_with("Grantee", &[("xmlns:xsi", schema), ("xsi:type", "CanonicalUser")]);
    xml.element("ID", owner.as_str());
    if caller.canonical_id == *owner {
        xml.element("DisplayName", &caller.display_name);
    }
    xml.close("Grantee");
    xml.element("Permission", "FULL_CONTROL");
    xml.close("Grant");
    xml.close("AccessControlList");
    response::xml(xml.finish())
}
