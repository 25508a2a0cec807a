//! The root key pair: made once, kept with mode 0600, or given by the environment.
//!
//! Owns the file `credentials`. The secret never reaches a log; only the banner on standard output
//! says where the file is.

use std::fmt;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::data_dir::write_durably;
use crate::rng::Rng;

/// Bounds of a given pair: AWS has 16 to 128 characters of access key.
const ACCESS_KEY_CHARS_RANGE: std::ops::RangeInclusive<usize> = 3..=128;
const SECRET_KEY_CHARS_RANGE: std::ops::RangeInclusive<usize> = 8..=128;

/// A key pair. Its `Debug` form hides the secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyPair {
    pub access_key: String,
    pub secret_key: String,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// Why there is no root key pair.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("cannot read or write {path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("{path} is damaged: {message}; restore it, or remove it to have a new pair made")]
    Syntax { path: String, message: String },
    #[error(
        "set both GOBLIN_ROOT_ACCESS_KEY and GOBLIN_ROOT_SECRET_KEY, or neither to have a pair made"
    )]
    Half,
    #[error("{name} needs {min} to {max} printable ASCII characters without spaces")]
    Shape { name: &'static str, min: usize, max: usize },
}

/// The root pair, and the one that it takes the place of.
#[derive(Debug, PartialEq, Eq)]
pub struct RootKeys {
    pub current: KeyPair,
    /// Was in the file and is no more: it must stop working.
    pub replaced: Option<KeyPair>,
}

/// A pair from what the environment gave.
///
/// **Errors** `Half` for one without the other, `Shape` for text that no client could sign with.
pub fn given(
    access_key: Option<String>,
    secret_key: Option<String>,
) -> Result<Option<KeyPair>, CredentialsError> {
    match (access_key, secret_key) {
        (None, None) => Ok(None),
        (Some(access_key), Some(secret_key)) => {
            check("GOBLIN_ROOT_ACCESS_KEY", &access_key, ACCESS_KEY_CHARS_RANGE)?;
            check("GOBLIN_ROOT_SECRET_KEY", &secret_key, SECRET_KEY_CHARS_RANGE)?;
            Ok(Some(KeyPair { access_key, secret_key }))
        }
        _ => Err(CredentialsError::Half),
    }
}

fn check(
    name: &'static str,
    text: &str,
    range: std::ops::RangeInclusive<usize>,
) -> Result<(), CredentialsError> {
    if range.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    Err(CredentialsError::Shape { name, min: *range.start(), max: *range.end() })
}

/// The pair to use: the given one, else the file's, else a new one. The file holds it afterwards.
pub fn settle(
    path: &Path,
    given: Option<KeyPair>,
    rng: &Rng,
) -> Result<RootKeys, CredentialsError> {
    let stored = read(path)?;
    let current = match (given, &stored) {
        (Some(pair), _) => pair,
        (None, Some(pair)) => pair.clone(),
        (None, None) => KeyPair { access_key: rng.access_key(), secret_key: rng.secret_key() },
    };
    if stored.as_ref() != Some(&current) {
        write(path, &current)?;
    }
    let replaced = stored.filter(|old| old.access_key != current.access_key);
    Ok(RootKeys { current, replaced })
}

fn read(path: &Path) -> Result<Option<KeyPair>, CredentialsError> {
    let shown = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).map(Some).map_err(|e| CredentialsError::Syntax {
            path: shown,
            // The full text would show the line, and with it the secret.
            message: e.message().to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CredentialsError::Io { path: shown, source }),
    }
}

fn write(path: &Path, pair: &KeyPair) -> Result<(), CredentialsError> {
    let shown = path.display().to_string();
    let body = toml::to_string(pair)
        .map_err(|e| CredentialsError::Syntax { path: shown.clone(), message: e.to_string() })?;
    let text = format!("# The root key pair of this store. Keep it secret.\n{body}");
    write_durably(path, text.as_bytes(), 0o600)
        .map_err(|source| CredentialsError::Io { path: shown, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn pair(name: &str) -> KeyPair {
        KeyPair { access_key: name.into(), secret_key: "secret-secret".into() }
    }

    #[test]
    fn a_pair_is_made_once_and_kept_private() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("credentials");
        let first = settle(&path, None, &Rng::system()).expect("is made");
        let again = settle(&path, None, &Rng::system()).expect("is read");
        assert_eq!(first, again);
        let mode = std::fs::metadata(&path).expect("exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_given_pair_replaces_the_stored_one_and_says_which() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("credentials");
        settle(&path, Some(pair("first")), &Rng::system()).expect("is written");
        let keys = settle(&path, Some(pair("second")), &Rng::system()).expect("is written");
        assert_eq!(keys.current, pair("second"));
        assert_eq!(keys.replaced, Some(pair("first")));
        let keys = settle(&path, None, &Rng::system()).expect("is read");
        assert_eq!(keys, RootKeys { current: pair("second"), replaced: None });
    }

    #[test]
    fn half_a_pair_and_odd_text_are_refused() {
        assert!(given(None, None).expect("neither").is_none());
        assert!(matches!(given(Some("a".into()), None), Err(CredentialsError::Half)));
        let odd = given(Some("with space".into()), Some("secretsecret".into()));
        assert!(matches!(odd, Err(CredentialsError::Shape { .. })));
        assert!(given(Some("minio".into()), Some("short".into())).is_err());
    }

    #[test]
    fn a_damaged_file_is_an_error_that_hides_the_secret() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("credentials");
        std::fs::write(&path, "access_key = \"a\"\nsecret_key = \"hidden\n").expect("writable");
        let error = settle(&path, None, &Rng::system()).expect_err("is damaged").to_string();
        assert!(!error.contains("hidden"), "{error}");
    }
}
