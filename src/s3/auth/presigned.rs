//! Signature version 4 in the query: presigned URLs.
//!
//! Owns the rules for the `X-Amz-*` parameters and for how long a URL lives; the signature itself
//! is checked in `sigv4`.
//!
//! **Source** AWS S3 API reference, "Authenticating Requests: Using Query Parameters".

use http::{HeaderMap, HeaderName, HeaderValue};

use super::identity::{self, KeyLookup};
use super::payload::{self, Declared, UNSIGNED_PAYLOAD};
use super::sigv4::{Claim, Credential, chain_of, check};
use super::{AuthRequest, Authenticated, Identity, SKEW_MAX_SECS, Scheme, Verifier, expired};
use crate::s3::error::{S3Error, S3ErrorCode};
use crate::s3::query::Query;
use crate::s3::time::parse_amz_date;

/// The longest life of a URL in seconds: a week.
const EXPIRES_MAX_SECS: i64 = 604_800;

/// Verifies a presigned URL.
pub fn verify(
    verifier: &Verifier,
    request: &AuthRequest<'_>,
    lookup: KeyLookup<'_>,
) -> Result<Authenticated, S3Error> {
    let query = request.query;
    let required = |name: &'static str| query.get(name).ok_or_else(missing);
    if required("X-Amz-Algorithm")? != "AWS4-HMAC-SHA256" {
        return Err(wrong("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
    }
    let credential = Credential::parse(required("X-Amz-Credential")?).ok_or_else(|| {
        wrong(
            "Error parsing the X-Amz-Credential parameter; the Credential is mal-formed; \
             expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".",
        )
    })?;
    let signature = required("X-Amz-Signature")?;
    let signed_headers = required("X-Amz-SignedHeaders")?.split(';').collect();
    let (date, expires) = (required("X-Amz-Date")?, required("X-Amz-Expires")?);
    check_life(verifier, date, expires)?;
    let pair = identity::find(lookup, credential.access_key)?;
    let payload_hash = payload_hash_of(query, request.headers)?;
    let declared = Declared::parse(payload_hash)?;
    let date = date.to_owned();
    let claim =
        Claim { credential, signed_headers, signature, date, payload_hash, presigned: true };
    let key = check(verifier, request, &claim, &pair)?;
    let payload = declared.into_payload(|| chain_of(&claim, key.bytes));
    Ok(Authenticated {
        identity: Identity::Key(pair),
        scheme: Scheme::PresignedV4,
        payload,
        hoisted: hoisted(query, request.headers, &[]),
    })
}

fn payload_hash_of<'a>(query: &'a Query, headers: &'a HeaderMap) -> Result<&'a str, S3Error> {
    if let Some(text) = query.get("X-Amz-Content-Sha256") {
        return Ok(text);
    }
    Ok(payload::header_text(headers)?.unwrap_or(UNSIGNED_PAYLOAD))
}

/// **Errors** `AuthorizationQueryParametersError` for values out of range, `AccessDenied` for a
/// URL before or after its time.
fn check_life(verifier: &Verifier, date: &str, expires: &str) -> Result<(), S3Error> {
    let begins = parse_amz_date(date).filter(|secs| *secs >= 0).ok_or_else(|| {
        wrong("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
    })?;
    let expires: i64 = expires.parse().map_err(|_| wrong("X-Amz-Expires should be a number"))?;
    if expires > EXPIRES_MAX_SECS {
        return Err(wrong(
            "X-Amz-Expires must be less than a week (in seconds); that is, the given \
             X-Amz-Expires must be less than 604800 seconds",
        ));
    }
    if begins > verifier.now_secs().saturating_add(SKEW_MAX_SECS) {
        return Err(S3Error::new(S3ErrorCode::AccessDenied)
            .message("Request is not valid yet")
            .detail("X-Amz-Date", date));
    }
    // A life of nothing or less is over; s3-tests wants 403 for it.
    let ends_ms = begins.saturating_add(expires).saturating_mul(1000);
    if expires <= 0 || verifier.clock.now_ms() > ends_ms {
        return Err(expired(verifier, ends_ms).detail("X-Amz-Expires", expires.to_string()));
    }
    Ok(())
}

/// The parameters of a presigned URL that stand for headers: `x-amz-*` but for those of the
/// signature, and `also`. A header that the request really has wins.
///
/// Checksums are left out: the JS SDK puts that of an empty body into every URL, so that enforcing
/// it would break uploads from browsers.
pub fn hoisted(query: &Query, headers: &HeaderMap, also: &[&str]) -> HeaderMap {
    const OF_THE_SIGNATURE: [&str; 8] = [
        "x-amz-algorithm",
        "x-amz-credential",
        "x-amz-date",
        "x-amz-expires",
        "x-amz-signedheaders",
        "x-amz-signature",
        "x-amz-content-sha256",
        "x-amz-sdk-checksum-algorithm",
    ];
    let mut out = HeaderMap::new();
    let begins = |name: &str, with: &str| {
        name.get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with))
    };
    for (name, value) in query.pairs() {
        let is_one_of = |names: &[&str]| names.iter().any(|n| n.eq_ignore_ascii_case(name));
        let is_plain = begins(name, "x-amz-")
            && !begins(name, "x-amz-checksum-")
            && !is_one_of(&OF_THE_SIGNATURE);
        if !is_plain && !is_one_of(also) {
            continue;
        }
        // Lower-cased by the type.
        let name = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value)
            && !headers.contains_key(&name)
        {
            out.append(name, value);
        }
    }
    out
}

fn wrong(message: &'static str) -> S3Error {
    S3Error::new(S3ErrorCode::AuthorizationQueryParametersError).message(message)
}

fn missing() -> S3Error {
    wrong(
        "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, \
         X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
    )
}
