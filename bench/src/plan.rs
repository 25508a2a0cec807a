//! What is asked for: the objects, the order of requests, and the queue that hands them out.
//!
//! A population lists each object once; a measured manifest is the access order with repeats.
//! Nothing here knows HTTP.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::rng::Rng;

/// Rows of a mixed or shuffled order that is made here; it repeats from then on.
const MADE_ROWS_MIN: usize = 1 << 16;
const OBJECTS_MAX: usize = u32::MAX as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    Get,
    Put,
}

impl Op {
    pub fn method(self) -> &'static str {
        match self {
            Op::Get => "GET",
            Op::Put => "PUT",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub key: String,
    pub bytes: u64,
}

/// One request to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub op: Op,
    /// Index into the population.
    pub object: u32,
}

/// The order in which objects of a made-up plan are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// One after the other, from the first again after the last.
    Sequential,
    /// Each once, in a random order, which repeats.
    Shuffled,
    /// Independently at random, each as likely as any other.
    Random,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub objects: Vec<Object>,
    pub rows: Vec<Row>,
}

/// `objects` of `bytes` each, named `prefix` and eight digits.
pub fn fixed(objects: usize, bytes: u64, prefix: &str) -> Result<Vec<Object>> {
    if objects == 0 || objects > OBJECTS_MAX {
        bail!("the number of objects must be from 1 to {OBJECTS_MAX}");
    }
    Ok((0..objects).map(|i| Object { key: format!("{prefix}{i:08}"), bytes }).collect())
}

/// Rows for `objects`: each is a GET with probability `get_share`, else a PUT.
pub fn ordered(objects: usize, order: Order, get_share: f64, seed: u64) -> Vec<Row> {
    let mut rng = Rng::new(seed);
    let mixed = get_share > 0.0 && get_share < 1.0;
    let count = match (order, mixed) {
        (Order::Random, _) | (_, true) => objects.next_multiple_of(MADE_ROWS_MIN),
        _ => objects,
    };
    let mut turn: Vec<u32> = (0..objects as u32).collect();
    if order == Order::Shuffled {
        rng.shuffle(&mut turn);
    }
    (0..count)
        .map(|i| {
            let object = match order {
                Order::Random => rng.below(objects as u64) as u32,
                _ => turn[i % objects],
            };
            let op = if rng.unit() < get_share { Op::Get } else { Op::Put };
            Row { op, object }
        })
        .collect()
}

/// Reads a population: a header line, then `key,bytes` lines. A key may contain commas.
pub fn read_population(path: &Path) -> Result<Vec<Object>> {
    let mut objects = Vec::new();
    for_each_line(path, "key,bytes", |line| {
        let (key, bytes) = line.rsplit_once(',').context("want key,bytes")?;
        objects.push(Object { key: key.to_owned(), bytes: bytes.parse()? });
        Ok(())
    })?;
    if objects.is_empty() || objects.len() > OBJECTS_MAX {
        bail!("{}: {} objects", path.display(), objects.len());
    }
    Ok(objects)
}

/// Reads a measured manifest: a header line, then `op,key` lines in the order of access.
pub fn read_measured(path: &Path, objects: &[Object]) -> Result<Vec<Row>> {
    let index: HashMap<&str, u32> =
        objects.iter().enumerate().map(|(i, o)| (o.key.as_str(), i as u32)).collect();
    let mut rows = Vec::new();
    for_each_line(path, "op,key", |line| {
        let (op, key) = line.split_once(',').context("want op,key")?;
        let op = match op {
            "get" => Op::Get,
            "put" => Op::Put,
            _ => bail!("the operation is get or put, not {op}"),
        };
        let object = *index.get(key).with_context(|| format!("{key} is not in the population"))?;
        rows.push(Row { op, object });
        Ok(())
    })?;
    if rows.is_empty() {
        bail!("{}: no rows", path.display());
    }
    Ok(rows)
}

fn for_each_line(path: &Path, head: &str, mut f: impl FnMut(&str) -> Result<()>) -> Result<()> {
    let name = path.display();
    let file = std::fs::File::open(path).with_context(|| format!("opening {name}"))?;
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.with_context(|| format!("reading {name}"))?;
        if number == 0 {
            if line != head {
                bail!("{name}: the first line must be {head}");
            }
            continue;
        }
        f(&line).with_context(|| format!("{name}, line {}", number + 1))?;
    }
    Ok(())
}

pub fn write_population(path: &Path, objects: &[Object]) -> Result<()> {
    write_lines(path, "key,bytes", objects.iter().map(|o| format!("{},{}", o.key, o.bytes)))
}

pub fn write_measured(path: &Path, plan: &Plan) -> Result<()> {
    let line = |row: &Row| {
        let key = &plan.objects[row.object as usize].key;
        format!("{},{key}", row.op.method().to_ascii_lowercase())
    };
    write_lines(path, "op,key", plan.rows.iter().map(line))
}

fn write_lines(path: &Path, head: &str, lines: impl Iterator<Item = String>) -> Result<()> {
    let file =
        std::fs::File::create(path).with_context(|| format!("creating {}", path.display()))?;
    let mut out = BufWriter::new(file);
    writeln!(out, "{head}")?;
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.flush().with_context(|| format!("writing {}", path.display()))
}

/// Hands out the rows of one pass to all connections of all threads. Alone on its cache lines.
#[repr(align(128))]
pub struct Queue {
    next: AtomicU64,
    /// Rows to hand out.
    limit: u64,
}

impl Queue {
    /// `limit` may exceed the plan's rows; they repeat.
    pub fn new(limit: u64) -> Queue {
        Queue { next: AtomicU64::new(0), limit }
    }

    /// The number of the next row, counted over all repeats; `None` when there are no more.
    pub fn take(&self) -> Option<u64> {
        let row = self.next.fetch_add(1, Ordering::Relaxed);
        (row < self.limit).then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_visit_what_they_should() {
        let rows = ordered(5, Order::Sequential, 1.0, 1);
        assert_eq!(rows.iter().map(|r| r.object).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let mut shuffled: Vec<_> =
            ordered(100, Order::Shuffled, 0.0, 1).iter().map(|r| r.object).collect();
        assert_ne!(shuffled, (0..100).collect::<Vec<_>>());
        shuffled.sort_unstable();
        assert_eq!(shuffled, (0..100).collect::<Vec<_>>());
        let mixed = ordered(10, Order::Random, 0.9, 1);
        let gets = mixed.iter().filter(|r| r.op == Op::Get).count();
        assert!((0.88..0.92).contains(&(gets as f64 / mixed.len() as f64)), "{gets}");
    }

    #[test]
    fn manifests_survive_a_round_trip_and_bad_ones_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let objects =
            vec![Object { key: "a,b".into(), bytes: 5 }, Object { key: "c".into(), bytes: 0 }];
        let rows = vec![Row { op: Op::Put, object: 1 }, Row { op: Op::Get, object: 0 }];
        let plan = Plan { objects: objects.clone(), rows: rows.clone() };
        let (population, measured) = (dir.path().join("p.csv"), dir.path().join("m.csv"));
        write_population(&population, &objects).expect("writes");
        write_measured(&measured, &plan).expect("writes");
        assert_eq!(read_population(&population).expect("reads"), objects);
        assert_eq!(read_measured(&measured, &objects).expect("reads"), rows);
        assert!(read_measured(&measured, &objects[..1]).is_err());
        assert!(read_population(&measured).is_err());
    }

    #[test]
    fn a_queue_hands_out_each_row_once() {
        let queue = Queue::new(1000);
        let taken: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let take = || std::iter::from_fn(|| queue.take()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        let mut all: Vec<_> = taken.concat();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
        assert_eq!(align_of::<Queue>(), 128);
    }
}
