//! Reads the log from a position to its end.
//!
//! Owns the judgement of what is missing: the tail that a crash tore off (legal, nothing in it was
//! acknowledged) or damage. Damage is never passed over in silence; it is an error only where a
//! change that the reader lacks cannot be told any more. Never writes, never deletes.
//!
//! Before the first record is handed out the last segment is flushed: its tail may have reached
//! the disk's cache only, and what replay shows must not vanish again.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::scan::{Found, SegmentScan, Step};
use super::segment::{self, BLOCK_BYTES, Effective, SegmentNumber};
use super::{Damage, LogError, RecordError};
use crate::model::commit::Mutation;
use crate::model::{BlobId, BlobPlace, Lsn};
use crate::sys::engine::IoEngine;

/// One change of the log.
#[derive(Debug)]
pub struct ReplayRecord<'a> {
    pub lsn: Lsn,
    /// Places of packed blobs inside are not filled in: `place` is that of `packed`.
    pub mutation: Mutation,
    pub place: BlobPlace,
    /// The blob that the record carries, verified unless `data_damaged`.
    pub packed: Option<(BlobId, &'a [u8])>,
    /// The change is whole, the bytes of the blob are not: readers of the blob will find out.
    pub data_damaged: bool,
}

/// Bytes behind the last valid record, left by a crash. Nothing of them was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    pub segment: SegmentNumber,
    pub offset: u64,
    pub reason: RecordError,
}

/// Where the log ends. Only a replay makes one, and a `LogWriter` cannot be opened without.
#[derive(Debug)]
pub struct ReplayEnd {
    /// The last change: of the log, or the one that replay was to start after if that is later.
    pub last: Lsn,
    /// The last change that the log itself has. Below `last` when the catalog is ahead of the
    /// log, which happens only when the log is not flushed (`--durability writeback`) or was lost.
    pub last_in_log: Option<Lsn>,
    pub torn: Option<TornTail>,
    pub(super) tail: Option<(SegmentNumber, u64)>,
    pub(super) leftover: Vec<SegmentNumber>,
    pub(super) newest: Option<SegmentNumber>,
}

/// A running replay.
pub struct Replay {
    engine: Rc<dyn IoEngine>,
    dir: PathBuf,
    /// Still to be read, last first.
    pending: Vec<Effective>,
    current: Option<(SegmentScan, Option<Lsn>)>,
    after: Lsn,
    end: ReplayEnd,
}

impl Replay {
    /// Prepares to read the changes after `after`; a log that does not exist has none.
    ///
    /// **Errors** `Corrupt` when a change after `after` can no longer be there, or a segment's
    /// header is damaged.
    pub async fn open(
        engine: Rc<dyn IoEngine>,
        dir: &Path,
        after: Lsn,
    ) -> Result<Replay, LogError> {
        let inventory = segment::inventory(&*engine, dir).await?;
        let wanted = |e: &Effective| e.until.is_none_or(|until| until.0 > after.0 + 1);
        let mut pending: Vec<_> = inventory.effective.into_iter().filter(wanted).collect();
        if let Some(oldest) = pending.first().filter(|e| e.header.first_lsn.0 > after.0 + 1) {
            return Err(LogError::Corrupt {
                segment: oldest.header.number,
                offset: 0,
                damage: Damage::Missing { first: after.0 + 1 },
            });
        }
        if let Some(last) = pending.last() {
            SegmentScan::open(&*engine, dir, last.header).await?.sync().await?;
        }
        pending.reverse();
        let end = ReplayEnd {
            last: after,
            last_in_log: None,
            torn: None,
            tail: None,
            leftover: inventory.leftover,
            newest: inventory.newest,
        };
        Ok(Replay { engine, dir: dir.to_path_buf(), pending, current: None, after, end })
    }

    /// The next change, in order and without a gap; `None` at the end.
    ///
    /// **Errors** `Corrupt` when a change that was acknowledged is damaged or missing, `Io` when
    /// the disk fails. Do not go on after an error.
    pub async fn next(&mut self) -> Result<Option<ReplayRecord<'_>>, LogError> {
        let Some(found) = self.advance().await? else { return Ok(None) };
        let Some((scan, _)) = &self.current else { return Ok(None) };
        let place =
            BlobPlace::Segment { segment: scan.header().number.0, record_offset: found.offset };
        let packed = found.packed.map(|id| (id, scan.data(&found)));
        let Found { lsn, mutation, data_damaged, .. } = found;
        Ok(Some(ReplayRecord { lsn, mutation, place, packed, data_damaged }))
    }

    /// Reads on to the end, if `next` has not reached it, and tells where it is.
    ///
    /// **Errors** as for `next`.
    pub async fn finish(mut self) -> Result<ReplayEnd, LogError> {
        while self.advance().await?.is_some() {}
        Ok(self.end)
    }

    async fn advance(&mut self) -> Result<Option<Found>, LogError> {
        loop {
            if self.current.is_none() {
                let Some(next) = self.pending.pop() else { return Ok(None) };
                let scan = SegmentScan::open(&*self.engine, &self.dir, next.header).await?;
                self.current = Some((scan, next.until));
            }
            let Some((scan, until)) = &mut self.current else { return Ok(None) };
            if *until == Some(scan.expected()) {
                self.current = None;
                continue;
            }
            let step = scan.next().await?;
            let step = match step {
                Err(reason) if reason != RecordError::Blank => self.look_past(reason).await?,
                step => step,
            };
            match step {
                Ok(found) => {
                    self.end.last_in_log = Some(found.lsn);
                    if found.lsn > self.after {
                        self.end.last = found.lsn;
                        return Ok(Some(found));
                    }
                }
                Err(reason) => self.end_of_segment(reason).await?,
            }
        }
    }

    /// Decides whether an invalid record had been acknowledged, and if so finds what can be told
    /// of it, or the next group if the record is not needed.
    async fn look_past(&mut self, reason: RecordError) -> Result<Step, LogError> {
        let Some((scan, until)) = &mut self.current else { return Ok(Err(reason)) };
        let mut acknowledged = until.is_some() || scan.expected() <= self.after;
        if !acknowledged && !scan.header().unflushed {
            acknowledged = scan.later_group().await?.is_some();
        }
        if !acknowledged {
            return Ok(Err(reason));
        }
        let error = scan.corrupt(scan.end_offset(), reason);
        let step = match scan.next_despite_data().await? {
            Ok(found) => Ok(found),
            Err(_) if scan.skip_damage(self.after).await? => scan.next().await?,
            Err(_) => return Ok(Err(reason)),
        };
        tracing::error!(%error, "damage in the log is passed by: what it tells is known");
        Ok(step)
    }

    /// Judges the end of a segment that does not reach up to the next one, or is the last.
    async fn end_of_segment(&mut self, reason: RecordError) -> Result<(), LogError> {
        let Some((mut scan, until)) = self.current.take() else { return Ok(()) };
        // Without a flush between groups a later one may reach the disk before an earlier one.
        let is_missing =
            until.is_some() || (!scan.header().unflushed && scan.later_group().await?.is_some());
        if is_missing {
            return Err(missing(&scan, reason));
        }
        let (segment, offset) = (scan.header().number, scan.end_offset());
        if scan.expected() <= self.after {
            // The catalog has more than the log shows: what stands behind may be alive, and is
            // kept as it is.
            let expected = scan.expected().0;
            tracing::error!(segment = segment.0, offset, expected, %reason,
                "the log ends before the catalog's last commit: its end is damaged or lost");
            return Ok(());
        }
        if reason != RecordError::Blank {
            self.end.torn = Some(TornTail { segment, offset, reason });
        }
        if offset == BLOCK_BYTES {
            self.end.leftover.push(segment);
        } else {
            self.end.tail = Some((segment, offset));
        }
        Ok(())
    }
}

fn missing(scan: &SegmentScan, reason: RecordError) -> LogError {
    let damage = match reason {
        RecordError::Blank => Damage::Missing { first: scan.expected().0 },
        other => Damage::Record(other),
    };
    scan.corrupt(scan.end_offset(), damage)
}
