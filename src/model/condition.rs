//! Conditions on writes, decided at the commit against the version that is current then.

use super::{ETag, ObjectVersion};

/// The value of an If-Match or If-None-Match header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtagMatch {
    /// `*`
    Any,
    /// Entity tags as sent, quotes and a weak prefix removed.
    Tags(Vec<String>),
}

impl EtagMatch {
    /// True when `etag` is meant by this value.
    pub fn matches(&self, etag: &ETag) -> bool {
        match self {
            EtagMatch::Any => true,
            EtagMatch::Tags(tags) => {
                let text = etag.to_string();
                tags.contains(&text)
            }
        }
    }
}

/// What must hold of the key's current version for a write or delete to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteCondition {
    pub if_match: Option<EtagMatch>,
    pub if_none_match: Option<EtagMatch>,
    /// `x-amz-if-match-size` (DELETE).
    pub if_match_size: Option<u64>,
    /// `x-amz-if-match-last-modified-time` (DELETE), whole seconds since the Unix epoch.
    pub if_match_modified_secs: Option<i64>,
}

/// Why a condition refused a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// If-Match names a key that does not exist: 404 NoSuchKey.
    NoSuchKey,
    /// 412 PreconditionFailed, with the header's name for the `<Condition>` element.
    Failed(&'static str),
}

impl WriteCondition {
    /// True when nothing is asked.
    pub fn is_empty(&self) -> bool {
        *self == WriteCondition::default()
    }

    /// Decides against `newest`, the version of the key that a read would find or the delete marker
    /// in its place, which has no ETag. Size and time, asked of deletes only, hold for a key that
    /// does not exist.
    ///
    /// **Source** AWS S3 API reference, DeleteObject, `x-amz-if-match-size`.
    pub fn check(&self, newest: Option<&ObjectVersion>) -> Result<(), Refusal> {
        let current = newest.filter(|v| !v.delete_marker);
        if let Some(tags) = &self.if_match {
            match current {
                None => return Err(Refusal::NoSuchKey),
                Some(v) if !tags.matches(&v.etag) => return Err(Refusal::Failed("If-Match")),
                Some(_) => {}
            }
        }
        if let (Some(tags), Some(v)) = (&self.if_none_match, current)
            && tags.matches(&v.etag)
        {
            return Err(Refusal::Failed("If-None-Match"));
        }
        let Some(newest) = newest else { return Ok(()) };
        if self.if_match_size.is_some_and(|size| size != newest.size) {
            return Err(Refusal::Failed("x-amz-if-match-size"));
        }
        let secs = newest.modified_ms.div_euclid(1000);
        if self.if_match_modified_secs.is_some_and(|wanted| wanted != secs) {
            return Err(Refusal::Failed("x-amz-if-match-last-modified-time"));
        }
        Ok(())
    }
}
