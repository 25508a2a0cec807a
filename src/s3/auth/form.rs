//! Signatures of POST forms: the signed text is the form's policy.
//!
//! **Source** AWS S3 API reference, "Authenticating requests in browser-based uploads using POST
//! (AWS Signature Version 4)"; AWS S3 developer guide, "Browser uploads", for version 2.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use subtle::ConstantTimeEq;

use super::Verifier;
use super::identity::{self, KeyLookup, KeyPair};
use super::sigv4::{self, Claim, Credential};
use crate::s3::error::{S3Error, S3ErrorCode};
use crate::s3::form::Fields;
use crate::s3::time::parse_amz_date;

/// Fields of a form that belong to its signature, in lower case.
pub const SIGNATURE_FIELDS: [&str; 8] = [
    "awsaccesskeyid",
    "policy",
    "signature",
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-signature",
];

impl Verifier {
    /// Finds out who signed a form; one without any field of a signature is anonymous.
    ///
    /// What the policy says is not looked at, nor its time.
    ///
    /// **Errors** `InvalidArgument` for a field that is missing, `InvalidAccessKeyId`,
    /// `SignatureDoesNotMatch`, and those of a wrong scope.
    pub fn verify_form(
        &self,
        fields: &Fields,
        lookup: KeyLookup<'_>,
    ) -> Result<Option<KeyPair>, S3Error> {
        if !SIGNATURE_FIELDS.iter().any(|name| fields.get(name).is_some()) {
            return Ok(None);
        }
        let is_v4 = ["x-amz-algorithm", "x-amz-credential", "x-amz-signature"]
            .iter()
            .any(|name| fields.get(name).is_some());
        let policy = required(fields, "policy")?;
        if is_v4 {
            verify_v4(self, fields, policy, lookup).map(Some)
        } else {
            self.require_sigv2()?;
            verify_v2(fields, policy, lookup).map(Some)
        }
    }
}

/// **Errors** `InvalidArgument` as AWS words it.
pub fn required<'f>(fields: &'f Fields, name: &'static str) -> Result<&'f str, S3Error> {
    fields.get(name).ok_or_else(|| {
        S3Error::new(S3ErrorCode::InvalidArgument)
            .message(format!(
                "Bucket POST must contain a field named '{name}'.  If it is specified, please \
                 check the order of the fields."
            ))
            .argument(name, "")
    })
}

fn verify_v4(
    verifier: &Verifier,
    fields: &Fields,
    policy: &str,
    lookup: KeyLookup<'_>,
) -> Result<KeyPair, S3Error> {
    let algorithm = required(fields, "X-Amz-Algorithm")?;
    let invalid = |name, value| S3Error::new(S3ErrorCode::InvalidArgument).argument(name, value);
    if algorithm != "AWS4-HMAC-SHA256" {
        return Err(invalid("X-Amz-Algorithm", algorithm));
    }
    let text = required(fields, "X-Amz-Credential")?;
    let credential = Credential::parse(text).ok_or_else(|| invalid("X-Amz-Credential", text))?;
    let date = required(fields, "X-Amz-Date")?;
    parse_amz_date(date).ok_or_else(|| invalid("X-Amz-Date", date))?;
    let signature = required(fields, "X-Amz-Signature")?;
    let pair = identity::find(lookup, credential.access_key)?;
    let claim = Claim {
        credential,
        signed_headers: Vec::new(),
        signature,
        date: date.to_owned(),
        payload_hash: "",
        presigned: true,
    };
    sigv4::check_scope(verifier, &claim)?;
    let (day, region) = (claim.credential.day, claim.credential.region);
    let key = verifier.keys.get(&pair.0, day, region);
    let key = key.ok_or_else(|| invalid("X-Amz-Credential", text))?;
    same(&key.sign(policy.as_bytes()), signature, &pair)?;
    Ok(pair)
}

fn verify_v2(fields: &Fields, policy: &str, lookup: KeyLookup<'_>) -> Result<KeyPair, S3Error> {
    let access_key = required(fields, "AWSAccessKeyId")?;
    let signature = required(fields, "Signature")?;
    let pair = identity::find(lookup, access_key)?;
    let mac = Hmac::<Sha1>::new_from_slice(pair.0.secret_key.as_bytes());
    let mut mac = mac.map_err(|_| S3Error::internal("a secret that cannot be a key"))?;
    mac.update(policy.as_bytes());
    same(STANDARD.encode(mac.finalize().into_bytes()).as_bytes(), signature, &pair)?;
    Ok(pair)
}

fn same(expected: &[u8], signature: &str, pair: &KeyPair) -> Result<(), S3Error> {
    if bool::from(expected.ct_eq(signature.as_bytes())) {
        return Ok(());
    }
    Err(S3Error::new(S3ErrorCode::SignatureDoesNotMatch)
        .detail("AWSAccessKeyId", &pair.0.access_key)
        .detail("SignatureProvided", signature))
}
