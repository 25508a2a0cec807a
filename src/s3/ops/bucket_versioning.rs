//! GET and PUT /bucket?versioning

use super::prelude::*;
use crate::model::Versioning;

/// **Source** AWS S3 API reference, GetBucketVersioning.
pub async fn get_bucket_versioning(request: &S3Request<'_>) -> S3Result {
    let mut xml = XmlWriter::document("VersioningConfiguration", 256);
    if let Some(versioning) = request.bucket()?.versioning {
        let status = match versioning {
            Versioning::Enabled => "Enabled",
            Versioning::Suspended => "Suspended",
        };
        xml.element("Status", status);
    }
    Ok(response::xml(xml.finish()))
}

/// Enables or suspends versioning.
///
/// **Errors** `MalformedXML`, `IllegalVersioningConfigurationException` without a status,
/// `AccessDenied` for MFA delete, as AWS answers a caller without a device: there are none here.
/// **Source** AWS S3 API reference, PutBucketVersioning.
pub async fn put_bucket_versioning(s3: &S3State, request: &mut S3Request<'_>) -> S3Result {
    let body = request.read_document(s3).await?;
    let versioning = versioning_of(&body)?;
    s3.store.set_versioning(request.bucket()?.id, versioning).await?;
    Ok(response::empty(StatusCode::OK))
}

fn versioning_of(body: &[u8]) -> Result<Versioning, S3Error> {
    if body.is_empty() {
        return Err(S3ErrorCode::MissingRequestBodyError.into());
    }
    let root = xml::parse(body)?;
    root.expect_name("VersioningConfiguration")?;
    match root.child_text("MfaDelete") {
        None | Some("Disabled") => {}
        Some("Enabled") => {
            return Err(S3Error::new(S3ErrorCode::AccessDenied)
                .message("Mfa Authentication must be used for this request"));
        }
        Some(_) => return Err(S3ErrorCode::MalformedXML.into()),
    }
    match root.child_text("Status") {
        Some("Enabled") => Ok(Versioning::Enabled),
        Some("Suspended") => Ok(Versioning::Suspended),
        Some(_) => Err(S3ErrorCode::MalformedXML.into()),
        None => Err(S3Error::new(S3ErrorCode::IllegalVersioningConfigurationException)
            .message("The Versioning element must be specified")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_or_refused_as_aws_does() {
        let document = |inner: &str| {
            let text = format!("<VersioningConfiguration>{inner}</VersioningConfiguration>");
            versioning_of(text.as_bytes()).map_err(|error| error.code())
        };
        assert_eq!(document("<Status>Enabled</Status>"), Ok(Versioning::Enabled));
        let disabled = "<Status>Suspended</Status><MfaDelete>Disabled</MfaDelete>";
        assert_eq!(document(disabled), Ok(Versioning::Suspended));
        assert_eq!(document("<Status>enabled</Status>"), Err(S3ErrorCode::MalformedXML));
        assert_eq!(document(""), Err(S3ErrorCode::IllegalVersioningConfigurationException));
        let mfa = "<Status>Enabled</Status><MfaDelete>Enabled</MfaDelete>";
        assert_eq!(document(mfa), Err(S3ErrorCode::AccessDenied));
        assert!(versioning_of(b"").is_err());
    }
}
