//! The block on public access: what keeps a bucket private whatever its lists and policy say.
//!
//! Pure. `authorise` heeds what takes public grants away; the operations that would make them ask
//! here first.
//!
//! **Source** AWS S3 user guide, "Blocking public access to your Amazon S3 storage".

use super::error::{S3Error, S3ErrorCode};
use super::xml::{self, XmlWriter};
use crate::model::{Bucket, CannedAcl};

/// The name of the document among a bucket's configurations.
pub const NAME: &str = "publicAccessBlock";

/// All off for a bucket without a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublicAccessBlock {
    /// Refuses new public lists.
    pub block_acls: bool,
    /// Takes public lists for private ones.
    pub ignore_acls: bool,
    /// Refuses a new public policy.
    pub block_policy: bool,
    /// Gives nobody but the owner what a public policy allows.
    pub restrict_buckets: bool,
}

impl PublicAccessBlock {
    /// **Errors** `MalformedXML`.
    pub fn parse(document: &[u8]) -> Result<PublicAccessBlock, S3Error> {
        let root = xml::parse(document)?;
        root.expect_name("PublicAccessBlockConfiguration")?;
        let mut block = PublicAccessBlock::default();
        let slots = [
            ("BlockPublicAcls", &mut block.block_acls),
            ("IgnorePublicAcls", &mut block.ignore_acls),
            ("BlockPublicPolicy", &mut block.block_policy),
            ("RestrictPublicBuckets", &mut block.restrict_buckets),
        ];
        root.expect_children(&slots.each_ref().map(|(name, _)| *name))?;
        for (name, slot) in slots {
            let values: Vec<_> = root.children_named(name).map(|e| e.text.trim()).collect();
            *slot = match values.as_slice() {
                [] | ["false" | "FALSE"] => false,
                ["true" | "TRUE"] => true,
                _ => return Err(S3ErrorCode::MalformedXML.into()),
            };
        }
        Ok(block)
    }

    /// The document, as GetPublicAccessBlock shows it.
    pub fn to_xml(self) -> String {
        let mut xml = XmlWriter::document("PublicAccessBlockConfiguration", 512);
        let fields = [
            ("BlockPublicAcls", self.block_acls),
            ("IgnorePublicAcls", self.ignore_acls),
            ("BlockPublicPolicy", self.block_policy),
            ("RestrictPublicBuckets", self.restrict_buckets),
        ];
        for (name, value) in fields {
            xml.element(name, if value { "true" } else { "false" });
        }
        xml.finish()
    }
}

/// The block of a bucket, read once for all requests. A stored document that cannot be read
/// blocks everything.
pub fn block_of(bucket: &Bucket) -> PublicAccessBlock {
    let all = PublicAccessBlock {
        block_acls: true,
        ignore_acls: true,
        block_policy: true,
        restrict_buckets: true,
    };
    let Some(config) = bucket.configs.get(NAME) else { return PublicAccessBlock::default() };
    let read = |document: &[u8]| PublicAccessBlock::parse(document).unwrap_or(all);
    config.parsed(read).copied().unwrap_or(all)
}

/// **Errors** `AccessDenied` for a list that lets others in, where the bucket blocks such.
pub fn check_acl(bucket: &Bucket, acl: Option<CannedAcl>) -> Result<(), S3Error> {
    let public = acl.is_some_and(|acl| acl != CannedAcl::Private);
    if public && block_of(bucket).block_acls {
        return Err(S3Error::new(S3ErrorCode::AccessDenied).message(
            "Access Denied: public access control lists are blocked by the bucket's \
             BlockPublicAcls setting",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(inner: &str) -> Result<PublicAccessBlock, S3ErrorCode> {
        let text =
            format!("<PublicAccessBlockConfiguration>{inner}</PublicAccessBlockConfiguration>");
        PublicAccessBlock::parse(text.as_bytes()).map_err(|error| error.code())
    }

    #[test]
    fn documents_are_checked_and_written() {
        let block = parse(
            "<BlockPublicAcls>true</BlockPublicAcls><RestrictPublicBuckets>TRUE\
             </RestrictPublicBuckets><IgnorePublicAcls>false</IgnorePublicAcls>",
        )
        .expect("lawful");
        assert!(block.block_acls && block.restrict_buckets);
        assert!(!block.ignore_acls && !block.block_policy);
        assert_eq!(PublicAccessBlock::parse(block.to_xml().as_bytes()).ok(), Some(block));
        for wrong in [
            "<Other>true</Other>",
            "<BlockPublicAcls>yes</BlockPublicAcls>",
            "<BlockPublicAcls>true</BlockPublicAcls><BlockPublicAcls>false</BlockPublicAcls>",
        ] {
            assert_eq!(parse(wrong), Err(S3ErrorCode::MalformedXML), "{wrong}");
        }
    }
}
