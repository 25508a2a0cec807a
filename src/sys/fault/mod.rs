//! The I/O engine of the tests: a disk in memory that forgets what was not flushed.
//!
//! Owns a simulated file system with two states, what reads see and what a power cut would leave.
//! File contents are durable after `sync`, directory entries after `sync_dir` of their directory.
//! `crash` cuts the power: unflushed changes vanish, or a random part of them stays, torn at
//! sectors. Errors are injected by kind of operation, path and count. All randomness comes from
//! the seed. A disk is shared by engines on any number of threads; handles that were made before
//! a crash fail afterwards, as if their process had died. Runs on any executor.

mod disk;
mod image;
mod names;
mod random;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use futures_util::future::LocalBoxFuture;

use super::aligned_buf::{ALIGN, AlignedBuf, SharedBuf};
use super::engine::{DirectFile, IoEngine, OpenMode};
use disk::{Handle, State};

/// Kinds of operation, for choosing where to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Opening a file that exists.
    Open,
    Create,
    /// Reading bytes or the length.
    Read,
    Write,
    Sync,
    Allocate,
    Truncate,
    Remove,
    Rename,
    CreateDir,
    SyncDir,
    ListDir,
}

impl Op {
    fn mutates(self) -> bool {
        !matches!(self, Op::Open | Op::Read | Op::ListDir)
    }
}

/// What a failing operation reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// EIO, in the middle of the work: part of a write may be there; after a failed flush part of
    /// the changes is durable and a later flush does not bring the rest.
    Io,
    /// ENOSPC, before anything happened.
    NoSpace,
}

impl From<FaultError> for io::Error {
    fn from(error: FaultError) -> io::Error {
        match error {
            FaultError::Io => io::Error::from_raw_os_error(libc::EIO),
            FaultError::NoSpace => io::Error::from_raw_os_error(libc::ENOSPC),
        }
    }
}

/// Fails some operations of one kind.
#[derive(Clone, Debug)]
pub struct Fault {
    pub op: Op,
    /// Only where the path contains this; empty is everywhere.
    pub path_contains: String,
    /// Operations of the kind that still succeed.
    pub skip: u64,
    /// Operations that then fail; `u64::MAX` is for ever.
    pub times: u64,
    pub error: FaultError,
}

impl Fault {
    /// Fails the next operation of this kind.
    pub fn next(op: Op, error: FaultError) -> Fault {
        Fault { op, path_contains: String::new(), skip: 0, times: 1, error }
    }

    /// The error, when this fault strikes the operation.
    fn strike(&mut self, op: Op, path: &Path) -> Option<FaultError> {
        let meant = self.op == op && path.to_string_lossy().contains(&self.path_contains);
        if !meant || self.times == 0 {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times -= u64::from(self.times != u64::MAX);
        Some(self.error)
    }
}

/// What becomes of changes that were not flushed when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    None,
    All,
    /// Any part of them, torn at sectors of 512 bytes, in any order. Metadata likewise.
    Random,
}

/// Operations so far, failed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub reads: u64,
    pub writes: u64,
    pub bytes_written: u64,
    /// Flushes of files and of directories.
    pub syncs: u64,
    pub dir_syncs: u64,
    /// All operations that change something: the points at which `cut_power_after` can cut.
    pub mutations: u64,
}

impl Stats {
    fn count(&mut self, op: Op) {
        self.mutations += u64::from(op.mutates());
        match op {
            Op::Read => self.reads += 1,
            Op::Write => self.writes += 1,
            Op::Sync => self.syncs += 1,
            Op::SyncDir => self.dir_syncs += 1,
            _ => {}
        }
    }
}

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct FaultDisk(Arc<Mutex<State>>);

impl FaultDisk {
    /// An empty disk whose random decisions come from `seed`.
    pub fn new(seed: u64) -> FaultDisk {
        FaultDisk(Arc::new(Mutex::new(State::new(seed))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked elsewhere does not matter: every change is made whole.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds a fault. The first one that strikes an operation decides.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Ends all faults.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Lets `mutations` more changing operations succeed, then the power goes: the next one fails
    /// midway and nothing works until `crash`.
    pub fn cut_power_after(&self, mutations: u64) {
        self.state().power_cut_in = Some(mutations);
    }

    /// Cuts the power and starts again: unflushed changes are gone except `survivors`, faults are
    /// ended, and all engines and files made so far are dead.
    pub fn crash(&self, survivors: Survivors) {
        self.state().crash(survivors);
    }

    pub fn stats(&self) -> Stats {
        self.state().stats
    }

    /// Paths of all files with their lengths in bytes, in order.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        self.state().files()
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset`, on the medium and in what reads see.
    /// False when there is no such byte.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> bool {
        self.state().flip_bit(path, offset, bit)
    }
}

/// `IoEngine` over a `FaultDisk`: one process's view of it, dead after a crash.
#[derive(Clone)]
pub struct FaultEngine {
    disk: FaultDisk,
    boot: u64,
}

impl FaultEngine {
    pub fn new(disk: &FaultDisk) -> FaultEngine {
        FaultEngine { boot: disk.state().boot, disk: disk.clone() }
    }
}

/// Performs `action` after a few turns of the executor, by the seed, so that operations overlap
/// and finish out of order. Once polled it is on its way: dropping the future performs it too, as
/// a kernel would.
async fn perform<T>(disk: &FaultDisk, action: impl FnOnce(&mut State) -> T) -> T {
    struct InFlight<'a, T, A: FnOnce(&mut State) -> T>(&'a FaultDisk, Option<A>);
    impl<T, A: FnOnce(&mut State) -> T> Drop for InFlight<'_, T, A> {
        fn drop(&mut self) {
            if let Some(action) = self.1.take() {
                action(&mut self.0.state());
            }
        }
    }
    let mut in_flight = InFlight(disk, Some(action));
    let turns = disk.state().random.below(4);
    for _ in 0..turns {
        let mut yielded = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
    let action = in_flight.1.take().expect("taken only here and in drop");
    action(&mut disk.state())
}

impl IoEngine for FaultEngine {
    fn open<'a>(
        &'a self,
        path: &'a Path,
        mode: OpenMode,
    ) -> LocalBoxFuture<'a, io::Result<Rc<dyn DirectFile>>> {
        Box::pin(async move {
            let opened = perform(&self.disk, |state| state.open(self.boot, path, mode)).await;
            let file = FaultFile { disk: self.disk.clone(), handle: opened? };
            Ok(Rc::new(file) as Rc<dyn DirectFile>)
        })
    }

    fn remove<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(perform(&self.disk, |state| state.remove(self.boot, path)))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(perform(&self.disk, |state| state.rename(self.boot, from, to)))
    }

    fn create_dir_all<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(perform(&self.disk, |state| state.create_dir_all(self.boot, path)))
    }

    fn sync_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(perform(&self.disk, |state| state.sync_dir(self.boot, path)))
    }

    fn list_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Vec<String>>> {
        Box::pin(perform(&self.disk, |state| state.list_dir(self.boot, path)))
    }
}

struct FaultFile {
    disk: FaultDisk,
    handle: Handle,
}

impl DirectFile for FaultFile {
    fn align(&self) -> usize {
        ALIGN
    }

    fn direct(&self) -> bool {
        true
    }

    fn read_at(
        &self,
        mut buf: AlignedBuf,
        offset: u64,
    ) -> LocalBoxFuture<'_, (io::Result<usize>, AlignedBuf)> {
        Box::pin(perform(&self.disk, move |state| {
            let result = state.read(&self.handle, offset, &mut buf);
            (result, buf)
        }))
    }

    fn write_at(&self, buf: SharedBuf, offset: u64) -> LocalBoxFuture<'_, io::Result<()>> {
        Box::pin(perform(&self.disk, move |state| state.write(&self.handle, offset, buf)))
    }

    fn sync(&self) -> LocalBoxFuture<'_, io::Result<()>> {
        Box::pin(perform(&self.disk, |state| state.sync(&self.handle)))
    }

    fn allocate(&self, offset: u64, len: u64) -> LocalBoxFuture<'_, io::Result<()>> {
        Box::pin(perform(&self.disk, move |state| state.allocate(&self.handle, offset, len)))
    }

    fn len(&self) -> LocalBoxFuture<'_, io::Result<u64>> {
        Box::pin(perform(&self.disk, |state| state.len(&self.handle)))
    }

    fn truncate(&self, len: u64) -> LocalBoxFuture<'_, io::Result<()>> {
        Box::pin(perform(&self.disk, move |state| state.truncate(&self.handle, len)))
    }
}
