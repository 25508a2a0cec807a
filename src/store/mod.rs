//! The object store: the only thing that fronts call.
//!
//! Owns the write path (buffer, hash, write, flush, commit), the read path (RAM head, disk tail)
//! and the garbage collector. It knows nothing of HTTP, XML or any other protocol, and never
//! deletes bytes but through the collector.
//!
//! ```text
//!   front (any worker) --> ObjectStore --commit--> catalog writer thread
//!                            |    |
//!             arena (RAM) <--+    +--> blob files and log segments (this worker's io_uring)
//! ```
//!
//! An `ObjectStore` belongs to one worker thread: its files live on that thread's ring. What the
//! workers share stands in `Shared`.

mod body;
mod collector;
mod compaction;
mod error;
mod hashing;
mod multipart;
mod objects;
mod pins;
mod writer;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub use body::{BodyStream, ObjectBody};
pub use collector::Collector;
pub use compaction::Compaction;
pub use error::StoreError;
pub use hashing::HashPool;
pub use multipart::{CompleteUpload, CopyPart, PutPart};
pub use objects::{CopyObject, PutObject};
pub use writer::{ObjectWriter, WriteOptions, Written};

use crate::arena::Arena;
use crate::blob::BlobFiles;
use crate::catalog::Catalog;
pub use crate::catalog::{ListObjects, ListRow, ListedObject, ListedVersion, Page, Usage};
use crate::log::SegmentReader;
use crate::model::BlobId;
use crate::rng::Rng;

pub type StoreResult<T> = Result<T, StoreError>;

/// Sizes and limits, in bytes unless the name says otherwise.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Objects up to this size travel inside their commit record.
    pub pack_bytes_max: usize,
    /// One disk read of a tail.
    pub read_chunk_bytes: usize,
    /// Reads of one stream in flight, when the shared budget has room for them.
    pub read_ahead_chunks: usize,
    /// Buffers that all streams together may hold beyond one chunk each.
    pub read_budget_bytes: usize,
    /// One disk write of a large object.
    pub write_chunk_bytes: usize,
    /// Buffers that all uploads of large objects together may hold.
    pub write_budget_bytes: usize,
    /// How long an upload waits for buffers before it is told to slow down.
    pub write_wait: Duration,
    /// The least time between a blob's last reference going and its bytes going.
    pub delete_grace: Duration,
    /// Threads that hash large uploads.
    pub hash_threads: usize,
}

impl Default for StoreSettings {
    fn default() -> StoreSettings {
        StoreSettings {
            pack_bytes_max: 256 << 10,
            read_chunk_bytes: 256 << 10,
            read_ahead_chunks: 8,
            read_budget_bytes: 96 << 20,
            write_chunk_bytes: 1 << 20,
            write_budget_bytes: 512 << 20,
            write_wait: Duration::from_secs(5),
            delete_grace: Duration::from_secs(5),
            hash_threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
        }
    }
}

/// Blobs that writers gave up, on their way to the one collector.
pub struct Abandoned(UnboundedReceiver<BlobId>);

/// What all workers share.
pub struct Shared {
    pub settings: StoreSettings,
    pub catalog: Arc<dyn Catalog>,
    pub arena: Arc<Arena>,
    rng: Rng,
    hash_pool: HashPool,
    /// Announced blobs that were given up; the collector takes them from here.
    abandoned: UnboundedSender<BlobId>,
    pins: pins::Pins,
    /// Reads that found damaged bytes on disk, since the start.
    damaged_reads: AtomicU64,
    /// KiB of upload buffers left.
    write_budget: Arc<Semaphore>,
    /// KiB of read-ahead buffers left.
    read_budget: Arc<Semaphore>,
}

impl Shared {
    /// Builds the shared part. **Errors** when a hashing thread cannot be started.
    pub fn new(
        settings: StoreSettings,
        catalog: Arc<dyn Catalog>,
        arena: Arc<Arena>,
        rng: Rng,
    ) -> std::io::Result<(Arc<Shared>, Abandoned)> {
        let (abandoned, receiver) = unbounded_channel();
        let hash_pool = HashPool::start(settings.hash_threads)?;
        let kib = |bytes: usize| Arc::new(Semaphore::new(bytes >> 10));
        let shared = Shared {
            write_budget: kib(settings.write_budget_bytes),
            read_budget: kib(settings.read_budget_bytes),
            pins: pins::Pins::default(),
            damaged_reads: AtomicU64::new(0),
            hash_pool,
            catalog,
            arena,
            rng,
            abandoned,
            settings,
        };
        Ok((Arc::new(shared), Abandoned(receiver)))
    }

    /// Keeps everything that is alive now from being removed, until the guard is dropped.
    pub fn keep_all(&self) -> KeepAll {
        KeepAll { _pin: self.pins.pin() }
    }

    /// Reads that found damaged bytes on disk, since the start; each is also logged.
    pub fn damaged_reads(&self) -> u64 {
        self.damaged_reads.load(Ordering::Relaxed)
    }
}

/// See `Shared::keep_all`.
#[derive(Debug)]
pub struct KeepAll {
    _pin: pins::Pin,
}

/// One worker's handle to the store. Cheap to clone; stays on its thread.
#[derive(Clone)]
pub struct ObjectStore {
    shared: Arc<Shared>,
    blobs: BlobFiles,
    segments: Rc<SegmentReader>,
}

impl ObjectStore {
    pub fn new(shared: Arc<Shared>, blobs: BlobFiles, segments: Rc<SegmentReader>) -> ObjectStore {
        ObjectStore { shared, blobs, segments }
    }

    /// Reads that need no more than the catalog go there directly.
    pub fn catalog(&self) -> &dyn Catalog {
        &*self.shared.catalog
    }

    pub fn arena(&self) -> &Arena {
        &self.shared.arena
    }
}
