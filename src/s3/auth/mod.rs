//! Authentication: who sent a request, and how much of it the signature covers.
//!
//! Owns the verification of SigV4 and SigV2, in headers and presigned URLs. It decides only who
//! the caller is, never what he may do; it reads no body and looks at nothing but the request, the
//! key pairs and the clock. Pure computation on the worker's thread. Secrets never reach a log.

mod canonical;
pub mod form;
mod identity;
mod payload;
mod presigned;
mod sigv2;
mod sigv4;
mod streaming;

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;

pub use identity::{KeyLookup, KeyPair};
pub use payload::Payload;
pub use streaming::ChunkVerifier;

use super::error::{S3Error, S3ErrorCode};
use super::query::Query;
use crate::clock::Clock;
use identity::SigningKeys;

/// How far a request's time may lie from ours, in seconds, as AWS has it.
const SKEW_MAX_SECS: i64 = 15 * 60;

/// What this server accepts.
#[derive(Clone, Debug)]
pub struct AuthSettings {
    /// The region that signatures must name.
    pub region: String,
    /// Accept any region in a signature.
    pub accept_any_region: bool,
    /// Accept the old signature version 2, which some clients still use for presigned URLs.
    pub sigv2: bool,
    /// The host, with its port if it has one, under which clients know a server whose proxy
    /// changes the Host header. Tried when the received Host does not verify.
    pub external_host: Option<String>,
}

/// The parts of a request that signatures cover.
#[derive(Clone, Copy)]
pub struct AuthRequest<'a> {
    pub method: &'a str,
    /// The Host header, with its port, as received.
    pub host: &'a str,
    /// As received, neither decoded nor normalised.
    pub raw_path: &'a str,
    pub query: &'a Query,
    pub headers: &'a HeaderMap,
    /// The bucket that the host names, when it names one; SigV2 signs it.
    pub virtual_bucket: Option<&'a str>,
}

/// Who sent a request.
#[derive(Clone)]
pub enum Identity {
    Anonymous,
    Key(KeyPair),
}

/// How a request was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Anonymous,
    HeaderV4,
    PresignedV4,
    HeaderV2,
    PresignedV2,
}

/// A request whose signature is right, or that has none.
pub struct Authenticated {
    pub identity: Identity,
    pub scheme: Scheme,
    /// How the body is framed and which of it is signed; checked while the body is read.
    pub payload: Payload,
    /// `x-amz-*` parameters of a presigned URL that stand for headers, such as `x-amz-meta-a`;
    /// never one that the request has as a header.
    pub hoisted: HeaderMap,
}

impl fmt::Debug for Authenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match &self.identity {
            Identity::Anonymous => "anonymous",
            Identity::Key(pair) => pair.0.access_key.as_str(),
        };
        f.debug_struct("Authenticated")
            .field("identity", &who)
            .field("scheme", &self.scheme)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

/// Verifies requests. One per worker or shared, as is convenient.
pub struct Verifier {
    settings: AuthSettings,
    clock: Arc<dyn Clock>,
    keys: SigningKeys,
    anonymous: KeyPair,
}

impl Verifier {
    pub fn new(settings: AuthSettings, clock: Arc<dyn Clock>) -> Verifier {
        let anonymous = identity::anonymous();
        Verifier { settings, clock, keys: SigningKeys::default(), anonymous }
    }

    /// Stands for the caller of a request without a signature.
    pub fn anonymous(&self) -> &KeyPair {
        &self.anonymous
    }

    /// Finds out who sent `request`. A request without any signature is anonymous, not an error.
    ///
    /// **Errors** Those of AWS for each defect: `AccessDenied`, `InvalidAccessKeyId`,
    /// `SignatureDoesNotMatch`, `RequestTimeTooSkewed`, `AuthorizationHeaderMalformed`,
    /// `AuthorizationQueryParametersError`, `InvalidArgument`, `InvalidRequest`, `NotImplemented`.
    pub fn verify(
        &self,
        request: &AuthRequest<'_>,
        lookup: KeyLookup<'_>,
    ) -> Result<Authenticated, S3Error> {
        let authorization = self.authorization(request)?;
        let query_v4 = ["X-Amz-Algorithm", "X-Amz-Signature"];
        let is_query_v4 = query_v4.iter().any(|name| request.query.has(name));
        let is_query_v2 = request.query.has("Signature") || request.query.has("AWSAccessKeyId");
        match authorization {
            Some(_) if is_query_v4 || is_query_v2 => Err(two_mechanisms()),
            Some(text) => self.verify_authorization(request, text, lookup),
            None if is_query_v4 => presigned::verify(self, request, lookup),
            None if is_query_v2 => {
                self.require_sigv2()?;
                sigv2::verify_presigned(self, request, lookup)
            }
            None => Ok(Authenticated {
                identity: Identity::Anonymous,
                scheme: Scheme::Anonymous,
                payload: Payload::unsigned_request(request.headers)?,
                hoisted: HeaderMap::new(),
            }),
        }
    }

    /// The Authorization header; an empty one is none.
    fn authorization<'a>(&self, request: &AuthRequest<'a>) -> Result<Option<&'a str>, S3Error> {
        let mut values = request.headers.get_all(AUTHORIZATION).iter();
        let Some(first) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(two_mechanisms());
        }
        let text = first.to_str().map_err(|_| unsupported_type("(not ASCII)"))?.trim();
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    fn verify_authorization(
        &self,
        request: &AuthRequest<'_>,
        text: &str,
        lookup: KeyLookup<'_>,
    ) -> Result<Authenticated, S3Error> {
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        match kind {
            "AWS4-HMAC-SHA256" => sigv4::verify_header(self, request, rest, lookup),
            "AWS4-ECDSA-P256-SHA256" => Err(S3Error::not_implemented("Signature version 4A")),
            "AWS" => {
                self.require_sigv2()?;
                sigv2::verify_header(self, request, rest, lookup)
            }
            _ => Err(unsupported_type(text)),
        }
    }

    fn require_sigv2(&self) -> Result<(), S3Error> {
        if self.settings.sigv2 {
            return Ok(());
        }
        Err(S3Error::new(S3ErrorCode::InvalidRequest).message(
            "The authorization mechanism you have provided is not supported. Please use \
             AWS4-HMAC-SHA256.",
        ))
    }

    /// **Errors** `RequestTimeTooSkewed` when `secs` is too far from the clock.
    fn check_skew(&self, secs: i64, shown: &str) -> Result<(), S3Error> {
        let now = self.now_secs();
        if secs.abs_diff(now) <= SKEW_MAX_SECS.unsigned_abs() {
            return Ok(());
        }
        Err(S3Error::new(S3ErrorCode::RequestTimeTooSkewed)
            .detail("RequestTime", shown)
            .detail("ServerTime", super::time::iso_date(self.clock.now_ms()))
            .detail("MaxAllowedSkewMilliseconds", (SKEW_MAX_SECS * 1000).to_string()))
    }

    fn now_secs(&self) -> i64 {
        self.clock.now_ms().div_euclid(1000)
    }
}

fn two_mechanisms() -> S3Error {
    S3Error::new(S3ErrorCode::InvalidArgument).message(
        "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature \
         query string parameter or the Authorization header should be specified",
    )
}

fn unsupported_type(text: &str) -> S3Error {
    S3Error::new(S3ErrorCode::InvalidArgument)
        .message("Unsupported Authorization Type")
        .argument("Authorization", text)
}

/// AccessDenied for a request whose time cannot be read.
fn no_valid_date() -> S3Error {
    S3Error::new(S3ErrorCode::AccessDenied)
        .message("AWS authentication requires a valid Date or x-amz-date header")
}

/// AccessDenied for a presigned URL after its time.
fn expired(verifier: &Verifier, expires_ms: i64) -> S3Error {
    S3Error::new(S3ErrorCode::AccessDenied)
        .message("Request has expired")
        .detail("Expires", super::time::iso_date(expires_ms))
        .detail("ServerTime", super::time::iso_date(verifier.clock.now_ms()))
}

#[cfg(test)]
mod tests;
