//! What must be there before the first request: the root user, and what `--bootstrap` lists.
//!
//! Owns the file's format. Applied at every start; what is there already is left as it is, so
//! applying it twice changes nothing.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::credentials::{KeyPair, RootKeys};
use crate::catalog::{Catalog, ReadError};
use crate::model::{AccessKey, BucketName, CommitError, OwnerId, Proposal, User};
use crate::rng::Rng;

/// The operator's name of the user with the root key pair.
pub const ROOT_USER: &str = "root";

/// Why the wanted users, keys or buckets cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    #[error("cannot read the bootstrap file {path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("{path}: {message}")]
    Syntax { path: String, message: String },
    #[error("user {user:?} is named as an owner but listed nowhere; add it to the bootstrap file")]
    NoSuchUser { user: String },
    #[error("{name:?} is not a bucket name: 3 to 63 of a-z, 0-9, - and .")]
    BucketName { name: String },
    #[error("access key {access_key:?} belongs to user {holder:?}; choose another one")]
    KeyTaken { access_key: String, holder: String },
    #[error("cannot {action}: {source}")]
    Commit { action: String, source: CommitError },
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The TOML file.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bootstrap {
    pub users: Vec<WantedUser>,
    pub buckets: Vec<WantedBucket>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedUser {
    pub id: String,
    /// 64 hex digits by custom; made when absent.
    pub canonical_id: Option<String>,
    #[serde(default)]
    pub display_name: Option<String>,
    #[serde(default)]
    pub email: String,
    #[serde(default)]
    pub keys: Vec<KeyPair>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedBucket {
    pub name: String,
    /// `id` of the user.
    pub owner: String,
}

impl Bootstrap {
    pub fn read(path: &Path) -> Result<Bootstrap, BootstrapError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| BootstrapError::File { path: shown.clone(), source })?;
        toml::from_str(&text).map_err(|e| BootstrapError::Syntax {
            path: shown,
            // The full text shows the line, which may hold a secret.
            message: e.message().to_owned(),
        })
    }
}

/// Makes the root user and gives it its key pair.
pub async fn apply_root(
    catalog: &Arc<dyn Catalog>,
    keys: &RootKeys,
    rng: &Rng,
) -> Result<(), BootstrapError> {
    let root = WantedUser {
        id: ROOT_USER.to_owned(),
        canonical_id: None,
        display_name: None,
        email: String::new(),
        keys: vec![keys.current.clone()],
    };
    apply_user(catalog, &root, rng).await?;
    if let Some(old) = &keys.replaced
        && catalog.access_key(&old.access_key).is_some_and(|held| held.1.id == ROOT_USER)
    {
        let access_key = old.access_key.clone();
        commit(catalog, Proposal::DeleteAccessKey { access_key }, "remove the former root key")
            .await?;
    }
    Ok(())
}

/// Makes what the file lists and is not there.
pub async fn apply(
    catalog: &Arc<dyn Catalog>,
    wanted: &Bootstrap,
    rng: &Rng,
) -> Result<(), BootstrapError> {
    for user in &wanted.users {
        apply_user(catalog, user, rng).await?;
    }
    let users = catalog.users().await?;
    for bucket in &wanted.buckets {
        let name = BucketName::new(&bucket.name)
            .ok_or_else(|| BootstrapError::BucketName { name: bucket.name.clone() })?;
        let owner = users
            .iter()
            .find(|user| user.id == bucket.owner)
            .ok_or_else(|| BootstrapError::NoSuchUser { user: bucket.owner.clone() })?;
        if catalog.bucket(&bucket.name).is_some_and(|b| b.owner == owner.canonical_id) {
            continue;
        }
        let owner = owner.canonical_id.clone();
        let proposal =
            Proposal::CreateBucket { name, owner, location: String::new(), object_lock: false };
        commit(catalog, proposal, &format!("create bucket {:?}", bucket.name)).await?;
    }
    Ok(())
}

async fn apply_user(
    catalog: &Arc<dyn Catalog>,
    wanted: &WantedUser,
    rng: &Rng,
) -> Result<(), BootstrapError> {
    let held = catalog.users().await?.into_iter().find(|user| user.id == wanted.id);
    let user = User {
        id: wanted.id.clone(),
        canonical_id: match (&wanted.canonical_id, &held) {
            (Some(id), _) => OwnerId::new(id),
            (None, Some(held)) => held.canonical_id.clone(),
            (None, None) => OwnerId::new(&rng.canonical_id()),
        },
        display_name: wanted.display_name.clone().unwrap_or_else(|| wanted.id.clone()),
        email: wanted.email.clone(),
        // Who was disabled by hand stays disabled.
        disabled: held.as_ref().is_some_and(|held| held.disabled),
    };
    if held.as_ref() != Some(&user) {
        commit(catalog, Proposal::PutUser { user }, &format!("put user {:?}", wanted.id)).await?;
    }
    for pair in &wanted.keys {
        apply_key(catalog, &wanted.id, pair).await?;
    }
    Ok(())
}

async fn apply_key(
    catalog: &Arc<dyn Catalog>,
    user: &str,
    pair: &KeyPair,
) -> Result<(), BootstrapError> {
    let held = catalog.access_key(&pair.access_key).map(|held| held.0.clone());
    if let Some(other) = held.as_ref().filter(|held| held.user != user) {
        let (access_key, holder) = (pair.access_key.clone(), other.user.clone());
        return Err(BootstrapError::KeyTaken { access_key, holder });
    }
    let key = AccessKey {
        access_key: pair.access_key.clone(),
        secret_key: pair.secret_key.clone(),
        user: user.to_owned(),
        disabled: held.as_ref().is_some_and(|held| held.disabled),
    };
    if held.as_ref() != Some(&key) {
        let action = format!("put access key {:?}", pair.access_key);
        commit(catalog, Proposal::PutAccessKey { key }, &action).await?;
    }
    Ok(())
}

async fn commit(
    catalog: &Arc<dyn Catalog>,
    proposal: Proposal,
    action: &str,
) -> Result<(), BootstrapError> {
    catalog
        .commit(proposal)
        .await
        .map(drop)
        .map_err(|source| BootstrapError::Commit { action: action.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::memory::MemoryCatalog;
    use crate::clock::ManualClock;

    const FILE: &str = "
        [[users]]
        id = \"main\"
        canonical_id = \"aa\"
        display_name = \"M. Tester\"
        email = \"m@example.com\"
        [[users.keys]]
        access_key = \"AK1\"
        secret_key = \"SK1\"
        [[users.keys]]
        access_key = \"AK2\"
        secret_key = \"SK2\"
        [[buckets]]
        name = \"photos\"
        owner = \"main\"
    ";

    fn catalog() -> Arc<dyn Catalog> {
        Arc::new(MemoryCatalog::new(Arc::new(ManualClock::new(1))))
    }

    fn wanted(text: &str) -> Bootstrap {
        toml::from_str(text).expect("is valid")
    }

    #[tokio::test]
    async fn the_file_is_applied_and_applying_it_again_changes_nothing() {
        let catalog = catalog();
        for _ in 0..2 {
            apply(&catalog, &wanted(FILE), &Rng::seeded(1)).await.expect("applies");
            let users = catalog.users().await.expect("reads");
            assert_eq!(users.len(), 1);
            assert_eq!(users[0].display_name, "M. Tester");
            let key = catalog.access_key("AK2").expect("is there");
            assert_eq!(key.0.secret_key, "SK2");
            let bucket = catalog.bucket("photos").expect("is there");
            assert_eq!(bucket.owner.as_str(), "aa");
        }
    }

    #[tokio::test]
    async fn a_user_disabled_by_hand_stays_disabled() {
        let catalog = catalog();
        apply(&catalog, &wanted(FILE), &Rng::seeded(1)).await.expect("applies");
        let mut user = catalog.users().await.expect("reads").remove(0);
        user.disabled = true;
        catalog.commit(Proposal::PutUser { user }).await.expect("commits");
        apply(&catalog, &wanted(FILE), &Rng::seeded(1)).await.expect("applies");
        assert!(catalog.users().await.expect("reads")[0].disabled);
    }

    #[tokio::test]
    async fn root_keeps_its_canonical_id_and_loses_a_replaced_key() {
        let catalog = catalog();
        let pair = |name: &str| KeyPair { access_key: name.into(), secret_key: "secret".into() };
        let keys = RootKeys { current: pair("ONE"), replaced: None };
        apply_root(&catalog, &keys, &Rng::seeded(1)).await.expect("applies");
        let first = catalog.users().await.expect("reads")[0].canonical_id.clone();
        assert_eq!(first.as_str().len(), 64);
        let keys = RootKeys { current: pair("TWO"), replaced: Some(pair("ONE")) };
        apply_root(&catalog, &keys, &Rng::seeded(2)).await.expect("applies");
        assert_eq!(catalog.users().await.expect("reads")[0].canonical_id, first);
        assert!(catalog.access_key("ONE").is_none());
        assert!(catalog.access_key("TWO").is_some());
    }

    #[tokio::test]
    async fn what_cannot_be_had_is_named() {
        let check = async |text: &str, part: &str| {
            let error = apply(&catalog(), &wanted(text), &Rng::seeded(1)).await;
            let error = error.expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        };
        check("[[buckets]]\nname = \"photos\"\nowner = \"nobody\"", "\"nobody\"").await;
        check("[[buckets]]\nname = \"NO\"\nowner = \"nobody\"", "\"NO\"").await;
        let key = "[[users.keys]]\naccess_key = \"K\"\nsecret_key = \"s\"\n";
        let two = format!("[[users]]\nid = \"a\"\n{key}[[users]]\nid = \"b\"\n{key}");
        check(&two, "belongs to user \"a\"").await;
    }

    #[test]
    fn unknown_names_in_the_file_are_refused_without_showing_secrets() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("b.toml");
        let text =
            "[[users]]\nid = \"a\"\n[[users.keys]]\nacces_key = \"k\"\nsecret_key = \"hush\"";
        std::fs::write(&path, text).expect("writable");
        let error = Bootstrap::read(&path).expect_err("unknown").to_string();
        assert!(error.contains("acces_key") && !error.contains("hush"), "{error}");
    }
}
