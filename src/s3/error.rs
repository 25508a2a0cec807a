//! S3 errors: codes, statuses and messages in one table, and the document that a client gets.
//!
//! Owns every code that this server answers and the mapping from the errors below. What the client
//! reads and what the operator's log reads are separate fields; nothing internal reaches a client.
//!
//! **Source** AWS S3 API reference, "Error responses"; where AWS's own replies differ from that
//! page (codes that it does not list), the replies.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::xml::XmlWriter;
use crate::model::CommitError;
use crate::store::StoreError;

/// Writes the enum and its table from one list: name, status, retryable, default message.
macro_rules! error_codes {
    ($($name:ident $status:literal $retry:ident $message:literal;)*) => {
        /// A code of the `<Code>` element. The variant's name is the code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum S3ErrorCode { $($name),* }

        impl S3ErrorCode {
            /// All codes, in the order of the table.
            pub const ALL: &[S3ErrorCode] = &[$(S3ErrorCode::$name),*];

            pub fn as_str(self) -> &'static str {
                match self { $(S3ErrorCode::$name => stringify!($name)),* }
            }

            fn status_number(self) -> u16 {
                match self { $(S3ErrorCode::$name => $status),* }
            }

            /// The message of an error that brings none of its own.
            pub fn default_message(self) -> &'static str {
                match self { $(S3ErrorCode::$name => $message),* }
            }

            /// True when the same request may succeed later without any change by the client.
            pub fn is_retryable(self) -> bool {
                match self { $(S3ErrorCode::$name => error_codes!(@$retry)),* }
            }
        }
    };
    (@retry) => { true };
    (@final) => { false };
}

error_codes! {
    AccessControlListNotSupported 400 final "The bucket does not allow ACLs";
    AccessDenied 403 final "Access Denied";
    AccessForbidden 403 final "CORSResponse: This CORS request is not allowed.";
    AuthorizationHeaderMalformed 400 final "The authorization header is malformed.";
    AuthorizationQueryParametersError 400 final
        "Error parsing the authorization query parameters.";
    BadDigest 400 final "The Content-MD5 or checksum value that you specified did not match what \
         the server received.";
    BadRequest 400 final "The request is malformed.";
    BucketAlreadyExists 409 final "The requested bucket name is not available. Please select a \
         different name and try again.";
    BucketAlreadyOwnedByYou 409 final "Your previous request to create the named bucket succeeded \
         and you already own it.";
    BucketNotEmpty 409 final "The bucket you tried to delete is not empty.";
    ConditionalRequestConflict 409 retry "A conflicting operation occurred during the request.";
    EntityTooLarge 400 final "Your proposed upload exceeds the maximum allowed object size.";
    EntityTooSmall 400 final
        "Your proposed upload is smaller than the minimum allowed object size.";
    IllegalLocationConstraintException 400 final
        "The specified location constraint does not fit this server's region.";
    IllegalVersioningConfigurationException 400 final
        "The versioning configuration specified in the request is invalid.";
    IncompleteBody 400 final "The request body terminated unexpectedly or has another length than \
         was declared.";
    InsufficientStorage 507 final "The server has no space left for this write.";
    InternalError 500 retry "We encountered an internal error. Please try again.";
    InvalidAccessKeyId 403 final
        "The AWS Access Key Id you provided does not exist in our records.";
    InvalidArgument 400 final "Invalid Argument";
    InvalidBucketName 400 final "The specified bucket is not valid.";
    InvalidBucketState 409 final
        "The request is not valid with the current state of the bucket.";
    InvalidDigest 400 final "The Content-MD5 you specified was invalid.";
    InvalidLocationConstraint 400 final "The specified location-constraint is not valid";
    InvalidObjectState 403 final "The operation is not valid for the object's storage class.";
    InvalidPart 400 final "One or more of the specified parts could not be found. The part may not \
         have been uploaded, or the specified entity tag may not match the part's entity tag.";
    InvalidPartNumber 416 final "The requested partnumber is not satisfiable";
    InvalidPartOrder 400 final "The list of parts was not in ascending order. Parts must be \
         ordered by part number.";
    InvalidPolicyDocument 400 final
        "The content of the form does not meet the conditions specified in the policy document.";
    InvalidRange 416 final "The requested range is not satisfiable";
    InvalidRequest 400 final "Invalid Request";
    InvalidRetentionPeriod 400 final "The retention period must be a positive number that is not \
         too large.";
    InvalidStorageClass 400 final "The storage class you specified is not valid";
    InvalidTag 400 final "The tag provided was not a valid tag.";
    InvalidURI 400 final "Couldn't parse the specified URI.";
    KeyTooLongError 400 final "Your key is too long";
    MalformedACLError 400 final "The XML you provided was not well-formed or did not validate \
         against our published schema";
    MalformedPOSTRequest 400 final
        "The body of your POST request is not well-formed multipart/form-data.";
    MalformedPolicy 400 final "Policies must be valid JSON and the first byte must be '{'";
    MalformedTrailerError 400 final "The request contained trailing data that was not well-formed \
         or did not conform to our published schema.";
    MalformedXML 400 final "The XML you provided was not well-formed or did not validate against \
         our published schema";
    MaxPostPreDataLengthExceededError 400 final
        "Your POST request fields preceding the upload file were too large.";
    MetadataTooLarge 400 final
        "Your metadata headers exceed the maximum allowed metadata size";
    MethodNotAllowed 405 final "The specified method is not allowed against this resource.";
    MissingContentLength 411 final "You must provide the Content-Length HTTP header.";
    MissingRequestBodyError 400 final "Request Body is empty";
    MissingSecurityHeader 400 final "Your request was missing a required header";
    NoSuchBucket 404 final "The specified bucket does not exist";
    NoSuchBucketPolicy 404 final "The bucket policy does not exist";
    NoSuchCORSConfiguration 404 final "The CORS configuration does not exist";
    NoSuchConfiguration 404 final "The specified configuration does not exist.";
    NoSuchKey 404 final "The specified key does not exist.";
    NoSuchLifecycleConfiguration 404 final "The lifecycle configuration does not exist";
    NoSuchObjectLockConfiguration 404 final
        "The specified object does not have an ObjectLock configuration";
    NoSuchPublicAccessBlockConfiguration 404 final
        "The public access block configuration was not found";
    NoSuchTagSet 404 final "The TagSet does not exist";
    NoSuchUpload 404 final "The specified upload does not exist. The upload ID may be invalid, or \
         the upload may have been aborted or completed.";
    NoSuchVersion 404 final "The specified version does not exist.";
    NoSuchWebsiteConfiguration 404 final
        "The specified bucket does not have a website configuration";
    NotImplemented 501 final
        "A header or query you provided implies functionality that is not implemented";
    NotModified 304 final "Not Modified";
    ObjectLockConfigurationNotFoundError 404 final
        "Object Lock configuration does not exist for this bucket";
    OwnershipControlsNotFoundError 404 final "The bucket ownership controls were not found";
    PreconditionFailed 412 final
        "At least one of the pre-conditions you specified did not hold";
    ReplicationConfigurationNotFoundError 404 final
        "The replication configuration was not found";
    RequestHeaderSectionTooLarge 400 final "Your request header section exceeds the maximum \
         allowed size.";
    RequestTimeTooSkewed 403 final "The difference between the request time and the current time \
         is too large.";
    RequestTimeout 400 retry "Your socket connection to the server was not read from or written \
         to within the timeout period.";
    ServerSideEncryptionConfigurationNotFoundError 404 final
        "The server side encryption configuration was not found";
    ServiceUnavailable 503 retry "Service is unable to handle request.";
    SignatureDoesNotMatch 403 final "The request signature we calculated does not match the \
         signature you provided. Check your key and signing method.";
    SlowDown 503 retry "Please reduce your request rate.";
    XAmzContentSHA256Mismatch 400 final "The provided 'x-amz-content-sha256' header does not match \
         what was computed.";
}

impl S3ErrorCode {
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.status_number()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// An answer that is not a success. A pointer in size, so that results stay small.
pub struct S3Error(Box<Parts>);

struct Parts {
    code: S3ErrorCode,
    message: Cow<'static, str>,
    details: Vec<(&'static str, String)>,
    headers: HeaderMap,
    log: Option<String>,
}

impl S3Error {
    /// An error with its code's default message.
    pub fn new(code: S3ErrorCode) -> S3Error {
        S3Error(Box::new(Parts {
            code,
            message: Cow::Borrowed(code.default_message()),
            details: Vec::new(),
            headers: HeaderMap::new(),
            log: None,
        }))
    }

    /// An internal error; `log` is for the operator only.
    pub fn internal(log: impl Into<String>) -> S3Error {
        S3Error::new(S3ErrorCode::InternalError).log(log)
    }

    /// NotImplemented for `feature`, named in the message.
    pub fn not_implemented(feature: &str) -> S3Error {
        S3Error::new(S3ErrorCode::NotImplemented)
            .message(format!("{feature} is not implemented by this server"))
    }

    /// Replaces the message that the client reads.
    pub fn message(mut self, message: impl Into<Cow<'static, str>>) -> S3Error {
        self.0.message = message.into();
        self
    }

    /// Adds an element, such as `<BucketName>`, to the document.
    pub fn detail(mut self, element: &'static str, value: impl Into<String>) -> S3Error {
        self.0.details.push((element, value.into()));
        self
    }

    /// Adds `<ArgumentName>` and `<ArgumentValue>`.
    pub fn argument(self, name: &str, value: &str) -> S3Error {
        self.detail("ArgumentName", name).detail("ArgumentValue", value)
    }

    /// Adds a header to the answer.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> S3Error {
        self.0.headers.append(name, value);
        self
    }

    /// Sets what the log says beside the code; never sent to the client.
    pub fn log(mut self, log: impl Into<String>) -> S3Error {
        self.0.log = Some(log.into());
        self
    }

    pub fn code(&self) -> S3ErrorCode {
        self.0.code
    }

    pub fn status(&self) -> StatusCode {
        self.0.code.status()
    }

    /// What the client reads.
    pub fn client_message(&self) -> &str {
        &self.0.message
    }

    /// What the operator should read, if anything beyond the code.
    pub fn log_message(&self) -> Option<&str> {
        self.0.log.as_deref()
    }

    /// The elements added by `detail`.
    pub fn details(&self) -> &[(&'static str, String)] {
        &self.0.details
    }

    /// The headers added by `header`.
    pub fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }

    /// The `<Error>` document. `resource` is the path that the request named.
    pub fn to_xml(&self, resource: &str, request_id: &str) -> String {
        let mut xml = XmlWriter::bare_document("Error", 256 + resource.len());
        xml.element("Code", self.0.code.as_str());
        xml.element("Message", &self.0.message);
        for (element, value) in &self.0.details {
            xml.element(element, value);
        }
        xml.element("Resource", resource);
        xml.element("RequestId", request_id);
        xml.finish()
    }

    /// The whole answer with `x-amz-request-id`; without a body for HEAD and for 304.
    pub fn response(&self, resource: &str, request_id: &str, is_head: bool) -> Response<Bytes> {
        let bare = is_head || self.0.code == S3ErrorCode::NotModified;
        let body = if bare { Bytes::new() } else { self.to_xml(resource, request_id).into() };
        let length = HeaderValue::from(body.len());
        let mut response = Response::new(body);
        *response.status_mut() = self.status();
        *response.headers_mut() = self.0.headers.clone();
        let headers = response.headers_mut();
        if !bare {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
            headers.insert(CONTENT_LENGTH, length);
        }
        if self.status() == StatusCode::SERVICE_UNAVAILABLE && !headers.contains_key(RETRY_AFTER) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Ok(id) = HeaderValue::from_str(request_id) {
            headers.insert(HeaderName::from_static("x-amz-request-id"), id);
        }
        response
    }
}

impl fmt::Debug for S3Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Error")
            .field("code", &self.0.code)
            .field("message", &self.0.message)
            .field("details", &self.0.details)
            .field("log", &self.0.log)
            .finish()
    }
}

impl fmt::Display for S3Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.as_str(), self.0.message)
    }
}

impl std::error::Error for S3Error {}

impl From<S3ErrorCode> for S3Error {
    fn from(code: S3ErrorCode) -> S3Error {
        S3Error::new(code)
    }
}

impl From<StoreError> for S3Error {
    fn from(error: StoreError) -> S3Error {
        let code = match &error {
            StoreError::NoSuchKey => S3ErrorCode::NoSuchKey,
            StoreError::NoSuchVersion => S3ErrorCode::NoSuchVersion,
            StoreError::NoSuchUpload => S3ErrorCode::NoSuchUpload,
            StoreError::Commit(commit) => return S3Error::from(commit.clone()),
            StoreError::SlowDown(_) => S3ErrorCode::SlowDown,
            StoreError::NoSpace => S3ErrorCode::InsufficientStorage,
            StoreError::Corrupt(_) | StoreError::Catalog(_) | StoreError::Io(_) => {
                S3ErrorCode::InternalError
            }
        };
        S3Error::new(code).log(error.to_string())
    }
}

impl From<CommitError> for S3Error {
    fn from(error: CommitError) -> S3Error {
        let answer = S3Error::new(code_of(&error));
        match &error {
            CommitError::PreconditionFailed(header) => answer.detail("Condition", *header),
            CommitError::InvalidPart { number } => answer.detail("PartNumber", number.to_string()),
            CommitError::EntityTooSmall { number, size } => answer
                .detail("ProposedSize", size.to_string())
                .detail("MinSizeAllowed", MIN_PART_BYTES.to_string())
                .detail("PartNumber", number.to_string()),
            CommitError::SizeMismatch => answer.message(
                "The provided 'x-amz-mp-object-size' header value does not match \
                    what was computed",
            ),
            CommitError::Locked => {
                answer.message("Access Denied because object protected by object lock.")
            }
            CommitError::NoObjectLock => {
                answer.message("Bucket is missing Object Lock Configuration")
            }
            CommitError::RetainUntilPast => {
                answer.message("The retain until date must be in the future!")
            }
            CommitError::NotVersioned => answer.message(
                "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration",
            ),
            CommitError::VersioningLocked => answer.message(
                "An Object Lock configuration is present on this bucket, so the versioning state \
                 cannot be changed.",
            ),
            CommitError::SourceChanged
            | CommitError::BlobNotPending(_)
            | CommitError::NoSpace
            | CommitError::Failed(_) => answer.log(error.to_string()),
            CommitError::NoSuchBucket
            | CommitError::NoSuchKey
            | CommitError::NoSuchVersion
            | CommitError::NoSuchUpload
            | CommitError::BucketAlreadyExists
            | CommitError::BucketNotEmpty
            | CommitError::InvalidPartOrder
            | CommitError::BadDigest
            | CommitError::EntityTooLarge
            | CommitError::NoSuchAccessKey
            | CommitError::Busy => answer,
        }
    }
}

fn code_of(error: &CommitError) -> S3ErrorCode {
    match error {
        CommitError::NoSuchBucket => S3ErrorCode::NoSuchBucket,
        CommitError::NoSuchKey => S3ErrorCode::NoSuchKey,
        CommitError::NoSuchVersion => S3ErrorCode::NoSuchVersion,
        CommitError::NoSuchUpload => S3ErrorCode::NoSuchUpload,
        CommitError::BucketAlreadyExists => S3ErrorCode::BucketAlreadyExists,
        CommitError::BucketNotEmpty => S3ErrorCode::BucketNotEmpty,
        CommitError::PreconditionFailed(_) => S3ErrorCode::PreconditionFailed,
        CommitError::SourceChanged => S3ErrorCode::ConditionalRequestConflict,
        CommitError::InvalidPart { .. } => S3ErrorCode::InvalidPart,
        CommitError::InvalidPartOrder => S3ErrorCode::InvalidPartOrder,
        CommitError::EntityTooSmall { .. } => S3ErrorCode::EntityTooSmall,
        CommitError::SizeMismatch => S3ErrorCode::InvalidRequest,
        CommitError::BadDigest => S3ErrorCode::BadDigest,
        CommitError::EntityTooLarge => S3ErrorCode::EntityTooLarge,
        CommitError::Locked => S3ErrorCode::AccessDenied,
        CommitError::NoObjectLock => S3ErrorCode::InvalidRequest,
        CommitError::RetainUntilPast => S3ErrorCode::InvalidArgument,
        CommitError::NotVersioned | CommitError::VersioningLocked => {
            S3ErrorCode::InvalidBucketState
        }
        CommitError::NoSuchAccessKey => S3ErrorCode::InvalidAccessKeyId,
        CommitError::BlobNotPending(_) => S3ErrorCode::ServiceUnavailable,
        CommitError::Busy => S3ErrorCode::SlowDown,
        CommitError::NoSpace => S3ErrorCode::InsufficientStorage,
        CommitError::Failed(_) => S3ErrorCode::InternalError,
    }
}

/// The smallest part but the last, in bytes, for the text of EntityTooSmall.
const MIN_PART_BYTES: u64 = 5 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_an_error_status_and_a_message() {
        for code in S3ErrorCode::ALL {
            let status = code.status().as_u16();
            assert!(status == 304 || (400..600).contains(&status), "{code:?}");
            assert!(!code.default_message().is_empty(), "{code:?}");
            assert!(!code.default_message().contains("  "), "{code:?}");
            // What clients may repeat is what went wrong here or timed out, nothing else.
            assert!(!code.is_retryable() || status >= 500 || status == 409 || status == 400);
        }
    }

    #[test]
    fn document_escapes_and_names_everything() {
        let error = S3Error::new(S3ErrorCode::InvalidArgument)
            .message("bad & <worse>")
            .argument("max-keys", "a\u{1}b");
        let xml = error.to_xml("/t/a<b", "0A1B");
        assert_eq!(
            xml,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>InvalidArgument</Code>\
             <Message>bad &amp; &lt;worse&gt;</Message><ArgumentName>max-keys</ArgumentName>\
             <ArgumentValue>a&#x1;b</ArgumentValue><Resource>/t/a&lt;b</Resource>\
             <RequestId>0A1B</RequestId></Error>"
        );
    }

    #[test]
    fn head_and_not_modified_have_no_body() {
        let missing = S3Error::new(S3ErrorCode::NoSuchKey);
        let head = missing.response("/t/k", "ID", true);
        assert!(head.body().is_empty());
        assert_eq!(head.status(), 404);
        assert_eq!(head.headers()["x-amz-request-id"], "ID");
        let not_modified = S3Error::new(S3ErrorCode::NotModified).response("/t/k", "ID", false);
        assert!(not_modified.body().is_empty());
        assert!(not_modified.headers().get(CONTENT_LENGTH).is_none());
        let get = missing.response("/t/k", "ID", false);
        assert_eq!(get.headers()[CONTENT_LENGTH], get.body().len().to_string().as_str());
    }

    #[test]
    fn slow_down_says_when_to_come_back() {
        let answer = S3Error::from(CommitError::Busy).response("/", "ID", false);
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()[RETRY_AFTER], "1");
    }

    #[test]
    fn internal_text_stays_inside() {
        let error = S3Error::from(CommitError::Failed("disk sda1 on fire".into()));
        assert!(!error.to_xml("/", "ID").contains("fire"));
        assert!(error.log_message().is_some_and(|m| m.contains("fire")));
    }

    #[test]
    fn a_refused_condition_is_named() {
        let error = S3Error::from(CommitError::PreconditionFailed("If-Match"));
        assert_eq!(error.status(), 412);
        assert!(error.to_xml("/", "ID").contains("<Condition>If-Match</Condition>"));
    }
}
