//! The source of CopyObject and UploadPartCopy: its header, its conditions, its authorisation.

use super::prelude::*;
use crate::s3::etag;

/// A source that the caller may read and whose conditions hold.
pub struct Source {
    pub bucket: Arc<Bucket>,
    pub key: Key,
    pub version: Arc<ObjectVersion>,
    /// True when the request names the version.
    pub named: bool,
}

impl Source {
    /// The version's id, where its bucket has or had versioning.
    pub fn version_id(&self) -> Option<VersionId> {
        let id = self.version.version_id;
        (self.bucket.versioning.is_some() || id != VersionId::NULL).then_some(id)
    }
}

/// Adds `x-amz-copy-source-version-id`.
pub fn add_version_id(headers: &mut HeaderMap, id: VersionId) {
    let name = HeaderName::from_static("x-amz-copy-source-version-id");
    headers.insert(name, response::header_value(&id.to_string()));
}

/// What `x-amz-copy-source` names.
#[derive(Debug, PartialEq, Eq)]
struct SourceName {
    bucket: String,
    key: String,
    version: Option<String>,
}

/// Finds the source of a copy.
///
/// **Errors** `InvalidArgument` for a header that names no object, `NoSuchBucket`, `NoSuchKey`,
/// `AccessDenied`, `PreconditionFailed` from `x-amz-copy-source-if-*`.
pub async fn find(s3: &S3State, request: &S3Request<'_>) -> Result<Source, S3Error> {
    let value = request.headers.get("x-amz-copy-source").map(HeaderValue::as_bytes);
    let name = value.and_then(parse).ok_or_else(|| {
        S3Error::new(S3ErrorCode::InvalidArgument)
            .message("Copy Source must mention the source bucket and key: sourcebucket/sourcekey")
            .argument("x-amz-copy-source", &String::from_utf8_lossy(value.unwrap_or_default()))
    })?;
    let named = match name.version.as_deref() {
        None => None,
        Some(text) => Some(VersionId::parse(text).ok_or_else(|| {
            S3Error::new(S3ErrorCode::InvalidArgument)
                .message("Invalid version id specified")
                .argument("versionId", text)
        })?),
    };
    let key = Key::new(&name.key).map_err(|_| S3Error::new(S3ErrorCode::KeyTooLongError))?;
    let bucket = s3.store.catalog().bucket(&name.bucket).ok_or_else(|| {
        S3Error::new(S3ErrorCode::NoSuchBucket).detail("BucketName", &name.bucket)
    })?;
    let expected = request.headers.get("x-amz-source-expected-bucket-owner");
    let found = s3.store.lookup(bucket.id, &key, named).await;
    let object = found.as_deref().ok();
    let asked = Asked {
        operation: Operation::GetObject,
        bucket: Some(&bucket),
        key: Some(&key),
        versioned: named.is_some(),
        object,
        expected_owner: expected,
    };
    authorise(request.caller(), asked)?;
    let version = found?;
    if version.delete_marker {
        return Err(match named {
            None => S3Error::new(S3ErrorCode::NoSuchKey).detail("Key", &name.key),
            Some(_) => S3Error::new(S3ErrorCode::InvalidRequest).message(
                "The source of a copy request may not specifically refer to a delete \
                          marker by version id.",
            ),
        });
    }
    etag::check_copy_source(&request.headers, &version)?;
    Ok(Source { bucket, key, version, named: named.is_some() })
}

/// Decodes the header: percent-decoded once, a plus is a space, the first slash is optional.
fn parse(value: &[u8]) -> Option<SourceName> {
    let text = std::str::from_utf8(value).ok()?;
    let (path, version) = match text.rsplit_once("?versionId=") {
        Some((path, version)) => (path, Some(decode(version)?)),
        None => (text, None),
    };
    let path = decode(path)?;
    let path = path.strip_prefix('/').unwrap_or(&path);
    let (bucket, key) = path.split_once('/')?;
    let complete = !bucket.is_empty() && !key.is_empty();
    complete.then(|| SourceName { bucket: bucket.to_owned(), key: key.to_owned(), version })
}

fn decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    let decoded = percent_encoding::percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &str, want: Option<(&str, &str, Option<&str>)>) {
        let want = want.map(|(bucket, key, version)| SourceName {
            bucket: bucket.into(),
            key: key.into(),
            version: version.map(str::to_owned),
        });
        assert_eq!(parse(value.as_bytes()), want, "{value}");
    }

    #[test]
    fn copy_03_the_source_is_decoded_once() {
        check("t/etc/c%2B%2B", Some(("t", "etc/c++", None)));
        check("/t/etc/c%2B%2B", Some(("t", "etc/c++", None)));
        check("%2Ft%2Fetc%2Fc%2B%2B", Some(("t", "etc/c++", None)));
        check("t/etc/c++", Some(("t", "etc/c  ", None)));
        check("t/a%252Fb", Some(("t", "a%2Fb", None)));
        check("t/Aliénor/u.pdf", Some(("t", "Aliénor/u.pdf", None)));
        check("t/k?versionId=null", Some(("t", "k", Some("null"))));
        check("t/k%3FversionId=null", Some(("t", "k?versionId=null", None)));
    }

    #[test]
    fn copy_03_a_source_without_bucket_and_key_is_refused() {
        for value in ["", "/", "t", "t/", "/t/", "//k", "t/%FF"] {
            check(value, None);
        }
    }
}
