//! Writing one blob: chunks in, overlapped direct writes, checksums as they pass, seal.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, try_join};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::BlobError;
use super::layout::{BLOB_BYTES_MAX, BlockSums, Shape, encode_tail};
use crate::model::BlobId;
use crate::sabotage::{self, Sabotage};
use crate::sys::aligned_buf::{ALIGN, SharedBuf};
use crate::sys::engine::{DirectFile, IoEngine};

/// Writes of one blob in flight. With 1 MiB chunks: enough to keep an array busy from one stream,
/// and 4 MiB of memory at most.
const WRITES_IN_FLIGHT_MAX: usize = 4;

/// A blob that is being written.
///
/// **Cancel** Dropping it unsealed leaves the unfinished file; whoever announced the blob to the
/// catalog (or the orphan search after a crash) removes it. Writes in flight finish on their own.
pub struct BlobWriter {
    blob: BlobId,
    path: PathBuf,
    engine: Rc<dyn IoEngine>,
    file: Rc<dyn DirectFile>,
    in_flight: FuturesUnordered<LocalBoxFuture<'static, io::Result<()>>>,
    sums: BlockSums,
    /// Bytes taken so far.
    len: u64,
    /// Length the file was given before the first write; 0 for none.
    allocated: u64,
    /// A write failed: the blob can only be given up.
    failed: bool,
}

impl BlobWriter {
    pub(super) fn new(
        blob: BlobId,
        path: PathBuf,
        engine: Rc<dyn IoEngine>,
        file: Rc<dyn DirectFile>,
        allocated: u64,
    ) -> BlobWriter {
        BlobWriter {
            blob,
            path,
            engine,
            file,
            in_flight: FuturesUnordered::new(),
            sums: BlockSums::start(),
            len: 0,
            allocated,
            failed: false,
        }
    }

    pub fn id(&self) -> BlobId {
        self.blob
    }

    /// Bytes taken so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the next bytes and starts writing them; waits while four writes are in flight.
    ///
    /// **Shape** any length that is a multiple of 4096; only the last chunk may have another.
    /// **Errors** `NoSpace` or `Io`, of this write or an earlier one; the blob is then lost.
    /// `Io` of kind `FileTooLarge` beyond `BLOB_BYTES_MAX`.
    /// **Cancel** the chunk may or may not have been taken: give the writer up.
    pub async fn append(&mut self, chunk: SharedBuf) -> Result<(), BlobError> {
        let grown = self.len + chunk.len() as u64;
        if self.failed {
            return Err(self.failed_before());
        }
        if grown > BLOB_BYTES_MAX {
            return Err(self.io("append", io::ErrorKind::FileTooLarge.into()));
        }
        if !self.len.is_multiple_of(ALIGN as u64) {
            return Err(self.io("append", io::ErrorKind::InvalidInput.into()));
        }
        while self.in_flight.len() >= WRITES_IN_FLIGHT_MAX {
            self.reap_one().await?;
        }
        let padded = chunk.padded();
        let (file, offset) = (self.file.clone(), self.len);
        self.len = grown;
        let bytes = padded.clone();
        self.in_flight.push(Box::pin(async move { file.write_at(bytes, offset).await }));
        // A future does nothing until it is polled: this hands the write to the kernel, which
        // then works on it while the checksums are computed and the next bytes arrive.
        while let Some(result) = self.in_flight.next().now_or_never().flatten() {
            self.note("write", result)?;
        }
        self.sums.update(&padded);
        Ok(())
    }

    /// Finishes the blob: waits for the writes, adds checksums and footer, flushes the file and
    /// its directory entry. Returns the blob's length. After this the blob survives power loss.
    ///
    /// **Errors** `NoSpace` or `Io`; the file is then not to be trusted, also when a flush failed
    /// and a later one would succeed: give up the blob.
    pub async fn seal(mut self) -> Result<u64, BlobError> {
        while !self.in_flight.is_empty() {
            self.reap_one().await?;
        }
        let (blob, len) = (self.blob, self.len);
        let shape = Shape::new(len).filter(|_| !self.failed);
        let shape = shape.ok_or_else(|| self.failed_before())?;
        let tail = encode_tail(blob, shape, &self.sums.finish()).freeze();
        let file = &self.file;
        lift(blob, "write the footer", file.write_at(tail, shape.data_end())).await?;
        if self.allocated > shape.file_bytes() {
            lift(blob, "truncate", file.truncate(shape.file_bytes())).await?;
        }
        let parent = self.path.parent().unwrap_or(Path::new("."));
        // Together, so that a journaling file system can serve both with one commit.
        let contents = async {
            match sabotage::is(Sabotage::SkipBlobFlush) {
                true => Ok(()),
                false => lift(blob, "flush", file.sync()).await,
            }
        };
        let entry = async {
            match sabotage::is(Sabotage::SkipNameFlush) {
                true => Ok(()),
                false => lift(blob, "flush the directory", self.engine.sync_dir(parent)).await,
            }
        };
        try_join(contents, entry).await?;
        Ok(len)
    }

    /// Gives the blob up: waits for the writes and removes the file.
    pub async fn abort(mut self) -> Result<(), BlobError> {
        while self.in_flight.next().await.is_some() {}
        match self.engine.remove(&self.path).await {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(self.io("remove", e)),
            _ => Ok(()),
        }
    }

    async fn reap_one(&mut self) -> Result<(), BlobError> {
        match self.in_flight.next().await {
            Some(result) => self.note("write", result),
            None => Ok(()),
        }
    }

    fn note(&mut self, doing: &'static str, result: io::Result<()>) -> Result<(), BlobError> {
        result.map_err(|e| {
            self.failed = true;
            self.io(doing, e)
        })
    }

    fn failed_before(&self) -> BlobError {
        self.io("write", io::Error::other("an earlier write failed"))
    }

    fn io(&self, doing: &'static str, source: io::Error) -> BlobError {
        BlobError::from_io(self.blob, doing, source)
    }
}

async fn lift<T>(
    blob: BlobId,
    doing: &'static str,
    operation: impl Future<Output = io::Result<T>>,
) -> Result<T, BlobError> {
    operation.await.map_err(|e| BlobError::from_io(blob, doing, e))
}
