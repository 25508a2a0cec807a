//! Users and their key pairs, as an operator sees and changes them.
//!
//! Owns the rules for names and the shapes that the API and the command line share. The server
//! calls it for requests, the command line directly when no server runs.

use serde::{Deserialize, Serialize};

use crate::catalog::{Catalog, ReadError};
use crate::model::{AccessKey, CommitError, OwnerId, Proposal, User};
use crate::rng::Rng;

const USER_ID_CHARS_MAX: usize = 64;

/// A failed change or question. The message is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("there is no user {0:?}; `goblin-store users list` shows all")]
    NoSuchUser(String),
    #[error("there is no access key {0:?}; `goblin-store keys list` shows all")]
    NoSuchKey(String),
    #[error("user {0:?} exists already")]
    UserExists(String),
    #[error("access key {0:?} exists already; choose another one, or leave it out to get one")]
    KeyExists(String),
    #[error("{0}")]
    Invalid(String),
    #[error("the change was not made: {0}")]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// A user, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserView {
    pub id: String,
    pub canonical_id: String,
    pub display_name: String,
    pub email: String,
    pub disabled: bool,
}

/// A user to add. What is absent is made up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    pub id: String,
    pub canonical_id: Option<String>,
    pub display_name: Option<String>,
    pub email: Option<String>,
}

/// A key pair, as it is shown. The secret is told once, when it is made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    pub access_key: String,
    pub user: String,
    pub disabled: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub secret_key: Option<String>,
}

/// A key pair to add. What is absent is made up.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    pub user: String,
    pub access_key: Option<String>,
    pub secret_key: Option<String>,
}

/// Whether a user or key may be used.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disabling {
    pub disabled: bool,
}

impl From<User> for UserView {
    fn from(user: User) -> UserView {
        UserView {
            id: user.id,
            canonical_id: user.canonical_id.as_str().to_owned(),
            display_name: user.display_name,
            email: user.email,
            disabled: user.disabled,
        }
    }
}

impl From<AccessKey> for KeyView {
    /// Without the secret.
    fn from(key: AccessKey) -> KeyView {
        KeyView {
            access_key: key.access_key,
            user: key.user,
            disabled: key.disabled,
            secret_key: None,
        }
    }
}

/// All users by id.
pub async fn list_users(catalog: &dyn Catalog) -> Result<Vec<UserView>, DirectoryError> {
    let mut users: Vec<UserView> = catalog.users().await?.into_iter().map(Into::into).collect();
    users.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(users)
}

/// Adds a user without keys.
pub async fn add_user(
    catalog: &dyn Catalog,
    rng: &Rng,
    new: NewUser,
) -> Result<UserView, DirectoryError> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b"-_.@+=,".contains(&b);
    let id_fits = (1..=USER_ID_CHARS_MAX).contains(&new.id.len());
    if !id_fits || !new.id.bytes().all(word) {
        let text = format!("{:?} is no user id: 1 to 64 letters, digits and -_.@+=,", new.id);
        return Err(DirectoryError::Invalid(text));
    }
    let users = catalog.users().await?;
    if users.iter().any(|user| user.id == new.id) {
        return Err(DirectoryError::UserExists(new.id));
    }
    let canonical_id = new.canonical_id.unwrap_or_else(|| rng.canonical_id());
    if canonical_id.is_empty() || users.iter().any(|u| u.canonical_id.as_str() == canonical_id) {
        let text = format!("canonical id {canonical_id:?} is empty or belongs to another user");
        return Err(DirectoryError::Invalid(text));
    }
    let user = User {
        canonical_id: OwnerId::new(&canonical_id),
        display_name: new.display_name.unwrap_or_else(|| new.id.clone()),
        email: new.email.unwrap_or_default(),
        disabled: false,
        id: new.id,
    };
    catalog.commit(Proposal::PutUser { user: user.clone() }).await?;
    Ok(user.into())
}

/// Disables or enables a user with all its keys; buckets and objects stay.
pub async fn set_user_disabled(
    catalog: &dyn Catalog,
    id: &str,
    disabled: bool,
) -> Result<UserView, DirectoryError> {
    let mut user = find_user(catalog, id).await?;
    user.disabled = disabled;
    catalog.commit(Proposal::PutUser { user: user.clone() }).await?;
    Ok(user.into())
}

/// All key pairs without secrets, by user and access key.
pub async fn list_keys(catalog: &dyn Catalog) -> Result<Vec<KeyView>, DirectoryError> {
    let mut keys: Vec<KeyView> = catalog.access_keys().await?.into_iter().map(Into::into).collect();
    keys.sort_by(|a, b| (&a.user, &a.access_key).cmp(&(&b.user, &b.access_key)));
    Ok(keys)
}

/// Adds a key pair to a user; the answer carries the secret.
pub async fn add_key(
    catalog: &dyn Catalog,
    rng: &Rng,
    new: NewKey,
) -> Result<KeyView, DirectoryError> {
    find_user(catalog, &new.user).await?;
    let given = |name: &str, text: &str, min: usize| {
        let fits = (min..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        // An access key stands between slashes in a credential scope.
        if !fits || (name == "access key" && text.contains(['/', ':', ','])) {
            let text = format!("the {name} needs {min} to 128 printable characters, no spaces");
            return Err(DirectoryError::Invalid(text));
        }
        Ok(())
    };
    let access_key = new.access_key.unwrap_or_else(|| rng.access_key());
    let secret_key = new.secret_key.unwrap_or_else(|| rng.secret_key());
    given("access key", &access_key, 3)?;
    given("secret key", &secret_key, 8)?;
    if catalog.access_keys().await?.iter().any(|key| key.access_key == access_key) {
        return Err(DirectoryError::KeyExists(access_key));
    }
    let key = AccessKey { access_key, secret_key, user: new.user, disabled: false };
    catalog.commit(Proposal::PutAccessKey { key: key.clone() }).await?;
    let secret_key = Some(key.secret_key.clone());
    Ok(KeyView { secret_key, ..key.into() })
}

/// Disables or enables one key pair.
pub async fn set_key_disabled(
    catalog: &dyn Catalog,
    access_key: &str,
    disabled: bool,
) -> Result<KeyView, DirectoryError> {
    let keys = catalog.access_keys().await?;
    let key = keys.into_iter().find(|key| key.access_key == access_key);
    let mut key = key.ok_or_else(|| DirectoryError::NoSuchKey(access_key.to_owned()))?;
    key.disabled = disabled;
    catalog.commit(Proposal::PutAccessKey { key: key.clone() }).await?;
    Ok(key.into())
}

/// Removes one key pair for good.
pub async fn remove_key(catalog: &dyn Catalog, access_key: &str) -> Result<(), DirectoryError> {
    let proposal = Proposal::DeleteAccessKey { access_key: access_key.to_owned() };
    match catalog.commit(proposal).await {
        Ok(_) => Ok(()),
        Err(CommitError::NoSuchAccessKey) => Err(DirectoryError::NoSuchKey(access_key.to_owned())),
        Err(error) => Err(error.into()),
    }
}

async fn find_user(catalog: &dyn Catalog, id: &str) -> Result<User, DirectoryError> {
    let users = catalog.users().await?;
    users
        .into_iter()
        .find(|user| user.id == id)
        .ok_or_else(|| DirectoryError::NoSuchUser(id.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::memory::MemoryCatalog;
    use crate::clock::ManualClock;
    use std::sync::Arc;

    fn catalog() -> MemoryCatalog {
        MemoryCatalog::new(Arc::new(ManualClock::new(1)))
    }

    fn new_user(id: &str) -> NewUser {
        NewUser { id: id.into(), ..NewUser::default() }
    }

    fn new_key(user: &str) -> NewKey {
        NewKey { user: user.into(), ..NewKey::default() }
    }

    #[tokio::test]
    async fn users_are_added_listed_and_disabled() {
        let (catalog, rng) = (catalog(), Rng::seeded(1));
        add_user(&catalog, &rng, new_user("zoe")).await.expect("adds");
        let amy = add_user(&catalog, &rng, new_user("amy")).await.expect("adds");
        assert_eq!((amy.canonical_id.len(), amy.display_name.as_str()), (64, "amy"));
        set_user_disabled(&catalog, "zoe", true).await.expect("disables");
        let users = list_users(&catalog).await.expect("lists");
        let shown: Vec<_> = users.iter().map(|u| (u.id.as_str(), u.disabled)).collect();
        assert_eq!(shown, [("amy", false), ("zoe", true)]);
    }

    #[tokio::test]
    async fn a_second_user_of_the_same_name_and_odd_names_are_refused() {
        let (catalog, rng) = (catalog(), Rng::seeded(1));
        add_user(&catalog, &rng, new_user("amy")).await.expect("adds");
        let again = add_user(&catalog, &rng, new_user("amy")).await;
        assert!(matches!(again, Err(DirectoryError::UserExists(_))));
        for id in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
            let odd = add_user(&catalog, &rng, new_user(id)).await;
            assert!(matches!(odd, Err(DirectoryError::Invalid(_))), "{id:?}");
        }
    }

    #[tokio::test]
    async fn a_key_shows_its_secret_once_and_can_be_disabled_and_removed() {
        let (catalog, rng) = (catalog(), Rng::seeded(1));
        add_user(&catalog, &rng, new_user("amy")).await.expect("adds");
        let key = add_key(&catalog, &rng, new_key("amy")).await.expect("adds");
        assert_eq!(key.secret_key.as_ref().map(String::len), Some(40));
        let listed = list_keys(&catalog).await.expect("lists");
        assert!(listed.len() == 1 && listed[0].secret_key.is_none());
        set_key_disabled(&catalog, &key.access_key, true).await.expect("disables");
        assert!(list_keys(&catalog).await.expect("lists")[0].disabled);
        remove_key(&catalog, &key.access_key).await.expect("removes");
        let again = remove_key(&catalog, &key.access_key).await;
        assert!(matches!(again, Err(DirectoryError::NoSuchKey(_))));
    }

    #[tokio::test]
    async fn keys_need_a_user_and_a_name_of_their_own() {
        let (catalog, rng) = (catalog(), Rng::seeded(1));
        let orphan = add_key(&catalog, &rng, new_key("nobody")).await;
        assert!(matches!(orphan, Err(DirectoryError::NoSuchUser(_))));
        add_user(&catalog, &rng, new_user("amy")).await.expect("adds");
        let named = NewKey { access_key: Some("AMYSKEY".into()), ..new_key("amy") };
        add_key(&catalog, &rng, named.clone()).await.expect("adds");
        let again = add_key(&catalog, &rng, named).await;
        assert!(matches!(again, Err(DirectoryError::KeyExists(_))));
        let slash = NewKey { access_key: Some("a/b/c".into()), ..new_key("amy") };
        assert!(add_key(&catalog, &rng, slash).await.is_err());
    }
}
