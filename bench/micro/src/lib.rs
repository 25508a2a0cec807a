//! Inputs for the micro-benchmarks: requests and bodies with valid signatures.
//!
//! Owns only what is measured with; a test proves that the store accepts it, so that no benchmark
//! measures a refusal.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
    SigningSettings, UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use bytes::Bytes;
use goblin_store::clock::ManualClock;
use goblin_store::model::{AccessKey, OwnerId, User};
use goblin_store::s3::auth::{
    AuthRequest, AuthSettings, Authenticated, ChunkVerifier, KeyPair, Verifier,
};
use goblin_store::s3::aws_chunked::ChunkedDecoder;
use goblin_store::s3::query::Query;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
/// 2026-12-07 11:00:00 UTC.
const NOW_SECS: u64 = 1_796_641_200;
const HOST: &str = "127.0.0.1:9000";
const PATH: &str = "/bucket/some/object-00000001";
const SCOPE: &str = "20261207/us-east-1/s3/aws4_request";
const DATE: &str = "20261207T110000Z";

/// One GET as the server sees it.
pub struct SignedGet {
    pub query: Query,
    pub headers: HeaderMap,
}

/// The server's side of authentication, with one key pair.
pub fn verifier() -> (Verifier, KeyPair) {
    let settings = AuthSettings {
        region: "us-east-1".into(),
        accept_any_region: false,
        sigv2: true,
        external_host: None,
    };
    let clock = ManualClock::new(NOW_SECS as i64 * 1000);
    let key = AccessKey {
        access_key: "AKIAIOSFODNN7EXAMPLE".into(),
        secret_key: SECRET.into(),
        user: "u".into(),
        disabled: false,
    };
    let user = User {
        id: "u".into(),
        canonical_id: OwnerId::new("c"),
        display_name: "u".into(),
        email: String::new(),
        disabled: false,
    };
    (Verifier::new(settings, Arc::new(clock)), Arc::new((key, user)))
}

/// A GET signed by the AWS SDK's signer, in the header or in the URL.
pub fn signed_get(presigned: bool) -> SignedGet {
    let identity = Credentials::new("AKIAIOSFODNN7EXAMPLE", SECRET, None, None, "bench").into();
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    if presigned {
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(Duration::from_secs(3600));
    } else {
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    }
    let params = SigningParams::builder()
        .identity(&identity)
        .region("us-east-1")
        .name("s3")
        .time(SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_SECS))
        .settings(settings)
        .build()
        .expect("complete")
        .into();
    let body = if presigned { SignableBody::UnsignedPayload } else { SignableBody::Bytes(b"") };
    let url = format!("http://{HOST}{PATH}");
    let request =
        SignableRequest::new("GET", &url, [("host", HOST)].into_iter(), body).expect("a request");
    let (instructions, _) = sign(request, &params).expect("signs").into_parts();
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static(HOST));
    for (name, value) in instructions.headers() {
        let name: HeaderName = name.parse().expect("a name");
        headers.insert(name, value.parse().expect("a value"));
    }
    let encoded: Vec<String> = instructions
        .params()
        .iter()
        .map(|(name, value)| format!("{name}={}", value.replace('/', "%2F")))
        .collect();
    SignedGet { query: Query::parse(&encoded.join("&")).expect("a query"), headers }
}

impl SignedGet {
    /// Verifies it; the scheme is not anonymous when that succeeds.
    pub fn verify(&self, verifier: &Verifier, pair: &KeyPair) -> Authenticated {
        let request = AuthRequest {
            method: "GET",
            host: HOST,
            raw_path: PATH,
            query: &self.query,
            headers: &self.headers,
            virtual_bucket: None,
        };
        verifier.verify(&request, &|_| Some(pair.clone())).expect("a good signature")
    }
}

/// A body in the aws-chunked framing, chunks of 64 KiB, with or without a chain of signatures.
pub struct ChunkedBody {
    pub wire: Bytes,
    pub bytes: usize,
    key: Option<[u8; 32]>,
}

impl ChunkedBody {
    pub fn new(bytes: usize, signed: bool) -> ChunkedBody {
        let key = signed.then(day_key);
        let mut previous = "0".repeat(64);
        let payload = vec![0xa5u8; bytes];
        let mut wire = Vec::new();
        for chunk in payload.chunks(64 << 10).chain([&[][..]]) {
            let mut line = format!("{:x}", chunk.len());
            if let Some(key) = &key {
                let text = format!(
                    "AWS4-HMAC-SHA256-PAYLOAD\n{DATE}\n{SCOPE}\n{previous}\n{}\n{}",
                    hex::encode(Sha256::digest(b"")),
                    hex::encode(Sha256::digest(chunk))
                );
                previous = hex::encode(hmac(key, &text));
                line.push_str(&format!(";chunk-signature={previous}"));
            }
            wire.extend_from_slice(line.as_bytes());
            wire.extend_from_slice(b"\r\n");
            wire.extend_from_slice(chunk);
            if !chunk.is_empty() || signed {
                wire.extend_from_slice(b"\r\n");
            }
        }
        if !signed {
            wire.extend_from_slice(b"\r\n");
        }
        ChunkedBody { wire: wire.into(), bytes, key }
    }

    /// Decodes it, arriving in pieces of 16 KiB; the number of payload bytes.
    pub fn decode(&self) -> usize {
        let chain =
            self.key.map(|key| ChunkVerifier::new(key, DATE.into(), SCOPE.into(), "0".repeat(64)));
        let mut decoder = ChunkedDecoder::new(chain, true, Some(self.bytes as u64));
        let (mut at, mut bytes) = (0, 0);
        while at < self.wire.len() {
            let end = (at + (16 << 10)).min(self.wire.len());
            decoder.push(self.wire.slice(at..end));
            at = end;
            while let Some(piece) = decoder.next().expect("well formed") {
                bytes += piece.len();
            }
        }
        assert!(decoder.is_done(), "the body ends");
        bytes
    }
}

fn day_key() -> [u8; 32] {
    let mut key = hmac(format!("AWS4{SECRET}").as_bytes(), "20261207");
    for part in ["us-east-1", "s3", "aws4_request"] {
        key = hmac(&key, part);
    }
    key
}

fn hmac(key: &[u8], text: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use goblin_store::s3::auth::Scheme;

    use super::*;

    #[test]
    fn the_store_accepts_what_is_measured() {
        let (verifier, pair) = verifier();
        assert_eq!(signed_get(false).verify(&verifier, &pair).scheme, Scheme::HeaderV4);
        assert_eq!(signed_get(true).verify(&verifier, &pair).scheme, Scheme::PresignedV4);
        for signed in [false, true] {
            assert_eq!(ChunkedBody::new(300_000, signed).decode(), 300_000);
        }
    }
}
