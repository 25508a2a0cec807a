//! Access control lists: GET and PUT ?acl of buckets and objects, and the header of writes.
//!
//! Kept are the canned forms that say who beside the owner may read or write. What asks for more
//! is refused, never dropped in silence. Who may do what is decided in `authorise`, not here.

use super::prelude::*;
use crate::model::CannedAcl;

const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED_USERS: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";

/// The `x-amz-acl` of a request. The forms that speak of the bucket's owner are private: he has
/// full control of all in his bucket anyway.
///
/// **Errors** `InvalidArgument` for an unknown form, `NotImplemented` for grants in headers and
/// for the one of log delivery.
/// **Source** AWS S3 user guide, "Canned ACL".
pub fn canned(headers: &HeaderMap) -> Result<Option<CannedAcl>, S3Error> {
    if headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-")) {
        return Err(S3Error::not_implemented("A grant in a header"));
    }
    let Some(value) = headers.get("x-amz-acl") else { return Ok(None) };
    let acl = match value.as_bytes() {
        b"private" | b"bucket-owner-full-control" | b"bucket-owner-read" | b"aws-exec-read" => {
            CannedAcl::Private
        }
        b"public-read" => CannedAcl::PublicRead,
        b"public-read-write" => CannedAcl::PublicReadWrite,
        b"authenticated-read" => CannedAcl::AuthenticatedRead,
        b"log-delivery-write" => return Err(S3Error::not_implemented("Log delivery")),
        other => {
            let text = String::from_utf8_lossy(other);
            return Err(S3Error::new(S3ErrorCode::InvalidArgument).argument("x-amz-acl", &text));
        }
    };
    Ok(Some(acl))
}

/// **Source** AWS S3 API reference, GetObjectAcl.
pub async fn get_object_acl(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    let version = super::get_object::find(s3, request).await?;
    Ok(document(&version.owner, version.metadata.acl, request.caller()))
}

/// **Source** AWS S3 API reference, GetBucketAcl.
pub async fn get_bucket_acl(request: &S3Request<'_>) -> S3Result {
    let bucket = request.bucket()?;
    Ok(document(&bucket.owner, bucket.acl, request.caller()))
}

/// **Errors** those of `wanted`. **Source** AWS S3 API reference, PutBucketAcl.
pub async fn put_bucket_acl(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let bucket = request.bucket()?.clone();
    let acl = wanted(s3, request, &bucket.owner).await?;
    public_access::check_acl(&bucket, Some(acl))?;
    s3.store.set_bucket_acl(bucket.id, acl).await?;
    Ok(response::empty(StatusCode::OK))
}

/// **Errors** those of `wanted`, `NoSuchKey`. **Source** AWS S3 API reference, PutObjectAcl.
pub async fn put_object_acl(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let owner = super::get_object::find(s3, request).await?.owner.clone();
    let acl = wanted(s3, request, &owner).await?;
    public_access::check_acl(request.bucket()?, Some(acl))?;
    let (bucket, key) = (request.bucket()?.id, request.key()?.clone());
    s3.store.set_object_acl(bucket, key, request.version_id()?, acl).await?;
    Ok(response::empty(StatusCode::OK))
}

/// The list that a PUT ?acl asks for, in its header or in its body.
///
/// **Errors** those of `canned`, `MalformedXML`, `MissingSecurityHeader` for neither,
/// `InvalidRequest` for both, `NotImplemented` for grants that no canned form has.
async fn wanted(
    s3: &S3State,
    request: &mut S3Request<'_>,
    owner: &OwnerId,
) -> Result<CannedAcl, S3Error> {
    let header = canned(&request.headers)?;
    let body = request.read_document(s3).await?;
    match header {
        Some(acl) if body.is_empty() => Ok(acl),
        Some(_) => Err(S3Error::new(S3ErrorCode::InvalidRequest)
            .message("This request does not support an x-amz-acl header together with content")),
        None if body.is_empty() => Err(S3ErrorCode::MissingSecurityHeader.into()),
        None => policy_of(&body, owner),
    }
}

/// The canned form of an `AccessControlPolicy`.
fn policy_of(body: &[u8], owner: &OwnerId) -> Result<CannedAcl, S3Error> {
    let root = xml::parse(body)?;
    root.expect_name("AccessControlPolicy")?;
    let malformed = || S3Error::new(S3ErrorCode::MalformedXML);
    let list = root.child("AccessControlList").ok_or_else(malformed)?;
    let (mut everything, mut read, mut write, mut users_read) = (false, false, false, false);
    for grant in list.children_named("Grant") {
        let grantee = grant.child("Grantee").ok_or_else(malformed)?;
        let permission = grant.child_text("Permission").ok_or_else(malformed)?.trim();
        let id = grantee.child_text("ID").map(str::trim);
        match (id, grantee.child_text("URI").map(str::trim), permission) {
            (Some(id), None, "FULL_CONTROL") if id == owner.as_str() => everything = true,
            (None, Some(ALL_USERS), "READ") => read = true,
            (None, Some(ALL_USERS), "WRITE") => write = true,
            (None, Some(AUTHENTICATED_USERS), "READ") => users_read = true,
            _ => return Err(S3Error::not_implemented("An access list with this grant")),
        }
    }
    match (everything, read, write, users_read) {
        (true, false, false, false) => Ok(CannedAcl::Private),
        (true, true, false, _) => Ok(CannedAcl::PublicRead),
        (true, true, true, _) => Ok(CannedAcl::PublicReadWrite),
        (true, false, false, true) => Ok(CannedAcl::AuthenticatedRead),
        _ => Err(S3Error::not_implemented("An access list with these grants")),
    }
}

/// The document of an ACL: FULL_CONTROL for the owner, then what the canned form adds.
fn document(owner: &OwnerId, acl: Option<CannedAcl>, caller: &User) -> Response {
    const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema-instance";
    let groups: &[(&str, &str)] = match acl.unwrap_or(CannedAcl::Private) {
        CannedAcl::Private => &[],
        CannedAcl::PublicRead => &[(ALL_USERS, "READ")],
        CannedAcl::PublicReadWrite => &[(ALL_USERS, "READ"), (ALL_USERS, "WRITE")],
        CannedAcl::AuthenticatedRead => &[(AUTHENTICATED_USERS, "READ")],
    };
    let mut xml = XmlWriter::document("AccessControlPolicy", 1024);
    super::listing::write_owner(&mut xml, "Owner", owner, caller);
    xml.open("AccessControlList");
    xml.open("Grant");
    xml.open_with("Grantee", &[("xmlns:xsi", SCHEMA), ("xsi:type", "CanonicalUser")]);
    xml.element("ID", owner.as_str());
    if caller.canonical_id == *owner {
        xml.element("DisplayName", &caller.display_name);
    }
    xml.close("Grantee");
    xml.element("Permission", "FULL_CONTROL");
    xml.close("Grant");
    for (group, permission) in groups {
        xml.open("Grant");
        xml.open_with("Grantee", &[("xmlns:xsi", SCHEMA), ("xsi:type", "Group")]);
        xml.element("URI", group);
        xml.close("Grantee");
        xml.element("Permission", permission);
        xml.close("Grant");
    }
    xml.close("AccessControlList");
    response::xml(xml.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(grants: &[(&str, &str)]) -> Result<CannedAcl, S3ErrorCode> {
        let mut text = String::from("<AccessControlPolicy><AccessControlList>");
        for (grantee, permission) in grants {
            let tag = if grantee.starts_with("http") { "URI" } else { "ID" };
            text += &format!(
                "<Grant><Grantee><{tag}>{grantee}</{tag}></Grantee>\
                 <Permission>{permission}</Permission></Grant>"
            );
        }
        text += "</AccessControlList></AccessControlPolicy>";
        policy_of(text.as_bytes(), &OwnerId::new("me")).map_err(|error| error.code())
    }

    #[test]
    fn grants_become_canned_forms_or_are_refused() {
        let me = ("me", "FULL_CONTROL");
        let (read, write) = ((ALL_USERS, "READ"), (ALL_USERS, "WRITE"));
        assert_eq!(policy(&[me]), Ok(CannedAcl::Private));
        assert_eq!(policy(&[me, read]), Ok(CannedAcl::PublicRead));
        assert_eq!(policy(&[write, read, me]), Ok(CannedAcl::PublicReadWrite));
        let users = (AUTHENTICATED_USERS, "READ");
        assert_eq!(policy(&[me, users]), Ok(CannedAcl::AuthenticatedRead));
        let refused = Err(S3ErrorCode::NotImplemented);
        assert_eq!(policy(&[]), refused);
        assert_eq!(policy(&[me, write]), refused);
        assert_eq!(policy(&[me, ("you", "READ")]), refused);
        assert_eq!(policy(&[me, (ALL_USERS, "FULL_CONTROL")]), refused);
        assert!(policy_of(b"<X/>", &OwnerId::new("me")).is_err());
    }
}
