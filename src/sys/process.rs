//! Limits and figures of this process and its file systems.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Raises the limit on open files to what the process is allowed, and returns it.
///
/// **Source** getrlimit(2): the soft limit may rise to the hard one without privilege.
pub fn raise_open_files_limit() -> io::Result<u64> {
    let mut limit = open_files_limit()?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is valid for reads.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit.rlim_cur)
}

/// What this process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub resident_bytes: u64,
    pub open_files: u64,
    pub open_files_max: u64,
}

/// Reads the figures of this process. **Source** proc_pid_statm(5), proc_pid_fd(5).
pub fn usage() -> io::Result<Usage> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    // SAFETY: sysconf takes no pointer.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(0) as u64;
    Ok(Usage {
        resident_bytes: pages * page_bytes,
        open_files: std::fs::read_dir("/proc/self/fd")?.count() as u64,
        open_files_max: open_files_limit()?.rlim_cur,
    })
}

fn open_files_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Size and room of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    pub size_bytes: u64,
    /// What an unprivileged process can still write.
    pub free_bytes: u64,
}

/// The file system that holds `path`. **Source** statvfs(3).
pub fn disk_space(path: &Path) -> io::Result<DiskSpace> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a statvfs is plain integers, for which all zero is a valid value.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends in a zero byte and `stat` is valid for writes.
    if unsafe { libc::statvfs(path.as_ptr(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(DiskSpace {
        size_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_on_open_files_is_raised_to_the_hard_one() {
        let raised = raise_open_files_limit().expect("is allowed");
        assert!(raised >= 256, "{raised}");
        assert_eq!(raise_open_files_limit().expect("is allowed"), raised);
    }

    #[test]
    fn this_process_uses_memory_and_files() {
        let usage = usage().expect("readable");
        assert!(usage.resident_bytes > 4096 && usage.open_files >= 3, "{usage:?}");
    }

    #[test]
    fn a_file_system_has_a_size_and_no_more_room_than_that() {
        let space = disk_space(Path::new("/")).expect("is there");
        assert!(space.size_bytes > 0 && space.free_bytes <= space.size_bytes);
        assert!(disk_space(Path::new("/nonexistent/x")).is_err());
    }
}
