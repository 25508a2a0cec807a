//! The I/O engine: how bytes reach a file and a flush reaches a disk.
//!
//! Two implementations: `uring` (tokio-uring, O_DIRECT) and `fault` (a simulated disk that records
//! writes and flushes, forgets what was not flushed, and fails on command). Handles and futures
//! stay on the thread that made them; a buffer belongs to the operation while it is in flight and
//! comes back with the result, so that dropping a future can never free memory the kernel uses.

use std::io;
use std::path::Path;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use super::aligned_buf::{AlignedBuf, SharedBuf};

/// What `create` and `open` ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read only; the file must exist.
    Read,
    /// Read and write; the file must exist.
    ReadWrite,
    /// Read and write; fails with `AlreadyExists` when the file is there.
    CreateNew,
}

/// Gives files. One per thread, cheap to clone behind the `Rc`.
pub trait IoEngine {
    /// Opens with O_DIRECT where the file system has it. **Errors** those of open(2).
    /// **Cancel** a file to be created may appear all the same, also a moment later.
    fn open<'a>(
        &'a self,
        path: &'a Path,
        mode: OpenMode,
    ) -> LocalBoxFuture<'a, io::Result<Rc<dyn DirectFile>>>;
    /// unlink(2); a missing file is an error of kind `NotFound`.
    fn remove<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>>;
    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> LocalBoxFuture<'a, io::Result<()>>;
    /// Creates the directory and its parents; an existing one is fine. What it made is durable
    /// when it returns.
    fn create_dir_all<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>>;
    /// fsync(2) of a directory: its entries are durable after this.
    fn sync_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>>;
    /// Names of the entries of a directory, in no order.
    fn list_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Vec<String>>>;
}

/// An open file for aligned I/O. Offsets and lengths are multiples of `align()`.
#[expect(clippy::len_without_is_empty, reason = "nobody asks a file whether it is empty")]
pub trait DirectFile {
    /// Alignment in bytes that offsets, lengths and memory need (a power of two, at most 4096).
    fn align(&self) -> usize;
    /// False when the file system refused O_DIRECT and the page cache is in between.
    fn direct(&self) -> bool;
    /// Reads into `buf` (its capacity is the wanted length) from `offset`; returns the bytes read,
    /// fewer only at the end of the file. The buffer's length is set to that.
    fn read_at(
        &self,
        buf: AlignedBuf,
        offset: u64,
    ) -> LocalBoxFuture<'_, (io::Result<usize>, AlignedBuf)>;
    /// Writes all of `buf` at `offset`; short writes are continued inside. The buffer is shared:
    /// a hasher may read it at the same time.
    fn write_at(&self, buf: SharedBuf, offset: u64) -> LocalBoxFuture<'_, io::Result<()>>;
    /// fdatasync(2): contents and size are durable after this. After an error the file must not
    /// be trusted again.
    fn sync(&self) -> LocalBoxFuture<'_, io::Result<()>>;
    /// fallocate(2) from `offset`, extending the file. `Unsupported` where the file system cannot.
    fn allocate(&self, offset: u64, len: u64) -> LocalBoxFuture<'_, io::Result<()>>;
    /// Current length in bytes.
    fn len(&self) -> LocalBoxFuture<'_, io::Result<u64>>;
    /// Cuts or extends to `len` bytes.
    fn truncate(&self, len: u64) -> LocalBoxFuture<'_, io::Result<()>>;
}
