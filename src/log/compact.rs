//! What compaction needs to know about segments, and the removal of one.
//!
//! Owns the choice of segments to empty (pure), the walk over the packed blobs of a segment that
//! is no longer written, and the order of steps that removes its file. It never decides that a
//! segment may go: that takes the catalog, which knows what is alive and what it has made durable.

use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;

use super::scan::SegmentScan;
use super::segment::{self, Effective, SegmentHeader, SegmentNumber};
use super::{LogError, RecordError, Replay};
use crate::model::commit::PackedBytes;
use crate::model::{BlobPlace, Lsn};
use crate::sys::engine::{IoEngine, OpenMode};

/// A segment that is not written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedSegment {
    pub number: SegmentNumber,
    /// Length of its file.
    pub bytes: u64,
    /// No record in it that counts has a later position.
    pub last_lsn: Lsn,
    header: SegmentHeader,
}

/// A sealed segment with what the catalog says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub segment: SealedSegment,
    /// Bytes of packed blobs in it that something refers to.
    pub live_bytes: u64,
}

/// The part of a segment that a copy of the log takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub number: SegmentNumber,
    pub path: PathBuf,
    /// From the file's beginning.
    pub bytes: u64,
}

/// The files of a log, for the compaction that runs beside the log's writer.
#[derive(Clone)]
pub struct LogFiles {
    engine: Rc<dyn IoEngine>,
    dir: PathBuf,
}

impl LogFiles {
    /// `dir` is the log's directory.
    pub fn new(engine: Rc<dyn IoEngine>, dir: PathBuf) -> LogFiles {
        LogFiles { engine, dir }
    }

    /// The segments that are not written any more, in order.
    ///
    /// **Errors** `Corrupt` for a damaged header, `Io`.
    pub async fn sealed(&self) -> Result<Vec<SealedSegment>, LogError> {
        let inventory = segment::inventory(&*self.engine, &self.dir).await?;
        let mut sealed = Vec::new();
        for Effective { header, until } in inventory.effective {
            let Some(until) = until else { continue };
            let number = header.number;
            let file = segment::open(&*self.engine, &self.dir, number, OpenMode::Read).await?;
            let bytes = file.len().await.map_err(LogError::io("size a log segment"))?;
            sealed.push(SealedSegment { number, bytes, last_lsn: Lsn(until.0 - 1), header });
        }
        Ok(sealed)
    }

    /// Names in the log's directory that are not those of segments.
    ///
    /// **Errors** `Io`.
    pub async fn strangers(&self) -> Result<Vec<String>, LogError> {
        segment::strangers(&*self.engine, &self.dir).await
    }

    /// Reads every record behind `after` to the end of the log: how many there are, and the
    /// positions of those whose packed data is damaged.
    ///
    /// **Errors** as for `Replay`.
    pub async fn read_records(&self, after: Lsn) -> Result<(u64, Vec<Lsn>), LogError> {
        let mut replay = Replay::open(Rc::clone(&self.engine), &self.dir, after).await?;
        let (mut records, mut damaged) = (0, Vec::new());
        while let Some(record) = replay.next().await? {
            records += 1;
            damaged.extend(record.data_damaged.then_some(record.lsn));
        }
        Ok((records, damaged))
    }

    /// Every segment that counts, and how far its records up to `last` reach. `last` ends a group.
    ///
    /// **Errors** `Corrupt`, `Io`.
    pub async fn spans(&self, last: Lsn) -> Result<Vec<Span>, LogError> {
        let inventory = segment::inventory(&*self.engine, &self.dir).await?;
        let mut spans = Vec::new();
        for Effective { header, until } in inventory.effective {
            let number = header.number;
            let path = number.path(&self.dir);
            let file = segment::open(&*self.engine, &self.dir, number, OpenMode::Read).await?;
            let whole = file.len().await.map_err(LogError::io("size a log segment"))?;
            let bytes = match until {
                Some(until) if until.0 <= last.0 + 1 => whole,
                _ => self.end_of(header, last).await?,
            };
            spans.push(Span { number, path, bytes });
        }
        Ok(spans)
    }

    async fn end_of(&self, header: SegmentHeader, last: Lsn) -> Result<u64, LogError> {
        let mut scan = SegmentScan::open(&*self.engine, &self.dir, header).await?;
        while scan.expected() <= last {
            if let Err(error) = scan.next().await? {
                return Err(scan.corrupt(scan.end_offset(), error));
            }
        }
        Ok(scan.end_offset())
    }

    /// Starts to walk over the packed blobs of a segment.
    ///
    /// **Errors** `Gone`, `Io`.
    pub async fn packed(&self, segment: &SealedSegment) -> Result<PackedScan, LogError> {
        let scan = SegmentScan::open(&*self.engine, &self.dir, segment.header).await?;
        Ok(PackedScan { scan, last_lsn: segment.last_lsn })
    }

    /// Removes a segment's file. It is cut first, so that readers which still hold it open hold no
    /// space; they find their place gone. Removing it again is fine.
    ///
    /// **Errors** `Io`.
    pub async fn remove(&self, number: SegmentNumber) -> Result<(), LogError> {
        match segment::open(&*self.engine, &self.dir, number, OpenMode::ReadWrite).await {
            Ok(file) => file.truncate(0).await.map_err(LogError::io("cut a log segment"))?,
            Err(LogError::Gone) => return Ok(()),
            Err(e) => return Err(e),
        }
        let removed = self.engine.remove(&number.path(&self.dir)).await;
        removed.map_err(LogError::io("remove a log segment"))?;
        self.engine.sync_dir(&self.dir).await.map_err(LogError::io("flush the log's directory"))
    }
}

/// A walk over the packed blobs of one segment, dead ones included.
pub struct PackedScan {
    scan: SegmentScan,
    last_lsn: Lsn,
}

impl PackedScan {
    /// The next packed blob with its place; `None` at the end of the segment.
    ///
    /// **Errors** `Corrupt` where a record is damaged: what stands behind it cannot be reached.
    pub async fn next(&mut self) -> Result<Option<(PackedBytes, BlobPlace)>, LogError> {
        while self.scan.expected() <= self.last_lsn {
            let found = match self.scan.next().await? {
                Ok(found) => found,
                // A failed group was to stand here; the segment that revoked it is removed.
                Err(RecordError::Blank) => return Ok(None),
                Err(e) => return Err(self.scan.corrupt(self.scan.end_offset(), e)),
            };
            let Some(id) = found.packed else { continue };
            let bytes = Bytes::copy_from_slice(self.scan.data(&found));
            let segment = self.scan.header().number.0;
            let place = BlobPlace::Segment { segment, record_offset: found.offset };
            return Ok(Some((PackedBytes { id, bytes }, place)));
        }
        Ok(None)
    }
}

/// Chooses the segments to empty: those of which at most `live_percent_max` is alive, the emptiest
/// first, as long as no more than `move_bytes_max` are to be moved; but always the emptiest one.
pub fn choose(
    candidates: &[Candidate],
    live_percent_max: u64,
    move_bytes_max: u64,
) -> Vec<SealedSegment> {
    let live_of_1024 = |c: &Candidate| c.live_bytes.saturating_mul(1024) / c.segment.bytes.max(1);
    let mut order: Vec<_> =
        candidates.iter().filter(|c| live_of_1024(c) * 100 <= live_percent_max * 1024).collect();
    order.sort_by_key(|c| (live_of_1024(c), c.segment.number));
    let mut moved = 0u64;
    let fits = |(index, c): &(usize, &Candidate)| {
        moved = moved.saturating_add(c.live_bytes);
        *index == 0 || moved <= move_bytes_max
    };
    order.into_iter().enumerate().take_while(fits).map(|(_, c)| c.segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::record::Salt;
    use crate::log::suite::{SETTINGS, opened, replayed};
    use crate::log::testing::{packed_put, small};
    use crate::log::{Replay, SegmentReader};
    use crate::model::BlobRef;
    use crate::sys::fault::{Fault, FaultDisk, FaultEngine, FaultError, Op, Survivors};

    fn candidate(number: u64, bytes: u64, live_bytes: u64) -> Candidate {
        let number = SegmentNumber(number);
        let header = SegmentHeader { number, first_lsn: Lsn(1), salt: Salt(0), unflushed: false };
        let segment = SealedSegment { number, bytes, last_lsn: Lsn(1), header };
        Candidate { segment, live_bytes }
    }

    /// `segments`: (bytes, live bytes), numbered from 0.
    #[track_caller]
    fn check_choice(segments: &[(u64, u64)], move_bytes_max: u64, wanted: &[u64]) {
        let candidates: Vec<_> =
            (0..).zip(segments).map(|(n, (bytes, live))| candidate(n, *bytes, *live)).collect();
        let chosen = choose(&candidates, 50, move_bytes_max);
        let numbers: Vec<_> = chosen.iter().map(|s| s.number.0).collect();
        assert_eq!(numbers, wanted);
    }

    #[test]
    fn the_emptiest_segments_are_chosen() {
        check_choice(&[], 100, &[]);
        check_choice(&[(100, 51), (100, 100)], 1000, &[]);
        check_choice(&[(100, 50), (100, 0), (100, 20), (100, 0)], 1000, &[1, 3, 2, 0]);
        check_choice(&[(100, 50), (100, 0), (100, 20)], 60, &[1, 2]);
        check_choice(&[(100, 50), (100, 50)], 10, &[0]);
        check_choice(&[(0, 0), (u64::MAX, u64::MAX)], 10, &[0]);
    }

    fn run<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    async fn walk(files: &LogFiles, segment: &SealedSegment) -> Vec<(PackedBytes, BlobPlace)> {
        let mut scan = files.packed(segment).await.expect("opened");
        let mut found = Vec::new();
        while let Some(packed) = scan.next().await.expect("sound") {
            found.push(packed);
        }
        found
    }

    #[test]
    fn sealed_segments_are_walked_and_removed() {
        let disk = FaultDisk::new(1);
        run(async {
            let engine: Rc<dyn IoEngine> = Rc::new(FaultEngine::new(&disk));
            let dir = PathBuf::from("data/log");
            let mut writer = opened(&engine, &dir, SETTINGS).await;
            let mut wanted = Vec::new();
            for lsn in (1..=30).step_by(2) {
                let group = [packed_put(lsn, 20_000), small(lsn + 1)];
                let places = writer.append(&group).await.expect("appended");
                wanted.extend(group[0].packed.clone().map(|packed| (packed, places[0])));
            }
            let files = LogFiles::new(Rc::clone(&engine), dir.clone());
            let sealed = files.sealed().await.expect("sound");
            assert_eq!(sealed.len(), 4);
            let mut found = Vec::new();
            for segment in &sealed {
                found.extend(walk(&files, segment).await);
            }
            assert_eq!(found, wanted[..found.len()]);
            assert_eq!(found.len(), 12);

            let reader = SegmentReader::new(Rc::clone(&engine), dir.clone());
            let (packed, place) = &found[0];
            let blob = BlobRef { id: packed.id, place: *place, len: packed.bytes.len() as u64 };
            reader.read_packed(&blob).await.expect("readable");
            files.remove(sealed[0].number).await.expect("removed");
            files.remove(sealed[0].number).await.expect("removing again is fine");
            assert!(matches!(reader.read_packed(&blob).await, Err(LogError::Gone)));
            let after = sealed[0].last_lsn.0;
            let (left, _) = replayed(&engine, &dir, after).await.expect("sound behind it");
            assert_eq!(left.len() as u64, 30 - after);
            assert!(Replay::open(Rc::clone(&engine), &dir, Lsn(after - 1)).await.is_err());
        });
    }

    /// A power cut between the cut and the unlink leaves a file that the next start clears away.
    #[test]
    fn a_removal_that_is_cut_short_does_no_harm() {
        for mutations in 0..3 {
            let disk = FaultDisk::new(mutations);
            let dir = PathBuf::from("data/log");
            let after = run(async {
                let engine: Rc<dyn IoEngine> = Rc::new(FaultEngine::new(&disk));
                let mut writer = opened(&engine, &dir, SETTINGS).await;
                for lsn in 1..=10 {
                    writer.append(&[packed_put(lsn, 20_000)]).await.expect("appended");
                }
                let files = LogFiles::new(Rc::clone(&engine), dir.clone());
                let sealed = files.sealed().await.expect("sound");
                disk.cut_power_after(mutations);
                let removed = files.remove(sealed[0].number).await;
                assert!(removed.is_err());
                sealed[0].last_lsn.0
            });
            disk.crash(Survivors::Random);
            run(async {
                let engine: Rc<dyn IoEngine> = Rc::new(FaultEngine::new(&disk));
                let (left, end) = replayed(&engine, &dir, after).await.expect("sound");
                assert_eq!((left.len() as u64, end.last), (10 - after, Lsn(10)));
            });
        }
    }

    /// The remains of a failed group do not keep a segment from being walked to its end, also when
    /// the segment that revoked them was removed earlier.
    #[test]
    fn a_segment_with_a_failed_group_is_walked() {
        let disk = FaultDisk::new(3);
        run(async {
            let engine: Rc<dyn IoEngine> = Rc::new(FaultEngine::new(&disk));
            let dir = PathBuf::from("data/log");
            let mut writer = opened(&engine, &dir, SETTINGS).await;
            writer.append(&[packed_put(1, 100)]).await.expect("appended");
            disk.inject(Fault::next(Op::Write, FaultError::NoSpace));
            writer.append(&[packed_put(2, 100)]).await.expect_err("no space");
            for lsn in 2..=9 {
                writer.append(&[packed_put(lsn, 30_000)]).await.expect("appended");
            }
            let files = LogFiles::new(Rc::clone(&engine), dir.clone());
            let sealed = files.sealed().await.expect("sound");
            assert_eq!((sealed[0].last_lsn, walk(&files, &sealed[0]).await.len()), (Lsn(1), 1));
            files.remove(sealed[1].number).await.expect("removed");
            let sealed = files.sealed().await.expect("sound");
            assert_eq!((sealed[0].last_lsn, walk(&files, &sealed[0]).await.len()), (Lsn(2), 1));
        });
    }
}
