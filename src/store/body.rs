//! The read path: the head from RAM at once, the tail from disk behind it.
//!
//! ```text
//!   arena head ---- prefix -----------------------------------> front
//!   disk: piece piece piece ... (up to read_ahead in flight) --> channel(1) --> front
//! ```
//!
//! The pump task runs on the worker's own ring. A client that does not read stops it: each stream
//! is sure of one small buffer, everything beyond comes out of one shared budget. When the front
//! drops the stream, the pump's next send fails and it ends.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::stream::{FuturesOrdered, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::pins;
use super::{ObjectStore, StoreError, StoreResult};
use crate::blob::{BlobError, BlobReader, READ_BYTES_MAX};
use crate::log::LogError;
use crate::model::commit::slice_extents;
use crate::model::{BlobPlace, BlobRef, Extent, ObjectVersion};

/// The buffer that a stream may hold when the shared budget is used up: one checksum block.
const CHUNK_BYTES_MIN: usize = 128 << 10;

/// The bytes of an object or of a range of it.
pub enum ObjectBody {
    Empty,
    /// All of it, from RAM.
    Resident(Bytes),
    /// All of it, from one read.
    Bytes(Bytes),
    Stream(BodyStream),
}

/// Bytes in order. An `Err` item is the last: the response must be cut, not completed.
pub struct BodyStream {
    prefix: Option<Bytes>,
    pieces: mpsc::Receiver<StoreResult<Bytes>>,
}

impl Stream for BodyStream {
    type Item = StoreResult<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(prefix) = self.prefix.take() {
            return Poll::Ready(Some(Ok(prefix)));
        }
        self.pieces.poll_recv(cx)
    }
}

impl ObjectStore {
    /// `len` bytes of `version` from `first`; the caller has checked that they exist.
    ///
    /// **Errors** `Corrupt` or `Io` when nothing could be read; later failures end the stream.
    /// **Cancel** dropping the body stops the reads.
    pub async fn read(
        &self,
        version: &Arc<ObjectVersion>,
        first: u64,
        len: u64,
    ) -> StoreResult<ObjectBody> {
        if len == 0 {
            return Ok(ObjectBody::Empty);
        }
        let Some(extent) = first_extent(version, first, len) else {
            return Err(StoreError::io("read", "the range lies outside the object"));
        };
        let head = self.head_of(&extent);
        if let Some(bytes) = head.as_ref().filter(|_| extent.len == len).and_then(|head| {
            let (from, to) = (extent.offset as usize, (extent.offset + len) as usize);
            (to <= head.len()).then(|| head.slice(from..to))
        }) {
            return Ok(ObjectBody::Resident(bytes));
        }
        let pin = self.shared.pins.pin();
        let is_small = extent.blob.len <= self.shared.arena.head_slot_bytes() as u64;
        if extent.len == len && is_small {
            let bytes = self.load_head(&extent.blob).await?;
            let from = extent.offset as usize;
            return Ok(ObjectBody::Bytes(bytes.slice(from..from + len as usize)));
        }
        let head = match head {
            Some(head) => Some(head),
            None if self.wants_head(version, &extent) => Some(self.load_head(&extent.blob).await?),
            None => None,
        };
        Ok(ObjectBody::Stream(self.stream(version, first, len, &extent, head, pin)))
    }

    /// The resident head of the extent's blob, when the extent begins inside it.
    fn head_of(&self, extent: &Extent) -> Option<Bytes> {
        let begins_in_head = extent.offset < self.shared.arena.head_slot_bytes() as u64;
        begins_in_head.then(|| self.shared.arena.get(extent.blob.id)).flatten()
    }

    /// Only the head of an object's first blob is worth a slot.
    fn wants_head(&self, version: &ObjectVersion, extent: &Extent) -> bool {
        extent.offset < self.shared.arena.head_slot_bytes() as u64
            && version.extents.first().is_some_and(|e| e.blob.id == extent.blob.id)
    }

    /// Reads a blob's head from disk, verified, and makes it resident.
    async fn load_head(&self, blob: &BlobRef) -> StoreResult<Bytes> {
        let bytes = match blob.place {
            BlobPlace::Segment { .. } => self.read_packed(blob).await?,
            BlobPlace::File => {
                let len = blob.len.min(self.shared.arena.head_slot_bytes() as u64) as usize;
                let reader = self.open_blob(blob).await?;
                read_head(&reader, len).await.map_err(|e| self.read_error(blob, e))?
            }
        };
        self.shared.arena.insert(blob.id, &bytes);
        Ok(bytes)
    }

    fn stream(
        &self,
        version: &ObjectVersion,
        first: u64,
        len: u64,
        extent: &Extent,
        head: Option<Bytes>,
        pin: pins::Pin,
    ) -> BodyStream {
        let prefix = head.map(|head| {
            let from = extent.offset as usize;
            let to = head.len().min((extent.offset + extent.len) as usize);
            head.slice(from..to)
        });
        let sent = prefix.as_ref().map_or(0, |p| p.len() as u64);
        let rest = slice_extents(&version.extents, (first + sent, len - sent));
        let (send, pieces) = mpsc::channel(1);
        let store = self.clone();
        tokio::task::spawn_local(async move { store.pump(rest, send, pin).await });
        BodyStream { prefix, pieces }
    }

    /// Reads ahead and sends in order until the end, an error, or a receiver that is gone.
    async fn pump(
        self,
        extents: Vec<Extent>,
        send: mpsc::Sender<StoreResult<Bytes>>,
        _pin: pins::Pin,
    ) {
        let mut pieces = Pieces { extents, next: 0 };
        let mut budget = Budget::new(&self);
        let mut open: Option<(BlobRef, BlobReader)> = None;
        let mut reads = FuturesOrdered::new();
        loop {
            while reads.len() < self.shared.settings.read_ahead_chunks && !pieces.is_done() {
                let Some(grant) = budget.grant(reads.is_empty()).await else { break };
                let Some(piece) = pieces.take(grant.chunk_bytes) else { break };
                let reader = match self.reader_for(&piece.blob, &mut open).await {
                    Ok(reader) => reader,
                    Err(error) => {
                        // What was read before the failure still goes out first.
                        pieces.finish();
                        reads.push_back(ReadPiece::failed(error));
                        break;
                    }
                };
                reads.push_back(ReadPiece::start(self.clone(), piece, reader, grant));
            }
            let Some(result) = reads.next().await else { return };
            let failed = result.is_err();
            if send.send(result).await.is_err() || failed {
                return;
            }
        }
    }

    /// The reader of a blob file, kept while consecutive pieces come from the same one.
    async fn reader_for(
        &self,
        blob: &BlobRef,
        open: &mut Option<(BlobRef, BlobReader)>,
    ) -> StoreResult<Option<BlobReader>> {
        if blob.place != BlobPlace::File {
            return Ok(None);
        }
        if let Some((current, reader)) = open
            && current.id == blob.id
        {
            return Ok(Some(reader.clone()));
        }
        let reader = self.open_blob(blob).await?;
        *open = Some((*blob, reader.clone()));
        Ok(Some(reader))
    }

    async fn open_blob(&self, blob: &BlobRef) -> StoreResult<BlobReader> {
        self.blobs.open(*blob).await.map_err(|e| self.read_error(blob, e))
    }

    fn read_error(&self, blob: &BlobRef, error: BlobError) -> StoreError {
        match error {
            BlobError::Corrupt { .. } => {
                tracing::error!(blob = %blob.id, %error, "a blob file is damaged");
                self.damaged(blob)
            }
            other => StoreError::io("read a blob", other),
        }
    }

    fn packed_error(&self, blob: &BlobRef, error: LogError) -> StoreError {
        match error {
            LogError::Corrupt { .. } => {
                tracing::error!(blob = %blob.id, %error, "a packed blob is damaged");
                self.damaged(blob)
            }
            other => StoreError::io("read a packed blob", other),
        }
    }

    fn damaged(&self, blob: &BlobRef) -> StoreError {
        self.shared.damaged_reads.fetch_add(1, Ordering::Relaxed);
        StoreError::Corrupt(blob.id)
    }

    /// A packed blob's bytes; one that compaction moved meanwhile is looked up again.
    async fn read_packed(&self, blob: &BlobRef) -> StoreResult<Bytes> {
        match self.segments.read_packed(blob).await {
            Err(LogError::Gone) => {
                let Some(moved) = self.shared.catalog.locate(blob.id).await? else {
                    return Err(StoreError::io("read a packed blob", "it is gone"));
                };
                self.segments.read_packed(&moved).await.map_err(|e| self.packed_error(blob, e))
            }
            other => other.map_err(|e| self.packed_error(blob, e)),
        }
    }
}

/// The first `len` bytes of a blob file. One read in the default configuration, whose heads are
/// not longer than a read may be.
async fn read_head(reader: &BlobReader, len: usize) -> Result<Bytes, BlobError> {
    if len <= READ_BYTES_MAX {
        return reader.read(0, len).await;
    }
    let mut head = BytesMut::with_capacity(len);
    while head.len() < len {
        let piece = (len - head.len()).min(READ_BYTES_MAX);
        head.extend_from_slice(&reader.read(head.len() as u64, piece).await?);
    }
    Ok(head.freeze())
}

/// The part of the range that lies in the extent where it begins.
fn first_extent(version: &ObjectVersion, first: u64, len: u64) -> Option<Extent> {
    let mut at = 0;
    for extent in &version.extents {
        let skip = first - at;
        if skip < extent.len {
            let len = len.min(extent.len - skip);
            return Some(Extent { blob: extent.blob, offset: extent.offset + skip, len });
        }
        at += extent.len;
    }
    None
}

/// What is still to be read, cut into pieces at chunk boundaries of each blob.
struct Pieces {
    extents: Vec<Extent>,
    next: usize,
}

impl Pieces {
    fn is_done(&self) -> bool {
        self.next >= self.extents.len()
    }

    fn finish(&mut self) {
        self.next = self.extents.len();
    }

    /// The next piece: it ends where a multiple of `chunk_bytes` ends in its blob.
    fn take(&mut self, chunk_bytes: usize) -> Option<Extent> {
        let extent = self.extents.get_mut(self.next)?;
        let chunk = chunk_bytes as u64;
        let boundary = (extent.offset / chunk + 1) * chunk;
        let len = extent.len.min(boundary - extent.offset);
        let piece = Extent { len, ..*extent };
        extent.offset += len;
        extent.len -= len;
        if extent.len == 0 {
            self.next += 1;
        }
        Some(piece)
    }
}

/// Leave to hold one piece in memory; given back when the piece's bytes are dropped.
struct Grant {
    chunk_bytes: usize,
    _permit: OwnedSemaphorePermit,
}

struct Budget {
    shared: Arc<Semaphore>,
    /// One permit: the buffer that this stream is sure of.
    own: Arc<Semaphore>,
    chunk_bytes: usize,
}

impl Budget {
    fn new(store: &ObjectStore) -> Budget {
        Budget {
            shared: store.shared.read_budget.clone(),
            own: Arc::new(Semaphore::new(1)),
            chunk_bytes: store.shared.settings.read_chunk_bytes,
        }
    }

    /// Leave for one more piece. Waits for the stream's own buffer only when `must`, that is when
    /// no read is under way that could make progress meanwhile.
    async fn grant(&mut self, must: bool) -> Option<Grant> {
        let kib = (self.chunk_bytes >> 10) as u32;
        if let Ok(permit) = self.shared.clone().try_acquire_many_owned(kib) {
            return Some(Grant { chunk_bytes: self.chunk_bytes, _permit: permit });
        }
        let chunk_bytes = self.chunk_bytes.min(CHUNK_BYTES_MIN);
        let own = self.own.clone();
        let permit =
            if must { own.acquire_owned().await.ok() } else { own.try_acquire_owned().ok() };
        permit.map(|permit| Grant { chunk_bytes, _permit: permit })
    }
}

/// The bytes of a piece together with the leave to hold them.
struct Granted {
    bytes: Bytes,
    _grant: Grant,
}

impl AsRef<[u8]> for Granted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Makes the futures of the pump, all of one type.
struct ReadPiece;

type PieceFuture = futures_util::future::LocalBoxFuture<'static, StoreResult<Bytes>>;

impl ReadPiece {
    fn failed(error: StoreError) -> PieceFuture {
        Box::pin(async move { Err(error) })
    }

    fn start(
        store: ObjectStore,
        piece: Extent,
        reader: Option<BlobReader>,
        grant: Grant,
    ) -> PieceFuture {
        Box::pin(async move {
            let bytes = match reader {
                Some(reader) => {
                    let read = reader.read(piece.offset, piece.len as usize).await;
                    read.map_err(|e| store.read_error(&piece.blob, e))?
                }
                None => {
                    let from = piece.offset as usize;
                    store.read_packed(&piece.blob).await?.slice(from..from + piece.len as usize)
                }
            };
            Ok(Bytes::from_owner(Granted { bytes, _grant: grant }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BlobId;

    fn extent(offset: u64, len: u64) -> Extent {
        let blob = BlobRef { id: BlobId([7; 16]), place: BlobPlace::File, len: 1 << 30 };
        Extent { blob, offset, len }
    }

    #[test]
    fn pieces_end_at_chunk_boundaries_and_cover_everything() {
        let mut pieces = Pieces { extents: vec![extent(10, 25), extent(0, 5)], next: 0 };
        let mut seen = Vec::new();
        while let Some(piece) = pieces.take(16) {
            seen.push((piece.offset, piece.len));
        }
        assert_eq!(seen, [(10, 6), (16, 16), (32, 3), (0, 5)]);
        assert!(pieces.is_done());
    }
}
