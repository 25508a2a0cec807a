//! The S3 operations: one table that says which request is which operation.
//!
//! Owns the names, the sub-resources and what this server does with each. Pure: it looks at the
//! method, at whether there is a bucket and a key, and at the query's names; it answers nothing.
//!
//! **Source** AWS S3 API reference, "Amazon S3 actions"; botocore's S3 service model for the
//! method and query of each.

use http::Method;

/// What a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `/`
    Service,
    /// A bucket without a key.
    Bucket,
    /// A bucket and a key.
    Object,
}

/// What this server does with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Carried out.
    Full,
    /// Answered as by a bucket on which the feature was never configured.
    Probe,
    /// Refused with NotImplemented, naming the operation.
    Refused,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct OperationInfo {
    pub operation: Operation,
    /// As the API reference spells it.
    pub name: &'static str,
    pub method: &'static str,
    pub scope: Scope,
    /// The name in the query that selects the operation; empty when none does.
    pub sub_resource: &'static str,
    pub support: Support,
}

/// Writes the enum and its table from one list.
macro_rules! operations {
    ($($method:ident $scope:ident $sub:literal $name:ident $support:ident;)*) => {
        /// An operation of the S3 API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Operation { $($name),* }

        /// All operations, in the order of the enum.
        pub const OPERATIONS: &[OperationInfo] = &[$(OperationInfo {
            operation: Operation::$name,
            name: stringify!($name),
            method: stringify!($method),
            scope: Scope::$scope,
            sub_resource: $sub,
            support: Support::$support,
        }),*];
    };
}

operations! {
    GET Service "" ListBuckets Full;
    PUT Bucket "" CreateBucket Full;
    HEAD Bucket "" HeadBucket Full;
    DELETE Bucket "" DeleteBucket Full;
    GET Bucket "location" GetBucketLocation Full;
    GET Bucket "" ListObjects Full;
    GET Bucket "list-type" ListObjectsV2 Full;
    GET Bucket "versions" ListObjectVersions Full;
    GET Bucket "uploads" ListMultipartUploads Full;
    POST Bucket "delete" DeleteObjects Full;
    PUT Object "" PutObject Full;
    PUT Object "" CopyObject Full;
    GET Object "" GetObject Full;
    HEAD Object "" HeadObject Full;
    DELETE Object "" DeleteObject Full;
    GET Object "attributes" GetObjectAttributes Full;
    POST Object "uploads" CreateMultipartUpload Full;
    PUT Object "uploadId" UploadPart Full;
    PUT Object "uploadId" UploadPartCopy Full;
    POST Object "uploadId" CompleteMultipartUpload Full;
    DELETE Object "uploadId" AbortMultipartUpload Full;
    GET Object "uploadId" ListParts Full;
    GET Bucket "acl" GetBucketAcl Full;
    PUT Bucket "acl" PutBucketAcl Full;
    GET Object "acl" GetObjectAcl Full;
    PUT Object "acl" PutObjectAcl Full;
    GET Bucket "versioning" GetBucketVersioning Full;
    PUT Bucket "versioning" PutBucketVersioning Full;
    GET Bucket "policy" GetBucketPolicy Full;
    GET Bucket "policyStatus" GetBucketPolicyStatus Full;
    GET Bucket "cors" GetBucketCors Full;
    GET Bucket "lifecycle" GetBucketLifecycleConfiguration Probe;
    GET Bucket "tagging" GetBucketTagging Full;
    GET Bucket "encryption" GetBucketEncryption Probe;
    GET Bucket "website" GetBucketWebsite Probe;
    GET Bucket "replication" GetBucketReplication Probe;
    GET Bucket "object-lock" GetObjectLockConfiguration Full;
    PUT Bucket "object-lock" PutObjectLockConfiguration Full;
    GET Bucket "publicAccessBlock" GetPublicAccessBlock Full;
    GET Bucket "ownershipControls" GetBucketOwnershipControls Probe;
    GET Bucket "logging" GetBucketLogging Probe;
    GET Bucket "notification" GetBucketNotificationConfiguration Probe;
    GET Bucket "accelerate" GetBucketAccelerateConfiguration Full;
    GET Bucket "requestPayment" GetBucketRequestPayment Probe;
    GET Bucket "analytics" ListBucketAnalyticsConfigurations Probe;
    GET Bucket "inventory" ListBucketInventoryConfigurations Probe;
    GET Bucket "metrics" ListBucketMetricsConfigurations Probe;
    GET Bucket "intelligent-tiering" ListBucketIntelligentTieringConfigurations Probe;
    GET Object "tagging" GetObjectTagging Full;
    PUT Object "tagging" PutObjectTagging Full;
    DELETE Object "tagging" DeleteObjectTagging Full;
    GET Object "retention" GetObjectRetention Full;
    PUT Object "retention" PutObjectRetention Full;
    GET Object "legal-hold" GetObjectLegalHold Full;
    PUT Object "legal-hold" PutObjectLegalHold Full;
    PUT Bucket "policy" PutBucketPolicy Full;
    DELETE Bucket "policy" DeleteBucketPolicy Full;
    PUT Bucket "cors" PutBucketCors Full;
    DELETE Bucket "cors" DeleteBucketCors Full;
    PUT Bucket "lifecycle" PutBucketLifecycleConfiguration Refused;
    DELETE Bucket "lifecycle" DeleteBucketLifecycle Refused;
    PUT Bucket "tagging" PutBucketTagging Full;
    DELETE Bucket "tagging" DeleteBucketTagging Full;
    PUT Bucket "encryption" PutBucketEncryption Refused;
    DELETE Bucket "encryption" DeleteBucketEncryption Refused;
    PUT Bucket "website" PutBucketWebsite Refused;
    DELETE Bucket "website" DeleteBucketWebsite Refused;
    PUT Bucket "replication" PutBucketReplication Refused;
    DELETE Bucket "replication" DeleteBucketReplication Refused;
    PUT Bucket "publicAccessBlock" PutPublicAccessBlock Full;
    DELETE Bucket "publicAccessBlock" DeletePublicAccessBlock Full;
    PUT Bucket "ownershipControls" PutBucketOwnershipControls Refused;
    DELETE Bucket "ownershipControls" DeleteBucketOwnershipControls Refused;
    PUT Bucket "logging" PutBucketLogging Full;
    PUT Bucket "notification" PutBucketNotificationConfiguration Full;
    PUT Bucket "accelerate" PutBucketAccelerateConfiguration Full;
    PUT Bucket "requestPayment" PutBucketRequestPayment Full;
    PUT Bucket "analytics" PutBucketAnalyticsConfiguration Refused;
    DELETE Bucket "analytics" DeleteBucketAnalyticsConfiguration Refused;
    PUT Bucket "inventory" PutBucketInventoryConfiguration Refused;
    DELETE Bucket "inventory" DeleteBucketInventoryConfiguration Refused;
    PUT Bucket "metrics" PutBucketMetricsConfiguration Refused;
    DELETE Bucket "metrics" DeleteBucketMetricsConfiguration Refused;
    PUT Bucket "intelligent-tiering" PutBucketIntelligentTieringConfiguration Refused;
    DELETE Bucket "intelligent-tiering" DeleteBucketIntelligentTieringConfiguration Refused;
    OPTIONS Bucket "" PreflightRequest Full;
    GET Bucket "session" CreateSession Refused;
    POST Bucket "" PostObject Full;
    POST Object "restore" RestoreObject Refused;
    POST Object "select" SelectObjectContent Refused;
    GET Object "torrent" GetObjectTorrent Probe;
    PUT Object "renameObject" RenameObject Full;
    PUT Object "encryption" UpdateObjectEncryption Refused;
}

impl Operation {
    /// The operation's row of the table.
    pub fn info(self) -> &'static OperationInfo {
        &OPERATIONS[self as usize]
    }

    /// The name in the API reference.
    pub fn name(self) -> &'static str {
        self.info().name
    }
}

/// Why a request is no operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unidentified {
    /// 405: the resource exists in the API, but not with this method.
    MethodNotAllowed,
}

/// Finds the operation that a request asks for. Names in the query that select nothing are
/// ignored, as AWS does (`x-id`, cache busters).
///
/// **Errors** `MethodNotAllowed` when no operation with the request's sub-resource has its method.
pub fn identify<'q>(
    method: &Method,
    scope: Scope,
    query_names: impl Iterator<Item = &'q str>,
    copies: bool,
) -> Result<Operation, Unidentified> {
    let sub_resource = query_names.filter_map(|name| sub_resource(scope, name)).next();
    let found = OPERATIONS.iter().find(|row| {
        row.scope == scope
            && row.method == method.as_str()
            && row.sub_resource == sub_resource.unwrap_or("")
    });
    match found.map(|row| row.operation) {
        Some(Operation::PutObject) if copies => Ok(Operation::CopyObject),
        Some(Operation::UploadPart) if copies => Ok(Operation::UploadPartCopy),
        Some(operation) => Ok(operation),
        None => Err(Unidentified::MethodNotAllowed),
    }
}

/// The table's own copy of `name` when it selects an operation in `scope`.
fn sub_resource(scope: Scope, name: &str) -> Option<&'static str> {
    // The parameters of every presigned URL come by here; no sub-resource looks like them.
    if name.is_empty() || name.starts_with("X-Amz-") {
        return None;
    }
    OPERATIONS
        .iter()
        .find(|row| row.scope == scope && row.sub_resource == name)
        .map(|row| row.sub_resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/s3-compatibility.md");
    const BEGIN: &str =
        "<!-- made from src/s3/operation.rs: UPDATE_DOCS=1 cargo test operation -->\n";
    const END: &str = "<!-- end -->\n";

    /// The table as the page shows it.
    fn markdown() -> String {
        let mut out = String::from("| Operation | Request | State |\n|---|---|---|\n");
        for row in OPERATIONS {
            let path = match row.scope {
                Scope::Service => "/",
                Scope::Bucket => "/bucket",
                Scope::Object => "/bucket/key",
            };
            let query = match row.sub_resource {
                "" => String::new(),
                name => format!("?{name}"),
            };
            let state = match row.support {
                Support::Full => "yes",
                Support::Probe => "as of a bucket where it was never configured",
                Support::Refused => "501 NotImplemented",
            };
            let copies = matches!(row.operation, Operation::CopyObject | Operation::UploadPartCopy);
            let with = if copies { " with `x-amz-copy-source`" } else { "" };
            let request = format!("`{} {path}{query}`{with}", row.method);
            out += &format!("| {} | {request} | {state} |\n", row.name);
        }
        out
    }

    #[test]
    fn the_table_of_the_page_is_this_one() {
        let page = std::fs::read_to_string(PAGE).expect("the page is there");
        let (before, rest) = page.split_once(BEGIN).expect("the table begins");
        let (_, after) = rest.split_once(END).expect("the table ends");
        let wanted = format!("{before}{BEGIN}{}{END}{after}", markdown());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(PAGE, &wanted).expect("docs/ is writable");
        } else {
            assert!(page == wanted, "run: UPDATE_DOCS=1 cargo test operation");
        }
    }

    fn check(method: &Method, scope: Scope, query: &[&str], want: Result<Operation, Unidentified>) {
        assert_eq!(
            identify(method, scope, query.iter().copied(), false),
            want,
            "{method} {query:?}"
        );
    }

    #[test]
    fn each_row_is_found_by_its_own_request() {
        for row in OPERATIONS {
            let method = Method::from_bytes(row.method.as_bytes()).expect("a method of the table");
            let copies = matches!(row.operation, Operation::CopyObject | Operation::UploadPartCopy);
            let query = [row.sub_resource].into_iter().filter(|name| !name.is_empty());
            assert_eq!(identify(&method, row.scope, query, copies), Ok(row.operation));
            assert_eq!(row.operation.name(), row.name);
        }
    }

    #[test]
    fn names_that_select_nothing_are_ignored() {
        check(&Method::GET, Scope::Object, &["x-id", "v"], Ok(Operation::GetObject));
        check(&Method::GET, Scope::Object, &["partNumber"], Ok(Operation::GetObject));
        check(&Method::GET, Scope::Bucket, &["prefix", "delimiter"], Ok(Operation::ListObjects));
        check(&Method::PUT, Scope::Object, &["partNumber", "uploadId"], Ok(Operation::UploadPart));
    }

    #[test]
    fn a_method_that_the_resource_lacks_is_not_allowed() {
        let refused = Err(Unidentified::MethodNotAllowed);
        check(&Method::PATCH, Scope::Object, &[], refused);
        check(&Method::POST, Scope::Service, &[], refused);
        check(&Method::POST, Scope::Object, &[], refused);
        check(&Method::DELETE, Scope::Bucket, &["location"], refused);
    }
}
