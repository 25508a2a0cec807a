//! Configuration documents of a bucket, as the catalog keeps them: a name and bytes.
//!
//! Owns the bytes and a place for what somebody above reads out of them. What a document says is
//! not known here: the front that takes it checks it, and reads it once for all requests.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// One document. Its bytes never change; another document takes its place.
pub struct BucketConfig {
    document: Box<[u8]>,
    /// What the first reader made of the bytes.
    parsed: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl BucketConfig {
    pub fn new(document: impl Into<Box<[u8]>>) -> BucketConfig {
        BucketConfig { document: document.into(), parsed: OnceLock::new() }
    }

    /// The bytes that were stored.
    pub fn document(&self) -> &[u8] {
        &self.document
    }

    /// What `parse` makes of the bytes; called once for the life of the document, whoever asks
    /// first. All callers of one document ask for the same type: `None` for another one.
    pub fn parsed<T: Any + Send + Sync>(&self, parse: impl FnOnce(&[u8]) -> T) -> Option<&T> {
        self.parsed.get_or_init(|| Box::new(parse(&self.document))).downcast_ref()
    }
}

impl fmt::Debug for BucketConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.document.escape_ascii())
    }
}

/// The documents of one bucket by name. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct BucketConfigs(BTreeMap<Arc<str>, Arc<BucketConfig>>);

impl BucketConfigs {
    pub fn get(&self, name: &str) -> Option<&Arc<BucketConfig>> {
        self.0.get(name)
    }

    /// The documents whose names begin with `prefix`, in the order of the names.
    pub fn with_prefix<'s>(
        &'s self,
        prefix: &'s str,
    ) -> impl Iterator<Item = (&'s str, &'s Arc<BucketConfig>)> {
        let from = (std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded);
        self.0
            .range::<str, _>(from)
            .map(|(name, config)| (&**name, config))
            .take_while(move |(name, _)| name.starts_with(prefix))
    }

    /// Puts a document in the place of the one of that name; `None` removes it.
    pub fn set(&mut self, name: &str, config: Option<Arc<BucketConfig>>) {
        match config {
            Some(config) => self.0.insert(Arc::from(name), config),
            None => self.0.remove(name),
        };
    }
}

impl PartialEq for BucketConfigs {
    fn eq(&self, other: &Self) -> bool {
        let pairs = |of: &Self| -> Vec<_> {
            of.0.iter().map(|(name, config)| (name.clone(), config.document.clone())).collect()
        };
        pairs(self) == pairs(other)
    }
}

impl Eq for BucketConfigs {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_once() {
        let config = BucketConfig::new(*b"7");
        let number = |bytes: &[u8]| bytes.iter().map(|b| u64::from(b - b'0')).sum::<u64>();
        assert_eq!(config.parsed(number), Some(&7));
        assert_eq!(config.parsed(|_| 8u64), Some(&7));
        assert_eq!(config.parsed(|_| "another type"), None);
    }

    #[test]
    fn names_are_found_by_prefix() {
        let mut configs = BucketConfigs::default();
        for name in ["cors", "metrics/a", "metrics/b", "metricsx"] {
            configs.set(name, Some(Arc::new(BucketConfig::new(name.as_bytes()))));
        }
        let found: Vec<_> = configs.with_prefix("metrics/").map(|(name, _)| name).collect();
        assert_eq!(found, ["metrics/a", "metrics/b"]);
        configs.set("cors", None);
        assert!(configs.get("cors").is_none());
    }
}
