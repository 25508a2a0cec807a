//! The one table of metrics: name, type, unit, labels, help.
//!
//! docs/metrics.md is made from it; a test fails when the page lags behind
//! (`UPDATE_DOCS=1 cargo test metrics` writes it anew).

use std::fmt::Write as _;

/// How a metric behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises; starts at 0 with the process.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts per latency bucket.
    Histogram,
}

impl Kind {
    /// The word that the exposition format uses.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Def {
    pub name: &'static str,
    pub kind: Kind,
    pub unit: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

const fn def(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Def {
    Def { name, kind, unit, labels, help }
}

use Kind::{Counter, Gauge, Histogram};

const OP: &[&str] = &["operation"];
const POOL: &[&str] = &["pool"];
const NONE: &[&str] = &[];

/// Every metric that `/metrics` may show, in its order there.
pub const TABLE: &[Def] = &[
    def("goblin_build_info", Gauge, "1", &["version"], "Always 1; carries the version."),
    def(
        "goblin_start_time_seconds",
        Gauge,
        "seconds",
        NONE,
        "When the process started, Unix time.",
    ),
    def("goblin_workers", Gauge, "threads", NONE, "Worker threads."),
    def(
        "goblin_requests_total",
        Counter,
        "requests",
        &["operation", "status"],
        "Finished requests.",
    ),
    def(
        "goblin_requests_in_flight",
        Gauge,
        "requests",
        NONE,
        "Requests whose response is not finished.",
    ),
    def(
        "goblin_request_duration_seconds",
        Histogram,
        "seconds",
        OP,
        "From the request's header to the end of the response.",
    ),
    def(
        "goblin_first_byte_seconds",
        Histogram,
        "seconds",
        OP,
        "From the request's header to the response's header.",
    ),
    def("goblin_received_bytes_total", Counter, "bytes", OP, "Request body bytes received."),
    def("goblin_sent_bytes_total", Counter, "bytes", OP, "Response body bytes sent."),
    def(
        "goblin_connections_accepted_total",
        Counter,
        "connections",
        NONE,
        "Connections accepted, refused ones too.",
    ),
    def(
        "goblin_accept_errors_total",
        Counter,
        "errors",
        NONE,
        "Failed accept calls, for example out of descriptors.",
    ),
    def(
        "goblin_timeouts_total",
        Counter,
        "timeouts",
        &["wait"],
        "Clients given up on: no header, no room to send, or no next request.",
    ),
    def(
        "goblin_limit_used",
        Gauge,
        "connections, bytes or uploads",
        &["limit"],
        "Share of a limit in use.",
    ),
    def(
        "goblin_limit_peak",
        Gauge,
        "connections, bytes or uploads",
        &["limit"],
        "The most of a limit ever in use at once.",
    ),
    def(
        "goblin_limit_max",
        Gauge,
        "connections, bytes or uploads",
        &["limit"],
        "The limit, as configured.",
    ),
    def(
        "goblin_limit_refusals_total",
        Counter,
        "refusals",
        &["limit"],
        "Requests or connections refused because a limit was reached.",
    ),
    def("goblin_arena_hits_total", Counter, "reads", NONE, "Reads answered from RAM."),
    def(
        "goblin_arena_misses_total",
        Counter,
        "reads",
        NONE,
        "Reads whose first bytes were not in RAM.",
    ),
    def(
        "goblin_arena_evictions_total",
        Counter,
        "blobs",
        POOL,
        "Heads and small objects that made room for others.",
    ),
    def(
        "goblin_arena_rejections_total",
        Counter,
        "blobs",
        POOL,
        "Heads and small objects for which no room could be made.",
    ),
    def("goblin_arena_resident_blobs", Gauge, "blobs", POOL, "Heads and small objects in RAM."),
    def(
        "goblin_arena_borrowed_blobs",
        Gauge,
        "blobs",
        POOL,
        "Those that a response is being sent from.",
    ),
    def("goblin_arena_used_bytes", Gauge, "bytes", POOL, "Arena bytes in use."),
    def("goblin_arena_size_bytes", Gauge, "bytes", POOL, "Arena bytes reserved."),
    def("goblin_arena_locked", Gauge, "1", NONE, "1 when the arena cannot be swapped out."),
    def("goblin_arena_huge_bytes", Gauge, "bytes", NONE, "Arena bytes known to be on huge pages."),
    def(
        "goblin_log_moved_blobs_total",
        Counter,
        "blobs",
        NONE,
        "Small objects that compaction moved to the end of the commit log.",
    ),
    def(
        "goblin_log_moved_bytes_total",
        Counter,
        "bytes",
        NONE,
        "Bytes of small objects that compaction moved.",
    ),
    def(
        "goblin_log_removed_segments_total",
        Counter,
        "segments",
        NONE,
        "Segments of the commit log removed because nothing alive was left in them.",
    ),
    def("goblin_log_removed_bytes_total", Counter, "bytes", NONE, "Bytes of the segments removed."),
    def(
        "goblin_catalog_snapshots_total",
        Counter,
        "snapshots",
        NONE,
        "Snapshots of the catalog taken, so that older segments could go.",
    ),
    def("goblin_catalog_commits_total", Counter, "commits", NONE, "Changes committed."),
    def(
        "goblin_catalog_groups_total",
        Counter,
        "groups",
        NONE,
        "Groups of changes that shared one flush of the log.",
    ),
    def(
        "goblin_catalog_flush_seconds_total",
        Counter,
        "seconds",
        NONE,
        "Time spent in appending and flushing those groups.",
    ),
    def(
        "goblin_checksum_failures_total",
        Counter,
        "reads",
        NONE,
        "Reads that found damaged bytes on disk; each is also logged as an error.",
    ),
    def("goblin_scrub_running", Gauge, "1", NONE, "1 while scrub reads."),
    def("goblin_scrub_read_bytes", Gauge, "bytes", NONE, "Read in the present or last scrub."),
    def(
        "goblin_scrub_damaged",
        Gauge,
        "findings",
        NONE,
        "Damaged blobs and files that the present or last scrub found.",
    ),
    def(
        "goblin_scrub_finished_time_seconds",
        Gauge,
        "seconds",
        NONE,
        "When the last finished scrub ended, Unix time; 0 is never, or one is under way.",
    ),
    def(
        "goblin_disk_free_bytes",
        Gauge,
        "bytes",
        NONE,
        "Bytes that the data directory's file system can still take.",
    ),
    def(
        "goblin_disk_size_bytes",
        Gauge,
        "bytes",
        NONE,
        "Size of the data directory's file system.",
    ),
    def("process_resident_memory_bytes", Gauge, "bytes", NONE, "Resident memory of the process."),
    def("process_open_fds", Gauge, "descriptors", NONE, "Open file descriptors."),
    def("process_max_fds", Gauge, "descriptors", NONE, "Limit on open file descriptors."),
];

/// The text of docs/metrics.md.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         `GET /metrics` on the admin listener answers in Prometheus text format. This page\n\
         is made from the table in src/metrics/table.rs. Counters start at 0 with the\n\
         process. Names and meanings stay within a major version.\n\n\
         | Name | Type | Unit | Labels | Meaning |\n|---|---|---|---|---|\n",
    );
    for def in TABLE {
        let labels = def.labels.join(", ");
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} |",
            def.name,
            def.kind.name(),
            def.unit,
            labels,
            def.help
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_end_in_their_unit() {
        let mut seen = std::collections::HashSet::new();
        for def in TABLE {
            assert!(seen.insert(def.name), "{} stands twice", def.name);
            assert!(def.help.ends_with('.'), "{}: help is a sentence", def.name);
            let counter = def.name.ends_with("_total");
            assert_eq!(counter, def.kind == Kind::Counter, "{}: _total means counter", def.name);
            let stem = def.name.trim_end_matches("_total");
            match def.unit {
                "seconds" => assert!(stem.ends_with("_seconds"), "{}", def.name),
                "bytes" => assert!(stem.ends_with("_bytes"), "{}", def.name),
                _ => {}
            }
        }
    }

    #[test]
    fn the_doc_page_is_made_from_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, markdown()).expect("docs/ is writable");
        }
        let page = std::fs::read_to_string(path).expect("docs/metrics.md is there");
        assert!(page == markdown(), "run: UPDATE_DOCS=1 cargo test metrics");
    }
}
