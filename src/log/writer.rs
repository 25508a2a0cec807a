//! Appends groups of records: one aligned write and one flush for each group.
//!
//! Owns the newest segments and the order of writes and flushes in them. Never acknowledges a
//! group of which a byte may still be lost, never writes again to a file after a write or flush
//! of it failed, and never decides what a record says.
//!
//! **A failed group.** Its caller was told so and will use its positions again, but its bytes may
//! have reached the disk. So the writer at once starts a segment whose header names the failed
//! group's first position, which revokes the remains (see `SegmentHeader::first_lsn`). If that
//! fails too, every later append tries it first: a group is acknowledged only behind such a fence.
//! Until then a crash may bring the failed group back whole or in part, as if its answer had been
//! lost on the way to the client. Dropping a future of `append` counts as a failure.
//!
//! **Segments that a group needs** are created and allocated before the first byte of the group is
//! written, so that a full disk refuses the group cleanly and a fence needs no new space.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::LogError;
use super::record::{EncodedRecord, Record, Salt};
use super::replay::ReplayEnd;
use super::segment::{self, BLOCK_BYTES, SegmentHeader, SegmentNumber};
use crate::model::{BlobPlace, Lsn};
use crate::rng::Rng;
use crate::sabotage::{self, Sabotage};
use crate::sys::aligned_buf::AlignedBuf;
use crate::sys::engine::{DirectFile, IoEngine, OpenMode};

/// Zeros that a small group writes behind itself when it reaches blocks that were only allocated.
/// The first write to an allocated block makes the flush record it in the file system's journal
/// too; groups that overwrite zeros need the disk's own flush only, which is several times faster.
const ZERO_AHEAD_BYTES: u64 = 1 << 20;
/// Groups above this do without: their own length outweighs the journal.
const ZERO_AHEAD_GROUP_BYTES_MAX: u64 = ZERO_AHEAD_BYTES / 4;

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Length of a segment file, preallocated. **Units** bytes, rounded up to 4096; a group's
    /// records that need more get a longer segment.
    pub segment_bytes: u64,
    /// False acknowledges groups before they are flushed (`--durability writeback`): a power cut
    /// then takes the last of them. What is acknowledged is still flushed when its segment is full.
    pub flush: bool,
}

/// The one writer of a log.
pub struct LogWriter {
    engine: Rc<dyn IoEngine>,
    dir: PathBuf,
    settings: LogSettings,
    rng: Rng,
    next_lsn: Lsn,
    next_number: SegmentNumber,
    /// `None` after a failure, until a new segment is started.
    active: Option<Active>,
    /// Created and allocated, without a header; in the order in which they will be used.
    spares: VecDeque<Spare>,
    /// Segments without a record that counts, to be removed once the active one is durable.
    discard: Vec<SegmentNumber>,
}

struct Spare {
    number: SegmentNumber,
    file: Rc<dyn DirectFile>,
    capacity: u64,
}

struct Active {
    number: SegmentNumber,
    file: Rc<dyn DirectFile>,
    capacity: u64,
    salt: Salt,
    /// Where the next group goes; a multiple of 4096.
    offset: u64,
    /// The end of what was ever written to, zeros included.
    written: u64,
    unsynced: bool,
}

/// The records of a group that go into one segment.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    records: Range<usize>,
    bytes: u64,
}

impl LogWriter {
    /// Starts a new segment behind `end`, and removes what earlier processes left unused.
    ///
    /// **Errors** `NoSpace`, `Io`.
    pub async fn open(
        engine: Rc<dyn IoEngine>,
        dir: &Path,
        settings: LogSettings,
        end: ReplayEnd,
        rng: Rng,
    ) -> Result<LogWriter, LogError> {
        engine.create_dir_all(dir).await.map_err(LogError::io("create the log's directory"))?;
        let segment_bytes =
            settings.segment_bytes.next_multiple_of(BLOCK_BYTES).max(2 * BLOCK_BYTES);
        let mut writer = LogWriter {
            engine,
            dir: dir.to_path_buf(),
            settings: LogSettings { segment_bytes, ..settings },
            rng,
            next_lsn: Lsn(end.last.0 + 1),
            next_number: SegmentNumber(end.newest.map_or(1, |newest| newest.0 + 1)),
            active: None,
            spares: VecDeque::new(),
            discard: end.leftover,
        };
        writer.start_segment(writer.next_lsn).await?;
        if let Some((segment, offset)) = end.tail {
            writer.trim(segment, offset).await;
        }
        Ok(writer)
    }

    /// The position that the next record gets.
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// The segment that is being written. Those before it never change again.
    pub fn active_segment(&self) -> Option<SegmentNumber> {
        self.active.as_ref().map(|active| active.number)
    }

    /// Writes one group and flushes it; returns the place of each record.
    ///
    /// **Shape** `records` have the positions from `next_lsn` on without a gap; others panic.
    /// **Errors** `NoSpace` and `TooLarge` before anything is written; `Io`. After an error the
    /// group is not committed and its positions are free again.
    /// **Cancel** as an error.
    pub async fn append(&mut self, records: &[Record]) -> Result<Vec<BlobPlace>, LogError> {
        let wanted = (self.next_lsn.0..).zip(records).all(|(lsn, record)| lsn == record.lsn.0);
        assert!(wanted, "records do not continue the log at {}", self.next_lsn.0);
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let encoded = encode(records)?;
        if self.active.is_none() {
            self.start_segment(self.next_lsn).await?;
        }
        let room = self.active.as_ref().map_or(0, |a| a.capacity - a.offset);
        let pieces = plan(&encoded, room, self.settings.segment_bytes);
        for (index, piece) in pieces.iter().enumerate().skip(1) {
            self.prepare_spare(index - 1, piece.bytes).await?;
        }
        // Taken out while it is being written: an error or a dropped future leaves none behind.
        let Some(active) = self.active.take() else { return Err(LogError::Gone) };
        let first = active.number;
        let untouched = active.offset == BLOCK_BYTES;
        match self.write_pieces(active, &encoded, &pieces).await {
            Ok((active, places)) => {
                self.active = Some(active);
                self.next_lsn = Lsn(self.next_lsn.0 + records.len() as u64);
                Ok(places)
            }
            Err(e) => {
                if untouched {
                    self.discard.push(first);
                }
                if let Err(fence) = self.start_segment(self.next_lsn).await {
                    tracing::error!(error = %fence, "cannot fence off a failed group of the log");
                }
                Err(e)
            }
        }
    }

    /// Flushes what was acknowledged without a flush. With `LogSettings::flush` there is nothing.
    ///
    /// **Errors** `Io`; the writer then goes on in a new segment.
    pub async fn flush(&mut self) -> Result<(), LogError> {
        let Some(mut active) = self.active.take() else { return Ok(()) };
        active.seal().await?;
        self.active = Some(active);
        Ok(())
    }

    async fn write_pieces(
        &mut self,
        mut active: Active,
        encoded: &[EncodedRecord],
        pieces: &[Piece],
    ) -> Result<(Active, Vec<BlobPlace>), LogError> {
        let mut places = Vec::with_capacity(encoded.len());
        for (index, piece) in pieces.iter().enumerate() {
            let records = &encoded[piece.records.clone()];
            if index > 0 {
                active.seal().await?;
                active = self.activate_spare(records[0].lsn()).await?;
            }
            if !records.is_empty() {
                active.write(records, piece.bytes, self.settings.flush, &mut places).await?;
            }
        }
        Ok((active, places))
    }

    /// Makes a new segment the active one; `first_lsn` revokes what may stand from there on in
    /// earlier ones. Then removes what has become useless.
    async fn start_segment(&mut self, first_lsn: Lsn) -> Result<(), LogError> {
        self.prepare_spare(0, 0).await?;
        self.active = Some(self.activate_spare(first_lsn).await?);
        for number in std::mem::take(&mut self.discard) {
            self.remove(number).await;
        }
        Ok(())
    }

    /// Makes sure that spare `index` exists and has room for `bytes` of records.
    async fn prepare_spare(&mut self, index: usize, bytes: u64) -> Result<(), LogError> {
        let capacity = self.settings.segment_bytes.max(BLOCK_BYTES + bytes);
        if let Some(spare) = self.spares.get(index) {
            if spare.capacity >= capacity {
                return Ok(());
            }
            // Too short for a record of unusual length. Spares hold nothing; they are made anew.
            for spare in self.spares.drain(index..).collect::<Vec<_>>() {
                self.remove(spare.number).await;
            }
        }
        let number = self.next_number;
        self.next_number = SegmentNumber(number.0 + 1);
        match self.create(number, capacity).await {
            Ok(file) => {
                self.spares.push_back(Spare { number, file, capacity });
                Ok(())
            }
            Err(e) => {
                self.remove(number).await;
                Err(e)
            }
        }
    }

    async fn create(
        &self,
        number: SegmentNumber,
        capacity: u64,
    ) -> Result<Rc<dyn DirectFile>, LogError> {
        let path = number.path(&self.dir);
        let file = self.engine.open(&path, OpenMode::CreateNew).await;
        let file = file.map_err(LogError::io("create a log segment"))?;
        match file.allocate(0, capacity).await {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {}
            done => done.map_err(LogError::io("allocate a log segment"))?,
        }
        let synced = self.engine.sync_dir(&self.dir).await;
        synced.map_err(LogError::io("flush the log's directory"))?;
        Ok(file)
    }

    /// Gives the first spare its header, durably. A spare that fails is removed at once: it has no
    /// record, and failures must not pile up files.
    async fn activate_spare(&mut self, first_lsn: Lsn) -> Result<Active, LogError> {
        let Some(spare) = self.spares.pop_front() else { return Err(LogError::NoSpace) };
        let number = spare.number;
        self.discard.push(number);
        let salt = Salt(u64::from_le_bytes(self.rng.bytes()));
        let header = SegmentHeader { number, first_lsn, salt, unflushed: !self.settings.flush };
        let done = write_header(&spare, &header).await;
        if done.is_err() {
            self.remove(number).await;
        }
        self.discard.retain(|other| *other != number);
        done.map(|()| Active {
            number,
            file: spare.file,
            capacity: spare.capacity,
            salt,
            offset: BLOCK_BYTES,
            written: BLOCK_BYTES,
            unsynced: false,
        })
    }

    /// Removes a segment without a record that counts. A failure costs space only.
    async fn remove(&self, number: SegmentNumber) {
        match self.engine.remove(&number.path(&self.dir)).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, segment = number.0, "cannot remove an unused log segment");
            }
            _ => {}
        }
    }

    /// Gives back the unused space of the segment that an earlier process wrote last.
    async fn trim(&self, number: SegmentNumber, offset: u64) {
        let trimmed = async {
            let file = segment::open(&*self.engine, &self.dir, number, OpenMode::ReadWrite).await?;
            file.truncate(offset).await.map_err(LogError::io("trim a log segment"))
        };
        if let Err(error) = trimmed.await {
            tracing::warn!(%error, segment = number.0, "cannot trim a log segment");
        }
    }
}

impl Active {
    /// Writes records as one group of `bytes` bytes, and adds their places.
    async fn write(
        &mut self,
        records: &[EncodedRecord],
        bytes: u64,
        flush: bool,
        places: &mut Vec<BlobPlace>,
    ) -> Result<(), LogError> {
        assert!(self.offset + bytes <= self.capacity, "the plan overflows the segment");
        let len = (bytes + self.zero_ahead(bytes)) as usize;
        let mut group = AlignedBuf::with_capacity(len);
        group.set_len(len);
        let mut at = 0;
        for (index, record) in records.iter().enumerate() {
            record.write_to(&mut group[at..], self.salt, index == 0);
            let record_offset = self.offset + at as u64;
            places.push(BlobPlace::Segment { segment: self.number.0, record_offset });
            at += record.len();
        }
        let written = self.file.write_at(group.freeze(), self.offset).await;
        written.map_err(LogError::io("write to the log"))?;
        self.written = self.written.max(self.offset + len as u64);
        self.offset += bytes;
        self.unsynced = true;
        let flush = flush && !sabotage::is(Sabotage::SkipLogFlush);
        if flush { self.seal().await } else { Ok(()) }
    }

    /// How many zeros to write behind a group of `bytes`.
    fn zero_ahead(&self, bytes: u64) -> u64 {
        let end = self.offset + bytes;
        let useful = end > self.written && bytes <= ZERO_AHEAD_GROUP_BYTES_MAX;
        if useful { ZERO_AHEAD_BYTES.min(self.capacity - end) } else { 0 }
    }

    /// Makes everything written so far durable.
    async fn seal(&mut self) -> Result<(), LogError> {
        if self.unsynced {
            self.file.sync().await.map_err(LogError::io("flush the log"))?;
            self.unsynced = false;
        }
        Ok(())
    }
}

async fn write_header(spare: &Spare, header: &SegmentHeader) -> Result<(), LogError> {
    let written = spare.file.write_at(header.encode(), 0).await;
    written.map_err(LogError::io("write a log segment's header"))?;
    spare.file.sync().await.map_err(LogError::io("flush a log segment's header"))
}

fn encode(records: &[Record]) -> Result<Vec<EncodedRecord>, LogError> {
    let one = |r: &Record| EncodedRecord::new(r.lsn, &r.mutation, r.packed.as_ref());
    records.iter().map(one).collect::<Option<_>>().ok_or(LogError::TooLarge)
}

/// Cuts a group into the piece that fits into the `room` of the active segment (perhaps nothing)
/// and one piece for each further segment of `segment_bytes`, or more for a longer record.
fn plan(records: &[EncodedRecord], room: u64, segment_bytes: u64) -> Vec<Piece> {
    let mut pieces = vec![Piece { records: 0..0, bytes: 0 }];
    let (mut used, mut room) = (0u64, room);
    for (index, record) in records.iter().enumerate() {
        let len = record.len() as u64;
        if (used + len).next_multiple_of(BLOCK_BYTES) > room {
            (used, room) = (0, (segment_bytes - BLOCK_BYTES).max(len));
            pieces.push(Piece { records: index..index, bytes: 0 });
        }
        used += len;
        if let Some(piece) = pieces.last_mut() {
            piece.records.end = index + 1;
            piece.bytes = used.next_multiple_of(BLOCK_BYTES);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::testing::packed_put;

    /// `data`: packed bytes of each record; `wanted`: records of each piece.
    #[track_caller]
    fn check_plan(data: &[usize], room: u64, segment_bytes: u64, wanted: &[usize]) {
        let records: Vec<_> = (1..).zip(data).map(|(lsn, len)| packed_put(lsn, *len)).collect();
        let encoded = encode(&records).expect("within the limits");
        let pieces = plan(&encoded, room, segment_bytes);
        let counts: Vec<_> = pieces.iter().map(|p| p.records.len()).collect();
        assert_eq!(counts, wanted);
        assert!(pieces[0].bytes <= room);
        for piece in &pieces {
            assert!(piece.bytes.is_multiple_of(BLOCK_BYTES));
            let sum: usize = encoded[piece.records.clone()].iter().map(EncodedRecord::len).sum();
            assert!(sum as u64 <= piece.bytes);
        }
    }

    #[test]
    fn groups_are_cut_where_a_segment_ends() {
        check_plan(&[10, 10], 4096, 65_536, &[2]);
        check_plan(&[10, 10], 0, 65_536, &[0, 2]);
        check_plan(&[4096, 4096], 8192, 65_536, &[1, 1]);
        check_plan(&[30_000; 5], 65_536, 65_536, &[2, 2, 1]);
        check_plan(&[100_000, 10], 4096, 65_536, &[0, 1, 1]);
    }
}
