//! Reading ranges of one blob, each byte verified.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use crc_fast::crc32_iscsi;

use super::layout::{BLOCK_BYTES, READ_BYTES_MAX, Shape, decode_tail};
use super::{BlobError, Damage};
use crate::model::BlobId;
use crate::sabotage::{self, Sabotage};
use crate::sys::aligned_buf::AlignedBuf;
use crate::sys::engine::DirectFile;

/// An open blob. Clones share the file and the checksum table (4 bytes for each 128 KiB).
///
/// The file stays readable while a reader lives, also when the blob is removed meanwhile.
#[derive(Clone)]
pub struct BlobReader(Rc<Inner>);

struct Inner {
    blob: BlobId,
    len: u64,
    shape: Shape,
    file: Rc<dyn DirectFile>,
    sums: Vec<u32>,
}

impl BlobReader {
    /// Reads and verifies checksum table and footer of the file of a blob of `len` bytes.
    pub(super) async fn open(
        blob: BlobId,
        len: u64,
        file: Rc<dyn DirectFile>,
    ) -> Result<BlobReader, BlobError> {
        let corrupt = |damage| BlobError::Corrupt { blob, damage };
        let failed = |e| BlobError::from_io(blob, "read the footer", e);
        let found = file.len().await.map_err(failed)?;
        let shape = Shape::new(len).filter(|shape| shape.file_bytes() == found);
        let Some(shape) = shape else {
            let expected = Shape::new(len).map_or(u64::MAX, Shape::file_bytes);
            return Err(corrupt(Damage::FileLength { expected, found }));
        };
        let buf = AlignedBuf::recycled(shape.tail_bytes());
        let (result, tail) = file.read_at(buf, shape.data_end()).await;
        if result.map_err(failed)? != shape.tail_bytes() {
            return Err(corrupt(Damage::FooterChecksum));
        }
        let sums = decode_tail(blob, shape, &tail).map_err(corrupt)?;
        Ok(BlobReader(Rc::new(Inner { blob, len, shape, file, sums })))
    }

    pub fn id(&self) -> BlobId {
        self.0.blob
    }

    /// Length of the blob in bytes.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Reads exactly `len` bytes from `offset`. One direct read of the blocks that hold them, each
    /// checked; the result is a slice of the buffer that the disk filled.
    ///
    /// **Shape** any range within the blob of at most 1 MiB (`READ_BYTES_MAX`).
    /// **Errors** `Corrupt` when a block does not match; `Io`, also for a range that is too long
    /// or outside the blob.
    /// **Cancel** nothing happens; the buffer is freed when the disk is done with it.
    pub async fn read(&self, offset: u64, len: usize) -> Result<Bytes, BlobError> {
        let this = &*self.0;
        let end = offset.checked_add(len as u64).filter(|end| *end <= this.len);
        let Some(end) = end.filter(|_| len <= READ_BYTES_MAX) else {
            return Err(this.io(io::ErrorKind::InvalidInput.into()));
        };
        if len == 0 {
            return Ok(Bytes::new());
        }
        let block = BLOCK_BYTES as u64;
        let first = offset / block;
        let start = first * block;
        let stop = end.next_multiple_of(block).min(this.shape.data_end());
        let wanted = (stop - start) as usize;
        let (result, buf) = this.file.read_at(AlignedBuf::recycled(wanted), start).await;
        let read = result.map_err(|e| this.io(e))?;
        this.verify(first, &buf)?;
        if read != wanted {
            return Err(this.corrupt(first + read as u64 / block));
        }
        let skip = (offset - start) as usize;
        Ok(buf.freeze().slice(skip..skip + len))
    }
}

impl Inner {
    /// Compares the blocks in `bytes`, the first of which has the number `first`.
    fn verify(&self, first: u64, bytes: &[u8]) -> Result<(), BlobError> {
        for (block, number) in bytes.chunks(BLOCK_BYTES).zip(first..) {
            let sum = self.sums.get(number as usize);
            let sound = sum == Some(&crc32_iscsi(block));
            if !sound && !sabotage::is(Sabotage::SkipBlockChecksum) {
                return Err(self.corrupt(number));
            }
        }
        Ok(())
    }

    fn corrupt(&self, block: u64) -> BlobError {
        BlobError::Corrupt { blob: self.blob, damage: Damage::Block(block) }
    }

    fn io(&self, source: io::Error) -> BlobError {
        BlobError::from_io(self.blob, "read", source)
    }
}
