//! Questions to the kernel: limits, the memory map, file systems, the clock.
//!
//! Owns system calls that only look. Never changes a setting of the machine or of the process, and
//! leaves no file behind.

use std::ffi::CString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::aligned_buf::AlignedBuf;

/// A resource limit of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Bytes that may be locked (RLIMIT_MEMLOCK).
    LockedMemory,
    /// Open files (RLIMIT_NOFILE).
    OpenFiles,
}

/// Soft and hard limit; `u64::MAX` is "unlimited".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub soft: u64,
    pub hard: u64,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.soft == u64::MAX { f.write_str("unlimited") } else { self.soft.fmt(f) }
    }
}

/// **Source** getrlimit(2).
pub fn resource_limit(resource: Resource) -> io::Result<Limit> {
    let resource = match resource {
        Resource::LockedMemory => libc::RLIMIT_MEMLOCK,
        Resource::OpenFiles => libc::RLIMIT_NOFILE,
    };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes one rlimit structure, which lives through the call.
    match unsafe { libc::getrlimit(resource, &mut limit) } {
        0 => Ok(Limit { soft: limit.rlim_cur, hard: limit.rlim_max }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes of the address range that lie on transparent huge pages, from /proc/self/smaps.
/// Neighbouring mappings may be counted as one, so the answer is capped at `len`.
pub fn transparent_huge_bytes(address: usize, len: usize) -> io::Result<usize> {
    Ok(huge_bytes_in(&fs::read_to_string("/proc/self/smaps")?, address, len))
}

fn huge_bytes_in(smaps: &str, address: usize, len: usize) -> usize {
    let mut inside = false;
    let mut kib = 0usize;
    for line in smaps.lines() {
        if let Some((start, end)) = address_range(line) {
            inside = start < address + len && address < end;
        } else if inside && let Some(value) = line.strip_prefix("AnonHugePages:") {
            let value = value.split_whitespace().next().and_then(|number| number.parse().ok());
            kib += value.unwrap_or(0usize);
        }
    }
    (kib * 1024).min(len)
}

/// Parses the "start-end " of a header line of smaps.
fn address_range(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

/// What kind of file system, and how much room it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    pub kind: FileSystemKind,
    pub size_bytes: u64,
    /// What an unprivileged process can still write.
    pub free_bytes: u64,
    /// 0 where inodes are made as needed.
    pub inodes: u64,
    pub inodes_free: u64,
}

/// File systems about which there is something to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    Xfs,
    Ext,
    Btrfs,
    Zfs,
    F2fs,
    Tmpfs,
    Overlay,
    Nfs,
    Smb,
    Fuse,
    /// By its magic number.
    Other(u32),
}

impl FileSystemKind {
    /// **Source** statfs(2) and linux/magic.h.
    fn from_magic(magic: u32) -> FileSystemKind {
        match magic {
            0x5846_5342 => FileSystemKind::Xfs,
            0xef53 => FileSystemKind::Ext,
            0x9123_683e => FileSystemKind::Btrfs,
            0x2fc1_2fc1 => FileSystemKind::Zfs,
            0xf2f5_2010 => FileSystemKind::F2fs,
            0x0102_1994 => FileSystemKind::Tmpfs,
            0x794c_7630 => FileSystemKind::Overlay,
            0x6969 => FileSystemKind::Nfs,
            0xff53_4d42 | 0xfe53_4d42 => FileSystemKind::Smb,
            0x6573_5546 => FileSystemKind::Fuse,
            other => FileSystemKind::Other(other),
        }
    }
}

impl fmt::Display for FileSystemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileSystemKind::Xfs => "XFS",
            FileSystemKind::Ext => "ext4",
            FileSystemKind::Btrfs => "btrfs",
            FileSystemKind::Zfs => "ZFS",
            FileSystemKind::F2fs => "F2FS",
            FileSystemKind::Tmpfs => "tmpfs",
            FileSystemKind::Overlay => "overlayfs",
            FileSystemKind::Nfs => "NFS",
            FileSystemKind::Smb => "SMB",
            FileSystemKind::Fuse => "FUSE",
            FileSystemKind::Other(magic) => return write!(f, "type 0x{magic:x}"),
        })
    }
}

/// The file system that holds `path`. **Source** statfs(2).
pub fn file_system(path: &Path) -> io::Result<FileSystem> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a statfs is plain integers, for which all zero is a valid value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends in a zero byte and `stat` is valid for writes.
    if unsafe { libc::statfs(path.as_ptr(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let block = stat.f_bsize as u64;
    Ok(FileSystem {
        kind: FileSystemKind::from_magic(stat.f_type as u32),
        size_bytes: stat.f_blocks.saturating_mul(block),
        free_bytes: stat.f_bavail.saturating_mul(block),
        inodes: stat.f_files,
        inodes_free: stat.f_ffree,
    })
}

/// What O_DIRECT asks for, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlignment {
    pub memory: u32,
    pub offset: u32,
}

/// Writes one page with O_DIRECT into a file without a name in `dir`, which vanishes at once.
///
/// Returns the alignment that the file system names, when it names one (Linux 6.1).
/// **Errors** `InvalidInput` when the file system has no O_DIRECT; else those of open(2) and
/// write(2); `Unsupported` when it has no nameless files, so that nothing can be said.
pub fn try_direct_write(dir: &Path) -> io::Result<Option<DirectAlignment>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options.custom_flags(libc::O_TMPFILE | libc::O_DIRECT);
    let file = options.open(dir)?;
    let mut page = AlignedBuf::with_capacity(4096);
    page.set_len(4096);
    file.write_all_at(&page, 0)?;
    Ok(direct_alignment(&file))
}

fn direct_alignment(file: &File) -> Option<DirectAlignment> {
    // SAFETY: a statx is plain integers, for which all zero is a valid value.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is an empty string, the descriptor is open, and `stat` valid for writes.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &mut stat,
        )
    };
    let answered = result == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0;
    (answered && stat.stx_dio_offset_align > 0).then_some(DirectAlignment {
        memory: stat.stx_dio_mem_align,
        offset: stat.stx_dio_offset_align,
    })
}

/// How XFS was told that the disks below it are striped, in bytes; 0 when it was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XfsStripe {
    /// One disk's share (the chunk of the array).
    pub unit_bytes: u64,
    /// All data disks' shares.
    pub width_bytes: u64,
}

/// **Source** ioctl_xfs_fsgeometry(2), in its first form: xfs_fsop_geom_v1.
pub fn xfs_stripe(path: &Path) -> io::Result<XfsStripe> {
    /// Size of `struct xfs_fsop_geom_v1` in 32-bit words.
    const WORDS: usize = 28;
    /// `_IOR('X', 100, struct xfs_fsop_geom_v1)`.
    const XFS_IOC_FSGEOMETRY_V1: libc::c_ulong = (2 << 30) | ((WORDS as u64 * 4) << 16) | 0x5864;
    let (block_size, stripe_unit, stripe_width) = (0, 20, 21);
    let dir = File::open(path)?;
    let mut words = [0u32; WORDS];
    // SAFETY: the request's number carries the size that the kernel writes, which is that of
    // `words`; a file system other than XFS refuses it or, for the letter X, writes no more.
    let result =
        unsafe { libc::ioctl(dir.as_raw_fd(), XFS_IOC_FSGEOMETRY_V1 as _, words.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = |index: usize| u64::from(words[index]) * u64::from(words[block_size]);
    Ok(XfsStripe { unit_bytes: bytes(stripe_unit), width_bytes: bytes(stripe_width) })
}

/// Whether something keeps the clock of this machine right. **Source** adjtimex(2).
pub fn clock_is_synchronised() -> io::Result<bool> {
    // SAFETY: a timex is plain integers, for which all zero is valid; mode 0 changes nothing.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `state` is valid for reads and writes.
    if unsafe { libc::adjtimex(&mut state) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(state.status & libc::STA_UNSYNC == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
Size:               4096 kB
AnonHugePages:      2048 kB
7f0000400000-7f0000800000 rw-p 00000000 00:00 0
AnonHugePages:      4096 kB
VmFlags: rd wr mr mw me ac
";

    #[test]
    fn huge_bytes_are_summed_over_the_range_only() {
        assert_eq!(huge_bytes_in(SMAPS, 0x7f0000000000, 4 << 20), 2 << 20);
        assert_eq!(huge_bytes_in(SMAPS, 0x7f0000000000, 8 << 20), 6 << 20);
        assert_eq!(huge_bytes_in(SMAPS, 0x7f0000400000, 1 << 20), 1 << 20);
        assert_eq!(huge_bytes_in(SMAPS, 0x7f0000800000, 4 << 20), 0);
    }

    #[test]
    fn limits_of_this_process_are_readable() {
        let files = resource_limit(Resource::OpenFiles).unwrap();
        assert!(files.soft > 0 && files.soft <= files.hard);
        resource_limit(Resource::LockedMemory).unwrap();
    }

    #[test]
    fn the_file_system_of_a_directory_is_known_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let system = file_system(dir.path()).unwrap();
        assert!(system.size_bytes >= system.free_bytes && system.size_bytes > 0);
        match try_direct_write(dir.path()) {
            Ok(Some(align)) => assert!(align.memory <= 4096 && align.offset <= 4096, "{align:?}"),
            Ok(None) => {}
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        if system.kind != FileSystemKind::Xfs {
            assert!(xfs_stripe(dir.path()).is_err());
        }
        assert!(file_system(Path::new("/nonexistent/x")).is_err());
    }

    #[test]
    fn the_clock_can_be_asked() {
        clock_is_synchronised().unwrap();
    }
}
