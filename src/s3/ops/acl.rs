//! GET ?acl of buckets and objects, and the ACL headers of writes.
//!
//! There are no ACLs here: the owner of a bucket has full control of all in it, nobody else has
//! any. What a client asks for is accepted when it means just that and refused otherwise, never
//! dropped in silence.

use super::prelude::*;

/// Canned ACLs that say what holds anyway.
const CANNED_ACCEPTED: [&str; 4] =
    ["private", "bucket-owner-full-control", "bucket-owner-read", "aws-exec-read"];
const CANNED_KNOWN: [&str; 4] =
    ["public-read", "public-read-write", "authenticated-read", "log-delivery-write"];

/// Refuses ACL headers that ask for more than the owner's own control.
///
/// **Errors** `InvalidArgument` for an unknown canned ACL, `AccessControlListNotSupported` for one
/// that opens the object and for grants, as a bucket with ACLs turned off answers.
/// **Source** AWS S3 user guide, "Controlling ownership of objects and disabling ACLs".
pub fn check_headers(headers: &HeaderMap) -> Result<(), S3Error> {
    let unsupported = || Err(S3Error::new(S3ErrorCode::AccessControlListNotSupported));
    if headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-")) {
        return unsupported();
    }
    let Some(value) = headers.get("x-amz-acl") else { return Ok(()) };
    let text = String::from_utf8_lossy(value.as_bytes());
    if CANNED_ACCEPTED.contains(&&*text) {
        return Ok(());
    }
    if CANNED_KNOWN.contains(&&*text) {
        return unsupported();
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
