//! Questions to the kernel: limits and what the memory map looks like.
//!
//! Owns read-only system calls. Never changes a setting of the machine or of the process.

use std::fmt;
use std::fs;
use std::io;

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
}
