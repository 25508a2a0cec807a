//! Settings that tools write as a matter of course: accelerate, requestPayment, and logging and
//! notification in the form that asks for nothing.
//!
//! What would have to be carried out to be true is refused with NotImplemented, naming the
//! operation; what is stored here changes nothing but the answer of its GET.

use super::bucket_config::{read, set};
use super::prelude::*;

const ACCELERATE: &str = "accelerate";

/// A bucket on which it was never set has an empty document.
///
/// **Source** AWS S3 API reference, GetBucketAccelerateConfiguration.
pub async fn get_bucket_accelerate(request: &S3Request<'_>) -> S3Result {
    match request.bucket()?.configs.get(ACCELERATE) {
        Some(config) => Ok(response::xml(config.document().to_vec())),
        None => Ok(response::xml(XmlWriter::document("AccelerateConfiguration", 128).finish())),
    }
}

/// Every request comes by the same way here, so that the setting is kept and means nothing.
///
/// **Errors** `MalformedXML`; `InvalidRequest` for a bucket with a dot in its name.
/// **Source** AWS S3 API reference, PutBucketAccelerateConfiguration.
pub async fn put_bucket_accelerate(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let body = read(s3, request).await?;
    let status = only_text(&body, "AccelerateConfiguration", "Status")?;
    if !matches!(status.as_str(), "Enabled" | "Suspended") {
        return Err(S3ErrorCode::MalformedXML.into());
    }
    if request.bucket()?.name.as_str().contains('.') {
        return Err(S3Error::new(S3ErrorCode::InvalidRequest).message(
            "S3 Transfer Acceleration is not supported for buckets with periods (.) in their names",
        ));
    }
    let mut xml = XmlWriter::document("AccelerateConfiguration", 256);
    xml.element("Status", &status);
    set(s3, request, ACCELERATE, xml.finish()).await?;
    Ok(response::empty(StatusCode::OK))
}

/// Nobody pays here, so that the bucket's owner is all that can be named.
///
/// **Errors** `MalformedXML`; `NotImplemented` for payment by the requester.
/// **Source** AWS S3 API reference, PutBucketRequestPayment.
pub async fn put_bucket_request_payment(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let body = read(s3, request).await?;
    match only_text(&body, "RequestPaymentConfiguration", "Payer")?.as_str() {
        "BucketOwner" => Ok(response::empty(StatusCode::OK)),
        "Requester" => Err(S3Error::not_implemented("PutBucketRequestPayment by the requester")),
        _ => Err(S3ErrorCode::MalformedXML.into()),
    }
}

/// Takes the document that switches logging off.
///
/// **Errors** `MalformedXML`; `NotImplemented` for one that switches it on.
/// **Source** AWS S3 API reference, PutBucketLogging.
pub async fn put_bucket_logging(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    only_empty(&read(s3, request).await?, "BucketLoggingStatus", request.operation)
}

/// Takes the document that switches notifications off. Its digest is not asked for.
///
/// **Errors** `MalformedXML`; `NotImplemented` for one that asks for any.
/// **Source** AWS S3 API reference, PutBucketNotificationConfiguration.
pub async fn put_bucket_notification(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let body = request.read_document(s3).await?;
    only_empty(&body, "NotificationConfiguration", request.operation)
}

fn only_empty(body: &[u8], root_name: &str, operation: Operation) -> S3Result {
    let root = xml::parse(body)?;
    root.expect_name(root_name)?;
    if root.children.is_empty() {
        return Ok(response::empty(StatusCode::OK));
    }
    Err(S3Error::not_implemented(operation.name()))
}

/// The text of the one element that a document has.
fn only_text(body: &[u8], root_name: &str, name: &str) -> Result<String, S3Error> {
    let root = xml::parse(body)?;
    root.expect_name(root_name)?;
    match root.children.as_slice() {
        [only] if only.name == name => Ok(only.text.trim().to_owned()),
        _ => Err(S3ErrorCode::MalformedXML.into()),
    }
}
