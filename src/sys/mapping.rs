//! Large anonymous memory: huge pages when they can be had, on one NUMA node, prefaulted, locked.
//!
//! Owns `mmap` and everything done to a mapping before its first use. What was asked for and could
//! not be had is named in the `MappingReport`, never skipped in silence. Memory leaves this module
//! as a `Span`: exclusive ownership of a range, like a `Box<[u8]>` that can be cut and joined, so
//! that no code above needs `unsafe`. Never decides what lives where: that is `arena`.
//!
//! Steps down in this order, each with a reason: reserved 2 MiB pages (HugeTLB), transparent huge
//! pages, 4 KiB pages. A pool that holds too few huge pages for the chosen node lets mmap and mbind
//! pass, and a plain touch is then SIGBUS; so HugeTLB memory is always prefaulted with
//! MADV_POPULATE_WRITE, which reports EFAULT instead, and given back when that fails.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::thread;

use super::numa::{self, Placement};
use super::probe::{self, Resource};

/// Size in bytes of a huge page, and the alignment of every mapping.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Size in bytes of an ordinary page.
pub const PAGE_BYTES: usize = 4096;
/// Bytes that one MADV_POPULATE_WRITE call prefaults: small enough to share between threads.
const PREFAULT_CHUNK_BYTES: usize = 256 << 20;
/// More threads than this do not zero memory faster: one node's memory channels are the limit.
const PREFAULT_THREADS_MAX: usize = 8;
/// Tries of a madvise call that was interrupted before it is given up.
const MADVISE_TRIES_MAX: usize = 16;

/// The best page kind that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PagesWanted {
    /// HugeTLB, else transparent huge pages, else 4 KiB pages.
    #[default]
    Best,
    /// Transparent huge pages, else 4 KiB pages; leaves the HugeTLB pool to others.
    NoHugeTlb,
    /// 4 KiB pages only.
    Small,
}

/// Whether the memory must stay out of swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LockWanted {
    No,
    /// Lock when the limit allows; else say so in the report.
    #[default]
    Try,
    /// Fail with `MappingError::NotLocked` when it cannot be locked.
    Require,
}

/// What to map.
#[derive(Clone, Copy, Debug)]
pub struct MappingSettings {
    /// Wanted size; rounded up to a multiple of 2 MiB.
    pub bytes: usize,
    pub pages: PagesWanted,
    /// Bind the memory to this NUMA node.
    pub numa_node: Option<u32>,
    /// Fault every page in now (HugeTLB memory always is).
    pub prefault: bool,
    pub lock: LockWanted,
}

/// The pages that a mapping really has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Reserved 2 MiB pages.
    HugeTlb,
    /// Transparent huge pages; `MappingReport::huge_bytes` says how much of the mapping.
    Transparent,
    /// 4 KiB pages.
    Small,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageKind::HugeTlb => "2 MiB pages (HugeTLB)",
            PageKind::Transparent => "transparent huge pages",
            PageKind::Small => "4 KiB pages",
        })
    }
}

/// What was had, and what was not.
#[derive(Clone, Debug)]
pub struct MappingReport {
    /// Size of the mapping in bytes.
    pub bytes: usize,
    pub pages: PageKind,
    /// Bytes known to be on huge pages (0 for transparent pages that were not prefaulted).
    pub huge_bytes: usize,
    /// True when the memory cannot be swapped out (HugeTLB pages never are).
    pub locked: bool,
    /// The node the memory is bound to, when binding was asked for and worked.
    pub bound_node: Option<u32>,
    /// Where a sample of the pages lies, when prefaulted and the kernel would say.
    pub placement: Option<Placement>,
    /// One sentence for each thing that was asked for and not had, with what to do about it.
    pub shortfalls: Vec<String>,
}

/// Why there is no memory.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    #[error("an empty mapping was asked for")]
    Empty,
    #[error("NUMA node {node} does not exist; this machine has {known}")]
    NoSuchNode { node: u32, known: String },
    #[error("{wanted} bytes wanted, {available} available{}", shortfall_list(.shortfalls))]
    NotEnoughMemory { wanted: usize, available: u64, shortfalls: Vec<String> },
    #[error("cannot lock {bytes} bytes of memory: {reason}")]
    NotLocked { bytes: usize, reason: String },
    #[error("cannot {action} {bytes} bytes of memory: {source}")]
    Kernel { action: &'static str, bytes: usize, source: io::Error },
}

fn shortfall_list(shortfalls: &[String]) -> String {
    shortfalls.iter().map(|reason| format!("; {reason}")).collect()
}

/// One mmap; unmapped when the last `Span` of it is dropped.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a Mapping is an address and a length; it hands out no access to the memory itself. All
// access goes through Spans, which own disjoint ranges.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method takes &Mapping and touches the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn anonymous(len: usize, flags: libc::c_int) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice; nothing that
        // exists is touched. The result is checked before use.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(address.cast::<u8>()) {
            Some(base) => Ok(Mapping { base, len }),
            None => Err(io::Error::other("mmap returned address 0")),
        }
    }

    /// Maps `len` bytes (a multiple of 2 MiB) on a 2 MiB boundary by cutting off what is around it.
    fn aligned(len: usize) -> io::Result<Mapping> {
        let whole = Mapping::anonymous(len + HUGE_PAGE_BYTES, libc::MAP_NORESERVE)?;
        let start = whole.address();
        let wanted = start.next_multiple_of(HUGE_PAGE_BYTES);
        let (before, after) = (wanted - start, HUGE_PAGE_BYTES - (wanted - start));
        let base = whole.base;
        std::mem::forget(whole);
        // SAFETY: `before + len + after` is exactly the mapping made above, whose owner was
        // forgotten; the two trimmed ends are never referred to again. `base + before` stays
        // inside the mapping.
        unsafe {
            unmap(base, before);
            unmap(base.add(before + len), after);
            Ok(Mapping { base: base.add(before), len })
        }
    }

    fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    fn advise(&self, offset: usize, len: usize, advice: libc::c_int) -> io::Result<()> {
        debug_assert!(offset + len <= self.len);
        for _ in 0..MADVISE_TRIES_MAX {
            // SAFETY: the range lies inside this mapping. The advice values used here
            // (HUGEPAGE, DONTDUMP, POPULATE_WRITE) never change the contents of the memory.
            let result =
                unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), len, advice) };
            if result == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) {
                return Err(error);
            }
        }
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    /// Faults every page in, on several threads when there is much of it.
    fn prefault(&self) -> io::Result<()> {
        let chunks = self.len.div_ceil(PREFAULT_CHUNK_BYTES);
        let threads = thread::available_parallelism().map_or(1, |n| n.get());
        let threads = threads.min(PREFAULT_THREADS_MAX).min(chunks);
        let populate = |first: usize| -> io::Result<()> {
            for chunk in (first..chunks).step_by(threads) {
                let offset = chunk * PREFAULT_CHUNK_BYTES;
                let len = PREFAULT_CHUNK_BYTES.min(self.len - offset);
                self.advise(offset, len, libc::MADV_POPULATE_WRITE)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|n| scope.spawn(move || populate(n))).collect();
            // Every thread is waited for, also after one that failed.
            let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            outcomes.into_iter().try_for_each(|outcome| {
                outcome.unwrap_or_else(|_| Err(io::Error::other("a prefault thread died")))
            })
        })
    }

    fn lock(&self) -> io::Result<()> {
        // SAFETY: locking pages of our own mapping changes neither contents nor validity.
        match unsafe { libc::mlock(self.base.as_ptr().cast(), self.len) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Gives address space back.
///
/// # Safety
/// The range must belong to a mapping of the caller and never be used again. `len` may be 0.
unsafe fn unmap(base: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: the caller's promise. munmap of whole pages of an existing mapping can only
        // fail for lack of kernel memory to split it; the range then merely stays mapped.
        unsafe { libc::munmap(base.as_ptr().cast(), len) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: every Span holds an Arc of its Mapping, so none exists any more.
        unsafe { unmap(self.base, self.len) }
    }
}

/// Exclusive ownership of a range of a mapping.
///
/// Reads like a byte slice, writes through `&mut`; share it read-only by putting it behind an
/// `Arc`. **Shape** never empty; spans of one mapping never overlap. Fresh memory is zero; a span
/// that was used before keeps its old bytes.
pub struct Span {
    start: NonNull<u8>,
    len: usize,
    mapping: Arc<Mapping>,
}

// SAFETY: a Span owns its range exclusively (spans are only made whole by `map`, and afterwards
// only cut into disjoint parts or joined), so it is as thread-safe as a Box<[u8]>.
unsafe impl Send for Span {}
// SAFETY: as above; `&Span` only gives `&[u8]`.
unsafe impl Sync for Span {}

impl Deref for Span {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is mapped as long as `self.mapping` lives, is initialised (the kernel
        // zeroes it) and only reachable through this Span, which is borrowed.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Span {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; the Span is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({}+{})", self.offset(), self.len)
    }
}

impl Span {
    /// Where the span begins in its mapping, in bytes.
    pub fn offset(&self) -> usize {
        self.start.as_ptr() as usize - self.mapping.address()
    }

    /// Cuts off and returns the first `len` bytes; `None` when nothing would be left of either.
    pub fn take_front(&mut self, len: usize) -> Option<Span> {
        if len == 0 || len >= self.len {
            return None;
        }
        let front = Span { start: self.start, len, mapping: Arc::clone(&self.mapping) };
        // SAFETY: `len < self.len`, so the new start lies inside the range. From here on the two
        // spans are disjoint.
        self.start = unsafe { self.start.add(len) };
        self.len -= len;
        Some(front)
    }

    /// Joins two neighbours; gives both back when `next` does not begin where this one ends.
    pub fn join(self, next: Span) -> Result<Span, (Span, Span)> {
        let adjacent = self.start.as_ptr() as usize + self.len == next.start.as_ptr() as usize;
        if !adjacent || !Arc::ptr_eq(&self.mapping, &next.mapping) {
            return Err((self, next));
        }
        Ok(Span { start: self.start, len: self.len + next.len, mapping: self.mapping })
    }
}

/// Maps memory as asked.
///
/// **Shape** the span begins on a 2 MiB boundary and is a multiple of 2 MiB long.
/// **Errors** only when no memory can be had at all, the node does not exist, or locking was
/// required and failed. **Source** mmap(2), madvise(2), mbind(2), mlock(2), move_pages(2).
pub fn map(settings: &MappingSettings) -> Result<(Span, MappingReport), MappingError> {
    if settings.bytes == 0 {
        return Err(MappingError::Empty);
    }
    let bytes = settings.bytes.next_multiple_of(HUGE_PAGE_BYTES);
    if let Some(node) = settings.numa_node {
        numa::check_exists(node).map_err(|known| MappingError::NoSuchNode { node, known })?;
    }
    let mut shortfalls = Vec::new();
    if settings.pages == PagesWanted::Best {
        match map_huge_tlb(bytes, settings) {
            Ok(done) => return Ok(done),
            Err(reason) => shortfalls.push(reason),
        }
    }
    map_ordinary(bytes, settings, shortfalls)
}

/// Reserved huge pages, or the reason why not.
fn map_huge_tlb(bytes: usize, settings: &MappingSettings) -> Result<(Span, MappingReport), String> {
    let explain = |error: io::Error| {
        let wanted = bytes / HUGE_PAGE_BYTES;
        format!(
            "no reserved huge pages ({error}): {wanted} pages of 2 MiB are needed{}; reserve them \
             with vm.nr_hugepages or \
             /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages",
            settings.numa_node.map_or(String::new(), |node| format!(" on node {node}")),
        )
    };
    let mapping =
        Mapping::anonymous(bytes, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB).map_err(explain)?;
    let mut shortfalls = Vec::new();
    let bound_node = bind(&mapping, settings, &mut shortfalls);
    mapping.prefault().map_err(explain)?;
    let placement = placement(&mapping, bound_node, HUGE_PAGE_BYTES, &mut shortfalls);
    exclude_from_dumps(&mapping);
    let report = MappingReport {
        bytes,
        pages: PageKind::HugeTlb,
        huge_bytes: bytes,
        locked: true,
        bound_node,
        placement,
        shortfalls,
    };
    Ok((whole_span(mapping), report))
}

/// Transparent huge pages, else 4 KiB pages.
fn map_ordinary(
    bytes: usize,
    settings: &MappingSettings,
    mut shortfalls: Vec<String>,
) -> Result<(Span, MappingReport), MappingError> {
    let available = numa::available_bytes(Path::new("/"), settings.numa_node);
    if let Some(available) = available
        && (settings.prefault || settings.lock == LockWanted::Require)
        && available < bytes as u64
    {
        return Err(MappingError::NotEnoughMemory { wanted: bytes, available, shortfalls });
    }
    let kernel = |action| move |source| MappingError::Kernel { action, bytes, source };
    let mapping = Mapping::aligned(bytes).map_err(kernel("map"))?;
    let mut pages = PageKind::Small;
    if settings.pages != PagesWanted::Small {
        match mapping.advise(0, bytes, libc::MADV_HUGEPAGE) {
            Ok(()) => pages = PageKind::Transparent,
            Err(error) => shortfalls.push(format!("no transparent huge pages: {error}")),
        }
    }
    let bound_node = bind(&mapping, settings, &mut shortfalls);
    exclude_from_dumps(&mapping);
    if settings.prefault {
        prefault_ordinary(&mapping, &mut shortfalls).map_err(kernel("prefault"))?;
    }
    let locked = lock(&mapping, settings.lock, &mut shortfalls)?;
    let huge_bytes = probe::transparent_huge_bytes(mapping.address(), bytes).unwrap_or(0);
    if settings.prefault && pages == PageKind::Transparent && huge_bytes == 0 {
        pages = PageKind::Small;
        shortfalls.push(
            "the kernel gave no transparent huge pages; set \
             /sys/kernel/mm/transparent_hugepage/enabled to madvise"
                .to_owned(),
        );
    }
    let placement = match settings.prefault {
        true => placement(&mapping, bound_node, PAGE_BYTES, &mut shortfalls),
        false => None,
    };
    let report =
        MappingReport { bytes, pages, huge_bytes, locked, bound_node, placement, shortfalls };
    Ok((whole_span(mapping), report))
}

fn whole_span(mapping: Mapping) -> Span {
    Span { start: mapping.base, len: mapping.len, mapping: Arc::new(mapping) }
}

/// Binds to the wanted node; a kernel or container that refuses is a shortfall, not an error.
fn bind(mapping: &Mapping, settings: &MappingSettings, notes: &mut Vec<String>) -> Option<u32> {
    let node = settings.numa_node?;
    match numa::bind(mapping.address(), mapping.len, node) {
        Ok(()) => Some(node),
        Err(error) => {
            notes.push(format!(
                "memory not bound to NUMA node {node} ({error}); allow mbind in the container's \
                 seccomp profile and cpuset.mems"
            ));
            None
        }
    }
}

/// Prefaults; a kernel before 5.14 cannot, and then pages come at first use.
fn prefault_ordinary(mapping: &Mapping, notes: &mut Vec<String>) -> io::Result<()> {
    match mapping.prefault() {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            notes.push("memory not prefaulted: this kernel has no MADV_POPULATE_WRITE".to_owned());
            Ok(())
        }
        result => result,
    }
}

fn lock(
    mapping: &Mapping,
    wanted: LockWanted,
    notes: &mut Vec<String>,
) -> Result<bool, MappingError> {
    if wanted == LockWanted::No {
        return Ok(false);
    }
    let Err(error) = mapping.lock() else { return Ok(true) };
    let limit = probe::resource_limit(Resource::LockedMemory)
        .map_or(String::new(), |limit| format!(" with a limit of {limit} bytes"));
    let reason = format!(
        "{error}{limit}; set LimitMEMLOCK=infinity in the service unit, or raise `ulimit -l`"
    );
    if wanted == LockWanted::Require {
        return Err(MappingError::NotLocked { bytes: mapping.len, reason });
    }
    notes.push(format!("memory not locked, it may be swapped out: {reason}"));
    Ok(false)
}

/// Asks the kernel where the pages are, and says so when they are not where they should be.
fn placement(
    mapping: &Mapping,
    bound_node: Option<u32>,
    page_bytes: usize,
    notes: &mut Vec<String>,
) -> Option<Placement> {
    let placement = numa::placement(mapping.address(), mapping.len, page_bytes).ok()?;
    if let Some(node) = bound_node {
        let elsewhere = placement.pages_not_on(node);
        if elsewhere > 0 {
            notes.push(format!(
                "{elsewhere} of {} sampled pages are not on NUMA node {node}",
                placement.sampled
            ));
        }
    }
    Some(placement)
}

/// Keeps objects of users out of core dumps. Best effort: a core dump is no promise of ours.
fn exclude_from_dumps(mapping: &Mapping) {
    let _ = mapping.advise(0, mapping.len, libc::MADV_DONTDUMP);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(bytes: usize) -> MappingSettings {
        MappingSettings {
            bytes,
            pages: PagesWanted::Best,
            numa_node: None,
            prefault: true,
            lock: LockWanted::Try,
        }
    }

    #[test]
    fn fresh_memory_is_zero_and_writable() {
        for pages in [PagesWanted::Best, PagesWanted::NoHugeTlb, PagesWanted::Small] {
            let (mut span, report) = map(&MappingSettings { pages, ..settings(3 << 20) }).unwrap();
            assert_eq!((span.len(), report.bytes), (4 << 20, 4 << 20));
            assert_eq!(span.as_ptr() as usize % HUGE_PAGE_BYTES, 0);
            assert!(span.iter().all(|&byte| byte == 0));
            span.fill(7);
            assert!(span.iter().all(|&byte| byte == 7));
            if pages == PagesWanted::Small {
                assert_eq!(report.pages, PageKind::Small);
            }
        }
    }

    #[test]
    fn more_huge_pages_than_the_pool_holds_step_down_with_a_reason() {
        let pool = numa::huge_pool(Path::new("/"), None).map_or(0, |pool| pool.free);
        let bytes = (pool as usize + 8) * HUGE_PAGE_BYTES;
        let wanted = MappingSettings { prefault: false, lock: LockWanted::No, ..settings(bytes) };
        let (mut span, report) = map(&wanted).unwrap();
        assert_ne!(report.pages, PageKind::HugeTlb);
        assert!(report.shortfalls[0].contains("no reserved huge pages"), "{report:?}");
        let last = span.len() - 1;
        span[last] = 1;
    }

    #[test]
    fn binding_to_node_zero_is_proved_by_placement() {
        let wanted = MappingSettings { numa_node: Some(0), ..settings(4 << 20) };
        let (_span, report) = map(&wanted).unwrap();
        if report.bound_node.is_some() {
            let placement = report.placement.expect("move_pages answers");
            assert!(placement.sampled > 0);
            assert_eq!(placement.pages_not_on(0), 0, "{placement:?}");
        }
    }

    #[test]
    fn an_absent_node_is_an_error() {
        let wanted = MappingSettings { numa_node: Some(999), ..settings(4096) };
        assert!(matches!(map(&wanted), Err(MappingError::NoSuchNode { node: 999, .. })));
    }

    #[test]
    fn more_memory_than_the_machine_has_is_an_error_before_it_is_touched() {
        let error = map(&settings(1 << 46)).unwrap_err();
        assert!(matches!(error, MappingError::NotEnoughMemory { .. }), "{error}");
        assert!(matches!(map(&settings(0)), Err(MappingError::Empty)));
    }

    #[test]
    fn spans_are_cut_and_joined_only_with_their_neighbour() {
        let (mut rest, _) = map(&settings(2 << 20)).unwrap();
        let mut first = rest.take_front(4096).unwrap();
        let mut second = rest.take_front(4096).unwrap();
        first.fill(1);
        second.fill(2);
        assert!(rest.iter().all(|&byte| byte == 0));
        assert!(rest.take_front(0).is_none());
        assert!(rest.take_front(rest.len()).is_none());

        let (first, rest) = first.join(rest).unwrap_err();
        let joined = first.join(second).unwrap();
        assert_eq!(joined.len(), 8192);
        assert_eq!((joined[4095], joined[4096]), (1, 2));
        let whole = joined.join(rest).unwrap();
        assert_eq!((whole.offset(), whole.len()), (0, 2 << 20));
    }

    #[test]
    fn spans_of_two_mappings_do_not_join() {
        let (one, _) = map(&settings(4096)).unwrap();
        let (two, _) = map(&settings(4096)).unwrap();
        let (one, two) = one.join(two).unwrap_err();
        assert!(two.join(one).is_err());
    }

    #[test]
    fn memory_lives_until_the_last_span_is_gone() {
        let (mut rest, _) = map(&settings(2 << 20)).unwrap();
        let mut kept = rest.take_front(4096).unwrap();
        drop(rest);
        kept.fill(9);
        assert!(kept.iter().all(|&byte| byte == 9));
    }
}
