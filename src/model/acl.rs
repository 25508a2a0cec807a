//! Access control lists, in the few forms that are kept.

use minicbor::{Decode, Encode};

/// Who beside the owner may read or write. A bucket or object without one is private.
///
/// **Source** AWS S3 user guide, "Access control list overview", "Canned ACL".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum CannedAcl {
    #[n(0)]
    Private,
    /// Everybody may read.
    #[n(1)]
    PublicRead,
    /// Everybody may read, and write into a bucket.
    #[n(2)]
    PublicReadWrite,
    /// Every user of this server may read.
    #[n(3)]
    AuthenticatedRead,
}

impl CannedAcl {
    /// True when a caller who is not the owner may read.
    pub fn lets_read(self, is_anonymous: bool) -> bool {
        match self {
            CannedAcl::Private => false,
            CannedAcl::PublicRead | CannedAcl::PublicReadWrite => true,
            CannedAcl::AuthenticatedRead => !is_anonymous,
        }
    }

    /// True when anybody may write.
    pub fn lets_write(self) -> bool {
        self == CannedAcl::PublicReadWrite
    }
}
