//! One run from the command line to the report: the plan, the threads, the passes.

use std::io::Write;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::args::{Objects, RunArgs};
use crate::content::Content;
use crate::engine::{BUFFER_BYTES_MIN, Loop, Pass, Shared};
use crate::plan::{self, Object, Op, Plan, Queue};
use crate::record;
use crate::report::{Around, Report};
use crate::requests::{Requests, Sign, Style, Target};
use crate::sigv4::Signer;
use crate::{bucket, cpu, sys};

/// Requests per second and loop for which room is made before a pass that is limited by time.
const EXPECTED_PER_SECOND: f64 = 200_000.0;
/// Records for which room is made beforehand, at most, per loop.
const EXPECTED_MAX: f64 = 20e6;
const YEAR: Duration = Duration::from_secs(365 * 86400);

/// The objects that the command line describes.
pub fn objects(args: &Objects) -> Result<Vec<Object>> {
    match &args.population {
        Some(file) => plan::read_population(file),
        None => plan::fixed(args.objects, args.size, &args.prefix),
    }
}

/// What one thread brings back.
struct LoopResult {
    pass: Pass,
    cpu_secs: f64,
    wall_secs: f64,
}

/// Runs the load. `get_share` is 1 for downloads only and 0 for uploads only.
pub fn run(args: &RunArgs, get_share: f64) -> Result<()> {
    let style = style(args)?;
    if args.create_bucket {
        bucket::create(&style)?;
    }
    let shared = prepare(args, get_share, &style)?;
    let loops = loop_count(args);
    let duration = args.duration.map_or(YEAR, Duration::from_secs_f64);
    let limit = args.count.unwrap_or(match args.duration {
        Some(_) => u64::MAX / 2,
        None => shared.plan.rows.len() as u64,
    });
    let warm = (args.warmup > 0.0).then(|| Duration::from_secs_f64(args.warmup));
    let passes: Vec<(Queue, Duration)> = warm
        .map(|duration| (Queue::new(u64::MAX / 2), duration))
        .into_iter()
        .chain([(Queue::new(limit), duration)])
        .collect();
    let barrier = Barrier::new(loops + 1);
    let (results, server_cpu_secs) = std::thread::scope(|scope| -> Result<_> {
        let threads: Vec<_> = (0..loops)
            .map(|index| {
                let (shared, passes, barrier) = (&shared, &passes, &barrier);
                scope.spawn(move || run_loop(args, shared, passes, barrier, index, loops))
            })
            .collect();
        let server = watch_server(args, &passes, &barrier);
        let mut results = Vec::new();
        for thread in threads {
            results.push(thread.join().expect("no panic in a client thread")?);
        }
        Ok((results, server?))
    })?;
    finish(args, &shared, results, server_cpu_secs)
}

fn style(args: &RunArgs) -> Result<Style> {
    let target = Target::parse(&args.url)?;
    let signer = match args.sign {
        Sign::None => None,
        _ if args.access_key.is_empty() || args.secret_key.is_empty() => {
            bail!("signing needs --access-key and --secret-key (or --sign none)")
        }
        _ => Some(Signer::new(&args.access_key, &args.secret_key, &args.region, &amz_date()?)),
    };
    let mut headers = args.header.clone();
    headers.sort();
    Ok(Style { target, sign: args.sign, payload: args.payload, signer, headers })
}

#[expect(clippy::disallowed_methods, reason = "a client's signature carries the real time")]
fn amz_date() -> Result<String> {
    let format = time::macros::format_description!("[year][month][day]T[hour][minute][second]Z");
    time::OffsetDateTime::now_utc().format(&format).context("formatting the time")
}

fn prepare(args: &RunArgs, get_share: f64, style: &Style) -> Result<Shared> {
    if args.concurrency == 0 {
        bail!("at least one connection is needed");
    }
    let objects = objects(&args.objects)?;
    let rows = match &args.measured {
        Some(file) => plan::read_measured(file, &objects)?,
        None => plan::ordered(objects.len(), args.order, get_share, args.objects.seed),
    };
    let allowed = |op| match op {
        Op::Get => get_share > 0.0,
        Op::Put => get_share < 1.0,
    };
    if let Some(row) = rows.iter().find(|row| !allowed(row.op)) {
        bail!("the manifest has a {}: use `mixed`", row.op.method());
    }
    let plan = Plan { objects, rows };
    let content = Content::new(args.objects.seed);
    let requests = Requests::build(&plan, style, &content);
    let buffer_bytes = usize::try_from(args.buffer)?.max(BUFFER_BYTES_MIN);
    if args.discard && args.verify != crate::engine::Verify::Length {
        bail!("--discard and --verify exclude each other: what is thrown away is not seen");
    }
    Ok(Shared {
        plan,
        requests,
        content,
        address: style.target.address(),
        verify: args.verify,
        discard: args.discard,
        buffer_bytes,
        timeout: Duration::from_secs_f64(args.timeout),
        origin: Instant::now(),
    })
}

fn loop_count(args: &RunArgs) -> usize {
    args.loops.unwrap_or(args.pin.len()).max(1).min(args.concurrency)
}

fn run_loop(
    args: &RunArgs,
    shared: &Shared,
    passes: &[(Queue, Duration)],
    barrier: &Barrier,
    index: usize,
    loops: usize,
) -> Result<LoopResult> {
    let share = |i: usize| args.concurrency * i / loops;
    let (first, count) = (share(index), share(index + 1) - share(index));
    let opened = set_up_thread(args, index)
        .and_then(|()| Loop::connect(shared, u32::try_from(first)?, count));
    let expected = args.count.map_or(
        (args.duration.unwrap_or(0.0) * EXPECTED_PER_SECOND).min(EXPECTED_MAX) as usize,
        |count| (count as usize).min(EXPECTED_MAX as usize) / loops + 1,
    );
    // Everyone must come to every barrier, whatever happened.
    let mut result = opened.map(|client| (client, None));
    for (queue, duration) in passes {
        barrier.wait();
        if let Ok((client, last)) = &mut result {
            let (cpu, wall) = (cpu::of_this_thread(), Instant::now());
            match client.run(queue, *duration, expected) {
                Ok(pass) => {
                    let cpu_secs = (cpu::of_this_thread() - cpu).as_secs_f64();
                    let wall_secs = wall.elapsed().as_secs_f64();
                    *last = Some(LoopResult { pass, cpu_secs, wall_secs });
                }
                Err(e) => result = Err(e),
            }
        }
        barrier.wait();
    }
    result?.1.context("a pass was made")
}

fn set_up_thread(args: &RunArgs, index: usize) -> Result<()> {
    if !args.pin.is_empty() {
        cpu::pin_this_thread(args.pin[index % args.pin.len()])?;
    }
    if let Some(policy) = &args.memory_policy {
        sys::memory::set(policy).context("setting the memory policy")?;
    }
    Ok(())
}

/// Takes part in the barriers and returns the server's CPU time in the last pass, in seconds.
fn watch_server(
    args: &RunArgs,
    passes: &[(Queue, Duration)],
    barrier: &Barrier,
) -> Result<Option<f64>> {
    let mut spent = Ok(Duration::ZERO);
    for _ in passes {
        let before = cpu::of_processes(&args.server_pid);
        barrier.wait();
        barrier.wait();
        spent = before.and_then(|b| Ok(cpu::of_processes(&args.server_pid)?.saturating_sub(b)));
    }
    let spent = spent?;
    Ok((!args.server_pid.is_empty()).then_some(spent.as_secs_f64()))
}

fn finish(
    args: &RunArgs,
    shared: &Shared,
    results: Vec<LoopResult>,
    server_cpu_secs: Option<f64>,
) -> Result<()> {
    let around = Around {
        connections: args.concurrency,
        loops: results.len(),
        reconnects: results.iter().map(|r| r.pass.reconnects).sum(),
        client_cpu_secs: results.iter().map(|r| r.cpu_secs).sum(),
        busiest_loop: results.iter().map(|r| r.cpu_secs / r.wall_secs).fold(0.0, f64::max),
        server_cpu_secs,
    };
    let complaint = results.iter().find_map(|r| r.pass.complaint.clone());
    let mut records: Vec<_> = results.into_iter().flat_map(|r| r.pass.records).collect();
    if records.is_empty() {
        bail!("not one request was made");
    }
    let report = Report::new(&records, &shared.plan, &around);
    if let Some(file) = &args.csv {
        record::write_csv(file, &mut records, &shared.plan)?;
    }
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string(&report)?),
        false => report.to_string(),
    };
    std::io::stdout().write_all(text.as_bytes()).context("printing the report")?;
    if report.error_count() > 0 {
        let why = complaint.map_or(String::new(), |c| format!("; the first refusal:\n{c}"));
        bail!("{} requests failed{why}", report.error_count());
    }
    Ok(())
}
