//! POST /bucket with a form: an upload by a browser.
//!
//! Owns the meaning of the form's fields. The file's bytes pass straight into the store; nothing
//! is visible before the whole form was read and agrees with its policy.

use super::prelude::*;
use crate::model::ObjectMetadata;
use crate::s3::auth::form::{SIGNATURE_FIELDS, required};
use crate::s3::auth::{KeyPair, Payload};
use crate::s3::body::RequestBody;
use crate::s3::claims::Claims;
use crate::s3::form::{Fields, FormReader};
use crate::s3::post_policy::PostPolicy;
use crate::s3::tagging;
use crate::store::{PutObject, WriteOptions, Written};

/// What stands in a key for the name of the uploaded file.
const FILENAME: &str = "${filename}";

/// Fields that are headers of a PutObject, beside those that begin with `x-amz-`.
const HEADER_FIELDS: [&str; 7] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "expires",
];

/// Stores the file of a form. The form itself says who sends it: headers carry no signature.
///
/// **Errors** those of `FormReader`, `Verifier::verify_form` and `PostPolicy`; `InvalidArgument`
/// without a key or a file; `EntityTooLarge`, `EntityTooSmall`; those of PutObject.
/// **Source** AWS S3 API reference, "POST Object".
pub async fn post_object(
    s3: &S3State,
    bucket: &Bucket,
    request: &HeaderMap,
    body: &mut RequestBody,
) -> S3Result {
    let mut form = FormReader::new(body, request)?;
    let fields = form.fields().await?;
    let Some(file_name) = fields.file_name.as_deref() else {
        return Err(S3Error::new(S3ErrorCode::InvalidArgument)
            .message("POST requires exactly one file upload per request.")
            .argument("file", "0"));
    };
    let key = key_of(&fields, file_name)?;
    let lookup = |access_key: &str| s3.store.catalog().access_key(access_key);
    let signer = s3.verifier.verify_form(&fields, &lookup)?;
    let policy = match &signer {
        Some(_) => Some(PostPolicy::parse(required(&fields, "policy")?)?),
        None => None,
    };
    if let Some(policy) = &policy {
        let now_secs = s3.clock.now_ms().div_euclid(1000);
        policy.check(&fields, bucket.name.as_str(), key.as_str(), now_secs)?;
    }
    let caller: KeyPair = signer.unwrap_or_else(|| s3.verifier.anonymous().clone());
    let expected = request.get("x-amz-expected-bucket-owner");
    let asked = Asked {
        operation: Operation::PostObject,
        bucket: Some(bucket),
        key: Some(&key),
        versioned: false,
        object: None,
        expected_owner: expected,
    };
    authorise(&caller.1, asked)?;

    let headers = headers_of(&fields)?;
    let metadata = metadata_of(&fields, &headers)?;
    public_access::check_acl(bucket, metadata.acl)?;
    let claims = Claims::new(&headers, &Payload::Unsigned)?;
    let length = policy.and_then(|policy| policy.length);
    let written = receive(s3, &mut form, &claims, length).await?;
    let put = PutObject {
        bucket: bucket.id,
        key: key.clone(),
        owner: caller.1.canonical_id.clone(),
        metadata,
        checksum: written.digests.checksum.clone(),
        condition: headers::write_condition(&headers)?,
        written,
    };
    let version = s3.store.put_object(put).await?;
    Ok(answer(bucket, &key, &version, &fields))
}

/// The key field with the file's name filled in.
fn key_of(fields: &Fields, file_name: &str) -> Result<Key, S3Error> {
    // Some browsers send a whole path.
    let name = file_name.rsplit(['/', '\\']).next().unwrap_or_default();
    let text = required(fields, "key")?.replace(FILENAME, name);
    Key::new(&text).map_err(|_| match text.is_empty() {
        true => S3Error::new(S3ErrorCode::InvalidArgument)
            .message("User key must have a length greater than 0.")
            .argument("key", ""),
        false => S3Error::new(S3ErrorCode::KeyTooLongError)
            .detail("Size", text.len().to_string())
            .detail("MaxSizeAllowed", Key::BYTES_MAX.to_string()),
    })
}

/// The fields that would be headers of a PutObject, as such. A field that stands twice would let
/// a condition of the policy be met by the one and the object be made from the other.
fn headers_of(fields: &Fields) -> Result<HeaderMap, S3Error> {
    let mut headers = HeaderMap::new();
    for (field, value) in &fields.pairs {
        let name = match field.to_ascii_lowercase() {
            name if name == "acl" => "x-amz-acl".to_owned(),
            name => name,
        };
        let is_header = HEADER_FIELDS.contains(&name.as_str()) || name.starts_with("x-amz-");
        if !is_header || SIGNATURE_FIELDS.contains(&name.as_str()) {
            continue;
        }
        let invalid = || S3Error::new(S3ErrorCode::InvalidArgument).argument(field, value);
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
        if headers.insert(header, value).is_some() {
            return Err(S3ErrorCode::MalformedPOSTRequest.into());
        }
    }
    Ok(headers)
}

/// Tags come as a document in a field of their own.
fn metadata_of(fields: &Fields, headers: &HeaderMap) -> Result<ObjectMetadata, S3Error> {
    let mut metadata = super::metadata::of_write(headers)?;
    if let Some(document) = fields.get("tagging") {
        metadata.tags = tagging::parse(document.as_bytes(), super::metadata::TAGS_MAX, "Object")?;
    }
    Ok(metadata)
}

/// Reads the file into the store. `length` are the least and greatest number of bytes.
async fn receive(
    s3: &S3State,
    form: &mut FormReader<'_>,
    claims: &Claims,
    length: Option<(u64, u64)>,
) -> Result<Written, S3Error> {
    let (least, most) = length.unwrap_or((0, u64::MAX));
    let most = most.min(s3.settings.limits.put_bytes_max);
    let digests = claims.digests(Some(ChecksumAlgorithm::Crc64Nvme));
    let mut writer = s3.store.writer(WriteOptions { size_hint: None, digests }).await?;
    let mut received = 0u64;
    while let Some(piece) = form.next().await? {
        received += piece.len() as u64;
        if received > most {
            return Err(S3Error::new(S3ErrorCode::EntityTooLarge)
                .detail("ProposedSize", received.to_string())
                .detail("MaxSizeAllowed", most.to_string()));
        }
        writer.write(piece).await?;
    }
    if received < least {
        return Err(S3Error::new(S3ErrorCode::EntityTooSmall)
            .detail("ProposedSize", received.to_string())
            .detail("MinSizeAllowed", least.to_string()));
    }
    let written = writer.finish().await?;
    claims.verify(&written.digests)?;
    Ok(written)
}

/// A redirect to where the form says, or an answer with the status that it says.
fn answer(bucket: &Bucket, key: &Key, version: &ObjectVersion, fields: &Fields) -> Response {
    let location = format!("/{}/{}", bucket.name, encoded(key.as_str(), true));
    let etag = quoted_etag(&version.etag);
    let wanted = fields.get("success_action_redirect").or_else(|| fields.get("redirect"));
    let redirect = wanted.and_then(|url| redirect_to(url, bucket, key, &etag));
    let mut response = match (redirect, fields.get("success_action_status")) {
        (Some(url), _) => {
            let mut response = response::empty(StatusCode::SEE_OTHER);
            response.headers_mut().insert(LOCATION, url);
            response
        }
        (None, Some("201")) => {
            let mut xml = XmlWriter::bare_document("PostResponse", 512);
            xml.element("Location", &location);
            xml.element("Bucket", bucket.name.as_str());
            xml.element("Key", key.as_str());
            xml.element("ETag", &etag);
            let mut response = response::xml(xml.finish());
            *response.status_mut() = StatusCode::CREATED;
            response
        }
        (None, Some("200")) => response::empty(StatusCode::OK),
        (None, _) => response::empty(StatusCode::NO_CONTENT),
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, response::header_value(&etag));
    response::add_new_version(headers, version);
    headers.entry(LOCATION).or_insert_with(|| response::header_value(&location));
    if let Some(checksum) = &version.checksum {
        response::add_checksum(headers, checksum, 0);
    }
    response
}

/// The form's URL with what was stored; `None` for what is no URL, which counts as none at all.
fn redirect_to(url: &str, bucket: &Bucket, key: &Key, etag: &str) -> Option<HeaderValue> {
    let parsed: http::Uri = url.parse().ok()?;
    if !matches!(parsed.scheme_str(), Some("http" | "https")) {
        return None;
    }
    let sign = if parsed.query().is_some() { '&' } else { '?' };
    let (key, etag) = (encoded(key.as_str(), false), encoded(etag, false));
    HeaderValue::from_str(&format!("{url}{sign}bucket={}&key={key}&etag={etag}", bucket.name)).ok()
}

/// Percent-encoded but for what RFC 3986 leaves alone, and slashes where they are wanted.
fn encoded(text: &str, slashes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        if plain || (slashes && byte == b'/') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
