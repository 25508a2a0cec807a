//! Answers about features that a bucket does not have: what AWS says of a bucket on which they
//! were never configured. SDKs and tools ask before they do their work.
//!
//! Reads nothing and writes nothing; the table below is all there is.

use super::prelude::*;

/// What is said about a feature that is not configured.
enum Unset {
    /// An error of its own.
    Error(S3ErrorCode),
    /// An empty document with this root.
    Empty(&'static str),
    /// A list without members.
    EmptyList(&'static str),
    /// A document with one element.
    One(&'static str, &'static str, &'static str),
}

fn unset(operation: Operation) -> Option<Unset> {
    use Operation as Op;
    use S3ErrorCode as Code;
    Some(match operation {
        Op::GetBucketLogging => Unset::Empty("BucketLoggingStatus"),
        Op::GetBucketNotificationConfiguration => Unset::Empty("NotificationConfiguration"),
        Op::GetBucketRequestPayment => {
            Unset::One("RequestPaymentConfiguration", "Payer", "BucketOwner")
        }
        Op::ListBucketAnalyticsConfigurations => {
            Unset::EmptyList("ListBucketAnalyticsConfigurationResult")
        }
        Op::ListBucketInventoryConfigurations => {
            Unset::EmptyList("ListInventoryConfigurationsResult")
        }
        Op::ListBucketMetricsConfigurations => Unset::EmptyList("ListMetricsConfigurationsResult"),
        Op::ListBucketIntelligentTieringConfigurations => {
            Unset::EmptyList("ListBucketIntelligentTieringConfigurationsOutput")
        }
        Op::GetBucketLifecycleConfiguration => Unset::Error(Code::NoSuchLifecycleConfiguration),
        Op::GetBucketEncryption => {
            Unset::Error(Code::ServerSideEncryptionConfigurationNotFoundError)
        }
        Op::GetBucketWebsite => Unset::Error(Code::NoSuchWebsiteConfiguration),
        Op::GetBucketReplication => Unset::Error(Code::ReplicationConfigurationNotFoundError),
        Op::GetBucketOwnershipControls => Unset::Error(Code::OwnershipControlsNotFoundError),
        // There is no torrent of any object.
        Op::GetObjectTorrent => Unset::Error(Code::NoSuchKey),
        _ => return None,
    })
}

/// Answers one of the operations that the table marks as probes.
pub async fn probe(s3: &S3State, request: &S3Request<'_>) -> S3Result {
    if request.key.is_some() {
        super::get_object::find(s3, request).await?;
    }
    let Some(unset) = unset(request.operation) else {
        return Err(S3Error::not_implemented(request.operation.name()));
    };
    let document = match unset {
        // A single configuration asked for by its id does not exist.
        Unset::EmptyList(_) if request.query.get("id").is_some() => {
            return Err(S3Error::new(S3ErrorCode::NoSuchConfiguration));
        }
        Unset::Error(code) => {
            let bucket = request.bucket()?.name.as_str();
            return Err(S3Error::new(code).detail("BucketName", bucket));
        }
        Unset::Empty(root) => XmlWriter::document(root, 128),
        Unset::EmptyList(root) => {
            let mut xml = XmlWriter::document(root, 256);
            xml.element("IsTruncated", "false");
            xml
        }
        Unset::One(root, element, text) => {
            let mut xml = XmlWriter::document(root, 256);
            xml.element(element, text);
            xml
        }
    };
    Ok(response::xml(document.finish()))
}
