//! Who may do what: the one place where it is decided.
//!
//! The rule for now: a bucket and all in it belong to the user that made it, and nobody else
//! reaches them. Policies will extend this function and nothing else. Pure.

use http::HeaderValue;

use super::error::{S3Error, S3ErrorCode};
use super::operation::{Operation, Scope};
use crate::model::{Bucket, User};

/// Decides whether `caller` may carry out `operation` on `bucket`.
///
/// `expected_owner` is the header in which a client says whose bucket it means.
///
/// **Errors** `AccessDenied`.
pub fn authorise(
    operation: Operation,
    caller: &User,
    bucket: Option<&Bucket>,
    expected_owner: Option<&HeaderValue>,
) -> Result<(), S3Error> {
    let denied = || Err(S3Error::new(S3ErrorCode::AccessDenied));
    let Some(bucket) = bucket else {
        // Listing one's own buckets and making one need no bucket.
        let fine = operation.info().scope == Scope::Service || operation == Operation::CreateBucket;
        return if fine { Ok(()) } else { denied() };
    };
    if expected_owner.is_some_and(|owner| owner.as_bytes() != bucket.owner.as_str().as_bytes()) {
        return denied();
    }
    // CreateBucket of a name that exists is decided at the commit, with an answer of its own.
    if operation == Operation::CreateBucket || bucket.owner == caller.canonical_id {
        return Ok(());
    }
    denied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BucketId, BucketName, OwnerId};

    fn user(id: &str) -> User {
        User {
            id: id.into(),
            canonical_id: OwnerId::new(id),
            display_name: id.into(),
            email: String::new(),
            disabled: false,
        }
    }

    #[test]
    fn only_the_owner_reaches_a_bucket() {
        let bucket = Bucket {
            id: BucketId(1),
            name: BucketName::new("abc").expect("valid"),
            owner: OwnerId::new("alice"),
            created_ms: 0,
            location: String::new(),
        };
        let check = |operation, who: &str, expected: Option<&'static str>| {
            let expected = expected.map(HeaderValue::from_static);
            authorise(operation, &user(who), Some(&bucket), expected.as_ref()).is_ok()
        };
        assert!(check(Operation::GetObject, "alice", None));
        assert!(!check(Operation::GetObject, "bob", None));
        assert!(check(Operation::CreateBucket, "bob", None));
        assert!(check(Operation::PutObject, "alice", Some("alice")));
        assert!(!check(Operation::PutObject, "alice", Some("bob")));
        assert!(authorise(Operation::ListBuckets, &user("bob"), None, None).is_ok());
        assert!(authorise(Operation::GetObject, &user("bob"), None, None).is_err());
    }
}
