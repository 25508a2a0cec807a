//! Who may do what: the one place where it is decided.
//!
//! A bucket and all in it belong to the user that made it, who may do everything. Others, and
//! requests without a signature, may do what the access list of the bucket or of the object lets
//! them, or what its policy gives to everybody. Pure.
//!
//! **Source** AWS S3 user guide, "Mapping of ACL permissions and access policy permissions".

use http::HeaderValue;

use super::error::{S3Error, S3ErrorCode};
use super::operation::{Operation, Scope};
use super::policy::{self, Action};
use super::public_access;
use crate::model::{Bucket, CannedAcl, Key, ObjectVersion, User};

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

/// What somebody wants to do, and to what.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub operation: Operation,
    /// `None` for operations that have no bucket yet.
    pub bucket: Option<&'a Bucket>,
    pub key: Option<&'a Key>,
    /// A version is named.
    pub versioned: bool,
    /// The object, when `looks_at_object` says so and it exists.
    pub object: Option<&'a ObjectVersion>,
    /// The header in which a client says whose bucket it means.
    pub expected_owner: Option<&'a HeaderValue>,
}

/// Decides whether `caller` may do what is asked.
///
/// **Errors** `AccessDenied`.
pub fn authorise(caller: &User, asked: Asked<'_>) -> Result<(), S3Error> {
    let denied = || Err(S3Error::new(S3ErrorCode::AccessDenied));
    let anonymous = caller.is_anonymous();
    let operation = asked.operation;
    let Some(bucket) = asked.bucket else {
        // Listing one's own buckets and making one need no bucket, but somebody who owns it.
        let fine = operation.info().scope == Scope::Service || operation == Operation::CreateBucket;
        return if fine && !anonymous { Ok(()) } else { denied() };
    };
    let owner = bucket.owner.as_str().as_bytes();
    if asked.expected_owner.is_some_and(|expected| expected.as_bytes() != owner) {
        return denied();
    }
    if bucket.owner == caller.canonical_id {
        return Ok(());
    }
    if lists_allow(caller, bucket, &asked) || policy_allows(bucket, &asked) {
        return Ok(());
    }
    denied()
}

/// What the access lists of the bucket and the object give to a caller who is not the owner.
fn lists_allow(caller: &User, bucket: &Bucket, asked: &Asked<'_>) -> bool {
    let anonymous = caller.is_anonymous();
    let ignored = public_access::block_of(bucket).ignore_acls;
    let heeded = |acl: Option<CannedAcl>| acl.filter(|_| !ignored).unwrap_or(CannedAcl::Private);
    let acl = heeded(bucket.acl);
    let owns = |object: &ObjectVersion| !anonymous && object.owner == caller.canonical_id;
    match (needs(asked.operation), asked.object) {
        (Needs::Ownership, _) | (Needs::ObjectOwnership, None) => false,
        // Who may list the bucket may know that an object is not there.
        (Needs::BucketRead, _) | (Needs::ObjectRead, None) => acl.lets_read(anonymous),
        // The right to write does not reach into the past: what versions keep is the owner's.
        (Needs::BucketWrite, _) => acl.lets_write() && !removes_version(asked),
        (Needs::ObjectRead, Some(object)) => {
            owns(object) || heeded(object.metadata.acl).lets_read(anonymous)
        }
        (Needs::ObjectOwnership, Some(object)) => owns(object),
    }
}

/// Whether bytes would be gone for good, rather than covered.
///
/// **Source** AWS S3 user guide, "Access control list (ACL) overview": WRITE includes
/// s3:DeleteObjectVersion only for the bucket's owner.
fn removes_version(asked: &Asked<'_>) -> bool {
    asked.versioned && asked.operation == Operation::DeleteObject
}

/// What the bucket's policy gives to everybody.
fn policy_allows(bucket: &Bucket, asked: &Asked<'_>) -> bool {
    let Some(policy) = policy::policy_of(bucket) else { return false };
    if public_access::block_of(bucket).restrict_buckets {
        return false;
    }
    let name = bucket.name.as_str();
    let lists = || policy.allows(Action::ListBucket, name);
    match asked.operation {
        Operation::HeadBucket | Operation::ListObjects | Operation::ListObjectsV2 => lists(),
        Operation::GetObject | Operation::HeadObject => {
            let action = if asked.versioned { Action::GetObjectVersion } else { Action::GetObject };
            let resource = asked.key.map(|key| format!("{name}/{key}"));
            let reads = resource.is_some_and(|resource| policy.allows(action, &resource));
            // Only who may list the bucket may know that an object is not there.
            if asked.object.is_some() { reads } else { lists() }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BucketId, BucketName, ETag, Lsn, ObjectMetadata, OwnerId, VersionId};

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
            object_lock: None,
        }
    }

    fn object() -> ObjectVersion {
        ObjectVersion {
            lsn: Lsn(1),
            version_id: VersionId::NULL,
            delete_marker: false,
            size: 0,
            modified_ms: 0,
            etag: ETag { md5: [0; 16], parts: 0 },
            owner: OwnerId::new("alice"),
            metadata: ObjectMetadata::default(),
            checksum: None,
            parts: Vec::new(),
            extents: Vec::new(),
        }
    }

    fn asked(operation: Operation, bucket: Option<&Bucket>) -> Asked<'_> {
        Asked { operation, bucket, key: None, versioned: false, object: None, expected_owner: None }
    }

    fn allowed(operation: Operation, who: &User, acl: Option<CannedAcl>) -> bool {
        let bucket = bucket(acl);
        authorise(who, asked(operation, Some(&bucket))).is_ok()
    }

    #[test]
    fn a_private_bucket_is_its_owners_alone() {
        let bucket = bucket(None);
        let check = |operation, who: &str, expected: Option<&'static str>| {
            let expected = expected.map(HeaderValue::from_static);
            let expected_owner = expected.as_ref();
            authorise(&user(who), Asked { expected_owner, ..asked(operation, Some(&bucket)) })
                .is_ok()
        };
        assert!(check(Operation::GetObject, "alice", None));
        assert!(!check(Operation::GetObject, "bob", None));
        assert!(check(Operation::PutObject, "alice", Some("alice")));
        assert!(!check(Operation::PutObject, "alice", Some("bob")));
        let nowhere = |operation, who: &User| authorise(who, asked(operation, None)).is_ok();
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
        let bucket = bucket(write);
        let removes = asked(Operation::DeleteObject, Some(&bucket));
        assert!(authorise(&bob, removes).is_ok());
        assert!(authorise(&bob, Asked { versioned: true, ..removes }).is_err());
        assert!(!allowed(Operation::DeleteBucket, &bob, write));
    }

    #[test]
    fn a_policy_opens_reading_and_a_block_closes_it() {
        let with = |configs: &[(&str, &str)]| {
            let mut bucket = bucket(Some(CannedAcl::PublicRead));
            for (name, document) in configs {
                let config = crate::model::BucketConfig::new(document.as_bytes());
                bucket.configs.set(name, Some(std::sync::Arc::new(config)));
            }
            bucket
        };
        let policy = "{\"Statement\":{\"Effect\":\"Allow\",\"Principal\":\"*\",\
                      \"Action\":\"s3:GetObject\",\"Resource\":\"arn:aws:s3:::abc/p/*\"}}";
        let block = |inner: &str| {
            format!("<PublicAccessBlockConfiguration>{inner}</PublicAccessBlockConfiguration>")
        };
        let nobody = User::anonymous();
        let object = object();
        let reads = |bucket: &Bucket, key: &str, versioned, there| {
            let key = Key::new(key).expect("a key");
            let asked = Asked {
                key: Some(&key),
                versioned,
                object: Some(&object).filter(|_| there),
                ..asked(Operation::GetObject, Some(bucket))
            };
            authorise(&nobody, asked).is_ok()
        };
        let open = with(&[("policy", policy)]);
        assert!(reads(&open, "p/k", false, true));
        assert!(!reads(&open, "q/k", false, true));
        assert!(!reads(&open, "p/k", true, true), "a version needs an action of its own");
        assert!(reads(&open, "p/k", false, false), "the list lets everybody know what is there");
        let restricted = block("<RestrictPublicBuckets>true</RestrictPublicBuckets>");
        let restricted = with(&[("policy", policy), ("publicAccessBlock", &restricted)]);
        assert!(!reads(&restricted, "p/k", false, true));
        let ignored = block("<IgnorePublicAcls>true</IgnorePublicAcls>");
        let ignored = with(&[("policy", policy), ("publicAccessBlock", &ignored)]);
        assert!(!reads(&ignored, "p/k", false, false));
        assert!(reads(&ignored, "p/k", false, true));
        assert!(authorise(&nobody, asked(Operation::ListObjects, Some(&open))).is_ok());
        assert!(authorise(&nobody, asked(Operation::ListObjects, Some(&ignored))).is_err());
        // What cannot be read gives nothing.
        let broken = with(&[("policy", "{}"), ("publicAccessBlock", "<")]);
        assert!(!reads(&broken, "p/k", false, true));
        assert!(authorise(&nobody, asked(Operation::ListObjects, Some(&broken))).is_err());
    }
}
