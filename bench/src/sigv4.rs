//! Signature version 4 for S3, as a client makes it: in the Authorization header or in the URL.
//!
//! Owns signing only. It opens no socket and reads no clock; the caller says what time it is.
//! **Source** "Authenticating Requests (AWS Signature Version 4)" in the S3 API reference.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// SHA-256 of no bytes, in hexadecimal.
pub const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
pub const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";

/// Longest life of a presigned URL, in seconds, as AWS has it.
pub const PRESIGNED_SECS_MAX: u32 = 7 * 24 * 3600;

/// A key pair at one time, with the key of the day derived once.
pub struct Signer {
    access_key: String,
    scope: String,
    /// `YYYYMMDDTHHMMSSZ`.
    amz_date: String,
    day_key: [u8; 32],
}

/// What is signed of one request.
pub struct Request<'a> {
    pub method: &'a str,
    pub host: &'a str,
    /// Percent-encoded as it goes over the wire.
    pub path: &'a str,
    /// Lower-case names in order; all of them are signed. Without Host and the three that a
    /// signature adds itself.
    pub headers: &'a [(String, String)],
    /// The SHA-256 of the body in hexadecimal, or `UNSIGNED-PAYLOAD`.
    pub payload: &'a str,
}

impl Signer {
    /// `amz_date` is the time in UTC as `YYYYMMDDTHHMMSSZ`.
    pub fn new(access_key: &str, secret_key: &str, region: &str, amz_date: &str) -> Signer {
        let day = &amz_date[..8];
        let mut key = hmac(format!("AWS4{secret_key}").as_bytes(), day);
        for part in [region, "s3", "aws4_request"] {
            key = hmac(&key, part);
        }
        Signer {
            access_key: access_key.to_owned(),
            scope: format!("{day}/{region}/s3/aws4_request"),
            amz_date: amz_date.to_owned(),
            day_key: key,
        }
    }

    /// The header lines that a signature in headers adds: date, payload hash, Authorization.
    pub fn header_lines(&self, request: &Request) -> String {
        let mut headers = request.headers.to_vec();
        headers.push(("host".into(), request.host.into()));
        headers.push(("x-amz-content-sha256".into(), request.payload.into()));
        headers.push(("x-amz-date".into(), self.amz_date.clone()));
        headers.sort();
        let names = signed_names(&headers);
        let signature = self.sign(request.method, request.path, "", &headers, request.payload);
        format!(
            "x-amz-content-sha256: {}\r\nx-amz-date: {}\r\nAuthorization: AWS4-HMAC-SHA256 \
             Credential={}/{}, SignedHeaders={names}, Signature={signature}\r\n",
            request.payload, self.amz_date, self.access_key, self.scope
        )
    }

    /// The query string, without `?`, of a presigned URL that lives for `secs`.
    pub fn presigned_query(&self, request: &Request, secs: u32) -> String {
        let mut headers = request.headers.to_vec();
        headers.push(("host".into(), request.host.into()));
        headers.sort();
        let names = signed_names(&headers);
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date={}\
             &X-Amz-Expires={secs}&X-Amz-SignedHeaders={}",
            encode(&format!("{}/{}", self.access_key, self.scope), false),
            self.amz_date,
            encode(&names, false)
        );
        let signature = self.sign(request.method, request.path, &query, &headers, UNSIGNED_PAYLOAD);
        format!("{query}&X-Amz-Signature={signature}")
    }

    fn sign(
        &self,
        method: &str,
        path: &str,
        query: &str,
        headers: &[(String, String)],
        payload: &str,
    ) -> String {
        let mut canonical = format!("{method}\n{path}\n{query}\n");
        for (name, value) in headers {
            canonical.push_str(&format!("{name}:{}\n", value.trim()));
        }
        canonical.push_str(&format!("\n{}\n{payload}", signed_names(headers)));
        let hash = hex::encode(Sha256::digest(canonical.as_bytes()));
        let text = format!("AWS4-HMAC-SHA256\n{}\n{}\n{hash}", self.amz_date, self.scope);
        hex::encode(hmac(&self.day_key, &text))
    }
}

fn signed_names(headers: &[(String, String)]) -> String {
    headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";")
}

fn hmac(key: &[u8], text: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

/// Percent-encodes all but RFC 3986's unreserved characters, and slashes unless `keep_slash`.
pub fn encode(text: &str, keep_slash: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(byte as char);
            }
            b'/' if keep_slash => out.push('/'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published() -> Signer {
        Signer::new(
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "us-east-1",
            "20130524T000000Z",
        )
    }

    #[test]
    fn the_examples_of_the_s3_documentation() {
        let headers = [("range".to_owned(), "bytes=0-9".to_owned())];
        let request = Request {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/test.txt",
            headers: &headers,
            payload: EMPTY_SHA256,
        };
        let lines = published().header_lines(&request);
        let want = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        assert!(lines.ends_with(&format!("Signature={want}\r\n")), "{lines}");

        let request = Request { headers: &[], ..request };
        let query = published().presigned_query(&request, 86400);
        let want = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        assert!(query.ends_with(&format!("X-Amz-Signature={want}")), "{query}");
    }

    #[test]
    fn keys_are_encoded_as_s3_wants_them() {
        assert_eq!(encode("a b/ü+~", true), "a%20b/%C3%BC%2B~");
        assert_eq!(encode("a/b", false), "a%2Fb");
    }
}
