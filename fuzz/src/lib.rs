//! What several targets need.

use std::sync::Arc;

use goblin_store::model::{AccessKey, OwnerId, User};
use goblin_store::s3::auth::KeyPair;

/// Any access key exists, with a secret that the fuzzer does not know.
pub fn lookup(access_key: &str) -> Option<KeyPair> {
    let key = AccessKey {
        access_key: access_key.into(),
        secret_key: "a secret that no input holds".into(),
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
    Some(Arc::new((key, user)))
}
