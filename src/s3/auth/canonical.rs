//! The canonical forms that SigV4 signs: path, query and headers of the request as received.
//!
//! Pure. Works on the raw path and decoded pairs; each is decoded once and encoded once, and no
//! path is ever normalised.
//!
//! **Source** AWS S3 API reference, "Signature Calculations for the Authorization Header".

use http::HeaderMap;

use crate::s3::host::percent_decode;
use crate::s3::query::Query;

/// The parameter that a presigned URL's own signature does not cover.
const SIGNATURE_PARAMETER: &str = "X-Amz-Signature";

/// The raw path, decoded once and encoded once; unreserved characters and `/` stay.
///
/// A path with a broken escape is taken as it is: the target's parser has refused it before.
pub fn path(raw_path: &str) -> String {
    let decoded = percent_decode(raw_path).unwrap_or_else(|| raw_path.as_bytes().to_vec());
    let mut out = String::with_capacity(raw_path.len());
    if decoded.first() != Some(&b'/') {
        out.push('/');
    }
    encode_into(&mut out, &decoded, true);
    out
}

/// The query's pairs, encoded and sorted; a name without value gets its `=`.
pub fn query(query: &Query) -> String {
    let mut pairs: Vec<(String, String)> = query
        .pairs()
        .iter()
        .filter(|(name, _)| name != SIGNATURE_PARAMETER)
        .map(|(name, value)| (encode(name), encode(value)))
        .collect();
    pairs.sort();
    let mut out = String::with_capacity(query.raw().len() + 8);
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

/// Percent-encodes everything but unreserved characters, in upper-case hex.
///
/// **Source** RFC 3986, 2.3.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    encode_into(&mut out, text.as_bytes(), false);
    out
}

fn encode_into(out: &mut String, bytes: &[u8], keep_slash: bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
        if plain || (keep_slash && byte == b'/') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// One line of the canonical headers: `name:value` and a line feed.
pub fn header_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.push(b':');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// The value of a header as it is signed: its lines joined by a comma, each trimmed, runs of
/// spaces folded into one. `None` when the request has no such header.
pub fn header_value(headers: &HeaderMap, name: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut found = false;
    for value in headers.get_all(name) {
        if found {
            out.push(b',');
        }
        found = true;
        let mut words = value.as_bytes().split(|b| *b == b' ').filter(|word| !word.is_empty());
        if let Some(first) = words.next() {
            out.extend_from_slice(first);
        }
        for word in words {
            out.push(b' ');
            out.extend_from_slice(word);
        }
    }
    found.then_some(out)
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
        let value = header_value(&headers, "x-amz-meta-a").unwrap();
        assert_eq!(value, "v v,,é w".as_bytes());
        assert_eq!(header_value(&headers, "x-amz-meta-b"), None);
    }

    proptest! {
        #[test]
        fn encoding_is_undone_by_decoding(text in "\\PC{0,40}") {
            let decoded = percent_decode(&encode(&text)).unwrap();
            prop_assert_eq!(decoded, text.as_bytes());
        }

        #[test]
        fn canonical_path_is_a_fixed_point(raw in "/[a-zA-Z0-9/%2Eé+ ~.]{0,30}") {
            let once = path(&raw);
            // A broken escape is encoded as text, which makes the next round a different path.
            if percent_decode(&raw).is_some() {
                prop_assert_eq!(path(&once), once);
            }
        }
    }
}
