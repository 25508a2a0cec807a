//! NUMA nodes: their memory and CPUs, binding memory to one, and proof of where pages lie.
//!
//! Owns the raw system calls (no libnuma) and the reading of /sys and /proc, whose root is a
//! parameter so that tests can bring their own tree. Never chooses a node.

use std::fs;
use std::io;
use std::path::Path;
use std::ptr;

use super::mapping::HUGE_PAGE_BYTES;

/// Highest node number + 1 that Linux can be built for (CONFIG_NODES_SHIFT is at most 10).
const NODES_MAX: u32 = 1024;
const MASK_WORDS: usize = (NODES_MAX / u64::BITS) as usize;
/// Pages asked about for one mapping; more would only make start-up slower, not the proof better.
const SAMPLE_PAGES_MAX: usize = 65_536;
/// Pages asked about in one move_pages call.
const SAMPLE_BATCH: usize = 1024;

/// One node as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub number: u32,
    /// As the kernel writes it, such as "0-11,24-35".
    pub cpus: String,
    pub cpu_count: usize,
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Page cache, which the kernel gives up when memory is wanted.
    pub file_bytes: u64,
    /// The 2 MiB HugeTLB pool of this node, when the kernel has one.
    pub huge_pool: Option<HugePool>,
}

/// Pages of 2 MiB in a HugeTLB pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePool {
    pub total: u64,
    pub free: u64,
}

/// Where the sampled pages of a mapping lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    pub sampled: usize,
    /// (node, pages), by node.
    pub by_node: Vec<(u32, usize)>,
    /// Pages that are not in memory, or whose place the kernel would not say.
    pub absent: usize,
}

impl Placement {
    /// Sampled pages that are elsewhere or absent.
    pub fn pages_not_on(&self, node: u32) -> usize {
        let there = self.by_node.iter().find(|(number, _)| *number == node);
        self.sampled - there.map_or(0, |(_, pages)| *pages)
    }

    fn add(&mut self, status: libc::c_int) {
        self.sampled += 1;
        let Ok(node) = u32::try_from(status) else {
            self.absent += 1;
            return;
        };
        match self.by_node.binary_search_by_key(&node, |(number, _)| *number) {
            Ok(at) => self.by_node[at].1 += 1,
            Err(at) => self.by_node.insert(at, (node, 1)),
        }
    }
}

/// The nodes under `root`/sys, by number. Empty when the kernel has no NUMA support.
pub fn nodes(root: &Path) -> Vec<Node> {
    let Ok(entries) = fs::read_dir(root.join("sys/devices/system/node")) else {
        return Vec::new();
    };
    let mut nodes: Vec<Node> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            Some(read_node(&entry.path(), number))
        })
        .collect();
    nodes.sort_by_key(|node| node.number);
    nodes
}

fn read_node(dir: &Path, number: u32) -> Node {
    let meminfo = fs::read_to_string(dir.join("meminfo")).unwrap_or_default();
    let cpus = fs::read_to_string(dir.join("cpulist")).unwrap_or_default().trim().to_owned();
    Node {
        number,
        cpu_count: cpu_count(&cpus),
        cpus,
        total_bytes: meminfo_bytes(&meminfo, "MemTotal").unwrap_or(0),
        free_bytes: meminfo_bytes(&meminfo, "MemFree").unwrap_or(0),
        file_bytes: meminfo_bytes(&meminfo, "FilePages").unwrap_or(0),
        huge_pool: read_pool(&dir.join("hugepages/hugepages-2048kB")),
    }
}

fn read_pool(dir: &Path) -> Option<HugePool> {
    let number = |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok();
    Some(HugePool { total: number("nr_hugepages")?, free: number("free_hugepages")? })
}

/// The 2 MiB pool of one node, or of the whole machine.
pub fn huge_pool(root: &Path, node: Option<u32>) -> Option<HugePool> {
    let dir = match node {
        Some(node) => format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB"),
        None => "sys/kernel/mm/hugepages/hugepages-2048kB".to_owned(),
    };
    read_pool(&root.join(dir))
}

/// Bytes that could be had without swapping, on one node or on the machine; `None` if unknown.
pub fn available_bytes(root: &Path, node: Option<u32>) -> Option<u64> {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let machine = meminfo_bytes(&machine, "MemAvailable")?;
    let Some(node) = node else { return Some(machine) };
    let node = nodes(root).into_iter().find(|known| known.number == node)?;
    Some(machine.min(node.free_bytes + node.file_bytes))
}

/// Reads "Name:   123 kB" lines, with or without the "Node 0 " that the per-node file puts first.
pub fn meminfo_bytes(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (label, value) = line.split_once(':')?;
        if label.split_whitespace().next_back()? != name {
            return None;
        }
        let kib: u64 = value.split_whitespace().next()?.parse().ok()?;
        kib.checked_mul(1024)
    })
}

/// Counts the CPUs in a list such as "0-3,8,10-11".
fn cpu_count(list: &str) -> usize {
    let count = |range: &str| -> Option<usize> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    list.split(',').filter_map(count).sum()
}

/// **Errors** the list of nodes that do exist. A kernel without NUMA has node 0.
pub(super) fn check_exists(node: u32) -> Result<(), String> {
    let known = nodes(Path::new("/"));
    let exists = known.iter().any(|n| n.number == node) || (known.is_empty() && node == 0);
    if exists {
        return Ok(());
    }
    let names: Vec<String> = known.iter().map(|n| n.number.to_string()).collect();
    Err(if names.is_empty() { "only node 0".into() } else { format!("nodes {}", names.join(", ")) })
}

/// Binds untouched memory to a node, so that its pages come from there or not at all.
pub(super) fn bind(address: usize, len: usize, node: u32) -> io::Result<()> {
    if node >= NODES_MAX {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut mask = [0u64; MASK_WORDS];
    mask[(node / u64::BITS) as usize] = 1 << (node % u64::BITS);
    // SAFETY: mbind reads `NODES_MAX` bits of the mask, which lives through the call, and changes
    // only where future pages of the range come from, not what any address holds.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            address,
            len,
            libc::MPOL_BIND,
            mask.as_ptr(),
            // The kernel takes one less than this as the number of bits.
            NODES_MAX as usize + 1,
            0,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks where pages of a mapping lie, at most `SAMPLE_PAGES_MAX` of them, evenly spread.
pub(super) fn placement(address: usize, len: usize, page_bytes: usize) -> io::Result<Placement> {
    debug_assert!(page_bytes <= HUGE_PAGE_BYTES);
    let pages = len / page_bytes;
    let step = pages.div_ceil(SAMPLE_PAGES_MAX).max(1) * page_bytes;
    let addresses: Vec<usize> = (address..address + len).step_by(step).collect();
    let mut placement = Placement::default();
    for batch in addresses.chunks(SAMPLE_BATCH) {
        let mut status = [-1; SAMPLE_BATCH];
        // SAFETY: with a null node list move_pages only looks. It reads `batch.len()` addresses
        // and writes as many entries of `status`, which has room for SAMPLE_BATCH of them.
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                batch.len(),
                batch.as_ptr(),
                ptr::null::<libc::c_int>(),
                status.as_mut_ptr(),
                0,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        status[..batch.len()].iter().for_each(|&one| placement.add(one));
    }
    Ok(placement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_counted() {
        for (list, count) in [("", 0), ("0", 1), ("0-3", 4), ("0-3,8,10-11", 7), ("3-1,x", 0)] {
            assert_eq!(cpu_count(list), count, "{list:?}");
        }
    }

    #[test]
    fn meminfo_of_machine_and_node_read_alike() {
        let machine = "MemTotal:       24683652 kB\nMemFree:        100 kB\n";
        let node = "Node 1 MemTotal:       24683652 kB\nNode 1 MemFree:  100 kB\n";
        for text in [machine, node] {
            assert_eq!(meminfo_bytes(text, "MemTotal"), Some(24_683_652 * 1024));
            assert_eq!(meminfo_bytes(text, "MemFree"), Some(102_400));
            assert_eq!(meminfo_bytes(text, "Mem"), None);
        }
    }

    #[test]
    fn a_sample_tree_of_two_nodes_is_read() {
        let root = tempfile::tempdir().unwrap();
        for (node, cpus, free) in [(0, "0-11\n", "7"), (1, "12-23\n", "0")] {
            let dir = root.path().join(format!("sys/devices/system/node/node{node}"));
            let pool = dir.join("hugepages/hugepages-2048kB");
            fs::create_dir_all(&pool).unwrap();
            fs::write(dir.join("cpulist"), cpus).unwrap();
            let meminfo = format!("Node {node} MemTotal: 1000 kB\nNode {node} MemFree: 500 kB\n");
            fs::write(dir.join("meminfo"), meminfo).unwrap();
            fs::write(pool.join("nr_hugepages"), "10\n").unwrap();
            fs::write(pool.join("free_hugepages"), free).unwrap();
        }
        let found = nodes(root.path());
        assert_eq!(found.iter().map(|n| n.cpu_count).collect::<Vec<_>>(), [12, 12]);
        assert_eq!(found[0].huge_pool, Some(HugePool { total: 10, free: 7 }));
        assert_eq!(huge_pool(root.path(), Some(1)), Some(HugePool { total: 10, free: 0 }));
        assert_eq!(huge_pool(root.path(), None), None);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(available_bytes(Path::new("/"), None).unwrap() > 0);
    }
}
