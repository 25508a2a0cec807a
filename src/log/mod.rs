//! The commit log: every committed change in order, with the bytes of small objects.
//!
//! Owns the files under `log/`. What it acknowledged survives power loss, byte for byte; what it
//! refused never comes back once a later change was acknowledged. It never decides a change and
//! never knows which packed blob is still referenced: the catalog does. Writers and readers stay
//! on the thread that made them; their futures run inside that thread's I/O engine.
//!
//! `Replay` reads the log from a position to its end, and only its end opens a `LogWriter`;
//! `SegmentReader` serves the packed bytes. docs/on-disk-format.md draws the bytes.

mod compact;
mod reader;
mod record;
mod replay;
mod scan;
mod segment;
mod writer;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod suite;
#[cfg(test)]
mod testing;

use std::io;

pub use compact::{Candidate, LogFiles, PackedScan, SealedSegment, Span, choose};
pub use reader::SegmentReader;
pub use record::{DATA_BYTES_MAX, Record, RecordError};
pub use replay::{Replay, ReplayEnd, ReplayRecord, TornTail};
pub use segment::SegmentNumber;
pub use writer::{LogSettings, LogWriter};

/// A failed operation on the log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The segment, or the record in it, is no longer where the place says: ask the catalog again.
    #[error("the packed blob is no longer at this place")]
    Gone,
    /// Bytes that were acknowledged are damaged or missing. Not retryable.
    #[error("log segment {segment} is damaged at byte {offset}: {damage}")]
    Corrupt { segment: SegmentNumber, offset: u64, damage: Damage },
    /// Nothing was written; works again once there is space.
    #[error("no space left for the log")]
    NoSpace,
    /// The record can never be written.
    #[error("the record is longer than the log format allows")]
    TooLarge,
    #[error("cannot {action}: {source}")]
    Io { action: &'static str, source: io::Error },
}

/// What is wrong with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("the segment's header is damaged, but records follow it")]
    SegmentHeader,
    #[error("the segment's format {0} is newer than this program")]
    SegmentVersion(u32),
    #[error("the header carries another segment's number")]
    SegmentNumber,
    #[error("acknowledged changes are missing from {first} on")]
    Missing { first: u64 },
    #[error("the record carries another length than the catalog says")]
    Length,
}

impl LogError {
    /// Names what failed, verb first; a full disk gets its own variant.
    fn io(action: &'static str) -> impl FnOnce(io::Error) -> LogError {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => LogError::NoSpace,
            _ => LogError::Io { action, source },
        }
    }
}
