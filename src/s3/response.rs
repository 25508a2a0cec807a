//! Composing responses: the headers of objects, XML documents, errors.
//!
//! Owns which header stands on which answer, so that GET, HEAD, 206, 304 and 416 of one object
//! agree. It never decides anything about a request.

use std::fmt::{self, Write as _};

use axum::body::Body;
use axum::response::Response;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_LENGTH, CONTENT_TYPE, ETAG, EXPIRES, LAST_MODIFIED,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::time::http_date;
use crate::model::{Bucket, Checksum, ChecksumKind, ETag, ObjectVersion, VersionId};

/// What AWS answers for an object that was stored without a Content-Type.
pub const CONTENT_TYPE_DEFAULT: HeaderValue = HeaderValue::from_static("binary/octet-stream");
const CONTENT_TYPE_XML: HeaderValue = HeaderValue::from_static("application/xml");

/// An empty answer.
pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// A 200 with an XML document.
pub fn xml(document: impl Into<bytes::Bytes>) -> Response {
    let document = document.into();
    let length = displayed(document.len());
    let mut response = Response::new(Body::from(document));
    response.headers_mut().insert(CONTENT_TYPE, CONTENT_TYPE_XML);
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response
}

/// `"<etag>"`, as every header and document shows it.
pub fn quoted_etag(etag: &ETag) -> String {
    format!("\"{etag}\"")
}

/// A header value of text that we made or checked; text that cannot stand in a header is dropped
/// to an empty value rather than cut the response.
pub fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_bytes(text.as_bytes()).unwrap_or(HeaderValue::from_static(""))
}

/// A header value of something that is shown as ASCII: numbers, dates, tags. Short ones cost one
/// allocation, that of the value itself.
pub fn displayed(value: impl fmt::Display) -> HeaderValue {
    let mut text = ShortText::default();
    match write!(text, "{value}") {
        Ok(()) => HeaderValue::from_bytes(text.as_bytes()).unwrap_or(HeaderValue::from_static("")),
        Err(_) => header_value(&value.to_string()),
    }
}

/// Text on the stack; writing more than fits is an error.
struct ShortText {
    bytes: [u8; 64],
    len: usize,
}

impl Default for ShortText {
    fn default() -> ShortText {
        ShortText { bytes: [0; 64], len: 0 }
    }
}

impl ShortText {
    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Write for ShortText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        free.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// The base64 text of a checksum, with `-N` behind a composite value of `parts` parts.
pub fn checksum_text(checksum: &Checksum, parts: usize) -> String {
    use base64::Engine as _;
    let value = base64::engine::general_purpose::STANDARD.encode(&checksum.value);
    match checksum.kind {
        ChecksumKind::FullObject => value,
        ChecksumKind::Composite => format!("{value}-{parts}"),
    }
}

/// Adds `x-amz-checksum-*`, as answers about parts have it.
pub fn add_checksum_value(headers: &mut HeaderMap, checksum: &Checksum, parts: usize) {
    let name = HeaderName::from_static(checksum.algorithm.header());
    headers.insert(name, header_value(&checksum_text(checksum, parts)));
}

/// Adds `x-amz-checksum-*` and `x-amz-checksum-type`.
pub fn add_checksum(headers: &mut HeaderMap, checksum: &Checksum, parts: usize) {
    add_checksum_value(headers, checksum, parts);
    add_checksum_kind(headers, checksum.kind);
}

/// Adds `x-amz-checksum-type`.
pub fn add_checksum_kind(headers: &mut HeaderMap, kind: ChecksumKind) {
    let kind = HeaderValue::from_static(kind.name());
    headers.insert(HeaderName::from_static("x-amz-checksum-type"), kind);
}

/// Adds what identifies a version: on 200, 206 and 304 alike.
pub fn add_validators(headers: &mut HeaderMap, version: &ObjectVersion) {
    headers.insert(ETAG, displayed(format_args!("\"{}\"", version.etag)));
    headers.insert(LAST_MODIFIED, displayed(http_date(version.modified_ms)));
    if let Some(text) = &version.metadata.cache_control {
        headers.insert(CACHE_CONTROL, header_value(text));
    }
    if let Some(text) = &version.metadata.expires {
        headers.insert(EXPIRES, header_value(text));
    }
}

/// Adds `x-amz-version-id`.
pub fn add_version_id(headers: &mut HeaderMap, id: VersionId) {
    headers.insert(HeaderName::from_static("x-amz-version-id"), header_value(&id.to_string()));
}

/// Adds `x-amz-version-id`, unless the bucket never had versioning: its one null version is not
/// named.
pub fn add_version_of(headers: &mut HeaderMap, bucket: &Bucket, version: &ObjectVersion) {
    if bucket.versioning.is_some() || version.version_id != VersionId::NULL {
        add_version_id(headers, version.version_id);
    }
}

/// Adds the id of a version that a write made. In a bucket whose versioning is suspended the new
/// version is null and not named.
pub fn add_new_version(headers: &mut HeaderMap, version: &ObjectVersion) {
    if version.version_id != VersionId::NULL {
        add_version_id(headers, version.version_id);
    }
}

/// Adds `x-amz-delete-marker: true`.
pub fn add_delete_marker(headers: &mut HeaderMap) {
    let name = HeaderName::from_static("x-amz-delete-marker");
    headers.insert(name, HeaderValue::from_static("true"));
}

/// Adds everything that describes an object beside its length and range.
pub fn add_object_headers(headers: &mut HeaderMap, version: &ObjectVersion) {
    let metadata = &version.metadata;
    add_validators(headers, version);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let content_type = metadata.content_type.as_deref().map(header_value);
    headers.insert(CONTENT_TYPE, content_type.unwrap_or(CONTENT_TYPE_DEFAULT));
    let optional = [
        (CONTENT_ENCODING, &metadata.content_encoding),
        (CONTENT_DISPOSITION, &metadata.content_disposition),
        (CONTENT_LANGUAGE, &metadata.content_language),
        (HeaderName::from_static("x-amz-website-redirect-location"), &metadata.website_redirect),
        (HeaderName::from_static("x-amz-storage-class"), &metadata.storage_class),
    ];
    for (name, value) in optional {
        if let Some(text) = value {
            headers.insert(name, header_value(text));
        }
    }
    if !metadata.tags.is_empty() {
        let count = displayed(metadata.tags.len());
        headers.insert(HeaderName::from_static("x-amz-tagging-count"), count);
    }
    super::object_lock::add_headers(headers, metadata);
    for (name, value) in &metadata.user {
        if let Ok(name) = HeaderName::from_bytes(format!("x-amz-meta-{name}").as_bytes()) {
            headers.append(name, user_value(value));
        }
    }
}

/// A value of user metadata. Header values are ASCII to most clients, so other text goes as one
/// encoded word, which is what AWS does.
///
/// **Source** RFC 2047 section 4.1; Amazon S3 User Guide, "User-defined object metadata".
fn user_value(text: &str) -> HeaderValue {
    use base64::Engine as _;
    if text.is_ascii() {
        return header_value(text);
    }
    let encoded = base64::engine::general_purpose::STANDARD.encode(text);
    header_value(&format!("=?UTF-8?B?{encoded}?="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_values_of_every_length_are_whole() {
        for len in [0, 1, 63, 64, 65, 300] {
            let text = "x".repeat(len);
            assert_eq!(displayed(&text), text.as_str(), "{len}");
        }
        assert_eq!(displayed(u64::MAX), "18446744073709551615");
        assert_eq!(displayed("a\nb"), "");
    }

    #[test]
    fn user_metadata_beyond_ascii_is_an_encoded_word() {
        assert_eq!(user_value("plain  text"), "plain  text");
        assert_eq!(user_value("\u{4f60}\u{597d}"), "=?UTF-8?B?5L2g5aW9?=");
        assert_eq!(user_value(""), "");
    }
}
