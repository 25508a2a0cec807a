//! The chain of signatures over an aws-chunked body: each chunk's signature covers the one before.
//!
//! Owns the strings that are signed and the comparison. It reads no framing; the decoder in
//! `aws_chunked` hands it hashes and signatures.
//!
//! **Source** AWS S3 API reference, "Transferring Payload in Multiple Chunks" and "... with
//! trailing headers".

use std::fmt;

use aws_sigv4::sign::v4::calculate_signature;
use subtle::ConstantTimeEq;

/// SHA-256 of nothing, in hex.
pub const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Verifies the signatures of one body in order. Its `Debug` form hides the key.
#[derive(Clone)]
pub struct ChunkVerifier {
    key: [u8; 32],
    /// `x-amz-date`, such as `20130524T000000Z`.
    date: String,
    /// `20130524/us-east-1/s3/aws4_request`
    scope: String,
    /// Hex; at first the seed, which is the signature of the request itself.
    previous: String,
}

impl ChunkVerifier {
    pub fn new(key: [u8; 32], date: String, scope: String, seed: String) -> ChunkVerifier {
        ChunkVerifier { key, date, scope, previous: seed }
    }

    /// Whether `signature` is that of the next chunk, whose bytes hash to `sha256`. When it is,
    /// the chain goes on from it.
    pub fn verify_chunk(&mut self, sha256: &[u8; 32], signature: &[u8]) -> bool {
        let text = format!(
            "AWS4-HMAC-SHA256-PAYLOAD\n{}\n{}\n{}\n{EMPTY_SHA256}\n{}",
            self.date,
            self.scope,
            self.previous,
            hex::encode(sha256)
        );
        self.verify(&text, signature)
    }

    /// Whether `signature` is that of the trailers, whose `name:value\n` lines hash to `sha256`.
    pub fn verify_trailer(&mut self, sha256: &[u8; 32], signature: &[u8]) -> bool {
        let text = format!(
            "AWS4-HMAC-SHA256-TRAILER\n{}\n{}\n{}\n{}",
            self.date,
            self.scope,
            self.previous,
            hex::encode(sha256)
        );
        self.verify(&text, signature)
    }

    fn verify(&mut self, string_to_sign: &str, signature: &[u8]) -> bool {
        let expected = calculate_signature(self.key, string_to_sign.as_bytes());
        let same = bool::from(expected.as_bytes().ct_eq(signature));
        if same {
            self.previous = expected;
        }
        same
    }
}

impl fmt::Debug for ChunkVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkVerifier")
            .field("date", &self.date)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
