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
        let BlobPlace::Segment { segment, record_offset } = blob.place else {
            return Err(LogError::Gone);
        };
        let number = SegmentNumber(segment);
        let corrupt = |damage| LogError::Corrupt { segment: number, offset: record_offset, damage };
        let len = usize::try_from(blob.len).ok().filter(|len| *len <= DATA_BYTES_MAX);
        let len = len.ok_or_else(|| corrupt(Damage::Length))?;
        let start = record_offset - record_offset % BLOCK_BYTES;
        let at = (record_offset - start) as usize;
        let wanted = at + record::packed_read_len(len);

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
            head => head.map_err(|e| corrupt(e.into()))?,
        };
        if head.blob != Some(blob.id) {
            return Err(LogError::Gone);
        }
        if head.data_len != len {
            return Err(corrupt(Damage::Length));
        }
        head.check_data(bytes).map_err(|e| corrupt(e.into()))?;
        let data = head.data_range();
        Ok(buf.freeze().slice(at + data.start..at + data.end))
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
