//! Buckets, users and key pairs: few, asked for by every request, held whole in RAM.
//!
//! A `Names` value never changes once it is shared: the writer makes a changed copy and swaps it
//! in after the commit. Readers hold a lock only to clone an `Arc`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::model::{AccessKey, Bucket, BucketConfig, BucketId, User};

/// All names of the store at one commit.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub last_bucket: u64,
    by_name: BTreeMap<String, Arc<Bucket>>,
    by_id: HashMap<BucketId, Arc<Bucket>>,
    users: BTreeMap<String, User>,
    access_keys: BTreeMap<String, AccessKey>,
    /// Key pairs whose user exists, joined once so that a request only clones an `Arc`.
    pairs: HashMap<String, Arc<(AccessKey, User)>>,
}

/// A change of the names, to be written in the transaction of its commit.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    PutBucket(Arc<Bucket>),
    DeleteBucket(BucketId),
    SetConfig(BucketId, String, Option<Arc<BucketConfig>>),
    PutUser(User),
    PutAccessKey(AccessKey),
    DeleteAccessKey(String),
}

impl Names {
    pub fn bucket(&self, name: &str) -> Option<&Arc<Bucket>> {
        self.by_name.get(name)
    }

    pub fn bucket_by_id(&self, id: BucketId) -> Option<&Arc<Bucket>> {
        self.by_id.get(&id)
    }

    /// Buckets in name order whose names come after `after`.
    pub fn buckets_after(&self, after: &str) -> impl Iterator<Item = &Arc<Bucket>> {
        let range = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        self.by_name.range::<str, _>(range).map(|(_, bucket)| bucket)
    }

    pub fn pair(&self, access_key: &str) -> Option<&Arc<(AccessKey, User)>> {
        self.pairs.get(access_key)
    }

    pub fn user_exists(&self, id: &str) -> bool {
        self.users.contains_key(id)
    }

    pub fn access_key_exists(&self, access_key: &str) -> bool {
        self.access_keys.contains_key(access_key)
    }

    pub fn users(&self) -> Vec<User> {
        self.users.values().cloned().collect()
    }

    pub fn access_keys(&self) -> Vec<AccessKey> {
        self.access_keys.values().cloned().collect()
    }

    fn configure(&mut self, id: BucketId, name: &str, config: Option<Arc<BucketConfig>>) {
        let Some(bucket) = self.by_id.get_mut(&id) else { return };
        Arc::make_mut(bucket).configs.set(name, config);
        self.by_name.insert(bucket.name.as_str().to_owned(), bucket.clone());
    }

    pub fn apply(&mut self, change: &NameChange) {
        match change {
            NameChange::PutBucket(bucket) => {
                self.last_bucket = self.last_bucket.max(bucket.id.0);
                self.by_name.insert(bucket.name.as_str().to_owned(), bucket.clone());
                self.by_id.insert(bucket.id, bucket.clone());
            }
            NameChange::DeleteBucket(id) => {
                if let Some(bucket) = self.by_id.remove(id) {
                    self.by_name.remove(bucket.name.as_str());
                }
            }
            NameChange::SetConfig(id, name, config) => {
                self.configure(*id, name, config.clone());
            }
            NameChange::PutUser(user) => {
                self.users.insert(user.id.clone(), user.clone());
                let owned = self.access_keys.values().filter(|key| key.user == user.id);
                for key in owned {
                    let pair = Arc::new((key.clone(), user.clone()));
                    self.pairs.insert(key.access_key.clone(), pair);
                }
            }
            NameChange::PutAccessKey(key) => {
                self.access_keys.insert(key.access_key.clone(), key.clone());
                match self.users.get(&key.user) {
                    Some(user) => {
                        let pair = Arc::new((key.clone(), user.clone()));
                        self.pairs.insert(key.access_key.clone(), pair);
                    }
                    None => {
                        self.pairs.remove(&key.access_key);
                    }
                }
            }
            NameChange::DeleteAccessKey(access_key) => {
                self.access_keys.remove(access_key);
                self.pairs.remove(access_key);
            }
        }
    }
}
