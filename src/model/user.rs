//! Users and their key pairs.

use minicbor::{Decode, Encode};
use std::fmt;

use super::OwnerId;

/// Who owns buckets. `id` is the operator's name for the user, `canonical_id` what S3 shows.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct User {
    #[n(0)]
    pub id: String,
    #[n(1)]
    pub canonical_id: OwnerId,
    #[n(2)]
    pub display_name: String,
    #[n(3)]
    pub email: String,
    #[n(4)]
    pub disabled: bool,
}

/// The canonical id of requests without a signature.
///
/// **Source** AWS S3 user guide, "Access control list overview", the anonymous user.
const ANONYMOUS_ID: &str = "65a011a29cdf8ec533ec3d1ccaae921c";

impl User {
    /// Who sends requests without a signature: nobody's user, the owner of what it writes.
    pub fn anonymous() -> User {
        User {
            id: String::new(),
            canonical_id: OwnerId::new(ANONYMOUS_ID),
            display_name: String::new(),
            email: String::new(),
            disabled: false,
        }
    }

    pub fn is_anonymous(&self) -> bool {
        self.canonical_id.as_str() == ANONYMOUS_ID
    }
}

/// One key pair of a user. Its `Debug` form hides the secret.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
pub struct AccessKey {
    #[n(0)]
    pub access_key: String,
    #[n(1)]
    pub secret_key: String,
    /// `User::id` of its owner.
    #[n(2)]
    pub user: String,
    #[n(3)]
    pub disabled: bool,
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey")
            .field("access_key", &self.access_key)
            .field("user", &self.user)
            .field("disabled", &self.disabled)
            .finish_non_exhaustive()
    }
}
