//! What one worker's S3 front is made of.
//!
//! Plain parts that the composition root hands in; no global state. One per worker thread, never
//! shared between threads: the store's files live on the worker's own ring.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;

use super::auth::{AuthRequest, Authenticated, Identity, KeyPair, Verifier};
use super::error::S3Error;
use super::host::Target;
use super::query::Query;
use crate::clock::Clock;
use crate::model::Bucket;
use crate::rng::Rng;
use crate::store::ObjectStore;

/// Bounds on what one request may do. Each is the largest value that is accepted.
#[derive(Clone, Debug)]
pub struct S3Limits {
    /// Bytes of one PutObject, UploadPart or copy; AWS has 5 GiB.
    pub put_bytes_max: u64,
    /// Bytes of an XML document that a client sends: 10,000 parts with checksums, or 1,000 keys of
    /// 1 KiB in their longest escapes.
    pub document_bytes_max: usize,
    /// How long a body may stay silent; AWS has about 20 s. A slow but moving client is served.
    pub body_idle: Duration,
    /// Bytes of a refused body that are read and thrown away, so that its connection stays usable.
    pub drain_bytes_max: u64,
    /// How long that may take; beyond it the connection is closed.
    pub drain_time_max: Duration,
}

impl Default for S3Limits {
    fn default() -> S3Limits {
        S3Limits {
            put_bytes_max: 5 << 30,
            document_bytes_max: 8 << 20,
            body_idle: Duration::from_secs(20),
            drain_bytes_max: 256 << 10,
            drain_time_max: Duration::from_millis(250),
        }
    }
}

/// What clients see of this server.
#[derive(Clone, Debug)]
pub struct S3FrontSettings {
    /// The region of this server, and of each bucket that names no other.
    pub region: String,
    /// Base domains for `bucket.domain` host names, lower case.
    pub domains: Vec<String>,
    pub limits: S3Limits,
}

/// One worker's front.
pub struct S3State {
    pub store: ObjectStore,
    pub settings: S3FrontSettings,
    pub verifier: Verifier,
    pub clock: Arc<dyn Clock>,
    pub rng: Rng,
}

impl S3State {
    /// Finds out who sent a request.
    ///
    /// **Errors** those of `Verifier::verify`.
    pub fn authenticate(
        &self,
        parts: &Parts,
        host: &str,
        target: &Target,
        query: &Query,
    ) -> Result<(KeyPair, Authenticated), S3Error> {
        let request = AuthRequest {
            method: parts.method.as_str(),
            host,
            raw_path: parts.uri.path(),
            query,
            headers: &parts.headers,
            virtual_bucket: target.bucket.as_deref().filter(|_| target.virtual_host),
        };
        let lookup = |access_key: &str| self.store.catalog().access_key(access_key);
        let verified = self.verifier.verify(&request, &lookup)?;
        match &verified.identity {
            Identity::Key(pair) => Ok((pair.clone(), verified)),
            Identity::Anonymous => Ok((self.verifier.anonymous().clone(), verified)),
        }
    }

    /// 16 capital hex digits, for a request that nobody has given an id.
    pub fn request_id(&self) -> String {
        format!("{:016X}", u64::from_le_bytes(self.rng.bytes()))
    }

    /// The region that a bucket is in.
    pub fn region_of<'s>(&'s self, bucket: &'s Bucket) -> &'s str {
        if bucket.location.is_empty() { &self.settings.region } else { &bucket.location }
    }
}
