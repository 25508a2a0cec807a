//! Who may do what: the one place where it is decided.
//!
//! A bucket and all in it belong to the user that made it, who may do everything. Others, and
//! requests without a signature, may do what the access list of the bucket or of the object lets
//! them. Policies will extend this function and nothing else. Pure.
//!
//! **Source** AWS S3 user guide, "Mapping of ACL permissions and access policy permissions".

use http::HeaderValue;

use super::error::{S3Error, S3ErrorCode};
use super::operation::{Operation, Scope};
use crate::model::{Bucket, CannedAcl, ObjectVersion, User};

/// What a caller who is not the bucket's owner needs for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// Nothing helps but being the owner.
    Ownership,
    BucketRead,
    BucketWrite,
    ObjectRead,
    /// To be the object's owner.
    ObjectOwnership,
}

fn needs(operation: Operation) -> Needs {
    match operation {
        Operation::HeadBucket
        | Operation::ListObjects
        | Operation::ListObjectsV2
        | Operation::ListObjectVersions
        | Operation::ListMultipartUploads => Needs::BucketRead,
        Operation::PutObject
        | Operation::PostObject
        | Operation::CopyObject
        | Operation::DeleteObject
        | Operation::DeleteObjects
        | Operation::CreateMultipartUpload
        | Operation::UploadPart
        | Operation::UploadPartCopy
        | Operation::CompleteMultipartUpload
        | Operation::AbortMultipartUpload => Needs::BucketWrite,
        Operation::GetObject | Operation::HeadObject | Operation::GetObjectAttributes => {
            Needs::ObjectRead
        }
        Operation::GetObjectAcl | Operation::PutObjectAcl => Needs::ObjectOwnership,
        _ => Needs::Ownership,
    }
}

/// True when `authorise` has to see the object. The bucket's owner never waits for it.
pub fn looks_at_object(operation: Operation, caller: &User, bucket: &Bucket) -> bool {
    bucket.owner != caller.canonical_id
        && matches!(needs(operation), Needs::ObjectRead | Needs::ObjectOwnership)
}

/// Decides whether `caller` may carry out `operation` on `bucket`.
///
/// `object` is the object that the operation names when `looks_at_object` says so and it exists.
/// `expected_owner` is the header in which a client says whose bucket it means.
///
/// **Errors** `AccessDenied`.
pub fn authorise(
    operation: Operation,
    caller: &User,
    bucket: Option<&Bucket>,
    object: Option<&ObjectVersion>,
    expected_owner: Option<&HeaderValue>,
) -> Result<(), S3Error> {
    let denied = || Err(S3Error::new(S3ErrorCode::AccessDenied));
    let anonymous = caller.is_anonymous();
    let Some(bucket) = bucket else {
        // Listing one's own buckets and making one need no bucket, but somebody who owns it.
        let fine = operation.info().scope == Scope::Service || operation == Operation::CreateBucket;
        return if fine && !anonymous { Ok(()) } else { denied() };
    };
    if expected_owner.is_some_and(|owner| owner.as_bytes() != bucket.owner.as_str().as_bytes()) {
        return denied();
    }
    if bucket.owner == caller.canonical_id {
        return Ok(());
    }
    let acl = bucket.acl.unwrap_or(CannedAcl::Private);
    let owns = |object: &ObjectVersion| !anonymous && object.owner == caller.canonical_id;
    let allowed = match (needs(operation), object) {
        (Needs::Ownership, _) | (Needs::ObjectOwnership, None) => false,
        // Who may list the bucket may know that an object is not there.
        (Needs::BucketRead, _) | (Needs::ObjectRead, None) => acl.lets_read(anonymous),
        (Needs::BucketWrite, _) => acl.lets_write(),
        (Needs::ObjectRead, Some(object)) => {
            owns(object) || object.metadata.acl.is_some_and(|acl| acl.lets_read(anonymous))
        }
        (Needs::ObjectOwnership, Some(object)) => owns(object),
    };
    if allowed { Ok(()) } else { denied() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BucketId, BucketName, OwnerId};

    fn user(id: &str) -> User {
        User { id: id.into(), canonical_id: OwnerId::new(id), ..User::anonymous() }
    }

    fn bucket(acl: Option<CannedAcl>) -> Bucket {
        Bucket {
            id: BucketId(1),
            name: BucketName::new("abc").expect("valid"),
            owner: OwnerId::new("alice"),
            created_ms: 0,
            location: String::new(),
            acl,
            configs: Default::default(),
            versioning: None,
        }
    }

    fn allowed(operation: Operation, who: &User, acl: Option<CannedAcl>) -> bool {
        authorise(operation, who, Some(&bucket(acl)), None, None).is_ok()
    }

    #[test]
    fn a_private_bucket_is_its_owners_alone() {
        let bucket = bucket(None);
        let check = |operation, who: &str, expected: Option<&'static str>| {
            let expected = expected.map(HeaderValue::from_static);
            authorise(operation, &user(who), Some(&bucket), None, expected.as_ref()).is_ok()
        };
        assert!(check(Operation::GetObject, "alice", None));
        assert!(!check(Operation::GetObject, "bob", None));
        assert!(check(Operation::PutObject, "alice", Some("alice")));
        assert!(!check(Operation::PutObject, "alice", Some("bob")));
        let nowhere = |operation, who: &User| authorise(operation, who, None, None, None).is_ok();
        assert!(nowhere(Operation::CreateBucket, &user("bob")));
        assert!(nowhere(Operation::ListBuckets, &user("bob")));
        assert!(!nowhere(Operation::GetObject, &user("bob")));
        assert!(!nowhere(Operation::CreateBucket, &User::anonymous()));
        assert!(!nowhere(Operation::ListBuckets, &User::anonymous()));
    }

    #[test]
    fn a_buckets_list_opens_listing_and_writing_and_no_more() {
        let (bob, nobody) = (user("bob"), User::anonymous());
        let read = Some(CannedAcl::PublicRead);
        let write = Some(CannedAcl::PublicReadWrite);
        let users = Some(CannedAcl::AuthenticatedRead);
        assert!(allowed(Operation::ListObjectsV2, &nobody, read));
        assert!(!allowed(Operation::PutObject, &nobody, read));
        assert!(allowed(Operation::PutObject, &nobody, write));
        assert!(allowed(Operation::ListObjects, &bob, users));
        assert!(!allowed(Operation::ListObjects, &nobody, users));
        for operation in crate::s3::operation::OPERATIONS {
            if needs(operation.operation) == Needs::Ownership {
                assert!(!allowed(operation.operation, &bob, write), "{}", operation.name);
            }
        }
        assert!(!allowed(Operation::PutBucketAcl, &bob, write));
        assert!(!allowed(Operation::DeleteBucket, &bob, write));
    }
}
