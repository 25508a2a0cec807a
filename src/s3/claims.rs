//! What a client says about the bytes that it sends, and whether they agree.
//!
//! Pure. Checksums come as headers before the body or as trailers behind it; whichever it was, no
//! byte is kept when one differs.
//!
//! **Source** AWS S3 user guide, "Checking object integrity"; the cases CHK-01 to CHK-09.

use http::HeaderMap;

use super::auth::Payload;
use super::error::{S3Error, S3ErrorCode};
use super::headers;
use crate::digest::{DigestRequest, Digests};
use crate::model::{Checksum, ChecksumAlgorithm};

/// The digests that a request names.
pub struct Claims {
    content_md5: Option<[u8; 16]>,
    payload_sha256: Option<[u8; 32]>,
    checksum: Option<(ChecksumAlgorithm, Claim)>,
}

/// Where a checksum's value stands.
enum Claim {
    Value(Checksum),
    /// Announced for behind the body.
    Trailer,
}

impl Claims {
    /// Reads the header.
    ///
    /// **Errors** `InvalidDigest` for a Content-MD5 that is none, `BadDigest` for a checksum that
    /// is none, `InvalidRequest` for checksum headers that contradict each other.
    pub fn new(request: &HeaderMap, payload: &Payload) -> Result<Claims, S3Error> {
        Ok(Claims {
            content_md5: headers::content_md5(request)?,
            payload_sha256: payload.sha256(),
            checksum: checksum_of(request)?,
        })
    }

    /// For a request whose checksum headers speak of the object and not of its own body.
    pub fn without_checksum(request: &HeaderMap, payload: &Payload) -> Result<Claims, S3Error> {
        Ok(Claims {
            content_md5: headers::content_md5(request)?,
            payload_sha256: payload.sha256(),
            checksum: None,
        })
    }

    /// True when the client sent something by which the body can be checked.
    pub fn has_digest(&self) -> bool {
        self.content_md5.is_some() || self.checksum.is_some()
    }

    /// The algorithm that the client uses.
    pub fn algorithm(&self) -> Option<ChecksumAlgorithm> {
        self.checksum.as_ref().map(|(algorithm, _)| *algorithm)
    }

    /// What must be computed while the body passes; `otherwise` when the client sends no checksum.
    pub fn digests(&self, otherwise: Option<ChecksumAlgorithm>) -> DigestRequest {
        DigestRequest {
            checksum: self.algorithm().or(otherwise),
            payload_sha256: self.payload_sha256.is_some(),
        }
    }

    /// Takes the checksum out of the trailers.
    ///
    /// **Errors** `MalformedTrailerError` when the announced one is missing or no value.
    pub fn add_trailers(&mut self, trailers: &[(String, String)]) -> Result<(), S3Error> {
        let Some((algorithm, Claim::Trailer)) = &self.checksum else { return Ok(()) };
        let algorithm = *algorithm;
        let malformed = || S3Error::new(S3ErrorCode::MalformedTrailerError);
        let mut values = trailers.iter().filter(|(name, _)| name == algorithm.header());
        let (_, text) = values.next().ok_or_else(malformed)?;
        let value = headers::checksum_value(algorithm, text).map_err(|_| malformed())?;
        self.checksum = Some((algorithm, Claim::Value(value)));
        Ok(())
    }

    /// Compares with what was computed.
    ///
    /// **Errors** `XAmzContentSHA256Mismatch`, `BadDigest`.
    pub fn verify(&self, digests: &Digests) -> Result<(), S3Error> {
        if self.payload_sha256.is_some() && self.payload_sha256 != digests.payload_sha256 {
            return Err(S3ErrorCode::XAmzContentSHA256Mismatch.into());
        }
        if self.content_md5.is_some_and(|md5| md5 != digests.md5) {
            return Err(S3Error::new(S3ErrorCode::BadDigest)
                .message("The Content-MD5 you specified did not match what we received."));
        }
        match &self.checksum {
            Some((algorithm, Claim::Value(value)))
                if digests.checksum.as_ref().is_none_or(|have| have.value != value.value) =>
            {
                Err(S3Error::new(S3ErrorCode::BadDigest).message(format!(
                    "The {} you specified did not match the calculated checksum.",
                    algorithm.name()
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The one checksum of the header, by value or announced for the trailer.
fn checksum_of(request: &HeaderMap) -> Result<Option<(ChecksumAlgorithm, Claim)>, S3Error> {
    let invalid =
        |message: &'static str| S3Error::new(S3ErrorCode::InvalidRequest).message(message);
    let mut found = None;
    for algorithm in ChecksumAlgorithm::ALL {
        let Some(value) = request.get(algorithm.header()) else { continue };
        if found.is_some() {
            return Err(invalid(
                "Expecting a single x-amz-checksum- header. Multiple checksum \
                                Types are not allowed.",
            ));
        }
        let value = headers::checksum_value(algorithm, value.to_str().unwrap_or_default())?;
        found = Some((algorithm, Claim::Value(value)));
    }
    if let Some(trailer) = request.get("x-amz-trailer") {
        let name = trailer.to_str().unwrap_or_default().trim();
        let named = ChecksumAlgorithm::ALL
            .into_iter()
            .find(|algorithm| algorithm.header().eq_ignore_ascii_case(name));
        if found.is_some() {
            return Err(invalid("Expecting a single x-amz-checksum- header"));
        }
        let named = named.ok_or_else(|| {
            invalid("The value specified in the x-amz-trailer header is not supported")
        })?;
        found = Some((named, Claim::Trailer));
    }
    let declared = request.get("x-amz-sdk-checksum-algorithm").and_then(|v| v.to_str().ok());
    if let Some(declared) = declared {
        let fits = found.as_ref().is_some_and(|(a, _)| a.name().eq_ignore_ascii_case(declared));
        if !fits {
            return Err(invalid(
                "x-amz-sdk-checksum-algorithm specified, but no corresponding \
                                x-amz-checksum-* or x-amz-trailer headers were found.",
            ));
        }
    }
    Ok(found)
}
