//! Processors: which ones this process may use, and pinning a thread to one.

use std::io;

/// Numbers of the processors that this process may use, in order.
///
/// **Source** sched_getaffinity(2).
pub fn allowed() -> io::Result<Vec<usize>> {
    // SAFETY: a cpu_set_t is plain bits, for which all zero is a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for writes of the size that is passed.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let limit = libc::CPU_SETSIZE as usize;
    // SAFETY: the index is below CPU_SETSIZE, the number of bits in the set.
    Ok((0..limit).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect())
}

/// Numbers of the processors of a NUMA node.
pub fn of_node(node: u32) -> io::Result<Vec<usize>> {
    let list = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"))?;
    parse_cpulist(&list)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("cpulist {list:?}")))
}

/// Lets the calling thread run on `cpu` only. **Source** sched_setaffinity(2).
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a cpu_set_t is plain bits, for which all zero is a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE, as checked above.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is valid for reads of the size that is passed; 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The kernel's list form: `0-3,8,10-11`.
fn parse_cpulist(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= libc::CPU_SETSIZE as usize {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_form_is_understood() {
        assert_eq!(parse_cpulist("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_cpulist("\n"), Some(vec![]));
        assert_eq!(parse_cpulist("0-x"), None);
        assert_eq!(parse_cpulist("0-99999999"), None);
    }

    #[test]
    fn a_thread_can_be_pinned_to_a_processor_that_is_allowed() {
        let cpu = *allowed().expect("readable").last().expect("at least one");
        std::thread::spawn(move || {
            pin_current_thread(cpu).expect("pins");
            assert_eq!(allowed().expect("readable"), [cpu]);
        })
        .join()
        .expect("no panic");
        assert!(pin_current_thread(usize::MAX).is_err());
    }
}
