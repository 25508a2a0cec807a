//! Segment files: names, header block, and what a directory of them means.
//!
//! Owns the segment header and the rule by which a later segment overrides the tail of an earlier
//! one. Never looks inside a record.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crc_fast::crc32_iscsi as crc32c;

use super::record::{RecordHead, Salt, read_u32, read_u64};
use super::{Damage, LogError};
use crate::model::Lsn;
use crate::sys::aligned_buf::{AlignedBuf, SharedBuf};
use crate::sys::engine::{DirectFile, IoEngine, OpenMode};

/// Granule of every write to a segment, and length of its header, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

const MAGIC: [u8; 8] = *b"GOBLNLOG";
const VERSION: u32 = 1;
const FLAG_UNFLUSHED: u32 = 1;
const CRC_AT: usize = BLOCK_BYTES as usize - 4;
/// Digits of a segment's number in its file name: as many as a `u64` can have.
const NAME_DIGITS: usize = 20;

/// The number of a segment: rises with time, never used again, gaps are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u64);

impl fmt::Display for SegmentNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl SegmentNumber {
    /// The segment's file in the log's directory.
    pub fn path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{:0NAME_DIGITS$}.seg", self.0))
    }

    /// `None` for the name of anything but a segment.
    fn from_name(name: &str) -> Option<SegmentNumber> {
        let digits = name.strip_suffix(".seg")?;
        let ok = digits.len() == NAME_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
        ok.then(|| digits.parse().ok().map(SegmentNumber)).flatten()
    }
}

/// The first block of a segment. It is durable before the first record of the segment is written.
///
/// ```text
///  0  8 magic "GOBLNLOG"    16  8 number       32    8 salt
///  8  4 version = 1         24  8 first lsn    40 4052 zero
/// 12  4 flags                                4092    4 CRC32C of bytes 0..4092
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub number: SegmentNumber,
    /// The position of the segment's first record, written or not. It revokes every record of an
    /// earlier segment from this position on: those belong to a group that failed.
    pub first_lsn: Lsn,
    pub salt: Salt,
    /// True when groups were acknowledged before they were flushed.
    pub unflushed: bool,
}

impl SegmentHeader {
    pub fn encode(&self) -> SharedBuf {
        let mut block = AlignedBuf::with_capacity(BLOCK_BYTES as usize);
        block.extend_from_slice(&MAGIC);
        block.extend_from_slice(&VERSION.to_le_bytes());
        block.extend_from_slice(&(u32::from(self.unflushed) * FLAG_UNFLUSHED).to_le_bytes());
        for word in [self.number.0, self.first_lsn.0, self.salt.0] {
            block.extend_from_slice(&word.to_le_bytes());
        }
        block.set_len(BLOCK_BYTES as usize);
        let crc = crc32c(&block[..CRC_AT]);
        block[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        block.freeze()
    }

    /// `Ok(None)` when `start`, the first bytes of the file, holds no valid header and no record
    /// either: the segment was never finished and nothing in it was acknowledged.
    fn decode(number: SegmentNumber, start: &[u8]) -> Result<Option<SegmentHeader>, Damage> {
        let (block, behind) = start.split_at(start.len().min(BLOCK_BYTES as usize));
        let valid = block.len() == BLOCK_BYTES as usize
            && block.starts_with(&MAGIC)
            && crc32c(&block[..CRC_AT]) == read_u32(block, CRC_AT);
        if !valid {
            let untouched = behind.iter().all(|b| *b == 0);
            return if untouched { Ok(None) } else { SegmentHeader::from_first(number, behind) };
        }
        let (version, flags) = (read_u32(block, 8), read_u32(block, 12));
        if version != VERSION || flags & !FLAG_UNFLUSHED != 0 {
            return Err(Damage::SegmentVersion(version));
        }
        let header = SegmentHeader {
            number: SegmentNumber(read_u64(block, 16)),
            first_lsn: Lsn(read_u64(block, 24)),
            salt: Salt(read_u64(block, 32)),
            unflushed: flags & FLAG_UNFLUSHED != 0,
        };
        if header.number != number {
            return Err(Damage::SegmentNumber);
        }
        Ok(Some(header))
    }
}

impl SegmentHeader {
    /// The header as the first record tells it, when its own block is damaged. The record was
    /// written only after the header was durable, so that this is no torn header.
    fn from_first(number: SegmentNumber, behind: &[u8]) -> Result<Option<SegmentHeader>, Damage> {
        let first = RecordHead::decode(behind).ok().filter(|head| head.group_start);
        let first = first.ok_or(Damage::SegmentHeader)?;
        tracing::error!(
            segment = number.0,
            "the segment's header is damaged; its first record tells it"
        );
        let (first_lsn, salt) = (first.lsn, first.salt);
        Ok(Some(SegmentHeader { number, first_lsn, salt, unflushed: false }))
    }
}

/// Numbers of the segments in `dir`, rising. A directory that is not there has none.
pub async fn list(engine: &dyn IoEngine, dir: &Path) -> Result<Vec<SegmentNumber>, LogError> {
    let names = match engine.list_dir(dir).await {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names.map_err(LogError::io("list the log's directory"))?,
    };
    let mut numbers: Vec<_> = names.iter().filter_map(|n| SegmentNumber::from_name(n)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Names in `dir` that are not those of segments.
pub async fn strangers(engine: &dyn IoEngine, dir: &Path) -> Result<Vec<String>, LogError> {
    let names = engine.list_dir(dir).await.map_err(LogError::io("list the log's directory"))?;
    Ok(names.into_iter().filter(|n| SegmentNumber::from_name(n).is_none()).collect())
}

/// Opens a segment. **Errors** `Gone` when there is no such file.
pub async fn open(
    engine: &dyn IoEngine,
    dir: &Path,
    number: SegmentNumber,
    mode: OpenMode,
) -> Result<Rc<dyn DirectFile>, LogError> {
    match engine.open(&number.path(dir), mode).await {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(LogError::Gone),
        file => file.map_err(LogError::io("open a log segment")),
    }
}

/// Reads the header of a segment; `None` as for `SegmentHeader::decode`.
async fn read_header(
    engine: &dyn IoEngine,
    dir: &Path,
    number: SegmentNumber,
) -> Result<Option<SegmentHeader>, LogError> {
    let file = open(engine, dir, number, OpenMode::Read).await?;
    let start = AlignedBuf::recycled(2 * BLOCK_BYTES as usize);
    let (read, start) = file.read_at(start, 0).await;
    read.map_err(LogError::io("read a log segment's header"))?;
    SegmentHeader::decode(number, &start).map_err(|damage| LogError::Corrupt {
        segment: number,
        offset: 0,
        damage,
    })
}

/// A segment whose records count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effective {
    pub header: SegmentHeader,
    /// Records from this position on are revoked; `None` for the last segment.
    pub until: Option<Lsn>,
}

/// What the files of a log are.
#[derive(Debug, Default)]
pub struct Inventory {
    /// In order; each ends where the next begins.
    pub effective: Vec<Effective>,
    /// Segments without a record that counts: never finished, or revoked as a whole.
    pub leftover: Vec<SegmentNumber>,
    pub newest: Option<SegmentNumber>,
}

/// Reads all headers and sorts the segments out.
///
/// **Errors** `Corrupt` for a header that is damaged in front of records.
pub async fn inventory(engine: &dyn IoEngine, dir: &Path) -> Result<Inventory, LogError> {
    let mut headers = Vec::new();
    let mut unfinished = Vec::new();
    let numbers = list(engine, dir).await?;
    for number in &numbers {
        match read_header(engine, dir, *number).await? {
            Some(header) => headers.push(header),
            None => unfinished.push(*number),
        }
    }
    let (effective, mut leftover) = sort_out(headers);
    leftover.append(&mut unfinished);
    Ok(Inventory { effective, leftover, newest: numbers.last().copied() })
}

/// Applies the rule of `SegmentHeader::first_lsn` to headers in the order of their numbers.
fn sort_out(headers: Vec<SegmentHeader>) -> (Vec<Effective>, Vec<SegmentNumber>) {
    let mut effective = Vec::new();
    let mut leftover = Vec::new();
    let mut until: Option<Lsn> = None;
    for header in headers.into_iter().rev() {
        if until.is_some_and(|until| header.first_lsn >= until) {
            leftover.push(header.number);
            continue;
        }
        effective.push(Effective { header, until });
        until = Some(header.first_lsn);
    }
    effective.reverse();
    (effective, leftover)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(number: u64, first_lsn: u64) -> SegmentHeader {
        SegmentHeader {
            number: SegmentNumber(number),
            first_lsn: Lsn(first_lsn),
            salt: Salt(0xABCD),
            unflushed: number.is_multiple_of(2),
        }
    }

    /// `segments`: (number, first lsn); `wanted`: (number, until) of those that count.
    #[track_caller]
    fn check_rule(segments: &[(u64, u64)], wanted: &[(u64, Option<u64>)]) {
        let headers = segments.iter().map(|(n, lsn)| header(*n, *lsn)).collect();
        let (effective, leftover) = sort_out(headers);
        let got: Vec<_> =
            effective.iter().map(|e| (e.header.number.0, e.until.map(|l| l.0))).collect();
        assert_eq!(got, wanted);
        assert_eq!(effective.len() + leftover.len(), segments.len());
    }

    #[test]
    fn a_later_segment_revokes_from_its_first_position() {
        check_rule(&[], &[]);
        check_rule(&[(1, 1)], &[(1, None)]);
        check_rule(&[(1, 1), (2, 10), (5, 20)], &[(1, Some(10)), (2, Some(20)), (5, None)]);
        // Opened and never used, then opened again.
        check_rule(&[(1, 1), (2, 10), (3, 10)], &[(1, Some(10)), (3, None)]);
        // A group that spanned 1 and 2 failed and began before 2's first position.
        check_rule(&[(1, 1), (2, 10), (3, 7)], &[(1, Some(7)), (3, None)]);
        // Nothing in 1 was ever acknowledged.
        check_rule(&[(1, 1), (2, 1)], &[(2, None)]);
    }

    #[test]
    fn a_header_comes_back_and_every_flipped_bit_is_noticed() {
        for wanted in [header(7, 8), header(8, u64::MAX)] {
            let block = wanted.encode();
            assert_eq!(block.len() as u64, BLOCK_BYTES);
            assert_eq!(SegmentHeader::decode(wanted.number, &block), Ok(Some(wanted)));
            for bit in 0..block.len() * 8 {
                let mut bad = block.to_vec();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(SegmentHeader::decode(wanted.number, &bad), Ok(None), "bit {bit}");
                bad.push(1);
                let damaged = SegmentHeader::decode(wanted.number, &bad);
                assert_eq!(damaged, Err(Damage::SegmentHeader), "bit {bit}");
            }
        }
    }

    #[test]
    fn foreign_and_short_headers() {
        let block = header(7, 8).encode();
        let renamed = SegmentHeader::decode(SegmentNumber(9), &block);
        assert_eq!(renamed, Err(Damage::SegmentNumber));
        for len in [0, 1, 4095] {
            assert_eq!(SegmentHeader::decode(SegmentNumber(7), &block[..len]), Ok(None));
        }
        let mut newer = block.to_vec();
        newer[8] = 2;
        let crc = crc32c(&newer[..CRC_AT]);
        newer[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        let newer = SegmentHeader::decode(SegmentNumber(7), &newer);
        assert_eq!(newer, Err(Damage::SegmentVersion(2)));
    }

    #[test]
    fn names_are_twenty_digits() {
        let number = SegmentNumber(42);
        assert_eq!(number.path(Path::new("log")).to_str(), Some("log/00000000000000000042.seg"));
        assert_eq!(SegmentNumber::from_name("00000000000000000042.seg"), Some(number));
        for other in ["42.seg", "0000000000000000004x.seg", "99999999999999999999.seg", "x", ".seg"]
        {
            assert_eq!(SegmentNumber::from_name(other), None, "{other}");
        }
    }
}
