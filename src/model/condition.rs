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

    /// Decides against `current`, the live version of the key (a delete marker counts as none).
    pub fn check(&self, current: Option<&ObjectVersion>) -> Result<(), Refusal> {
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
        if let Some(size) = self.if_match_size
            && current.is_none_or(|v| v.size != size)
        {
            return Err(
                current.map_or(Refusal::NoSuchKey, |_| Refusal::Failed("x-amz-if-match-size"))
            );
        }
        if let Some(secs) = self.if_match_modified_secs
            && current.is_none_or(|v| v.modified_ms.div_euclid(1000) != secs)
        {
            let name = "x-amz-if-match-last-modified-time";
            return Err(current.map_or(Refusal::NoSuchKey, |_| Refusal::Failed(name)));
        }
        Ok(())
    }
}
