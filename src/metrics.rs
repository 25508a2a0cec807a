//! What is counted, and its Prometheus text form.
//!
//! Owns the request figures and the rendering; the names, units and help stand in one table,
//! `metrics/table.rs`, from which docs/metrics.md is made. Components keep their own counters and
//! are asked when somebody scrapes. Leaf: imports nothing of ours. Recording takes a lock that only
//! the recording worker and a scrape ever touch.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

mod table;

pub use table::{Def, Kind, TABLE, markdown};

/// Upper bounds of the latency buckets in seconds; one more bucket holds the rest.
pub const LATENCY_BUCKETS: [f64; 18] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 10.0, 30.0, 120.0,
];

/// One finished request.
#[derive(Clone, Copy, Debug)]
pub struct RequestSample {
    /// The operation's API name.
    pub operation: &'static str,
    pub status: u16,
    /// Body bytes received and sent.
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// From the request's header to the response's header.
    pub first_byte: Duration,
    /// From the request's header to the end of the response's body.
    pub total: Duration,
}

/// Gives the present values of a component's figures.
pub type Collector = Box<dyn Fn(&mut Samples) + Send + Sync>;

/// Every figure of the process.
pub struct Metrics {
    shards: Vec<Mutex<Shard>>,
    requests_in_flight: AtomicU64,
    connections_accepted: AtomicU64,
    accept_errors: AtomicU64,
    timeouts: [AtomicU64; Timeout::ALL.len()],
    collectors: Mutex<Vec<Collector>>,
}

/// Which wait for a client ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// The request's header did not arrive in time.
    Header,
    /// The client took no byte of the response for too long.
    Send,
    /// A kept-alive connection was not used again.
    Idle,
}

impl Timeout {
    const ALL: [Timeout; 3] = [Timeout::Header, Timeout::Send, Timeout::Idle];

    fn name(self) -> &'static str {
        match self {
            Timeout::Header => "header",
            Timeout::Send => "send",
            Timeout::Idle => "idle",
        }
    }
}

/// The figures of one worker.
#[derive(Default)]
struct Shard {
    operations: hashbrown::HashMap<&'static str, OperationSeries>,
}

#[derive(Clone, Default)]
struct OperationSeries {
    /// Requests by status; a handful each.
    statuses: Vec<(u16, u64)>,
    received_bytes: u64,
    sent_bytes: u64,
    first_byte: Histogram,
    total: Histogram,
}

impl OperationSeries {
    fn count(&mut self, status: u16, requests: u64) {
        match self.statuses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += requests,
            None => self.statuses.push((status, requests)),
        }
    }
}

#[derive(Clone, Default)]
struct Histogram {
    /// One count per bucket of `LATENCY_BUCKETS` and one for the rest; not cumulative.
    counts: [u64; LATENCY_BUCKETS.len() + 1],
    sum_seconds: f64,
}

impl Histogram {
    fn record(&mut self, value: Duration) {
        let seconds = value.as_secs_f64();
        self.counts[LATENCY_BUCKETS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum_seconds += seconds;
    }

    fn add(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        self.sum_seconds += other.sum_seconds;
    }
}

impl Metrics {
    /// Figures for `workers` worker threads.
    pub fn new(workers: usize) -> Metrics {
        Metrics {
            shards: (0..workers.max(1)).map(|_| Mutex::default()).collect(),
            requests_in_flight: AtomicU64::new(0),
            connections_accepted: AtomicU64::new(0),
            accept_errors: AtomicU64::new(0),
            timeouts: Default::default(),
            collectors: Mutex::default(),
        }
    }

    /// Adds a component that will be asked at each scrape.
    pub fn register(&self, collector: Collector) {
        lock(&self.collectors).push(collector);
    }

    /// Counts a finished request for `worker`.
    pub fn request(&self, worker: usize, sample: &RequestSample) {
        let mut shard = lock(&self.shards[worker % self.shards.len()]);
        let series = shard.operations.entry(sample.operation).or_default();
        series.count(sample.status, 1);
        series.received_bytes += sample.received_bytes;
        series.sent_bytes += sample.sent_bytes;
        series.first_byte.record(sample.first_byte);
        series.total.record(sample.total);
    }

    /// A request began; call `request_ended` for each.
    pub fn request_began(&self) {
        self.requests_in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub fn request_ended(&self) {
        self.requests_in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Requests whose response is not finished.
    pub fn in_flight(&self) -> u64 {
        self.requests_in_flight.load(Ordering::Relaxed)
    }

    pub fn connection_accepted(&self) {
        self.connections_accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub fn accept_failed(&self) {
        self.accept_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub fn timed_out(&self, timeout: Timeout) {
        self.timeouts[timeout as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The Prometheus text exposition of everything.
    ///
    /// **Source** Prometheus documentation, "Exposition formats", text format 0.0.4.
    pub fn render(&self) -> String {
        let mut samples = Samples::default();
        self.collect(&mut samples);
        for collector in lock(&self.collectors).iter() {
            collector(&mut samples);
        }
        samples.render()
    }

    fn collect(&self, samples: &mut Samples) {
        let mut operations: HashMap<&'static str, OperationSeries> = HashMap::new();
        for shard in &self.shards {
            let shard = lock(shard);
            for (operation, series) in &shard.operations {
                let sum = operations.entry(operation).or_default();
                for (status, count) in &series.statuses {
                    sum.count(*status, *count);
                }
                sum.received_bytes += series.received_bytes;
                sum.sent_bytes += series.sent_bytes;
                sum.first_byte.add(&series.first_byte);
                sum.total.add(&series.total);
            }
        }
        for (operation, series) in operations {
            for (status, count) in &series.statuses {
                let status = status.to_string();
                let labels = [("operation", operation), ("status", status.as_str())];
                samples.put("goblin_requests_total", &labels, *count as f64);
            }
            let labels = [("operation", operation)];
            samples.put("goblin_received_bytes_total", &labels, series.received_bytes as f64);
            samples.put("goblin_sent_bytes_total", &labels, series.sent_bytes as f64);
            samples.histogram("goblin_first_byte_seconds", &labels, &series.first_byte);
            samples.histogram("goblin_request_duration_seconds", &labels, &series.total);
        }
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed) as f64;
        samples.put("goblin_requests_in_flight", &[], load(&self.requests_in_flight));
        samples.put("goblin_connections_accepted_total", &[], load(&self.connections_accepted));
        samples.put("goblin_accept_errors_total", &[], load(&self.accept_errors));
        for timeout in Timeout::ALL {
            let labels = [("wait", timeout.name())];
            samples.put("goblin_timeouts_total", &labels, load(&self.timeouts[timeout as usize]));
        }
    }
}

/// The values of one scrape.
#[derive(Default)]
pub struct Samples {
    /// By metric name: finished lines, without the name's prefix lines.
    lines: HashMap<&'static str, Vec<String>>,
}

impl Samples {
    /// Adds a value of a counter or gauge that stands in the table.
    pub fn put(&mut self, name: &'static str, labels: &[(&str, &str)], value: f64) {
        let mut line = String::from(name);
        push_labels(&mut line, labels, None);
        let _ = write!(line, " {value}");
        self.lines.entry(name).or_default().push(line);
    }

    fn histogram(&mut self, name: &'static str, labels: &[(&str, &str)], values: &Histogram) {
        let lines = self.lines.entry(name).or_default();
        let mut cumulative = 0;
        for (i, count) in values.counts.iter().enumerate() {
            cumulative += count;
            let bound = LATENCY_BUCKETS.get(i).map_or("+Inf".to_owned(), f64::to_string);
            let mut line = format!("{name}_bucket");
            push_labels(&mut line, labels, Some(("le", &bound)));
            let _ = write!(line, " {cumulative}");
            lines.push(line);
        }
        for (suffix, value) in [("sum", values.sum_seconds), ("count", cumulative as f64)] {
            let mut line = format!("{name}_{suffix}");
            push_labels(&mut line, labels, None);
            let _ = write!(line, " {value}");
            lines.push(line);
        }
    }

    /// Names that were put in but do not stand in the table, for the test that forbids them.
    pub fn unknown_names(&self) -> Vec<&'static str> {
        let known = |name: &str| TABLE.iter().any(|def| def.name == name);
        self.lines.keys().copied().filter(|name| !known(name)).collect()
    }

    fn render(mut self) -> String {
        let mut out = String::new();
        for def in TABLE {
            let Some(mut lines) = self.lines.remove(def.name) else { continue };
            if def.kind != Kind::Histogram {
                lines.sort();
            }
            let _ = writeln!(out, "# HELP {} {}", def.name, def.help);
            let _ = writeln!(out, "# TYPE {} {}", def.name, def.kind.name());
            for line in lines {
                out.push_str(&line);
                out.push('\n');
            }
        }
        out
    }
}

fn push_labels(line: &mut String, labels: &[(&str, &str)], extra: Option<(&str, &str)>) {
    let mut open = '{';
    for (name, value) in labels.iter().copied().chain(extra) {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(line, "{open}{name}=\"{value}\"");
        open = ',';
    }
    if open == ',' {
        line.push('}');
    }
}

/// The figures stay usable after a panic elsewhere: each update leaves them consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(operation: &'static str, status: u16, millis: u64) -> RequestSample {
        RequestSample {
            operation,
            status,
            received_bytes: 3,
            sent_bytes: 5,
            first_byte: Duration::from_millis(millis / 2),
            total: Duration::from_millis(millis),
        }
    }

    #[test]
    fn requests_of_all_workers_are_summed() {
        let metrics = Metrics::new(2);
        metrics.request(0, &sample("GetObject", 200, 2));
        metrics.request(1, &sample("GetObject", 200, 2));
        metrics.request(1, &sample("GetObject", 404, 40));
        let text = metrics.render();
        for line in [
            "goblin_requests_total{operation=\"GetObject\",status=\"200\"} 2",
            "goblin_requests_total{operation=\"GetObject\",status=\"404\"} 1",
            "goblin_sent_bytes_total{operation=\"GetObject\"} 15",
            "goblin_request_duration_seconds_bucket{operation=\"GetObject\",le=\"0.0025\"} 2",
            "goblin_request_duration_seconds_bucket{operation=\"GetObject\",le=\"+Inf\"} 3",
            "goblin_request_duration_seconds_count{operation=\"GetObject\"} 3",
            "# TYPE goblin_request_duration_seconds histogram",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn label_values_are_escaped() {
        let mut samples = Samples::default();
        samples.put("goblin_build_info", &[("version", "a\"b\\c\nd")], 1.0);
        let text = samples.render();
        assert!(text.contains(r#"goblin_build_info{version="a\"b\\c\nd"} 1"#), "{text}");
    }

    #[test]
    fn every_recorded_name_stands_in_the_table() {
        let metrics = Metrics::new(1);
        metrics.request(0, &sample("GetObject", 200, 2));
        let mut samples = Samples::default();
        metrics.collect(&mut samples);
        assert_eq!(samples.unknown_names(), Vec::<&str>::new());
    }

    #[test]
    fn a_value_on_a_bound_belongs_to_that_bucket() {
        let mut histogram = Histogram::default();
        histogram.record(Duration::from_millis(1));
        histogram.record(Duration::from_secs(1_000));
        assert_eq!(histogram.counts[4], 1);
        assert_eq!(histogram.counts[LATENCY_BUCKETS.len()], 1);
    }
}
