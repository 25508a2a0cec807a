//! The canonical forms that SigV4 signs: path, query and headers of the request as received.
//!
//! Pure. Works on the raw path and decoded pairs; each is decoded once and encoded once, and no
//! path is ever normalised.
//!
//! **Source** AWS S3 API reference, "Signature Calculations for the Authorization Header".

use std::borrow::Cow;

use http::HeaderMap;

use crate::s3::host::percent_decode;
use crate::s3::query::Query;

/// The parameter that a presigned URL's own signature does not cover.
const SIGNATURE_PARAMETER: &str = "X-Amz-Signature";

/// The raw path, decoded once and encoded once; unreserved characters and `/` stay.
///
/// A path with a broken escape is taken as it is: the target's parser has refused it before.
pub fn path(raw_path: &str) -> Cow<'_, str> {
    if raw_path.starts_with('/') && raw_path.bytes().all(|byte| byte == b'/' || is_plain(byte)) {
        return Cow::Borrowed(raw_path);
    }
    let decoded = percent_decode(raw_path).unwrap_or_else(|| raw_path.as_bytes().to_vec());
    let mut out = String::with_capacity(raw_path.len());
    if decoded.first() != Some(&b'/') {
        out.push('/');
    }
    encode_into(&mut out, &decoded, true);
    Cow::Owned(out)
}

/// The query's pairs, encoded and sorted; a name without value gets its `=`.
pub fn query(query: &Query) -> String {
    let mut pairs = Vec::with_capacity(query.pairs().len());
    for (raw, (name, value)) in query.raw_pairs().zip(query.pairs()) {
        if name != SIGNATURE_PARAMETER {
            pairs.push((encoded(raw.0, name), encoded(raw.1, value)));
        }
    }
    pairs.sort_unstable();
    let mut out = String::with_capacity(query.raw().len() + 16);
    for (name, value) in &pairs {
        if !out.is_empty() {
            out.push('&');
        }
        out.push_str(name);
        out.push('=');
        out.push_str(value);
    }
    out
}

/// `decoded` as it is signed: what was received, when that is so encoded already, as signers do.
fn encoded<'a>(raw: &'a str, decoded: &str) -> Cow<'a, str> {
    if is_canonical(raw.as_bytes()) {
        return Cow::Borrowed(raw);
    }
    let mut out = String::with_capacity(raw.len() + 16);
    encode_into(&mut out, decoded.as_bytes(), false);
    Cow::Owned(out)
}

/// Whether encoding what `raw` decodes to gives `raw` again.
fn is_canonical(raw: &[u8]) -> bool {
    let mut rest = raw;
    loop {
        rest = match rest {
            [] => return true,
            [b'%', high, low, rest @ ..] => match (upper_hex(*high), upper_hex(*low)) {
                (Some(high), Some(low)) if !is_plain(high << 4 | low) => rest,
                _ => return false,
            },
            [byte, rest @ ..] if is_plain(*byte) => rest,
            _ => return false,
        }
    }
}

fn upper_hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Unreserved characters. **Source** RFC 3986, 2.3.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

/// Percent-encodes everything but unreserved characters, in upper-case hex.
fn encode_into(out: &mut String, bytes: &[u8], keep_slash: bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.reserve(bytes.len());
    for &byte in bytes {
        if is_plain(byte) || (keep_slash && byte == b'/') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// One line of the canonical headers: `name:value` and a line feed.
pub fn plain_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.push(b':');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// The same for a header of the request: its values joined by a comma, each trimmed, runs of
/// spaces folded into one. Adds nothing and says false when the request has no such header.
pub fn header_line(out: &mut Vec<u8>, headers: &HeaderMap, name: &str) -> bool {
    let mut separator = b':';
    for value in headers.get_all(name) {
        if separator == b':' {
            out.extend_from_slice(name.as_bytes());
        }
        out.push(separator);
        separator = b',';
        let mut words = value.as_bytes().split(|b| *b == b' ').filter(|word| !word.is_empty());
        if let Some(first) = words.next() {
            out.extend_from_slice(first);
        }
        for word in words {
            out.push(b' ');
            out.extend_from_slice(word);
        }
    }
    if separator == b':' {
        return false;
    }
    out.push(b'\n');
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    #[test]
    fn paths_are_encoded_once() {
        let cases = [
            ("/t/a.txt", "/t/a.txt"),
            ("/t/%61.txt", "/t/a.txt"),
            ("/t/%2b!*()'", "/t/%2B%21%2A%28%29%27"),
            ("/t/a+b", "/t/a%2Bb"),
            ("/t/a%20b", "/t/a%20b"),
            ("/t//a/../b/./%2E", "/t//a/../b/./."),
            ("/t/a%2Fb", "/t/a/b"),
            ("/t/é%C3%A9~", "/t/%C3%A9%C3%A9~"),
            ("/t/%2541", "/t/%2541"),
            ("", "/"),
        ];
        for (raw, want) in cases {
            assert_eq!(path(raw), want, "{raw}");
        }
    }

    #[test]
    fn queries_are_sorted_by_encoded_name_and_value() {
        let cases = [
            ("b=2&a=1&a=0", "a=0&a=1&b=2"),
            ("uploads", "uploads="),
            ("prefix=a b+c%2B&X-Amz-Signature=ff", "prefix=a%20b%20c%2B"),
            ("marker=level1/8e%25%25FAH3", "marker=level1%2F8e%25%25FAH3"),
            ("marker=level1%2F8e%25%25FAH3", "marker=level1%2F8e%25%25FAH3"),
            ("", ""),
        ];
        for (raw, want) in cases {
            assert_eq!(query(&Query::parse(raw).unwrap()), want, "{raw}");
        }
    }

    #[test]
    fn header_values_are_trimmed_folded_and_joined() {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-meta-a", HeaderValue::from_static("  v   v  "));
        headers.append("x-amz-meta-a", HeaderValue::from_static(""));
        headers.append("x-amz-meta-a", HeaderValue::from_bytes("é w".as_bytes()).unwrap());
        let mut lines = Vec::new();
        assert!(header_line(&mut lines, &headers, "x-amz-meta-a"));
        assert!(!header_line(&mut lines, &headers, "x-amz-meta-b"));
        assert_eq!(lines, "x-amz-meta-a:v v,,é w\n".as_bytes());
    }

    proptest! {
        #[test]
        fn what_needs_no_encoding_is_what_encoding_leaves(raw in "[a~%2Ee0-9A-F/+ é]{0,12}") {
            let Some(decoded) = percent_decode(&raw) else { return Ok(()) };
            let mut again = String::new();
            encode_into(&mut again, &decoded, false);
            prop_assert_eq!(is_canonical(raw.as_bytes()), again == raw, "{}", raw);
        }

        #[test]
        fn encoding_is_undone_by_decoding(text in "\\PC{0,40}") {
            let mut encoded = String::new();
            encode_into(&mut encoded, text.as_bytes(), false);
            let decoded = percent_decode(&encoded).unwrap();
            prop_assert_eq!(decoded, text.as_bytes());
        }

        #[test]
        fn canonical_path_is_a_fixed_point(raw in "/[a-zA-Z0-9/%2Eé+ ~.]{0,30}") {
            let once = path(&raw);
            // A broken escape is encoded as text, which makes the next round a different path.
            if percent_decode(&raw).is_some() {
                prop_assert_eq!(path(&once), &once[..]);
            }
        }
    }
}
