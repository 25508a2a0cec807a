//! Walks the records of one segment, in order, with large aligned reads.
//!
//! Owns the rules of where a record may stand. It never judges whether the end that it finds is
//! a torn tail or damage: replay knows what ought to be there.

use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use super::record::{HEADER_BYTES, RecordError, RecordHead};
use super::segment::{self, BLOCK_BYTES, SegmentHeader};
use super::{Damage, LogError};
use crate::model::commit::Mutation;
use crate::model::{BlobId, Lsn};
use crate::sys::aligned_buf::AlignedBuf;
use crate::sys::engine::{DirectFile, IoEngine, OpenMode};

/// Bytes of one read.
const READ_BYTES: usize = 1024 * 1024;
/// A header with the longest table of block checksums fits in here.
const HEAD_BYTES_MAX: usize = HEADER_BYTES + 512;

/// One record, verified whole.
#[derive(Debug)]
pub struct Found {
    pub lsn: Lsn,
    pub mutation: Mutation,
    /// Byte offset of the record in its segment.
    pub offset: u64,
    /// The blob that it carries; `SegmentScan::data` gives the bytes.
    pub packed: Option<BlobId>,
    /// The bytes of the blob do not match their checksums; the rest of the record does.
    pub data_damaged: bool,
    data: Range<usize>,
}

/// What stands at the present position: a record, or the reason why no valid one follows.
/// `Blank` is the clean end.
pub type Step = Result<Found, RecordError>;

/// A position in a segment. Holds one buffer of at least 1 MiB, or of the longest record.
pub struct SegmentScan {
    file: Rc<dyn DirectFile>,
    header: SegmentHeader,
    window: AlignedBuf,
    window_at: u64,
    /// Where the next record is expected.
    offset: u64,
    expected: Lsn,
}

impl SegmentScan {
    /// Starts at the segment's first record. **Errors** `Gone` when there is no such file.
    pub async fn open(
        engine: &dyn IoEngine,
        dir: &Path,
        header: SegmentHeader,
    ) -> Result<SegmentScan, LogError> {
        let file = segment::open(engine, dir, header.number, OpenMode::Read).await?;
        let window = AlignedBuf::recycled(READ_BYTES);
        let (offset, expected) = (BLOCK_BYTES, header.first_lsn);
        Ok(SegmentScan { file, header, window, window_at: 0, offset, expected })
    }

    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// The position of the record that would come next.
    pub fn expected(&self) -> Lsn {
        self.expected
    }

    /// The first multiple of 4096 behind the records found so far.
    pub fn end_offset(&self) -> u64 {
        self.offset.next_multiple_of(BLOCK_BYTES)
    }

    /// Makes what was written to the file durable, also by a process that is gone.
    pub async fn sync(&self) -> Result<(), LogError> {
        self.file.sync().await.map_err(LogError::io("flush the log's last segment"))
    }

    /// Reads and verifies the next record.
    ///
    /// **Errors** `Io` when the disk does not give the bytes, `Corrupt` for a record that is whole
    /// but that this program does not understand.
    pub async fn next(&mut self) -> Result<Step, LogError> {
        self.step(false).await
    }

    /// As `next`, but takes a record whose packed data alone is damaged. For records that were
    /// acknowledged: the change that such a record tells of is known, and counts.
    pub async fn next_despite_data(&mut self) -> Result<Step, LogError> {
        self.step(true).await
    }

    /// Goes on at the first group that begins behind the present position, if all before it is
    /// known: `after` is the last position that is not needed. False when there is none.
    pub async fn skip_damage(&mut self, after: Lsn) -> Result<bool, LogError> {
        let Some((offset, lsn)) = self.later_group().await? else { return Ok(false) };
        if lsn.0 > after.0 + 1 {
            return Ok(false);
        }
        (self.offset, self.expected) = (offset, lsn);
        Ok(true)
    }

    async fn step(&mut self, despite_data: bool) -> Result<Step, LogError> {
        let mut offset = self.offset;
        let padded = !offset.is_multiple_of(BLOCK_BYTES) && self.padding_at(offset).await?;
        if padded {
            offset = offset.next_multiple_of(BLOCK_BYTES);
        }
        let head = self.head_at(offset).await?;
        let head = match head {
            Ok(head) if padded && !head.group_start => return Ok(Err(RecordError::NotARecord)),
            Ok(head) if head.salt != self.header.salt || head.lsn != self.expected => {
                return Ok(Err(RecordError::Header));
            }
            Ok(head) => head,
            Err(RecordError::Version(v)) => {
                return Err(self.corrupt(offset, RecordError::Version(v)));
            }
            Err(e) => return Ok(Err(e)),
        };
        let at = self.load(offset, head.record_len()).await?;
        let data_damaged = match head.check_data(&self.window[at..]) {
            Ok(_) => false,
            Err(_) if despite_data => true,
            Err(e) => return Ok(Err(e)),
        };
        let mutation = match head.decode_body(&self.window[at..]) {
            Ok(mutation) => mutation,
            Err(RecordError::Body) => return Err(self.corrupt(offset, RecordError::Body)),
            Err(e) => return Ok(Err(e)),
        };
        self.offset = offset + head.record_len() as u64;
        self.expected = Lsn(head.lsn.0 + 1);
        let data = head.data_range();
        let data = at + data.start..at + data.end;
        Ok(Ok(Found { lsn: head.lsn, mutation, offset, packed: head.blob, data_damaged, data }))
    }

    /// The packed bytes of the record found last.
    pub fn data(&self, found: &Found) -> &[u8] {
        &self.window[found.data.clone()]
    }

    /// Looks behind the end for the start of a later group. A group is written only after all
    /// before it were flushed, so finding one proves that what is missing was acknowledged.
    pub async fn later_group(&mut self) -> Result<Option<(u64, Lsn)>, LogError> {
        let len = self.file.len().await.map_err(LogError::io("size a log segment"))?;
        let mut offset = self.end_offset();
        while offset < len {
            if let Ok(head) = self.head_at(offset).await?
                && head.group_start
                && head.salt == self.header.salt
                && head.lsn > self.expected
            {
                return Ok(Some((offset, head.lsn)));
            }
            offset += BLOCK_BYTES;
        }
        Ok(None)
    }

    async fn head_at(&mut self, offset: u64) -> Result<Result<RecordHead, RecordError>, LogError> {
        let at = self.load(offset, HEAD_BYTES_MAX).await?;
        let bytes = &self.window[at..];
        if bytes.is_empty() {
            return Ok(Err(RecordError::Blank));
        }
        Ok(RecordHead::decode(bytes))
    }

    /// True when zeros fill up the block from `offset`: a group ends here, and another begins at
    /// the next block.
    async fn padding_at(&mut self, offset: u64) -> Result<bool, LogError> {
        let len = (offset.next_multiple_of(BLOCK_BYTES) - offset) as usize;
        let at = self.load(offset, len).await?;
        Ok(self.window[at..].iter().take(len).all(|b| *b == 0))
    }

    /// Makes the window show `len` bytes from `offset`, or as many as the file has; returns where
    /// in the window they begin.
    async fn load(&mut self, offset: u64, len: usize) -> Result<usize, LogError> {
        let within = offset.checked_sub(self.window_at).map(|at| at as usize);
        if let Some(at) = within.filter(|at| at + len <= self.window.len()) {
            return Ok(at);
        }
        let start = offset - offset % BLOCK_BYTES;
        let at = (offset - start) as usize;
        let wanted = (at + len).next_multiple_of(READ_BYTES);
        let mut buf = std::mem::replace(&mut self.window, AlignedBuf::recycled(0));
        if buf.capacity() != wanted {
            buf = AlignedBuf::recycled(wanted);
        }
        let (read, buf) = self.file.read_at(buf, start).await;
        read.map_err(LogError::io("read a log segment"))?;
        self.window = buf;
        self.window_at = start;
        Ok(at.min(self.window.len()))
    }

    /// The error that says that acknowledged bytes of this segment are bad.
    pub fn corrupt(&self, offset: u64, damage: impl Into<Damage>) -> LogError {
        LogError::Corrupt { segment: self.header.number, offset, damage: damage.into() }
    }
}
