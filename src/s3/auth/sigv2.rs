//! Signature version 2, in the Authorization header and in presigned URLs.
//!
//! Old, but boto3 still makes such URLs for custom endpoints in its default region. It signs no
//! payload and few headers; an operator can switch it off.
//!
//! **Source** AWS S3 developer guide, "Signing and authenticating REST requests"; botocore's
//! `HmacV1Auth` for the sub-resources.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use http::header::{CONTENT_TYPE, DATE, HeaderName};
use sha1::Sha1;
use subtle::ConstantTimeEq;

use super::identity::{self, KeyLookup, KeyPair};
use super::payload::Payload;
use super::presigned::hoisted;
use super::{AuthRequest, Authenticated, Identity, Scheme, Verifier, expired, no_valid_date};
use crate::s3::error::{S3Error, S3ErrorCode};
use crate::s3::time::{parse_amz_date, parse_http_date, parse_mail_date};

/// The parameters that are part of the signed resource, for every client.
const SUB_RESOURCES: [&str; 35] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "defaultObjectAcl",
    "delete",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "storageClass",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];
/// Younger ones, which only some clients sign.
const YOUNG_SUB_RESOURCES: [&str; 5] =
    ["encryption", "legal-hold", "policyStatus", "publicAccessBlock", "retention"];

/// Verifies the Authorization header, given without its leading word: `AKID:signature`.
pub fn verify_header(
    verifier: &Verifier,
    request: &AuthRequest<'_>,
    fields: &str,
    lookup: KeyLookup<'_>,
) -> Result<Authenticated, S3Error> {
    let (access_key, signature) = fields
        .trim()
        .rsplit_once(':')
        .filter(|(access_key, signature)| !access_key.is_empty() && !signature.is_empty())
        .ok_or_else(|| {
            S3Error::new(S3ErrorCode::InvalidArgument)
                .message("AWS authorization header is invalid. Expected AwsAccessKeyId:signature")
        })?;
    let amz_date = text_of(request.headers, "x-amz-date");
    let date = text_of(request.headers, DATE.as_str());
    let shown = amz_date.or(date).unwrap_or_default();
    let secs = parse_http_date(shown).or_else(|| parse_mail_date(shown));
    let secs = secs.or_else(|| parse_amz_date(shown)).filter(|secs| *secs >= 0);
    verifier.check_skew(secs.ok_or_else(no_valid_date)?, shown)?;
    let pair = identity::find(lookup, access_key)?;
    // x-amz-date is signed with the other x-amz-* headers; the Date line is then empty.
    let date_line = if amz_date.is_some() { "" } else { shown };
    check(request, &HeaderMap::new(), date_line, signature, &pair)?;
    Ok(Authenticated {
        identity: Identity::Key(pair),
        scheme: Scheme::HeaderV2,
        payload: Payload::unsigned_request(request.headers)?,
        hoisted: HeaderMap::new(),
    })
}

/// Verifies a presigned URL: `AWSAccessKeyId`, `Expires` and `Signature` in the query.
pub fn verify_presigned(
    verifier: &Verifier,
    request: &AuthRequest<'_>,
    lookup: KeyLookup<'_>,
) -> Result<Authenticated, S3Error> {
    let query = request.query;
    let missing = || {
        S3Error::new(S3ErrorCode::AccessDenied).message(
            "Query-string authentication requires the Signature, Expires and AWSAccessKeyId \
             parameters",
        )
    };
    let required = |name: &'static str| query.get(name).ok_or_else(missing);
    let (access_key, signature) = (required("AWSAccessKeyId")?, required("Signature")?);
    let expires = required("Expires")?;
    let ends: i64 = expires.parse().map_err(|_| {
        S3Error::new(S3ErrorCode::AccessDenied)
            .message(format!("Invalid date (should be seconds since epoch): {expires}"))
    })?;
    let ends_ms = ends.saturating_mul(1000);
    if verifier.clock.now_ms() > ends_ms {
        return Err(expired(verifier, ends_ms));
    }
    let pair = identity::find(lookup, access_key)?;
    let mut moved = hoisted(query, request.headers, &["content-type", "content-md5"]);
    check(request, &moved, expires, signature, &pair)?;
    // The security token belongs to the signature only.
    moved.remove("x-amz-security-token");
    Ok(Authenticated {
        identity: Identity::Key(pair),
        scheme: Scheme::PresignedV2,
        payload: Payload::unsigned_request(request.headers)?,
        hoisted: moved,
    })
}

fn check(
    request: &AuthRequest<'_>,
    moved: &HeaderMap,
    date_line: &str,
    signature: &str,
    pair: &KeyPair,
) -> Result<(), S3Error> {
    let head = head_to_sign(request, moved, date_line);
    let holds = |resource: &String| {
        let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(pair.0.secret_key.as_bytes()) else {
            return false;
        };
        mac.update(&head);
        mac.update(resource.as_bytes());
        let expected = STANDARD.encode(mac.finalize().into_bytes());
        bool::from(expected.as_bytes().ct_eq(signature.as_bytes()))
    };
    let resources = resources(request);
    if resources.iter().any(holds) {
        return Ok(());
    }
    tracing::debug!(
        access_key = pair.0.access_key,
        string_to_sign = %String::from_utf8_lossy(&head),
        ?resources,
        "signature mismatch"
    );
    Err(S3Error::new(S3ErrorCode::SignatureDoesNotMatch)
        .detail("AWSAccessKeyId", &pair.0.access_key)
        .detail("SignatureProvided", signature))
}

/// The string to sign up to the resource. `moved` holds what a presigned URL carries in its query
/// instead of the header.
fn head_to_sign(request: &AuthRequest<'_>, moved: &HeaderMap, date_line: &str) -> Vec<u8> {
    let value = |name: &str| {
        let found = request.headers.get(name).or_else(|| moved.get(name));
        found.map(|value| value.as_bytes()).unwrap_or_default()
    };
    let mut out = format!("{}\n", request.method).into_bytes();
    for part in [value("content-md5"), value(CONTENT_TYPE.as_str()), date_line.as_bytes()] {
        out.extend_from_slice(part);
        out.push(b'\n');
    }
    let is_amz = |name: &&HeaderName| name.as_str().starts_with("x-amz-");
    let mut names: Vec<_> = request.headers.keys().chain(moved.keys()).filter(is_amz).collect();
    names.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    for name in names {
        out.extend_from_slice(name.as_str().as_bytes());
        out.push(b':');
        let values = request.headers.get_all(name).iter().chain(moved.get_all(name).iter());
        for (at, value) in values.enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(value.as_bytes().trim_ascii());
        }
        out.push(b'\n');
    }
    out
}

/// The resource: the bucket of a virtual host, the raw path, the sub-resources with their values.
///
/// Clients differ in two points, each of which names the same thing, so that all forms are tried:
/// botocore signs a slash behind a bucket that it then leaves out, and few sign the younger
/// sub-resources.
fn resources(request: &AuthRequest<'_>) -> Vec<String> {
    let bucket = request.virtual_bucket.map(|bucket| format!("/{bucket}")).unwrap_or_default();
    let path = format!("{bucket}{}", request.raw_path);
    let all = sub_resources(request, true);
    let old = sub_resources(request, false);
    let mut out = vec![format!("{path}{all}")];
    if old != all {
        out.push(format!("{path}{old}"));
    }
    let is_bucket = bucket.is_empty() && path.rfind('/') == Some(0) && path.len() > 1;
    if is_bucket {
        out.push(format!("{path}/{all}"));
        out.push(format!("{path}/{old}"));
    }
    out
}

fn sub_resources(request: &AuthRequest<'_>, young: bool) -> String {
    let is_signed = |name: &str| {
        SUB_RESOURCES.contains(&name) || (young && YOUNG_SUB_RESOURCES.contains(&name))
    };
    let mut parts: Vec<_> =
        request.query.pairs().iter().filter(|(name, _)| is_signed(name)).collect();
    parts.sort_by_key(|(name, _)| name);
    let mut out = String::new();
    for (name, value) in parts {
        out.push(if out.is_empty() { '?' } else { '&' });
        out.push_str(name);
        if !value.is_empty() {
            out.push('=');
            out.push_str(value);
        }
    }
    out
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}
