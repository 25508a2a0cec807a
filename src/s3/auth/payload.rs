//! How a request's body is framed and signed, as `x-amz-content-sha256` says.
//!
//! Pure. It judges the header only; what the body really is comes out while it is read.
//!
//! **Source** AWS S3 API reference, "Common request headers", x-amz-content-sha256.

use http::HeaderMap;

use super::streaming::{ChunkVerifier, EMPTY_SHA256};
use crate::s3::error::{S3Error, S3ErrorCode};

/// The header, and the literal hash of a request that signs no payload.
pub const CONTENT_SHA256: &str = "x-amz-content-sha256";
pub const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";

/// What protects a body.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Plain bytes that nothing in the signature covers.
    Unsigned,
    /// Plain bytes that must hash to this SHA-256.
    Signed([u8; 32]),
    /// aws-chunked framing.
    Chunked {
        /// Present when each chunk is signed.
        signatures: Option<ChunkVerifier>,
        /// True when trailers may follow the last chunk.
        trailers: bool,
    },
}

impl Payload {
    /// Whether aws-chunked framing must be taken off.
    pub fn is_chunked(&self) -> bool {
        matches!(self, Payload::Chunked { .. })
    }

    /// The SHA-256 that the plain bytes must have.
    pub fn sha256(&self) -> Option<[u8; 32]> {
        match self {
            Payload::Signed(sha256) => Some(*sha256),
            Payload::Unsigned | Payload::Chunked { .. } => None,
        }
    }

    /// The payload of a request whose signature covers no payload hash: anonymous or SigV2.
    ///
    /// **Errors** as `Declared::parse`; signed chunks need a signature to start from.
    pub fn unsigned_request(headers: &HeaderMap) -> Result<Payload, S3Error> {
        let Some(text) = header_text(headers)? else { return Ok(Payload::Unsigned) };
        match Declared::parse(text)? {
            Declared::Unsigned => Ok(Payload::Unsigned),
            Declared::Signed(sha256) => Ok(Payload::Signed(sha256)),
            Declared::Chunked { signed: false, trailers } => {
                Ok(Payload::Chunked { signatures: None, trailers })
            }
            Declared::Chunked { signed: true, .. } => {
                Err(S3Error::new(S3ErrorCode::InvalidRequest)
                    .message("Signed chunks need a request signed with AWS4-HMAC-SHA256"))
            }
        }
    }
}

/// The value of `x-amz-content-sha256` as text; `None` when the header is absent.
pub fn header_text(headers: &HeaderMap) -> Result<Option<&str>, S3Error> {
    let Some(value) = headers.get(CONTENT_SHA256) else { return Ok(None) };
    value.to_str().map(Some).map_err(|_| invalid("(not ASCII)"))
}

/// The meaning of a legal value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    Unsigned,
    Signed([u8; 32]),
    Chunked { signed: bool, trailers: bool },
}

impl Declared {
    /// Reads a value.
    ///
    /// **Errors** `InvalidArgument` for an unknown one, `NotImplemented` for signature version 4A.
    pub fn parse(text: &str) -> Result<Declared, S3Error> {
        let chunked = |signed, trailers| Ok(Declared::Chunked { signed, trailers });
        match text {
            UNSIGNED_PAYLOAD => Ok(Declared::Unsigned),
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => chunked(false, true),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => chunked(true, false),
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => chunked(true, true),
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"
            | "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER" => {
                Err(S3Error::not_implemented("Signature version 4A"))
            }
            _ => {
                let mut sha256 = [0; 32];
                hex::decode_to_slice(text, &mut sha256).map_err(|_| invalid(text))?;
                Ok(Declared::Signed(sha256))
            }
        }
    }

    /// The SHA-256 of an empty body, which stands for an absent header, as old curl signs it.
    pub fn empty() -> Declared {
        let mut sha256 = [0; 32];
        // The constant is 64 hex digits.
        let decoded = hex::decode_to_slice(EMPTY_SHA256, &mut sha256);
        debug_assert!(decoded.is_ok());
        Declared::Signed(sha256)
    }

    /// Turns it into a payload; `chain` makes the verifier of signed chunks.
    pub fn into_payload(self, chain: impl FnOnce() -> ChunkVerifier) -> Payload {
        match self {
            Declared::Unsigned => Payload::Unsigned,
            Declared::Signed(sha256) => Payload::Signed(sha256),
            Declared::Chunked { signed, trailers } => {
                Payload::Chunked { signatures: signed.then(chain), trailers }
            }
        }
    }
}

fn invalid(text: &str) -> S3Error {
    S3Error::new(S3ErrorCode::InvalidArgument)
        .message(
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
             STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, or a \
             valid sha256 value.",
        )
        .argument(CONTENT_SHA256, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_values_are_read_and_others_refused() {
        let chunked = |signed, trailers| Some(Declared::Chunked { signed, trailers });
        let cases = [
            ("UNSIGNED-PAYLOAD", Some(Declared::Unsigned)),
            ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", chunked(false, true)),
            ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", chunked(true, false)),
            ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", chunked(true, true)),
            (EMPTY_SHA256, Some(Declared::empty())),
            ("STREAMING-UNSIGNED-PAYLOAD", None),
            ("unsigned-payload", None),
            ("", None),
            ("abc", None),
        ];
        for (text, want) in cases {
            assert_eq!(Declared::parse(text).ok(), want, "{text}");
        }
        for text in [
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD",
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER",
        ] {
            assert_eq!(Declared::parse(text).unwrap_err().code(), S3ErrorCode::NotImplemented);
        }
    }
}
