//! The contents of one simulated file: what reads see, what a power cut leaves, and the changes
//! between the two.

use std::collections::BTreeMap;

use super::Survivors;
use super::random::Random;
use crate::sys::aligned_buf::SharedBuf;

const PAGE: usize = 4096;
/// The unit in which a disk writes: a power cut tears between sectors, never inside one.
const SECTOR: usize = 512;

/// Sparse bytes; what was never written is zero.
#[derive(Clone, Default)]
pub(super) struct Image {
    len: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

impl Image {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `out` from `offset` as far as the file goes; returns how many bytes that were.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let available = self.len.saturating_sub(offset).min(out.len() as u64) as usize;
        let out = &mut out[..available];
        for_each_page(offset, available, |page, within, part| match self.pages.get(&page) {
            Some(bytes) => out[part.clone()].copy_from_slice(&bytes[within..within + part.len()]),
            None => out[part].fill(0),
        });
        available
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for_each_page(offset, bytes.len(), |page, within, part| {
            let target = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE]));
            target[within..within + part.len()].copy_from_slice(&bytes[part]);
        });
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    pub(super) fn extend(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    pub(super) fn truncate(&mut self, len: u64) {
        let (last, within) = (len / PAGE as u64, (len % PAGE as u64) as usize);
        let beyond = self.pages.split_off(&last);
        if within > 0
            && let Some(mut page) = beyond.into_iter().find(|(n, _)| *n == last).map(|(_, p)| p)
        {
            page[within..].fill(0);
            self.pages.insert(last, page);
        }
        self.len = len;
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => self.write(*offset, bytes),
            Change::Extend(len) => self.extend(*len),
            Change::Truncate(len) => self.truncate(*len),
        }
    }
}

/// Calls `each(page number, offset within it, range of the request)` for the pages of a request.
fn for_each_page(
    offset: u64,
    len: usize,
    mut each: impl FnMut(u64, usize, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let part = (PAGE - within).min(len - done);
        each(at / PAGE as u64, within, done..done + part);
        done += part;
    }
}

/// A change that no flush has made durable yet.
pub(super) enum Change {
    Write { offset: u64, bytes: SharedBuf },
    Extend(u64),
    Truncate(u64),
}

/// A file: `volatile` is `durable` with all of `pending` applied, unless a flush failed.
#[derive(Default)]
pub(super) struct Inode {
    pub(super) volatile: Image,
    durable: Image,
    pending: Vec<Change>,
}

impl Inode {
    pub(super) fn change(&mut self, change: Change) {
        self.volatile.apply(&change);
        self.pending.push(change);
    }

    /// A write that failed midway: some of its sectors are there.
    pub(super) fn tear(&mut self, offset: u64, bytes: &SharedBuf, random: &mut Random) {
        for (start, part) in surviving(bytes, random) {
            self.volatile.write(offset + start as u64, part);
            let mut copy = crate::sys::aligned_buf::AlignedBuf::with_capacity(part.len());
            copy.extend_from_slice(part);
            self.pending
                .push(Change::Write { offset: offset + start as u64, bytes: copy.freeze() });
        }
    }

    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            self.durable.apply(&change);
        }
    }

    /// A flush that failed: part of the changes are durable, and no later flush brings the others,
    /// although reads still see them. Linux forgets pages that it could not write.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending);
        settle(&mut self.durable, &pending, Survivors::Random, random);
    }

    /// The power goes: of the changes that were not flushed, `survivors` are there.
    pub(super) fn crash(&mut self, survivors: Survivors, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending);
        settle(&mut self.durable, &pending, survivors, random);
        self.volatile = self.durable.clone();
    }

    /// Flips one bit everywhere: rot on the medium. False beyond the end.
    pub(super) fn flip(&mut self, offset: u64, bit: u8) -> bool {
        let flip = |image: &mut Image| {
            let mut byte = [0];
            let there = image.read(offset, &mut byte) == 1;
            if there {
                image.write(offset, &[byte[0] ^ (1 << bit)]);
            }
            there
        };
        flip(&mut self.durable);
        flip(&mut self.volatile)
    }
}

fn settle(image: &mut Image, pending: &[Change], survivors: Survivors, random: &mut Random) {
    for change in pending {
        match (survivors, change) {
            (Survivors::None, _) => {}
            (Survivors::All, _) => image.apply(change),
            (Survivors::Random, Change::Write { offset, bytes }) => {
                for (start, part) in surviving(bytes, random) {
                    image.write(offset + start as u64, part);
                }
            }
            (Survivors::Random, _) if random.coin() => image.apply(change),
            (Survivors::Random, _) => {}
        }
    }
}

/// What of an interrupted write reached the medium: nothing, all, or any set of its sectors or
/// pages.
fn surviving<'a>(bytes: &'a SharedBuf, random: &mut Random) -> Vec<(usize, &'a [u8])> {
    let step = match random.below(4) {
        0 => return Vec::new(),
        1 => return vec![(0, &bytes[..])],
        2 => SECTOR,
        _ => PAGE,
    };
    let pieces = bytes.chunks(step).enumerate().map(|(n, piece)| (n * step, piece));
    pieces.filter(|_| random.coin()).collect()
}
