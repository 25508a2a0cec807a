//! What a pass came to: rates, latencies by percentile, endings, CPU; as text and as JSON.

use std::fmt;

use serde::Serialize;

use crate::plan::{Op, Plan};
use crate::record::{Ending, Record};

/// A client this busy may be what limits the result.
const SATURATED: f64 = 0.9;

/// Percentiles by nearest rank, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kind {
    pub op: Op,
    /// Those that ended well; only they count below.
    pub requests: u64,
    /// Bodies of these requests.
    pub bytes: u64,
    pub requests_per_second: f64,
    /// 10^6 bytes of bodies each second.
    pub megabytes_per_second: f64,
    /// From sending to the first byte of the response.
    pub first_byte_us: Percentiles,
    /// From sending to the last byte of the response.
    pub total_us: Percentiles,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub kinds: Vec<Kind>,
    /// Failed requests of all kinds, by the name of their ending.
    pub errors: Vec<(&'static str, u64)>,
    /// From the first request's start to the last one's end.
    pub seconds: f64,
    pub connections: usize,
    pub loops: usize,
    /// Connections opened again during the pass.
    pub reconnects: u64,
    /// Summed durations of all requests over the span: requests in flight on average.
    pub in_flight_mean: f64,
    /// CPU time of the client's loops over the span: 1.0 is one core.
    pub client_cores: f64,
    /// A loop used this share of its time; above 0.9 the client may be the limit.
    pub busiest_loop: f64,
    pub client_us_per_request: f64,
    /// CPU time of the server's processes, when they were named.
    pub server_cores: Option<f64>,
    pub server_us_per_request: Option<f64>,
}

/// What is known of a pass beyond its records.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    pub connections: usize,
    pub loops: usize,
    pub reconnects: u64,
    pub client_cpu_secs: f64,
    pub busiest_loop: f64,
    pub server_cpu_secs: Option<f64>,
}

impl Report {
    /// # Panics
    /// When there are no records.
    pub fn new(records: &[Record], plan: &Plan, around: &Around) -> Report {
        let first = records.iter().map(|r| r.start_ns).min().expect("records");
        let last = records.iter().map(|r| r.last_ns).max().expect("records");
        let seconds = (last - first).max(1) as f64 / 1e9;
        let all = records.len() as f64;
        let busy: u64 = records.iter().map(|r| r.last_ns - r.start_ns).sum();
        let mut errors = Vec::new();
        for ending in
            [Ending::Status, Ending::Length, Ending::Content, Ending::Broken, Ending::Timeout]
        {
            let count = records.iter().filter(|r| r.ending == ending).count() as u64;
            if count > 0 {
                errors.push((ending.name(), count));
            }
        }
        Report {
            kinds: [Op::Get, Op::Put]
                .into_iter()
                .filter_map(|op| kind(op, records, plan, seconds))
                .collect(),
            errors,
            seconds,
            connections: around.connections,
            loops: around.loops,
            reconnects: around.reconnects,
            in_flight_mean: busy as f64 / 1e9 / seconds,
            client_cores: around.client_cpu_secs / seconds,
            busiest_loop: around.busiest_loop,
            client_us_per_request: around.client_cpu_secs * 1e6 / all,
            server_cores: around.server_cpu_secs.map(|s| s / seconds),
            server_us_per_request: around.server_cpu_secs.map(|s| s * 1e6 / all),
        }
    }

    pub fn error_count(&self) -> u64 {
        self.errors.iter().map(|(_, count)| count).sum()
    }
}

fn kind(op: Op, records: &[Record], plan: &Plan, seconds: f64) -> Option<Kind> {
    let row = |r: &Record| plan.rows[(r.row % plan.rows.len() as u64) as usize];
    let good: Vec<&Record> =
        records.iter().filter(|r| r.ending == Ending::Ok && row(r).op == op).collect();
    if good.is_empty() {
        return None;
    }
    let bytes: u64 = good.iter().map(|r| plan.objects[row(r).object as usize].bytes).sum();
    Some(Kind {
        op,
        requests: good.len() as u64,
        bytes,
        requests_per_second: good.len() as f64 / seconds,
        megabytes_per_second: bytes as f64 / 1e6 / seconds,
        first_byte_us: percentiles(good.iter().map(|r| r.first_ns - r.start_ns).collect()),
        total_us: percentiles(good.iter().map(|r| r.last_ns - r.start_ns).collect()),
    })
}

fn percentiles(mut nanos: Vec<u64>) -> Percentiles {
    nanos.sort_unstable();
    let rank = |percent: usize| {
        let rank = (nanos.len() * percent).div_ceil(100).max(1);
        nanos[rank - 1] as f64 / 1e3
    };
    Percentiles { p50: rank(50), p95: rank(95), p99: rank(99), max: rank(100) }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in &self.kinds {
            let name = if kind.op == Op::Get { "GET" } else { "PUT" };
            writeln!(
                f,
                "{name}: {} requests in {:.3} s: {:.0} req/s, {:.1} MB/s",
                kind.requests, self.seconds, kind.requests_per_second, kind.megabytes_per_second
            )?;
            for (what, p) in [("first byte", kind.first_byte_us), ("last byte", kind.total_us)] {
                writeln!(
                    f,
                    "  {what:<10} us: p50 {:.0}  p95 {:.0}  p99 {:.0}  max {:.0}",
                    p.p50, p.p95, p.p99, p.max
                )?;
            }
        }
        let errors: Vec<String> =
            self.errors.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let errors = if errors.is_empty() { "none".to_owned() } else { errors.join(", ") };
        writeln!(f, "errors: {errors}; connections opened again: {}", self.reconnects)?;
        writeln!(
            f,
            "in flight on average: {:.1} of {} connections on {} loops",
            self.in_flight_mean, self.connections, self.loops
        )?;
        let limit =
            if self.busiest_loop > SATURATED { " - THE CLIENT MAY BE THE LIMIT" } else { "" };
        writeln!(
            f,
            "client CPU: {:.2} cores, {:.2} us a request, busiest loop {:.0}%{limit}",
            self.client_cores,
            self.client_us_per_request,
            self.busiest_loop * 100.0
        )?;
        if let (Some(cores), Some(us)) = (self.server_cores, self.server_us_per_request) {
            writeln!(f, "server CPU: {cores:.2} cores, {us:.2} us a request")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Object, Row};

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let p = percentiles((1..=200).map(|n| n * 1000).collect());
        assert_eq!(p, Percentiles { p50: 100.0, p95: 190.0, p99: 198.0, max: 200.0 });
        assert_eq!(percentiles(vec![5000]).p50, 5.0);
    }

    #[test]
    fn failures_count_as_errors_only_and_rates_are_over_the_span() {
        let plan = Plan {
            objects: vec![Object { key: "k".into(), bytes: 1000 }],
            rows: vec![Row { op: Op::Get, object: 0 }],
        };
        let record = |row, start_ns, ending| Record {
            start_ns,
            first_ns: start_ns + 100_000_000,
            last_ns: start_ns + 500_000_000,
            row,
            connection: 0,
            status: 200,
            ending,
        };
        let records = [
            record(0, 0, Ending::Ok),
            record(1, 0, Ending::Status),
            record(2, 1_500_000_000, Ending::Ok),
        ];
        let around = Around {
            connections: 2,
            loops: 1,
            reconnects: 0,
            client_cpu_secs: 1.0,
            busiest_loop: 0.5,
            server_cpu_secs: None,
        };
        let report = Report::new(&records, &plan, &around);
        assert_eq!(report.seconds, 2.0);
        assert_eq!(report.errors, [("status", 1)]);
        assert_eq!((report.kinds[0].requests, report.kinds[0].bytes), (2, 2000));
        assert_eq!(report.kinds[0].requests_per_second, 1.0);
        assert_eq!((report.in_flight_mean, report.client_cores), (0.75, 0.5));
        assert_eq!(report.kinds[0].first_byte_us.p50, 100_000.0);
    }
}
