//! The first half of a write: bytes in, hashes and a durable blob (or packed bytes) out.
//!
//! Up to `pack_bytes_max` the bytes stay in memory and travel with the commit record. Beyond that
//! a blob file is announced, and each full buffer goes at once to the disk and to a hashing
//! thread, both with a bounded window. Nothing is visible until the commit; whatever is dropped
//! before it is given up and collected.

use bytes::{Bytes, BytesMut};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

use super::hashing::HashStream;
use super::{ObjectStore, StoreError, StoreResult};
use crate::blob::{BlobError, BlobWriter};
use crate::digest::{DigestRequest, Digester, Digests};
use crate::model::commit::{PackedBytes, ProposedData};
use crate::model::{BlobId, Proposal};
use crate::sys::aligned_buf::{AlignedBuf, SharedBuf};

/// Packed objects from this size on are hashed on a hashing thread.
const OFFLOAD_BYTES_MIN: usize = 64 << 10;
/// Buffers that one large upload may hold: those being written, those being hashed, one filling.
const BUFFERS_PER_UPLOAD: usize = 6;

/// What is known of a write before its bytes come.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// The length in bytes, when the client told it.
    pub size_hint: Option<u64>,
    pub digests: DigestRequest,
}

/// A write in progress. **Cancel** dropping it gives the blob up; the collector removes it.
pub struct ObjectWriter {
    store: ObjectStore,
    options: WriteOptions,
    size: u64,
    phase: Phase,
}

enum Phase {
    Packed(Packed),
    File(Box<FilePhase>),
    /// Between two phases, or after an error: nothing may be written any more.
    Closed,
}

/// Bytes of a small object. A body that comes in one piece is kept as it came, without a copy.
enum Packed {
    Empty,
    One(Bytes),
    Many(BytesMut),
}

struct FilePhase {
    pending: PendingBlob,
    writer: BlobWriter,
    filling: AlignedBuf,
    hashes: HashStream,
    /// The first buffer, which the arena takes when the write is committed.
    head: Option<SharedBuf>,
    budget: OwnedSemaphorePermit,
}

/// An announced blob that no commit refers to yet; dropping it armed gives it up.
pub(super) struct PendingBlob {
    id: BlobId,
    abandoned: UnboundedSender<BlobId>,
    armed: bool,
}

impl PendingBlob {
    /// The commit took the blob, or will by itself: nothing is to be given up any more.
    pub(super) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for PendingBlob {
    fn drop(&mut self) {
        if self.armed {
            // Fails only when the store is shutting down; the next start finds the blob.
            let _ = self.abandoned.send(self.id);
        }
    }
}

/// A finished write that waits for its commit. Dropping it gives the bytes up.
pub struct Written {
    pub size: u64,
    pub digests: Digests,
    pub(super) data: ProposedData,
    /// The object's first bytes, for the arena.
    pub(super) head: Option<Bytes>,
    pub(super) pending: Option<PendingBlob>,
}

impl ObjectStore {
    /// Begins a write. **Errors** `SlowDown` when the buffers of all uploads are in use.
    pub async fn writer(&self, options: WriteOptions) -> StoreResult<ObjectWriter> {
        let mut writer = ObjectWriter {
            store: self.clone(),
            options,
            size: 0,
            phase: Phase::Packed(Packed::Empty),
        };
        let packs = self.shared.settings.pack_bytes_max as u64;
        if options.size_hint.is_some_and(|size| size > packs) {
            writer.phase = Phase::File(Box::new(writer.open_file().await?));
        }
        Ok(writer)
    }
}

impl ObjectWriter {
    /// Takes the next bytes; waits while the disk or the hashing threads are behind.
    ///
    /// **Errors** `NoSpace`, `SlowDown`, `Io`; after one the writer refuses everything.
    pub async fn write(&mut self, bytes: Bytes) -> StoreResult<()> {
        self.size += bytes.len() as u64;
        match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Packed(packed) => {
                if self.size <= self.store.shared.settings.pack_bytes_max as u64 {
                    self.phase = Phase::Packed(packed.push(bytes));
                    return Ok(());
                }
                let mut file = self.open_file().await?;
                file.write(&self.store, &packed.into_bytes()).await?;
                file.write(&self.store, &bytes).await?;
                self.phase = Phase::File(Box::new(file));
            }
            Phase::File(mut file) => {
                file.write(&self.store, &bytes).await?;
                self.phase = Phase::File(file);
            }
            Phase::Closed => return Err(StoreError::io("write", "the writer failed before")),
        }
        Ok(())
    }

    /// Ends the bytes: waits for the hashes and, for a file, until it is durable.
    pub async fn finish(mut self) -> StoreResult<Written> {
        match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Packed(packed) => self.finish_packed(packed.into_bytes()).await,
            Phase::File(file) => file.finish(self.size, &self.store).await,
            Phase::Closed => Err(StoreError::io("finish", "the writer failed before")),
        }
    }

    async fn finish_packed(&self, bytes: Bytes) -> StoreResult<Written> {
        let request = &self.options.digests;
        let digests = if bytes.len() >= OFFLOAD_BYTES_MIN {
            let stream = self.store.shared.hash_pool.stream(request);
            stream.update(bytes.clone()).await;
            stream.finish().await.ok_or_else(|| StoreError::io("hash", "no hashing thread"))?
        } else {
            let mut digester = Digester::new(request);
            digester.update(&bytes);
            digester.finish()
        };
        let id = BlobId(self.store.shared.rng.bytes());
        let data = if bytes.is_empty() {
            ProposedData::Empty
        } else {
            ProposedData::Packed(PackedBytes { id, bytes: bytes.clone() })
        };
        Ok(Written { size: self.size, digests, data, head: Some(bytes), pending: None })
    }

    async fn open_file(&self) -> StoreResult<FilePhase> {
        let store = &self.store;
        let settings = &store.shared.settings;
        // With a budget smaller than one upload's share, uploads go one at a time.
        let share = BUFFERS_PER_UPLOAD * settings.write_chunk_bytes;
        let kib = share.min(settings.write_budget_bytes) >> 10;
        let acquire = store.shared.write_budget.clone().acquire_many_owned(kib as u32);
        let budget = match tokio::time::timeout(settings.write_wait, acquire).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) | Err(_) => return Err(StoreError::SlowDown("upload buffers")),
        };
        let id = BlobId(store.shared.rng.bytes());
        store.shared.catalog.commit(Proposal::BeginBlob { id }).await?;
        let pending = PendingBlob { id, abandoned: store.shared.abandoned.clone(), armed: true };
        let writer = store.blobs.create(id, self.options.size_hint).await.map_err(write_error)?;
        Ok(FilePhase {
            pending,
            writer,
            filling: AlignedBuf::recycled(settings.write_chunk_bytes),
            hashes: store.shared.hash_pool.stream(&self.options.digests),
            head: None,
            budget,
        })
    }
}

impl Packed {
    fn push(self, bytes: Bytes) -> Packed {
        match self {
            Packed::Empty => Packed::One(bytes),
            Packed::One(first) => {
                let mut all = BytesMut::with_capacity((first.len() + bytes.len()) * 2);
                all.extend_from_slice(&first);
                all.extend_from_slice(&bytes);
                Packed::Many(all)
            }
            Packed::Many(mut all) => {
                all.extend_from_slice(&bytes);
                Packed::Many(all)
            }
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Packed::Empty => Bytes::new(),
            Packed::One(bytes) => bytes,
            Packed::Many(all) => all.freeze(),
        }
    }
}

impl FilePhase {
    async fn write(&mut self, store: &ObjectStore, mut bytes: &[u8]) -> StoreResult<()> {
        while !bytes.is_empty() {
            let room = self.filling.capacity() - self.filling.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.filling.extend_from_slice(now);
            bytes = later;
            if self.filling.len() == self.filling.capacity() {
                let next = AlignedBuf::recycled(store.shared.settings.write_chunk_bytes);
                let full = std::mem::replace(&mut self.filling, next);
                self.hand_over(full.freeze()).await?;
            }
        }
        Ok(())
    }

    async fn hand_over(&mut self, buf: SharedBuf) -> StoreResult<()> {
        if self.head.is_none() {
            self.head = Some(buf.clone());
        }
        self.hashes.update(buf.clone().into_bytes()).await;
        self.writer.append(buf).await.map_err(write_error)
    }

    async fn finish(mut self: Box<Self>, size: u64, store: &ObjectStore) -> StoreResult<Written> {
        let last = std::mem::replace(&mut self.filling, AlignedBuf::with_capacity(0));
        if !last.is_empty() {
            self.hand_over(last.freeze()).await?;
        }
        let FilePhase { pending, writer, hashes, head, budget, .. } = *self;
        let (sealed, digests) = tokio::join!(writer.seal(), hashes.finish());
        let len = sealed.map_err(write_error)?;
        let digests = digests.ok_or_else(|| StoreError::io("hash", "no hashing thread"))?;
        drop(budget);
        let head_bytes = (store.shared.arena.head_slot_bytes() as u64).min(len) as usize;
        Ok(Written {
            size,
            digests,
            data: ProposedData::File { id: pending.id, len },
            // A first buffer shorter than the head is no head: the first read makes it resident.
            head: head
                .filter(|buf| buf.len() >= head_bytes)
                .map(|buf| buf.into_bytes().slice(..head_bytes)),
            pending: Some(pending),
        })
    }
}

/// A failed write to a blob file, as fronts should hear of it.
fn write_error(error: BlobError) -> StoreError {
    match error {
        BlobError::NoSpace => StoreError::NoSpace,
        other => StoreError::io("write a blob", other),
    }
}
