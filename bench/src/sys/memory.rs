//! The NUMA memory policy of the calling thread.

use std::io;

/// Where pages that a thread touches first come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The node on which the thread runs.
    Local,
    /// Only these nodes.
    Bind(Vec<u32>),
    /// These nodes in turn.
    Interleave(Vec<u32>),
}

const MPOL_BIND: libc::c_long = 2;
const MPOL_INTERLEAVE: libc::c_long = 3;
const MPOL_LOCAL: libc::c_long = 4;
const NODES_MAX: u32 = 64;

/// Sets the policy for pages that the calling thread touches from now on.
///
/// **Errors** of the kernel, such as a node that does not exist. **Source** set_mempolicy(2).
pub fn set(policy: &Policy) -> io::Result<()> {
    let (mode, nodes): (libc::c_long, &[u32]) = match policy {
        Policy::Local => (MPOL_LOCAL, &[]),
        Policy::Bind(nodes) => (MPOL_BIND, nodes),
        Policy::Interleave(nodes) => (MPOL_INTERLEAVE, nodes),
    };
    let mut mask: u64 = 0;
    for &node in nodes {
        if node >= NODES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        mask |= 1 << node;
    }
    let (pointer, bits) = match nodes.is_empty() {
        true => (std::ptr::null(), 0),
        // The kernel reads one bit fewer than it is told.
        false => (&raw const mask, libc::c_ulong::from(NODES_MAX + 1)),
    };
    // SAFETY: `pointer` is null with a length of 0, or points to `mask`, which is as long as the
    // kernel reads and outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, pointer, bits) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_what_exists_and_refuses_what_does_not() {
        std::thread::spawn(|| {
            set(&Policy::Bind(vec![0])).expect("node 0 exists");
            set(&Policy::Interleave(vec![0])).expect("node 0 exists");
            set(&Policy::Local).expect("always there");
            assert!(set(&Policy::Bind(vec![63])).is_err());
            assert!(set(&Policy::Bind(vec![64])).is_err());
        })
        .join()
        .expect("no panic");
    }
}
