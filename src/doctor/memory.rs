//! RAM for the arena: nodes, huge pages, locking.

use std::io;
use std::path::Path;

use super::{Finding, human, read};
pub(super) use crate::sys::mapping::HUGE_PAGE_BYTES;
use crate::sys::mapping::PagesWanted;
use crate::sys::numa::{self, HugePool, Node};
use crate::sys::probe::{self, Limit, Resource};

/// Bit of CAP_IPC_LOCK in the capability sets of /proc/self/status.
const CAP_IPC_LOCK: u32 = 14;

/// The arena that is to be had.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub bytes: usize,
    pub node: Option<u32>,
    pub pages: PagesWanted,
}

impl Wanted {
    fn huge_pages(&self) -> u64 {
        (self.bytes / HUGE_PAGE_BYTES) as u64
    }
}

pub(super) fn examine(root: &Path, wanted: Wanted) -> Vec<Finding> {
    let nodes = numa::nodes(root);
    let mut findings: Vec<Finding> = nodes.iter().map(describe).collect();
    findings.extend(node_choice(&nodes, wanted.node));
    if wanted.bytes == 0 {
        let advice = "set memory and small-memory to serve from RAM";
        findings.push(Finding::note("arena", "switched off", advice));
        return findings;
    }
    let pool = numa::huge_pool(root, wanted.node);
    let reserved = wanted.pages == PagesWanted::Best
        && pool.is_some_and(|pool| pool.free >= wanted.huge_pages());
    findings.push(huge_pages(pool, wanted));
    findings.push(room(numa::available_bytes(root, wanted.node), wanted, reserved));
    if !reserved {
        let status = read(root, "proc/self/status").unwrap_or_default();
        let limit = probe::resource_limit(Resource::LockedMemory);
        findings.push(locking(limit, may_lock(&status), wanted));
        let thp = read(root, "sys/kernel/mm/transparent_hugepage/enabled");
        findings.push(transparent(thp.as_deref()));
    }
    findings
}

fn describe(node: &Node) -> Finding {
    let pool = match node.huge_pool {
        Some(HugePool { total, free }) => format!("{free} of {total} reserved 2 MiB pages free"),
        None => "no reserved 2 MiB pages".to_owned(),
    };
    let found = format!(
        "node {}: {} CPUs ({}), {} of {} free, {pool}",
        node.number,
        node.cpu_count,
        node.cpus,
        human(node.free_bytes),
        human(node.total_bytes),
    );
    Finding::ok("NUMA", found)
}

/// Only where there is a choice, or a wrong one was made.
fn node_choice(nodes: &[Node], chosen: Option<u32>) -> Option<Finding> {
    match chosen {
        Some(node) if !nodes.is_empty() && !nodes.iter().any(|n| n.number == node) => {
            let advice = "set numa to one of the nodes above";
            Some(Finding::fatal("NUMA", format!("node {node} does not exist"), advice))
        }
        None if nodes.len() > 1 => {
            let found = "several nodes and none chosen: memory and threads may be far apart";
            Some(Finding::note("NUMA", found, "set numa to the node of the network card"))
        }
        _ => None,
    }
}

fn huge_pages(pool: Option<HugePool>, wanted: Wanted) -> Finding {
    const ABOUT: &str = "huge pages";
    let needed = wanted.huge_pages();
    let place = wanted.node.map_or(String::new(), |node| format!(" on node {node}"));
    let Some(pool) = pool else {
        let advice = "a kernel with CONFIG_HUGETLBFS; until then ordinary memory is used";
        return Finding::note(ABOUT, "this kernel has no 2 MiB HugeTLB pool", advice);
    };
    let found = format!(
        "the arena of {} needs {needed} pages of 2 MiB{place}; {} of {} are free",
        human(wanted.bytes as u64),
        pool.free,
        pool.total
    );
    if pool.free >= needed {
        return Finding::ok(ABOUT, found);
    }
    let more = pool.total + (needed - pool.free);
    let file = match wanted.node {
        Some(node) => {
            format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages")
        }
        None => "/proc/sys/vm/nr_hugepages".to_owned(),
    };
    let running = if pool.free < pool.total { " (a running server holds its own)" } else { "" };
    Finding::note(ABOUT, found, format!("echo {more} > {file}, best at boot{running}"))
}

fn room(available: Option<u64>, wanted: Wanted, reserved: bool) -> Finding {
    const ABOUT: &str = "memory";
    let needed = human(wanted.bytes as u64);
    if reserved {
        return Finding::ok(ABOUT, format!("{needed} for the arena are reserved as huge pages"));
    }
    match available {
        Some(bytes) if bytes >= wanted.bytes as u64 => {
            Finding::ok(ABOUT, format!("{} available, {needed} for the arena", human(bytes)))
        }
        Some(bytes) => Finding::fatal(
            ABOUT,
            format!("{} available, {needed} for the arena", human(bytes)),
            "lower memory and small-memory, or reserve huge pages for all of it",
        ),
        None => Finding::note(ABOUT, "available memory unknown", "mount /proc"),
    }
}

fn locking(limit: io::Result<Limit>, privileged: bool, wanted: Wanted) -> Finding {
    const ABOUT: &str = "locked memory";
    let advice = "LimitMEMLOCK=infinity in the service unit, or raise `ulimit -l`";
    match limit {
        _ if privileged => Finding::ok(ABOUT, "no limit for this user (CAP_IPC_LOCK)"),
        Ok(limit) if limit.soft == u64::MAX => Finding::ok(ABOUT, "no limit"),
        Ok(limit) if limit.soft >= wanted.bytes as u64 => {
            Finding::ok(ABOUT, format!("up to {}", human(limit.soft)))
        }
        Ok(limit) => {
            let limit = human(limit.soft);
            let found = format!("limit {limit}; the arena stays unlocked and may be swapped out");
            Finding::note(ABOUT, found, advice)
        }
        Err(error) => Finding::note(ABOUT, format!("limit unknown: {error}"), advice),
    }
}

/// Whether /proc/self/status names CAP_IPC_LOCK among the effective capabilities.
fn may_lock(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 == 1)
}

fn transparent(enabled: Option<&str>) -> Finding {
    const ABOUT: &str = "transparent huge pages";
    let chosen = enabled.and_then(|text| text.split_once('[')?.1.split_once(']'));
    match chosen {
        Some((mode @ ("always" | "madvise"), _)) => Finding::ok(ABOUT, mode),
        _ => Finding::note(
            ABOUT,
            "off: the arena is on 4 KiB pages, with more misses of the address cache",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::tests::tree;
    use super::*;

    const WANTED: Wanted = Wanted { bytes: 64 << 20, node: Some(1), pages: PagesWanted::Best };

    fn two_nodes(free_on_one: &str) -> tempfile::TempDir {
        let pool = "hugepages/hugepages-2048kB";
        let node = "sys/devices/system/node/node";
        let meminfo = |number| format!("Node {number} MemTotal: 2048 kB\n");
        tree(&[
            (&format!("{node}0/cpulist"), "0-11\n"),
            (&format!("{node}0/meminfo"), &meminfo(0)),
            (&format!("{node}1/cpulist"), "12-23\n"),
            (&format!("{node}1/meminfo"), &meminfo(1)),
            (&format!("{node}1/{pool}/nr_hugepages"), "100\n"),
            (&format!("{node}1/{pool}/free_hugepages"), free_on_one),
            ("proc/meminfo", "MemAvailable:  2048 kB\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
        ])
    }

    fn about<'a>(findings: &'a [Finding], name: &str) -> Vec<&'a Finding> {
        findings.iter().filter(|finding| finding.about == name).collect()
    }

    #[test]
    fn enough_reserved_pages_on_the_node_need_nothing_else() {
        let root = two_nodes("40\n");
        let findings = examine(root.path(), WANTED);
        assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:?}");
        assert_eq!(about(&findings, "NUMA").len(), 2);
        assert!(about(&findings, "NUMA")[1].found.contains("12 CPUs (12-23)"));
        assert!(about(&findings, "locked memory").is_empty());
    }

    #[test]
    fn too_few_reserved_pages_say_how_many_to_reserve_and_where() {
        let root = two_nodes("30\n");
        let findings = examine(root.path(), WANTED);
        let pages = about(&findings, "huge pages")[0];
        let advice = pages.advice.as_deref().unwrap();
        assert!(advice.contains("echo 102 > /sys/devices/system/node/node1/"), "{advice}");
        // 2 MiB of ordinary memory cannot take its place.
        assert!(about(&findings, "memory")[0].forbids_serving);
        assert_eq!(about(&findings, "transparent huge pages")[0].level, Level::Note);
    }

    #[test]
    fn the_choice_of_a_node_is_judged() {
        let root = two_nodes("40\n");
        let examine = |node| examine(root.path(), Wanted { node, ..WANTED });
        assert!(examine(Some(7)).iter().any(|f| f.found == "node 7 does not exist"));
        assert!(examine(None).iter().any(|f| f.found.contains("none chosen")));
    }

    #[test]
    fn a_limit_on_locking_matters_only_without_the_capability() {
        let limit = Limit { soft: 8 << 20, hard: 8 << 20 };
        assert_eq!(locking(Ok(limit), false, WANTED).level, Level::Note);
        assert_eq!(locking(Ok(limit), true, WANTED).level, Level::Ok);
        let unlimited = Limit { soft: u64::MAX, hard: u64::MAX };
        assert_eq!(locking(Ok(unlimited), false, WANTED).level, Level::Ok);
        assert!(may_lock("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_lock("CapEff:\t0000000000000000\n") && !may_lock(""));
    }

    #[test]
    fn an_arena_of_nothing_is_only_noted() {
        let root = tree(&[]);
        let findings = examine(root.path(), Wanted { bytes: 0, node: None, ..WANTED });
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].found, "switched off");
    }
}
