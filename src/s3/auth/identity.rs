//! Who signed: access keys looked up, signing keys derived and kept.
//!
//! Owns the only copies of derived keys. Secrets never leave it except as keys for one signature.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use aws_sigv4::sign::v4::generate_signing_key;
use hashbrown::{Equivalent, HashMap};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::model::{AccessKey, User};
use crate::s3::error::{S3Error, S3ErrorCode};
use crate::s3::time::parse_amz_date;

/// An access key with its user.
pub type KeyPair = Arc<(AccessKey, User)>;

/// Finds a key pair by its access key. Called once for each signed request.
pub type KeyLookup<'a> = &'a dyn Fn(&str) -> Option<KeyPair>;

/// Finds a key pair that may be used.
///
/// **Errors** `InvalidAccessKeyId` for one that is unknown or disabled, or whose user is.
pub fn find(lookup: KeyLookup<'_>, access_key: &str) -> Result<KeyPair, S3Error> {
    lookup(access_key).filter(|pair| !pair.0.disabled && !pair.1.disabled).ok_or_else(|| {
        S3Error::new(S3ErrorCode::InvalidAccessKeyId).detail("AWSAccessKeyId", access_key)
    })
}

/// The pair of requests without a signature. Its key is in no catalog and signs nothing.
pub fn anonymous() -> KeyPair {
    let key = AccessKey {
        access_key: String::new(),
        secret_key: String::new(),
        user: String::new(),
        disabled: true,
    };
    Arc::new((key, User::anonymous()))
}

/// What a signing key is derived from, beside the secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ScopeOfKey {
    access_key: String,
    day: String,
    region: String,
}

/// The same without owning it, for looking one up. Hashes field by field, as the owned one does.
#[derive(Hash)]
struct BorrowedScope<'a>(&'a str, &'a str, &'a str);

impl Equivalent<ScopeOfKey> for BorrowedScope<'_> {
    fn equivalent(&self, owned: &ScopeOfKey) -> bool {
        (self.0, self.1, self.2) == (&owned.access_key, &owned.day, &owned.region)
    }
}

/// A key that is ready to sign: HMAC has taken it in already, which is half the work of a short
/// text.
#[derive(Clone)]
pub struct SigningKey {
    pub bytes: [u8; 32],
    mac: Hmac<Sha256>,
}

impl SigningKey {
    fn new(bytes: [u8; 32]) -> Option<SigningKey> {
        Some(SigningKey { bytes, mac: Hmac::new_from_slice(&bytes).ok()? })
    }

    /// The signature of a string to sign, in lower-case hex.
    pub fn sign(&self, text: &[u8]) -> [u8; 64] {
        hex_of(&self.mac.clone().chain_update(text).finalize().into_bytes().into())
    }
}

/// Lower-case hex digits, without going to the heap.
pub fn hex_of(bytes: &[u8; 32]) -> [u8; 64] {
    std::array::from_fn(|at| {
        let nibble = bytes[at / 2] >> (4 * (1 - at % 2)) & 15;
        b"0123456789abcdef"[usize::from(nibble)]
    })
}

/// A derived key with the secret that it came from, so that a changed secret is noticed.
struct Derived {
    secret: String,
    key: SigningKey,
}

/// Signing keys that were derived before: four HMACs saved for each request.
#[derive(Default)]
pub struct SigningKeys {
    derived: Mutex<HashMap<ScopeOfKey, Derived>>,
}

/// Most derived keys kept; one per access key, day and region. Beyond it all are forgotten, which
/// costs a derivation each and keeps the table bounded whatever regions clients invent.
const DERIVED_MAX: usize = 1024;

impl SigningKeys {
    /// The signing key of `pair` for a day such as `20130524` and a region, service `s3`.
    ///
    /// **Errors** `None` when `day` is no day.
    pub fn get(&self, pair: &AccessKey, day: &str, region: &str) -> Option<SigningKey> {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = derived.get(&BorrowedScope(&pair.access_key, day, region))
            && known.secret == pair.secret_key
        {
            return Some(known.key.clone());
        }
        let secs = u64::try_from(parse_amz_date(&format!("{day}T000000Z"))?).ok()?;
        let at = UNIX_EPOCH + Duration::from_secs(secs);
        let raw = generate_signing_key(&pair.secret_key, at, region, "s3");
        let key = SigningKey::new(raw.as_ref().try_into().ok()?)?;
        if derived.len() >= DERIVED_MAX {
            derived.clear();
        }
        let scope = ScopeOfKey {
            access_key: pair.access_key.clone(),
            day: day.to_owned(),
            region: region.to_owned(),
        };
        derived.insert(scope, Derived { secret: pair.secret_key.clone(), key: key.clone() });
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::OwnerId;

    fn pair(secret: &str) -> (AccessKey, User) {
        let key = AccessKey {
            access_key: "AK".into(),
            secret_key: secret.into(),
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
        (key, user)
    }

    /// Known answer computed with Python's hmac from the documented derivation.
    #[test]
    fn derives_the_documented_key_and_keeps_it() {
        let keys = SigningKeys::default();
        let pair = pair("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY").0;
        let key = keys.get(&pair, "20130524", "us-east-1").unwrap();
        assert_eq!(
            hex::encode(key.bytes),
            "dbb893acc010964918f1fd433add87c70e8b0db6be30c1fbeafefa5ec6ba8378"
        );
        let bytes = |day| keys.get(&pair, day, "us-east-1").map(|key| key.bytes);
        assert_eq!(bytes("20130524"), Some(key.bytes));
        assert_ne!(bytes("20130525"), Some(key.bytes));
        assert_eq!(bytes("2013052x"), None);
        let crate_says = aws_sigv4::sign::v4::calculate_signature(key.bytes, b"a text to sign");
        assert_eq!(key.sign(b"a text to sign"), crate_says.as_bytes());
    }

    #[test]
    fn a_changed_secret_is_noticed_and_the_table_stays_bounded() {
        let keys = SigningKeys::default();
        let old = keys.get(&pair("old").0, "20260101", "r").unwrap();
        let new = keys.get(&pair("new").0, "20260101", "r").unwrap();
        assert_ne!(old.bytes, new.bytes);
        for n in 0..2 * DERIVED_MAX + 5 {
            keys.get(&pair("s").0, "20260101", &format!("r{n}")).unwrap();
            assert!(keys.derived.lock().unwrap().len() <= DERIVED_MAX);
        }
    }

    #[test]
    fn unknown_and_disabled_keys_are_refused() {
        let with = |key_off: bool, user_off: bool| {
            let mut pair = pair("s");
            pair.0.disabled = key_off;
            pair.1.disabled = user_off;
            Arc::new(pair)
        };
        let code =
            |found: Option<KeyPair>| find(&|_| found.clone(), "AK").map_err(|e| e.code()).err();
        assert_eq!(code(Some(with(false, false))), None);
        for found in [None, Some(with(true, false)), Some(with(false, true))] {
            assert_eq!(code(found), Some(S3ErrorCode::InvalidAccessKeyId));
        }
    }
}
