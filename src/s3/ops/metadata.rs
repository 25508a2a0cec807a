//! The metadata headers of a write.
//!
//! Pure. Owns what is stored of them and what is refused: nothing that a client asks for is
//! dropped in silence when dropping it would change what the client may rely on.

use super::prelude::*;
use crate::model::ObjectMetadata;
use crate::s3::{object_lock, tagging};

/// Bytes of user metadata, names and values together, as AWS counts them.
const USER_BYTES_MAX: usize = 2048;
/// Tags of one object, as AWS has it.
pub const TAGS_MAX: usize = 10;

/// Storage classes that AWS knows. They are stored and shown; all mean the same here.
const STORAGE_CLASSES: [&str; 11] = [
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER",
    "DEEP_ARCHIVE",
    "OUTPOSTS",
    "GLACIER_IR",
    "SNOW",
    "EXPRESS_ONEZONE",
];

/// Headers that ask for what this server cannot give.
const REFUSED: [(&str, &str); 4] = [
    ("x-amz-server-side-encryption", "Server-side encryption"),
    ("x-amz-server-side-encryption-customer-algorithm", "Server-side encryption"),
    ("x-amz-server-side-encryption-aws-kms-key-id", "Server-side encryption"),
    ("x-amz-write-offset-bytes", "Append"),
];

/// Reads the metadata of PutObject, CopyObject and CreateMultipartUpload.
///
/// **Errors** `MetadataTooLarge`, `InvalidStorageClass`, `InvalidTag`, `InvalidArgument`,
/// `NotImplemented` for encryption and append, ACL errors as in `acl`.
pub fn of_write(headers: &HeaderMap) -> Result<ObjectMetadata, S3Error> {
    let acl = super::acl::canned(headers)?;
    for (name, feature) in REFUSED {
        if headers.contains_key(name) {
            return Err(S3Error::not_implemented(feature));
        }
    }
    let text = |name: &str| headers.get(name).map(value_text);
    let (retention, legal_hold) = object_lock::of_write(headers)?;
    Ok(ObjectMetadata {
        content_type: text("content-type").filter(|value| !value.is_empty()),
        content_encoding: content_encoding(headers),
        cache_control: text("cache-control"),
        content_disposition: text("content-disposition"),
        content_language: text("content-language"),
        expires: text("expires"),
        website_redirect: website_redirect(text("x-amz-website-redirect-location"))?,
        storage_class: storage_class(text("x-amz-storage-class"))?,
        user: user_metadata(headers)?,
        tags: text("x-amz-tagging")
            .map_or(Ok(Vec::new()), |value| tagging::parse_header(&value, TAGS_MAX))?,
        acl,
        retention,
        legal_hold,
    })
}

/// A value as text: UTF-8 when it is, else Latin-1, in which HTTP once wrote.
fn value_text(value: &HeaderValue) -> String {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => text.to_owned(),
        Err(_) => value.as_bytes().iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// Content-Encoding without `aws-chunked`, which is framing and no encoding of the object.
fn content_encoding(headers: &HeaderMap) -> Option<String> {
    let all: Vec<_> = headers.get_all(CONTENT_ENCODING).iter().map(value_text).collect();
    let rest: Vec<_> = all
        .iter()
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty() && !token.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    (!rest.is_empty()).then(|| rest.join(", "))
}

fn website_redirect(value: Option<String>) -> Result<Option<String>, S3Error> {
    let lawful = |text: &str| {
        text.starts_with('/') || text.starts_with("http://") || text.starts_with("https://")
    };
    match value {
        Some(text) if !lawful(&text) => Err(S3Error::new(S3ErrorCode::InvalidArgument)
            .message(
                "The website redirect location must have a prefix of 'http://' or \
                      'https://' or '/'.",
            )
            .argument("x-amz-website-redirect-location", &text)),
        other => Ok(other),
    }
}

fn storage_class(value: Option<String>) -> Result<Option<String>, S3Error> {
    match value {
        None => Ok(None),
        Some(class) if class == "STANDARD" => Ok(None),
        Some(class) if STORAGE_CLASSES.contains(&class.as_str()) => Ok(Some(class)),
        Some(class) => {
            Err(S3Error::new(S3ErrorCode::InvalidStorageClass)
                .detail("StorageClassRequested", class))
        }
    }
}

/// `x-amz-meta-*` in name order; repeated headers are joined by a comma.
fn user_metadata(headers: &HeaderMap) -> Result<Vec<(String, String)>, S3Error> {
    let mut user: Vec<(String, String)> = Vec::new();
    for name in headers.keys() {
        let Some(short) = name.as_str().strip_prefix("x-amz-meta-") else { continue };
        let values: Vec<_> = headers.get_all(name).iter().map(value_text).collect();
        user.push((short.to_owned(), values.join(",")));
    }
    user.sort();
    let bytes: usize = user.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > USER_BYTES_MAX {
        return Err(S3Error::new(S3ErrorCode::MetadataTooLarge)
            .detail("Size", bytes.to_string())
            .detail("MaxSizeAllowed", USER_BYTES_MAX.to_string()));
    }
    Ok(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&'static str, &str)]) -> Result<ObjectMetadata, S3Error> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).expect("a header value");
            map.append(HeaderName::from_static(name), value);
        }
        of_write(&map)
    }

    #[test]
    fn chk_04_aws_chunked_is_no_content_encoding() {
        let cases = [
            ("aws-chunked", None),
            ("aws-chunked,gzip", Some("gzip")),
            ("gzip, aws-chunked", Some("gzip")),
            ("gzip", Some("gzip")),
            ("", None),
        ];
        for (sent, stored) in cases {
            let metadata = read(&[("content-encoding", sent)]).expect("lawful");
            assert_eq!(metadata.content_encoding.as_deref(), stored, "{sent}");
        }
    }

    #[test]
    fn sig_05_metadata_is_bounded_and_repeats_are_joined() {
        let joined = read(&[("x-amz-meta-b", "1"), ("x-amz-meta-a", "2"), ("x-amz-meta-b", "3")]);
        let want = vec![("a".to_owned(), "2".to_owned()), ("b".to_owned(), "1,3".to_owned())];
        assert_eq!(joined.expect("lawful").user, want);
        let fits = "v".repeat(USER_BYTES_MAX - 1);
        assert!(read(&[("x-amz-meta-a", &fits)]).is_ok());
        let error = read(&[("x-amz-meta-aa", &fits)]).expect_err("one byte too many");
        assert_eq!(error.code(), S3ErrorCode::MetadataTooLarge);
    }

    #[test]
    fn storage_classes_and_redirects_are_checked() {
        assert_eq!(
            read(&[("x-amz-storage-class", "STANDARD")]).expect("known").storage_class,
            None
        );
        assert!(read(&[("x-amz-storage-class", "STANDARD_IA")]).is_ok());
        assert!(read(&[("x-amz-storage-class", "standard")]).is_err());
        assert!(read(&[("x-amz-website-redirect-location", "elsewhere")]).is_err());
        assert!(read(&[("x-amz-server-side-encryption", "AES256")]).is_err());
    }
}
