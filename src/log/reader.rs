//! Serves the packed bytes of small objects out of segments.
//!
//! Owns this thread's open segment files, a bounded number. Never returns a byte that it did not
//! verify, never caches contents (the arena does).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;

use super::record::{self, DATA_BYTES_MAX, RecordError, RecordHead};
use super::segment::{self, BLOCK_BYTES, SegmentNumber};
use super::{Damage, LogError};
use crate::model::{BlobPlace, BlobRef};
use crate::sys::aligned_buf::AlignedBuf;
use crate::sys::engine::{DirectFile, IoEngine, OpenMode};

/// Segments that one reader keeps open: 16 GiB of the newest small objects at the default size.
const OPEN_SEGMENTS_MAX: usize = 64;

/// Reads packed blobs. One per thread; any number of reads at once.
pub struct SegmentReader {
    engine: Rc<dyn IoEngine>,
    dir: PathBuf,
    /// Most recently used last.
    open: RefCell<VecDeque<(SegmentNumber, Rc<dyn DirectFile>)>>,
}

/// The beginning of a record, whose head is verified.
struct RecordRead {
    buf: AlignedBuf,
    /// Where in `buf` the record begins.
    at: usize,
    head: RecordHead,
}

fn corrupt(place: BlobPlace, damage: Damage) -> LogError {
    let (segment, offset) = match place {
        BlobPlace::Segment { segment, record_offset } => (segment, record_offset),
        BlobPlace::File => (0, 0),
    };
    LogError::Corrupt { segment: SegmentNumber(segment), offset, damage }
}

impl SegmentReader {
    /// `dir` is the log's directory.
    pub fn new(engine: Rc<dyn IoEngine>, dir: PathBuf) -> SegmentReader {
        SegmentReader { engine, dir, open: RefCell::new(VecDeque::new()) }
    }

    /// The bytes of a packed blob, whole and verified, without a copy of the read buffer.
    ///
    /// **Errors** `Gone` when the segment is deleted or the record there carries another blob: ask
    /// `Catalog::locate` and try once more. `Corrupt` when the bytes fail their checksums.
    pub async fn read_packed(&self, blob: &BlobRef) -> Result<Bytes, LogError> {
        let read = self.read_record(blob, record::packed_read_len).await?;
        let data = read.head.check_data(&read.buf[read.at..]);
        data.map_err(|e| corrupt(blob.place, e.into()))?;
        let data = read.head.data_range();
        Ok(read.buf.freeze().slice(read.at + data.start..read.at + data.end))
    }

    /// Whether the record of a packed blob is there, without reading its data.
    ///
    /// **Errors** as for `read_packed`, but for damage to the data.
    pub async fn check_head(&self, blob: &BlobRef) -> Result<(), LogError> {
        self.read_record(blob, record::head_read_len).await.map(drop)
    }

    /// Reads the first `wanted(len)` bytes of a blob's record and verifies its head.
    async fn read_record(
        &self,
        blob: &BlobRef,
        wanted: impl Fn(usize) -> usize,
    ) -> Result<RecordRead, LogError> {
        let BlobPlace::Segment { segment, record_offset } = blob.place else {
            return Err(LogError::Gone);
        };
        let number = SegmentNumber(segment);
        let len = usize::try_from(blob.len).ok().filter(|len| *len <= DATA_BYTES_MAX);
        let len = len.ok_or_else(|| corrupt(blob.place, Damage::Length))?;
        let start = record_offset - record_offset % BLOCK_BYTES;
        let at = (record_offset - start) as usize;
        let wanted = at + wanted(len);

        let file = self.file(number).await?;
        let (read, buf) = file.read_at(AlignedBuf::recycled(wanted), start).await;
        read.map_err(LogError::io("read a packed blob"))?;
        let Some(bytes) = buf.get(at..wanted) else {
            // Deletion cuts the file first, so that open handles hold no space.
            self.forget(number);
            return Err(LogError::Gone);
        };
        let head = match RecordHead::decode(bytes) {
            // The table of a longer blob reaches beyond what was read: another blob stands here.
            Err(RecordError::Short) => return Err(LogError::Gone),
            head => head.map_err(|e| corrupt(blob.place, e.into()))?,
        };
        if head.blob != Some(blob.id) {
            return Err(LogError::Gone);
        }
        if head.data_len != len {
            return Err(corrupt(blob.place, Damage::Length));
        }
        Ok(RecordRead { buf, at, head })
    }

    async fn file(&self, number: SegmentNumber) -> Result<Rc<dyn DirectFile>, LogError> {
        let cached = self.forget(number);
        let file = match cached {
            Some(file) => file,
            None => segment::open(&*self.engine, &self.dir, number, OpenMode::Read).await?,
        };
        let mut open = self.open.borrow_mut();
        open.retain(|(n, _)| *n != number);
        if open.len() >= OPEN_SEGMENTS_MAX {
            open.pop_front();
        }
        open.push_back((number, Rc::clone(&file)));
        Ok(file)
    }

    fn forget(&self, number: SegmentNumber) -> Option<Rc<dyn DirectFile>> {
        let mut open = self.open.borrow_mut();
        let at = open.iter().position(|(n, _)| *n == number)?;
        open.remove(at).map(|(_, file)| file)
    }

    /// How many segments this reader holds open.
    #[cfg(test)]
    pub fn open_segments(&self) -> usize {
        self.open.borrow().len()
    }
}
