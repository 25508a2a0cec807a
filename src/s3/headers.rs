//! Request headers of the S3 API, read into the model's terms.
//!
//! Pure. Owns which values are lawful; it decides nothing about objects.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};

use super::error::{S3Error, S3ErrorCode};
use super::etag;
use super::time::{parse_http_date, parse_iso_date};
use crate::model::{Checksum, ChecksumAlgorithm, ChecksumKind, WriteCondition};

/// A header's value as text; `None` when it is absent or not UTF-8.
pub fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
}

/// A header with a number. **Errors** `InvalidArgument` for anything but digits.
pub fn number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, S3Error> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match digits.and_then(|text| text.parse().ok()) {
        Some(number) => Ok(Some(number)),
        None => Err(S3Error::new(S3ErrorCode::InvalidArgument)
            .message(format!("The value of {name} must be a number"))
            .argument(name, &String::from_utf8_lossy(value.as_bytes()))),
    }
}

/// Content-MD5. **Errors** `InvalidDigest` unless it is the base64 text of 16 bytes.
pub fn content_md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, S3Error> {
    let Some(value) = headers.get("content-md5") else { return Ok(None) };
    let raw = STANDARD.decode(value.as_bytes()).ok().and_then(|raw| raw.try_into().ok());
    raw.map(Some).ok_or_else(|| S3ErrorCode::InvalidDigest.into())
}

/// The base64 text of a whole-object or part checksum.
///
/// **Errors** `BadDigest` unless it has the algorithm's length: no bytes can have such a checksum.
pub fn checksum_value(algorithm: ChecksumAlgorithm, text: &str) -> Result<Checksum, S3Error> {
    let value = STANDARD.decode(text.trim()).ok();
    match value.filter(|value| value.len() == algorithm.len_bytes()) {
        Some(value) => Ok(Checksum { algorithm, kind: ChecksumKind::FullObject, value }),
        None => Err(S3Error::new(S3ErrorCode::BadDigest)
            .message(format!("Value for {} header is invalid.", algorithm.header()))),
    }
}

/// The object's checksum as CompleteMultipartUpload may name it; a composite one has `-N` behind.
///
/// **Errors** `BadDigest` for a value that is none.
pub fn whole_object_checksum(headers: &HeaderMap) -> Result<Option<Checksum>, S3Error> {
    for algorithm in ChecksumAlgorithm::ALL {
        let Some(value) = text(headers, algorithm.header()) else { continue };
        let (value, composite) = match value.split_once('-') {
            Some((value, _)) => (value, true),
            None => (value, false),
        };
        let named = text(headers, "x-amz-checksum-type");
        let composite = composite || named.is_some_and(|t| t.eq_ignore_ascii_case("COMPOSITE"));
        let checksum = checksum_value(algorithm, value)?;
        let kind = if composite { ChecksumKind::Composite } else { ChecksumKind::FullObject };
        return Ok(Some(Checksum { kind, ..checksum }));
    }
    Ok(None)
}

/// If-Match and If-None-Match of a write.
pub fn write_condition(headers: &HeaderMap) -> Result<WriteCondition, S3Error> {
    Ok(WriteCondition {
        if_match: etag::tags(headers, &IF_MATCH),
        if_none_match: etag::tags(headers, &IF_NONE_MATCH),
        ..WriteCondition::default()
    })
}

/// The conditions of a delete. **Errors** `InvalidArgument` for a size or time that is none.
pub fn delete_condition(headers: &HeaderMap) -> Result<WriteCondition, S3Error> {
    const TIME: HeaderName = HeaderName::from_static("x-amz-if-match-last-modified-time");
    let modified = match headers.get(TIME) {
        None => None,
        Some(value) => {
            let text = value.to_str().unwrap_or_default();
            let secs = parse_http_date(text).or_else(|| parse_iso_date(text));
            Some(secs.ok_or_else(|| {
                S3Error::new(S3ErrorCode::InvalidArgument).argument(TIME.as_str(), text)
            })?)
        }
    };
    Ok(WriteCondition {
        if_match: etag::tags(headers, &IF_MATCH),
        if_none_match: None,
        if_match_size: number(headers, "x-amz-if-match-size")?,
        if_match_modified_secs: modified,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn one(name: &'static str, value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn chk_09_a_content_md5_is_16_bytes() {
        let md5 = |value| content_md5(&one("content-md5", value));
        assert!(md5("XUFAKrxLKna5cZ2REBfFkg==").is_ok_and(|md5| md5.is_some()));
        for wrong in ["", "abc", "AAAAAAAAAAA="] {
            let error = md5(wrong).expect_err(wrong);
            assert_eq!(error.code(), S3ErrorCode::InvalidDigest);
        }
    }

    #[test]
    fn a_checksum_has_its_algorithms_length() {
        assert!(checksum_value(ChecksumAlgorithm::Crc32, "NhCmhg==").is_ok());
        for wrong in ["", "NhCmhg", "M3eFcAZSQlc=", "bad"] {
            assert!(checksum_value(ChecksumAlgorithm::Crc32, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_composite_value_brings_its_count() {
        let found = whole_object_checksum(&one("x-amz-checksum-crc32", "NhCmhg==-2"));
        let kind = found.ok().flatten().map(|checksum| checksum.kind);
        assert_eq!(kind, Some(ChecksumKind::Composite));
    }

    #[test]
    fn numbers_are_digits() {
        assert_eq!(number(&one("n", "12"), "n").ok(), Some(Some(12)));
        for wrong in ["", "-1", "+1", "a", "99999999999999999999999"] {
            assert!(number(&one("n", wrong), "n").is_err(), "{wrong}");
        }
    }
}
