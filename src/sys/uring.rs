//! The production I/O engine: tokio-uring with O_DIRECT.
//!
//! Owns the ring's set-up and every call on a data file. Reads, writes, flushes, opens, renames
//! and unlinks go through the ring of the calling thread. Calls that the ring of tokio-uring
//! lacks (statx, ftruncate, mkdir, readdir) are plain and blocking: they touch metadata only, and
//! none of them is on the path of a read from an open file. Never retries, never logs an error:
//! callers decide. Works only inside `run`.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Once;

use futures_util::future::LocalBoxFuture;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_uring::buf::BoundedBuf;
use tokio_uring::fs::{File, OpenOptions};

use super::aligned_buf::{ALIGN, AlignedBuf, SharedBuf};
use super::engine::{DirectFile, IoEngine, OpenMode};

/// Entries of a submission queue. More operations than this are fine: a full queue is submitted
/// early. It is the largest batch that one system call carries.
const RING_ENTRIES: u32 = 256;
/// Entries of a completion queue. Above `OPS_IN_FLIGHT_MAX`, so that it cannot overflow even when
/// operations whose futures were dropped complete beside the counted ones.
const COMPLETION_ENTRIES: u32 = 4096;
/// Operations of one engine in flight; more wait their turn. Far above what a disk array can
/// work on at once, far below the completion queue.
const OPS_IN_FLIGHT_MAX: usize = 1024;

/// Permissions of a data file: the server's user only.
const FILE_MODE: u32 = 0o600;

/// Runs `future` to its end inside a ring runtime on this thread.
///
/// Tasks must be spawned with `tokio_uring::spawn` (or `spawn_local`): operations reach the kernel
/// when the local tasks have had their turn, and a loop of `yield_now` would hold them back.
///
/// **Errors** `Unsupported` or `PermissionDenied` with an explanation when the kernel gives no
/// ring. Panics when called inside another runtime.
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    Ok(start()?.block_on(future))
}

/// Says whether this kernel, and whatever confines this process, gives a usable ring.
///
/// **Errors** as for `run`.
pub fn probe() -> io::Result<()> {
    /// IORING_FEAT_EXT_ARG: came with Linux 5.11, as did the last operation that we use.
    const FEATURE_EXT_ARG: u32 = 1 << 8;
    /// Offset of `features` in `struct io_uring_params`, in 32-bit words.
    const FEATURES_WORD: usize = 5;
    let mut params = [0u32; 30];
    // SAFETY: io_uring_setup(2) reads and writes one `struct io_uring_params` of 120 bytes, which
    // `params` is as large as; it keeps no pointer to it.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 2u32, params.as_mut_ptr()) };
    if fd < 0 {
        return Err(explain(io::Error::last_os_error()));
    }
    // SAFETY: the descriptor was just made and nobody else knows it.
    unsafe { libc::close(fd as RawFd) };
    if params[FEATURES_WORD] & FEATURE_EXT_ARG == 0 {
        let text = "this kernel's io_uring is too old: Linux 5.11 or later is needed";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    Ok(())
}

fn start() -> io::Result<tokio_uring::Runtime> {
    probe()?;
    // Completions wait for the thread's next system call instead of interrupting it, and the
    // kernel may skip locks that only several submitters need. Linux 6.0; older ones refuse.
    let mut ring = tokio_uring::uring_builder();
    ring.setup_cqsize(COMPLETION_ENTRIES).setup_coop_taskrun().setup_single_issuer();
    let mut builder = tokio_uring::builder();
    builder.entries(RING_ENTRIES);
    match tokio_uring::Runtime::new(builder.uring_builder(&ring)) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
        other => return other.map_err(explain),
    }
    let mut ring = tokio_uring::uring_builder();
    ring.setup_cqsize(COMPLETION_ENTRIES);
    tokio_uring::Runtime::new(builder.uring_builder(&ring)).map_err(explain)
}

fn explain(error: io::Error) -> io::Error {
    let (kind, hint) = match error.raw_os_error() {
        Some(libc::ENOSYS) => (
            io::ErrorKind::Unsupported,
            "this kernel has no io_uring; Linux 5.11 or later is needed",
        ),
        Some(libc::EPERM | libc::EACCES) => (
            io::ErrorKind::PermissionDenied,
            "io_uring is forbidden here: see sysctl kernel.io_uring_disabled, and the seccomp \
             profile of the container",
        ),
        Some(libc::ENOMEM) => {
            (io::ErrorKind::OutOfMemory, "no memory for a ring: raise RLIMIT_MEMLOCK (ulimit -l)")
        }
        _ => (error.kind(), "cannot set up io_uring"),
    };
    io::Error::new(kind, format!("{hint} ({error})"))
}

/// `IoEngine` over this thread's ring. Clones share the bound on operations in flight.
#[derive(Clone)]
pub struct UringEngine {
    permits: Rc<Semaphore>,
}

impl UringEngine {
    /// Makes the engine of this thread; use it inside `run`.
    pub fn new() -> UringEngine {
        UringEngine { permits: Rc::new(Semaphore::new(OPS_IN_FLIGHT_MAX)) }
    }

    async fn open_file(&self, path: &Path, mode: OpenMode) -> io::Result<UringFile> {
        let _permit = permit(&self.permits).await;
        let direct_options = options(mode, libc::O_DIRECT);
        let (file, opened_direct) = match open_detached(direct_options, path).await {
            Ok(file) => (file, true),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => (reopen(path, mode).await?, false),
            Err(e) => return Err(e),
        };
        let align = direct_align(file.as_raw_fd())?;
        let direct = opened_direct && align.is_some();
        if !direct {
            warn_buffered(path);
        }
        let align = align.unwrap_or(ALIGN);
        Ok(UringFile { file, align, direct, permits: self.permits.clone() })
    }
}

impl Default for UringEngine {
    fn default() -> UringEngine {
        UringEngine::new()
    }
}

/// Holds one of the permitted operations. The semaphore is never closed.
async fn permit(permits: &Semaphore) -> Option<SemaphorePermit<'_>> {
    permits.acquire().await.ok()
}

/// Opens in a task of its own. The ring completes an open whose future was dropped and would then
/// lose the descriptor for ever; the task lives on and closes it.
async fn open_detached(options: OpenOptions, path: &Path) -> io::Result<File> {
    let path = path.to_path_buf();
    let task = tokio_uring::spawn(async move { options.open(path).await });
    task.await.unwrap_or_else(|e| Err(io::Error::other(e)))
}

fn options(mode: OpenMode, flags: i32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE).read(true).custom_flags(flags);
    match mode {
        OpenMode::Read => {}
        OpenMode::ReadWrite => {
            options.write(true);
        }
        OpenMode::CreateNew => {
            options.write(true).create_new(true);
        }
    }
    options
}

/// Opens without O_DIRECT after the file system refused it. A refused open with `CreateNew` may
/// have left the empty file behind, which is then ours to take.
async fn reopen(path: &Path, mode: OpenMode) -> io::Result<File> {
    match open_detached(options(mode, 0), path).await {
        Err(e) if mode == OpenMode::CreateNew && e.kind() == io::ErrorKind::AlreadyExists => {
            let file = open_detached(options(OpenMode::ReadWrite, 0), path).await?;
            let (_, length) = stat(file.as_raw_fd())?;
            if length == 0 { Ok(file) } else { Err(e) }
        }
        other => other,
    }
}

fn warn_buffered(path: &Path) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            path = %path.display(),
            "this file system has no O_DIRECT: files go through the page cache, which doubles \
             copies and memory; use XFS or ext4 for the data directory"
        );
    });
}

/// The alignment that direct I/O needs on this file; `None` when it cannot do direct I/O.
fn direct_align(fd: RawFd) -> io::Result<Option<usize>> {
    let (stat, _) = stat(fd)?;
    if stat.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Ok(Some(ALIGN));
    }
    let align = stat.stx_dio_mem_align.max(stat.stx_dio_offset_align) as usize;
    match align {
        0 => Ok(None),
        n if n.is_power_of_two() && n <= ALIGN => Ok(Some(n)),
        n => {
            let text = format!("direct I/O needs an alignment of {n} bytes; at most {ALIGN} works");
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        }
    }
}

/// statx(2) of an open file: the answer, and the length in bytes.
fn stat(fd: RawFd) -> io::Result<(libc::statx, u64)> {
    let mask = libc::STATX_SIZE | libc::STATX_DIOALIGN;
    // SAFETY: all-zero bytes are a valid `struct statx`, which has only integers.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a NUL-terminated literal and `stat` outlives the call, which fills it.
    let rc = unsafe { libc::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, mask, &mut stat) };
    if rc == 0 { Ok((stat, stat.stx_size)) } else { Err(io::Error::last_os_error()) }
}

impl IoEngine for UringEngine {
    fn open<'a>(
        &'a self,
        path: &'a Path,
        mode: OpenMode,
    ) -> LocalBoxFuture<'a, io::Result<Rc<dyn DirectFile>>> {
        Box::pin(async move {
            let file = self.open_file(path, mode).await?;
            Ok(Rc::new(file) as Rc<dyn DirectFile>)
        })
    }

    fn remove<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let _permit = permit(&self.permits).await;
            tokio_uring::fs::remove_file(path).await
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let _permit = permit(&self.permits).await;
            tokio_uring::fs::rename(from, to).await
        })
    }

    fn create_dir_all<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            for dir in missing_dirs(path) {
                match std::fs::create_dir(dir) {
                    Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                    _ => {}
                }
                let parent = dir.parent().filter(|p| !p.as_os_str().is_empty());
                self.sync_dir(parent.unwrap_or(Path::new("."))).await?;
            }
            Ok(())
        })
    }

    fn sync_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let _permit = permit(&self.permits).await;
            let dir = open_detached(options(OpenMode::Read, libc::O_DIRECTORY), path).await?;
            dir.sync_all().await
        })
    }

    fn list_dir<'a>(&'a self, path: &'a Path) -> LocalBoxFuture<'a, io::Result<Vec<String>>> {
        Box::pin(async move {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(path)? {
                // Files of ours have ASCII names; others are none of our business.
                if let Ok(name) = entry?.file_name().into_string() {
                    names.push(name);
                }
            }
            Ok(names)
        })
    }
}

/// The ancestors of `path` and itself that are not there, outermost first.
fn missing_dirs(path: &Path) -> Vec<&Path> {
    let named = path.ancestors().filter(|dir| !dir.as_os_str().is_empty());
    let mut missing: Vec<&Path> = named.take_while(|dir| !dir.is_dir()).collect();
    missing.reverse();
    missing
}

/// An open file. Dropping it closes the descriptor once no operation uses it any more.
struct UringFile {
    file: File,
    align: usize,
    direct: bool,
    permits: Rc<Semaphore>,
}

impl UringFile {
    /// Reads until the buffer is full or the file ends.
    async fn read_full(&self, mut buf: AlignedBuf, offset: u64) -> (io::Result<usize>, AlignedBuf) {
        let _permit = permit(&self.permits).await;
        buf.clear();
        let mut done = 0;
        while done < buf.capacity() {
            let (result, slice) = self.file.read_at(buf.slice(done..), offset + done as u64).await;
            buf = slice.into_inner();
            match result {
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    buf.set_len(done);
                    return (Err(e), buf);
                }
            }
            // A direct read ends off the alignment only where the file does.
            if result.is_ok_and(|n| n == 0 || n % self.align != 0) {
                break;
            }
        }
        buf.set_len(done);
        (Ok(done), buf)
    }

    async fn write_all(&self, mut buf: SharedBuf, offset: u64) -> io::Result<()> {
        let _permit = permit(&self.permits).await;
        let mut done = 0;
        while done < buf.len() {
            let position = offset + done as u64;
            let (result, slice) = self.file.write_at(buf.slice(done..), position).submit().await;
            buf = slice.into_inner();
            match result {
                // A short direct write is continued from an aligned place, writing again the
                // bytes in between: the same bytes, so it does not matter.
                Ok(n) if done + n < buf.len() => {
                    let next = (done + n) / self.align * self.align;
                    if next == done {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    done = next;
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl DirectFile for UringFile {
    fn align(&self) -> usize {
        self.align
    }

    fn direct(&self) -> bool {
        self.direct
    }

    fn read_at(
        &self,
        buf: AlignedBuf,
        offset: u64,
    ) -> LocalBoxFuture<'_, (io::Result<usize>, AlignedBuf)> {
        Box::pin(self.read_full(buf, offset))
    }

    fn write_at(&self, buf: SharedBuf, offset: u64) -> LocalBoxFuture<'_, io::Result<()>> {
        Box::pin(self.write_all(buf, offset))
    }

    fn sync(&self) -> LocalBoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let _permit = permit(&self.permits).await;
            self.file.sync_data().await
        })
    }

    fn allocate(&self, offset: u64, len: u64) -> LocalBoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let _permit = permit(&self.permits).await;
            self.file.fallocate(offset, len, 0).await.map_err(|e| match e.raw_os_error() {
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => io::ErrorKind::Unsupported.into(),
                _ => e,
            })
        })
    }

    fn len(&self) -> LocalBoxFuture<'_, io::Result<u64>> {
        Box::pin(async move { stat(self.file.as_raw_fd()).map(|(_, length)| length) })
    }

    fn truncate(&self, len: u64) -> LocalBoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let len = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
            // SAFETY: plain call on a descriptor that `self.file` keeps open.
            let rc = unsafe { libc::ftruncate(self.file.as_raw_fd(), len) };
            if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::join_all;

    fn filled(bytes: usize, value: u8) -> SharedBuf {
        let mut buf = AlignedBuf::with_capacity(bytes);
        buf.set_len(bytes);
        buf.fill(value);
        buf.freeze()
    }

    fn in_ring<F: Future>(future: F) -> F::Output {
        run(future).expect("a kernel with io_uring")
    }

    #[test]
    fn the_kernel_gives_a_ring() {
        probe().expect("a kernel with io_uring");
    }

    #[test]
    fn writes_come_back_and_reads_stop_at_the_end() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        in_ring(async {
            let engine = UringEngine::new();
            let file = engine.open(&path, OpenMode::CreateNew).await.unwrap();
            assert!(file.align() <= ALIGN && file.align().is_power_of_two());
            file.allocate(0, 1 << 20).await.unwrap();
            assert_eq!(file.len().await.unwrap(), 1 << 20);
            file.write_at(filled(8192, 1), 0).await.unwrap();
            file.write_at(filled(4096, 2), 4096).await.unwrap();
            file.truncate(8192).await.unwrap();
            file.sync().await.unwrap();
            engine.sync_dir(dir.path()).await.unwrap();

            let again = engine.open(&path, OpenMode::Read).await.unwrap();
            let (n, buf) = again.read_at(AlignedBuf::with_capacity(1 << 16), 0).await;
            assert_eq!((n.unwrap(), buf.len()), (8192, 8192));
            assert!(buf[..4096].iter().all(|b| *b == 1) && buf[4096..].iter().all(|b| *b == 2));
            let (n, buf) = again.read_at(buf, 8192).await;
            assert_eq!((n.unwrap(), buf.len()), (0, 0));
        });
    }

    #[test]
    fn names_behave_as_the_trait_says() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        in_ring(async {
            let engine = UringEngine::new();
            let deep = dir.path().join("a/b/c");
            engine.create_dir_all(&deep).await.unwrap();
            engine.create_dir_all(&deep).await.unwrap();
            let (one, two) = (deep.join("one"), deep.join("two"));
            let missing = engine.open(&one, OpenMode::ReadWrite).await.err().unwrap();
            assert_eq!(missing.kind(), io::ErrorKind::NotFound);
            drop(engine.open(&one, OpenMode::CreateNew).await.unwrap());
            let twice = engine.open(&one, OpenMode::CreateNew).await.err().unwrap();
            assert_eq!(twice.kind(), io::ErrorKind::AlreadyExists);
            engine.rename(&one, &two).await.unwrap();
            assert_eq!(engine.list_dir(&deep).await.unwrap(), ["two"]);
            engine.remove(&two).await.unwrap();
            let gone = engine.remove(&two).await.err().unwrap();
            assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        });
    }

    #[test]
    fn more_operations_than_the_ring_holds() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        in_ring(async {
            let engine = UringEngine::new();
            let file = engine.open(&path, OpenMode::CreateNew).await.unwrap();
            let chunks = 6000u64;
            let writes = (0..chunks).map(|i| file.write_at(filled(4096, i as u8), i * 4096));
            assert!(join_all(writes).await.into_iter().all(|r| r.is_ok()));
            let reads = (0..chunks).map(|i| file.read_at(AlignedBuf::recycled(4096), i * 4096));
            for (i, (n, buf)) in join_all(reads).await.into_iter().enumerate() {
                assert_eq!(n.unwrap(), 4096);
                assert!(buf.iter().all(|b| *b == i as u8));
            }
        });
    }

    /// The buffer and the descriptor stay with the ring: a dropped future frees nothing.
    #[test]
    fn dropped_operations_keep_their_memory() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        in_ring(async {
            let engine = UringEngine::new();
            let file = engine.open(&path, OpenMode::CreateNew).await.unwrap();
            for round in 0..200u64 {
                let file = file.clone();
                let task = tokio_uring::spawn(async move {
                    file.write_at(filled(1 << 20, 9), (round % 8) << 20).await
                });
                tokio::task::yield_now().await;
                task.abort();
            }
            file.sync().await.unwrap();
            let (n, _) = file.read_at(AlignedBuf::recycled(4096), 0).await;
            assert!(n.is_ok());
        });
    }

    /// The descriptor of an open that nobody waits for any more is closed.
    #[test]
    fn dropped_opens_leak_no_descriptor() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        in_ring(async {
            let engine = UringEngine::new();
            drop(engine.open(&path, OpenMode::CreateNew).await.unwrap());
            let before = descriptors();
            for _ in 0..600 {
                let mut open = engine.open(&path, OpenMode::Read);
                let _ = futures_util::poll!(&mut open);
                tokio::task::yield_now().await;
                drop(open);
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            let after = descriptors();
            assert!(after < before + 300, "{before} descriptors before, {after} after");
        });
    }

    /// tmpfs takes O_DIRECT only on newer kernels; either way the file works and says which.
    #[test]
    fn a_file_system_without_direct_io_still_works() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
        let path = dir.path().join("file");
        in_ring(async {
            let engine = UringEngine::new();
            let file = engine.open(&path, OpenMode::CreateNew).await.unwrap();
            file.write_at(filled(4096, 3), 0).await.unwrap();
            let (n, buf) = file.read_at(AlignedBuf::with_capacity(4096), 0).await;
            assert_eq!((n.unwrap(), buf[0]), (4096, 3));
            let again = engine.open(&path, OpenMode::Read).await.unwrap();
            assert_eq!(again.direct(), file.direct());
        });
    }

    #[test]
    fn two_threads_have_two_rings() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let threads: Vec<_> = (0..2)
            .map(|i| {
                let path = dir.path().join(format!("file-{i}"));
                std::thread::spawn(move || {
                    in_ring(async {
                        let engine = UringEngine::new();
                        let file = engine.open(&path, OpenMode::CreateNew).await.unwrap();
                        file.write_at(filled(1 << 20, i), 0).await.unwrap();
                        file.sync().await.is_ok()
                    })
                })
            })
            .collect();
        assert!(threads.into_iter().all(|t| t.join().expect("no panic")));
    }
}
