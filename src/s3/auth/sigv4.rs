//! Signature version 4 in the Authorization header, and the check that presigned URLs share.
//!
//! Owns the rules for credentials, scopes and signed headers. The canonical forms are in
//! `canonical`, the derived keys in `identity`.
//!
//! **Source** AWS S3 API reference, "Authenticating Requests (AWS Signature Version 4)".

use http::header::{DATE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};
use subtle::ConstantTimeEq;

use super::identity::{self, KeyLookup, KeyPair, SigningKey};
use super::payload::{self, CONTENT_SHA256, Declared};
use super::streaming::{ChunkVerifier, EMPTY_SHA256};
use super::{AuthRequest, Authenticated, Identity, Scheme, Verifier, canonical, no_valid_date};
use crate::digest::sha256;
use crate::s3::error::{S3Error, S3ErrorCode};
use crate::s3::time::{amz_date, is_day, parse_amz_date, parse_http_date, parse_mail_date};

/// `AKID/20130524/us-east-1/s3/aws4_request`
#[derive(Debug, PartialEq, Eq)]
pub struct Credential<'a> {
    pub access_key: &'a str,
    pub day: &'a str,
    pub region: &'a str,
    pub service: &'a str,
    pub terminator: &'a str,
}

impl<'a> Credential<'a> {
    /// Splits it from the right, because an access key may contain a slash.
    pub fn parse(text: &'a str) -> Option<Credential<'a>> {
        let mut parts = text.rsplitn(5, '/');
        let (terminator, service) = (parts.next()?, parts.next()?);
        let (region, day, access_key) = (parts.next()?, parts.next()?, parts.next()?);
        if access_key.is_empty() {
            return None;
        }
        Some(Credential { access_key, day, region, service, terminator })
    }

    /// What stands in the string to sign.
    pub fn scope(&self) -> String {
        format!("{}/{}/{}/{}", self.day, self.region, self.service, self.terminator)
    }
}

/// Everything of a signature but the bytes that it covers.
pub struct Claim<'a> {
    pub credential: Credential<'a>,
    /// Lower-case names, in the client's order.
    pub signed_headers: Vec<&'a str>,
    /// Hex.
    pub signature: &'a str,
    /// As it stands in the string to sign.
    pub date: String,
    /// As it stands in the canonical request.
    pub payload_hash: &'a str,
    /// True for a presigned URL.
    pub presigned: bool,
}

/// Verifies the Authorization header, given without its leading word.
pub fn verify_header(
    verifier: &Verifier,
    request: &AuthRequest<'_>,
    fields: &str,
    lookup: KeyLookup<'_>,
) -> Result<Authenticated, S3Error> {
    let (credential, signed_headers, signature) = parse_fields(fields)?;
    let (date, secs) = date_of(request.headers)?;
    verifier.check_skew(secs, &date)?;
    let pair = identity::find(lookup, credential.access_key)?;
    let text = payload::header_text(request.headers)?;
    let declared = text.map_or_else(|| Ok(Declared::empty()), Declared::parse)?;
    let payload_hash = text.unwrap_or(EMPTY_SHA256);
    let claim =
        Claim { credential, signed_headers, signature, date, payload_hash, presigned: false };
    let key = check(verifier, request, &claim, &pair)?;
    let chain = || chain_of(&claim, key.bytes);
    Ok(Authenticated {
        payload: declared.into_payload(chain),
        identity: Identity::Key(pair),
        scheme: Scheme::HeaderV4,
        hoisted: HeaderMap::new(),
    })
}

/// The verifier of signed chunks that follow a verified claim.
pub fn chain_of(claim: &Claim<'_>, key: [u8; 32]) -> ChunkVerifier {
    let (scope, seed) = (claim.credential.scope(), claim.signature.to_owned());
    ChunkVerifier::new(key, claim.date.clone(), scope, seed)
}

fn parse_fields(fields: &str) -> Result<(Credential<'_>, Vec<&str>, &str), S3Error> {
    let malformed = |message: &str| {
        S3Error::new(S3ErrorCode::AuthorizationHeaderMalformed)
            .message(format!("The authorization header is malformed; {message}."))
    };
    let (mut credential, mut signed, mut signature) = (None, None, None);
    for field in fields.split(',') {
        let (name, value) = field
            .trim()
            .split_once('=')
            .ok_or_else(|| malformed("a field is not of the form name=value"))?;
        let slot = match name {
            "Credential" => &mut credential,
            "SignedHeaders" => &mut signed,
            "Signature" => &mut signature,
            _ => return Err(malformed("a field is not known")),
        };
        if slot.replace(value).is_some() {
            return Err(malformed("a field stands there twice"));
        }
    }
    let credential = credential.ok_or_else(|| malformed("it has no Credential"))?;
    let credential = Credential::parse(credential).ok_or_else(|| {
        malformed(
            "the Credential is mal-formed; expecting \
             \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"",
        )
    })?;
    let signed = signed.ok_or_else(|| malformed("it has no SignedHeaders"))?;
    let signature = signature.ok_or_else(|| malformed("it has no Signature"))?;
    Ok((credential, signed.split(';').collect(), signature))
}

/// The request's time as text for the string to sign and in seconds: x-amz-date, else Date.
fn date_of(headers: &HeaderMap) -> Result<(String, i64), S3Error> {
    let (text, secs) = match headers.get("x-amz-date") {
        Some(value) => {
            let text = value.to_str().map_err(|_| no_valid_date())?.trim();
            (text.to_owned(), parse_amz_date(text))
        }
        None => {
            let text = headers.get(DATE).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let secs = parse_amz_date(text)
                .or_else(|| parse_http_date(text))
                .or_else(|| parse_mail_date(text));
            (secs.map(amz_date).unwrap_or_default(), secs)
        }
    };
    // A time before 1970 is no time of a living client; s3-tests wants it refused as no date.
    let secs = secs.filter(|secs| *secs >= 0).ok_or_else(no_valid_date)?;
    Ok((text, secs))
}

/// Checks scope, signed headers and signature; gives the signing key.
///
/// **Errors** `AuthorizationHeaderMalformed` or `AuthorizationQueryParametersError` for a wrong
/// scope, `AccessDenied` for headers that must be signed, `SignatureDoesNotMatch`.
pub fn check(
    verifier: &Verifier,
    request: &AuthRequest<'_>,
    claim: &Claim<'_>,
    pair: &KeyPair,
) -> Result<SigningKey, S3Error> {
    check_scope(verifier, claim)?;
    check_signed_headers(request.headers, claim)?;
    let (day, region) = (claim.credential.day, claim.credential.region);
    let key = verifier
        .keys
        .get(&pair.0, day, region)
        .ok_or_else(|| scope_error(claim, "the date in the Credential is no date"))?;
    if signature_holds(verifier, request, claim, &key) {
        return Ok(key);
    }
    Err(S3Error::new(S3ErrorCode::SignatureDoesNotMatch)
        .detail("AWSAccessKeyId", claim.credential.access_key)
        .detail("SignatureProvided", claim.signature))
}

/// The scope must be of this server, and of the day of the claim.
pub(super) fn check_scope(verifier: &Verifier, claim: &Claim<'_>) -> Result<(), S3Error> {
    let credential = &claim.credential;
    let settings = &verifier.settings;
    if !is_day(credential.day) || !claim.date.starts_with(credential.day) {
        let text = format!(
            "Invalid credential date \"{}\". This date is not the same as X-Amz-Date: \"{}\"",
            credential.day, claim.date
        );
        return Err(scope_error(claim, &text));
    }
    if !settings.accept_any_region && credential.region != settings.region {
        let text =
            format!("the region '{}' is wrong; expecting '{}'", credential.region, settings.region);
        let mut error = scope_error(claim, &text).detail("Region", &settings.region);
        if let Ok(region) = HeaderValue::from_str(&settings.region) {
            error = error.header(HeaderName::from_static("x-amz-bucket-region"), region);
        }
        return Err(error);
    }
    if credential.service != "s3" {
        let text = format!(
            "incorrect service \"{}\". This endpoint belongs to \"s3\"",
            credential.service
        );
        return Err(scope_error(claim, &text));
    }
    if credential.terminator != "aws4_request" {
        let text = format!(
            "incorrect terminal \"{}\". This endpoint uses \"aws4_request\"",
            credential.terminator
        );
        return Err(scope_error(claim, &text));
    }
    Ok(())
}

fn scope_error(claim: &Claim<'_>, text: &str) -> S3Error {
    let (code, what) = if claim.presigned {
        (
            S3ErrorCode::AuthorizationQueryParametersError,
            "Error parsing the X-Amz-Credential parameter",
        )
    } else {
        (S3ErrorCode::AuthorizationHeaderMalformed, "The authorization header is malformed")
    };
    S3Error::new(code).message(format!("{what}; {text}."))
}

/// The host and every `x-amz-*` header must be signed, else a stranger could add to the request.
fn check_signed_headers(headers: &HeaderMap, claim: &Claim<'_>) -> Result<(), S3Error> {
    let is_signed = |name: &str| claim.signed_headers.iter().any(|s| s.eq_ignore_ascii_case(name));
    // The payload hash of header authentication stands in the canonical request in any case.
    let is_covered = |name: &str| !claim.presigned && name == CONTENT_SHA256;
    let mut unsigned: Vec<&str> = headers
        .keys()
        .map(HeaderName::as_str)
        .filter(|name| name.starts_with("x-amz-") && !is_signed(name) && !is_covered(name))
        .collect();
    if !is_signed("host") {
        unsigned.push("host");
    }
    if unsigned.is_empty() {
        return Ok(());
    }
    unsigned.sort_unstable();
    Err(S3Error::new(S3ErrorCode::AccessDenied)
        .message("There were headers present in the request which were not signed")
        .detail("HeadersNotSigned", unsigned.join(", ")))
}

/// Tries the received host and query, then what proxies and old clients make of them: the external
/// host, and the query as it was typed (curl before 8 signed it unsorted). Each is what the client
/// sent or the operator set, so none weakens the signature.
fn signature_holds(
    verifier: &Verifier,
    request: &AuthRequest<'_>,
    claim: &Claim<'_>,
    key: &SigningKey,
) -> bool {
    let path = canonical::path(request.raw_path);
    let canonical_query = canonical::query(request.query);
    let mut queries = vec![canonical_query.as_str()];
    if !claim.presigned && request.query.raw() != canonical_query {
        queries.push(request.query.raw());
    }
    let external = verifier.settings.external_host.as_deref();
    let hosts = [Some(request.host), external.filter(|host| *host != request.host)];
    let mut is_first = true;
    for host in hosts.into_iter().flatten() {
        let Some(lines) = header_lines(request, claim, host) else { return false };
        for query in &queries {
            let text = canonical_request(request.method, &path, query, &lines, claim);
            let to_sign = string_to_sign(claim, &text);
            if bool::from(key.sign(&to_sign).ct_eq(claim.signature.as_bytes())) {
                return true;
            }
            if is_first {
                log_mismatch(claim, &text, &to_sign);
                is_first = false;
            }
        }
    }
    false
}

fn canonical_request(
    method: &str,
    path: &str,
    query: &str,
    lines: &[u8],
    claim: &Claim<'_>,
) -> Vec<u8> {
    let mut text = Vec::with_capacity(512 + path.len() + query.len() + lines.len());
    for line in [method, path, query] {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    text.extend_from_slice(lines);
    let mut separator = b'\n';
    for name in &claim.signed_headers {
        text.push(separator);
        text.extend_from_slice(name.as_bytes());
        separator = b';';
    }
    text.push(b'\n');
    text.extend_from_slice(claim.payload_hash.as_bytes());
    text
}

fn string_to_sign(claim: &Claim<'_>, canonical_request: &[u8]) -> Vec<u8> {
    let Credential { day, region, service, terminator, .. } = &claim.credential;
    let mut text = Vec::with_capacity(256);
    text.extend_from_slice(b"AWS4-HMAC-SHA256\n");
    text.extend_from_slice(claim.date.as_bytes());
    let mut separator = b'\n';
    for part in [day, region, service, terminator] {
        text.push(separator);
        text.extend_from_slice(part.as_bytes());
        separator = b'/';
    }
    text.push(b'\n');
    text.extend_from_slice(&identity::hex_of(&sha256(canonical_request)));
    text
}

/// The canonical headers; `None` when a signed header is absent and cannot be known.
fn header_lines(request: &AuthRequest<'_>, claim: &Claim<'_>, host: &str) -> Option<Vec<u8>> {
    let mut lines = Vec::with_capacity(512);
    for name in &claim.signed_headers {
        if name.eq_ignore_ascii_case("host") {
            canonical::plain_line(&mut lines, name, host.trim().as_bytes());
            continue;
        }
        if canonical::header_line(&mut lines, request.headers, name) {
            continue;
        }
        let Some(value) = reconstructed(request.headers, name) else {
            let access_key = claim.credential.access_key;
            tracing::debug!(access_key, header = %name, "a signed header is missing");
            return None;
        };
        canonical::plain_line(&mut lines, name, value.as_bytes());
    }
    Some(lines)
}

/// What the client sent in a header that a proxy has dropped: nginx answers Expect itself, sends
/// a buffered body with a length instead of chunks, and may drop a length of 0.
fn reconstructed(headers: &HeaderMap, name: &str) -> Option<&'static str> {
    match name {
        "expect" => Some("100-continue"),
        "transfer-encoding" => Some("chunked"),
        "content-length" if !headers.contains_key(TRANSFER_ENCODING) => Some("0"),
        _ => None,
    }
}

/// Shows the operator what this server signed, so that it can be compared with the client's.
fn log_mismatch(claim: &Claim<'_>, canonical: &[u8], to_sign: &[u8]) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    tracing::debug!(
        access_key = claim.credential.access_key,
        canonical_request = %redact(&String::from_utf8_lossy(canonical)),
        string_to_sign = %String::from_utf8_lossy(to_sign),
        "signature mismatch"
    );
}

/// Hides what is a secret of the client: session tokens and customer-provided keys.
fn redact(canonical: &str) -> String {
    let is_secret = |line: &str| {
        let name = line.split(':').next().unwrap_or_default();
        name == "x-amz-security-token" || name.ends_with("server-side-encryption-customer-key")
    };
    let hide = |line: &str| {
        if is_secret(line) {
            format!("{}:(hidden)", line.split(':').next().unwrap_or_default())
        } else if line.contains("X-Amz-Security-Token=") {
            "(query with a security token, hidden)".to_owned()
        } else {
            line.to_owned()
        }
    };
    canonical.split('\n').map(hide).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_split_from_the_right() {
        let c = Credential::parse("a/b/20130524/us-east-1/s3/aws4_request").unwrap();
        assert_eq!((c.access_key, c.day, c.region), ("a/b", "20130524", "us-east-1"));
        assert_eq!(c.scope(), "20130524/us-east-1/s3/aws4_request");
        for text in ["", "HAHAHA", "/20130524/us-east-1/s3/aws4_request", "a/b/c/d"] {
            assert_eq!(Credential::parse(text), None, "{text}");
        }
    }

    #[test]
    fn logs_hide_client_secrets() {
        let text = "PUT\n/t/k\nX-Amz-Security-Token=tok\nhost:h\nx-amz-security-token:tok\n\
                    x-amz-server-side-encryption-customer-key:tok\n\nhost\nUNSIGNED-PAYLOAD";
        let shown = redact(text);
        assert!(!shown.contains("tok\n") && !shown.contains("=tok"), "{shown}");
        assert!(shown.contains("host:h"));
    }
}
