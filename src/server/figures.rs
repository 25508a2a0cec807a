//! The figures that components keep themselves, brought to the metrics at each scrape.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arena::Arena;
use crate::catalog::sqlite::{CompactStats, SqliteCatalog};
use crate::limits::Limits;
use crate::maintenance::scrub::ScrubHandle;
use crate::metrics::{Metrics, Samples};
use crate::store::Shared;
use crate::sys::process;

/// Who is asked.
pub struct Sources {
    pub limits: Limits,
    pub store: Arc<Shared>,
    pub catalog: Arc<SqliteCatalog>,
    pub data_dir: PathBuf,
    pub workers: usize,
    pub started_ms: i64,
}

/// Lets `metrics` ask every component.
pub fn register(metrics: &Metrics, sources: Sources) {
    metrics.register(Box::new(move |samples| {
        samples.put("goblin_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        samples.put("goblin_start_time_seconds", &[], sources.started_ms as f64 / 1000.0);
        samples.put("goblin_workers", &[], sources.workers as f64);
        put_limits(samples, &sources.limits);
        put_arena(samples, &sources.store.arena);
        put_storage(samples, &sources);
        put_machine(samples, &sources.data_dir);
    }));
}

/// Lets `metrics` ask for what compaction of the commit log did.
pub fn register_compaction(
    metrics: &Metrics,
    stats: impl Fn() -> CompactStats + Send + Sync + 'static,
) {
    metrics.register(Box::new(move |samples| {
        let stats = stats();
        samples.put("goblin_log_moved_blobs_total", &[], stats.moved_blobs as f64);
        samples.put("goblin_log_moved_bytes_total", &[], stats.moved_bytes as f64);
        samples.put("goblin_log_removed_segments_total", &[], stats.removed_segments as f64);
        samples.put("goblin_log_removed_bytes_total", &[], stats.removed_bytes as f64);
        samples.put("goblin_catalog_snapshots_total", &[], stats.snapshots as f64);
    }));
}

/// Lets `metrics` ask how far scrub is and what it found.
pub fn register_scrub(metrics: &Metrics, scrub: Arc<ScrubHandle>) {
    metrics.register(Box::new(move |samples| {
        let state = scrub.state();
        samples.put("goblin_scrub_running", &[], f64::from(u8::from(state.running)));
        samples.put("goblin_scrub_read_bytes", &[], state.bytes_done as f64);
        let damaged = state.damaged_total + state.problems.len() as u64;
        samples.put("goblin_scrub_damaged", &[], damaged as f64);
        let finished = state.finished_ms.unwrap_or_default();
        samples.put("goblin_scrub_finished_time_seconds", &[], finished as f64 / 1000.0);
    }));
}

fn put_limits(samples: &mut Samples, limits: &Limits) {
    for report in limits.reports() {
        let labels = [("limit", report.name)];
        samples.put("goblin_limit_used", &labels, report.used as f64);
        samples.put("goblin_limit_peak", &labels, report.peak as f64);
        samples.put("goblin_limit_max", &labels, report.max as f64);
        samples.put("goblin_limit_refusals_total", &labels, report.refused as f64);
    }
}

fn put_arena(samples: &mut Samples, arena: &Arena) {
    let stats = arena.stats();
    samples.put("goblin_arena_hits_total", &[], stats.hits as f64);
    samples.put("goblin_arena_misses_total", &[], stats.misses as f64);
    for (pool, figures) in [("heads", stats.heads), ("packed", stats.packed)] {
        let labels = [("pool", pool)];
        samples.put("goblin_arena_evictions_total", &labels, figures.evicted as f64);
        samples.put("goblin_arena_rejections_total", &labels, figures.rejected as f64);
        samples.put("goblin_arena_resident_blobs", &labels, figures.resident as f64);
        samples.put("goblin_arena_borrowed_blobs", &labels, figures.borrowed as f64);
        samples.put("goblin_arena_used_bytes", &labels, figures.used_bytes as f64);
        samples.put("goblin_arena_size_bytes", &labels, figures.capacity_bytes as f64);
    }
    if let Some(mapping) = &arena.report().mapping {
        samples.put("goblin_arena_locked", &[], f64::from(u8::from(mapping.locked)));
        samples.put("goblin_arena_huge_bytes", &[], mapping.huge_bytes as f64);
    }
}

fn put_storage(samples: &mut Samples, sources: &Sources) {
    let figures = sources.catalog.figures();
    let load = |value: &AtomicU64| value.load(Ordering::Relaxed) as f64;
    samples.put("goblin_catalog_commits_total", &[], load(&figures.commits));
    samples.put("goblin_catalog_groups_total", &[], load(&figures.groups));
    let seconds = load(&figures.flush_micros) / 1e6;
    samples.put("goblin_catalog_flush_seconds_total", &[], seconds);
    let damaged = sources.store.damaged_reads() as f64;
    samples.put("goblin_checksum_failures_total", &[], damaged);
}

fn put_machine(samples: &mut Samples, data_dir: &Path) {
    if let Ok(space) = process::disk_space(data_dir) {
        samples.put("goblin_disk_free_bytes", &[], space.free_bytes as f64);
        samples.put("goblin_disk_size_bytes", &[], space.size_bytes as f64);
    }
    if let Ok(usage) = process::usage() {
        samples.put("process_resident_memory_bytes", &[], usage.resident_bytes as f64);
        samples.put("process_open_fds", &[], usage.open_files as f64);
        samples.put("process_max_fds", &[], usage.open_files_max as f64);
    }
}
