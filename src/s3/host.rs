//! What a request addresses: its bucket and key, from the Host header and the raw path.
//!
//! Pure. The path is decoded exactly once and never normalised: `//`, `.` and `..` are bytes of a
//! key. It decides no right and looks nothing up.
//!
//! **Source** AWS S3 user guide, "Virtual hosting of general purpose buckets".

use super::error::{S3Error, S3ErrorCode};
use crate::model::Key;

/// The bucket and key that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As sent: it may break the rules for bucket names.
    pub bucket: Option<String>,
    pub key: Option<Key>,
    /// True when the bucket came from the Host header.
    pub virtual_host: bool,
}

impl Target {
    /// Reads the target of a request. `domains` are the lower-case names under which buckets are
    /// hosts; a host outside them is path style.
    ///
    /// **Errors** `InvalidURI` when the path is no UTF-8 or has a broken escape,
    /// `KeyTooLongError` for a key of more than 1024 bytes.
    pub fn new(host: &str, raw_path: &str, domains: &[String]) -> Result<Target, S3Error> {
        let path = percent_decode(raw_path)
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| S3Error::new(S3ErrorCode::InvalidURI))?;
        let path = path.strip_prefix('/').unwrap_or(&path);
        if let Some(bucket) = bucket_of_host(host, domains) {
            return Ok(Target { bucket: Some(bucket), key: key_of(path)?, virtual_host: true });
        }
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let names_nothing = path.is_empty();
        Ok(Target {
            bucket: (!names_nothing).then(|| bucket.to_owned()),
            key: key_of(key)?,
            virtual_host: false,
        })
    }
}

fn key_of(text: &str) -> Result<Option<Key>, S3Error> {
    if text.is_empty() {
        return Ok(None);
    }
    Key::new(text).map(Some).map_err(|_| {
        S3Error::new(S3ErrorCode::KeyTooLongError)
            .detail("Size", text.len().to_string())
            .detail("MaxSizeAllowed", Key::BYTES_MAX.to_string())
    })
}

/// The bucket in front of the longest of `domains` that ends `host`; `None` when the host is a
/// domain itself or lies in none.
pub fn bucket_of_host(host: &str, domains: &[String]) -> Option<String> {
    let name = host_name(host);
    let bucket_in = |domain: &String| {
        let (front, end) = name.split_at_checked(name.len().checked_sub(domain.len())?)?;
        let bucket = front.strip_suffix('.').filter(|_| end.eq_ignore_ascii_case(domain))?;
        (!bucket.is_empty()).then_some(bucket)
    };
    if domains.iter().any(|domain| domain.eq_ignore_ascii_case(name)) {
        return None;
    }
    let shortest = domains.iter().filter_map(bucket_in).min_by_key(|bucket| bucket.len());
    shortest.map(str::to_ascii_lowercase)
}

/// A Host value without port and trailing dot; brackets of an IPv6 address stay.
fn host_name(host: &str) -> &str {
    let end = match host.rfind(']') {
        Some(bracket) => bracket + 1,
        None => host.rfind(':').unwrap_or(host.len()),
    };
    let name = host.get(..end).unwrap_or(host);
    name.strip_suffix('.').unwrap_or(name)
}

/// Decodes `%XX` once. `None` for an escape that is cut or not hex.
pub fn percent_decode(text: &str) -> Option<Vec<u8>> {
    if !text.as_bytes().contains(&b'%') {
        return Some(text.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let (high, low) = (hex_digit(bytes.next()?)?, hex_digit(bytes.next()?)?);
            out.push(high << 4 | low);
        } else {
            out.push(byte);
        }
    }
    Some(out)
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(host: &str, path: &str, bucket: Option<&str>, key: Option<&str>) {
        let domains = ["s3.test".to_owned(), "eu.s3.test".to_owned()];
        let target = Target::new(host, path, &domains).unwrap();
        assert_eq!(target.bucket.as_deref(), bucket, "{host} {path}");
        assert_eq!(target.key.as_ref().map(Key::as_str), key, "{host} {path}");
    }

    #[test]
    fn sig_07_hosts() {
        check("b.s3.test", "/k", Some("b"), Some("k"));
        check("my.dotted.bkt.s3.test:9000", "/", Some("my.dotted.bkt"), None);
        check("b.eu.s3.test", "/", Some("b"), None);
        check("s3.test", "/b/k", Some("b"), Some("k"));
        check("eu.s3.test", "/b/k", Some("b"), Some("k"));
        check("S3.TEST.", "/b", Some("b"), None);
        check("B.S3.Test.:80", "/", Some("b"), None);
        check("xs3.test", "/b/k", Some("b"), Some("k"));
        check(".s3.test", "/b/k", Some("b"), Some("k"));
        for host in ["localhost:9000", "127.0.0.1:9000", "[::1]:9000", "[::1]", "other.test", ""] {
            check(host, "/", None, None);
            check(host, "/b/k", Some("b"), Some("k"));
        }
    }

    #[test]
    fn keys_are_decoded_once_and_never_normalised() {
        check("h", "/t/", Some("t"), None);
        check("h", "/t", Some("t"), None);
        check("h", "/t/%2E", Some("t"), Some("."));
        check("h", "/t/a/../c", Some("t"), Some("a/../c"));
        check("h", "/t/%2E%2E/x", Some("t"), Some("../x"));
        check("h", "/t//a//", Some("t"), Some("/a//"));
        check("h", "/t/a%2Fb", Some("t"), Some("a/b"));
        check("h", "/t/a+b%2Bc%20d", Some("t"), Some("a+b+c d"));
        check("h", "/t/%2541", Some("t"), Some("%41"));
        check("h", "/t/%e3%81%82/é", Some("t"), Some("あ/é"));
        check("h", "//k", Some(""), Some("k"));
    }

    #[test]
    fn key_06_length_is_counted_in_bytes() {
        let code =
            |key: String| Target::new("h", &format!("/t/{key}"), &[]).map_err(|e| e.code()).err();
        assert_eq!(code("x".repeat(1024)), None);
        assert_eq!(code(format!("{}x", "あ".repeat(341))), None);
        assert_eq!(code("x".repeat(1025)), Some(S3ErrorCode::KeyTooLongError));
        assert_eq!(code("%E3%81%82".repeat(342)), Some(S3ErrorCode::KeyTooLongError));
    }

    #[test]
    fn broken_paths_are_refused() {
        for path in ["/t/%", "/t/%4", "/t/%gg", "/t/%ff", "/%c3/x"] {
            let error = Target::new("h", path, &[]).unwrap_err();
            assert_eq!(error.code(), S3ErrorCode::InvalidURI, "{path}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_hosts_and_paths_never_panic(host in "\\PC{0,40}", path in "\\PC{0,40}") {
            let _ = Target::new(&host, &path, &["s3.test".to_owned()]);
        }
    }
}
