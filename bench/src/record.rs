//! What is kept of each request, in RAM until the pass is over, and the CSV made from it.

use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use crate::plan::{Op, Plan};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    Ok,
    /// Not the status that the operation has when it succeeds.
    Status,
    /// The body's length is not the object's, or not announced.
    Length,
    /// A byte of the body is wrong.
    Content,
    /// The connection broke.
    Broken,
    /// No end within the time allowed.
    Timeout,
}

impl Ending {
    pub fn name(self) -> &'static str {
        match self {
            Ending::Ok => "ok",
            Ending::Status => "status",
            Ending::Length => "length",
            Ending::Content => "content",
            Ending::Broken => "broken",
            Ending::Timeout => "timeout",
        }
    }
}

/// One request. Times are nanoseconds from a common origin, on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub start_ns: u64,
    /// When the first bytes of the response were there; `last_ns` if none came.
    pub first_ns: u64,
    /// When the response was complete.
    pub last_ns: u64,
    /// Counted over all repeats of the plan.
    pub row: u64,
    pub connection: u32,
    /// 0 when no response came.
    pub status: u16,
    pub ending: Ending,
}

/// Writes all records in the order of their rows.
pub fn write_csv(path: &Path, records: &mut [Record], plan: &Plan) -> Result<()> {
    let name = path.display();
    let file = std::fs::File::create(path).with_context(|| format!("creating {name}"))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    records.sort_unstable_by_key(|r| r.row);
    writeln!(out, "row,op,bytes,connection,status,ending,start_ns,first_byte_ns,last_byte_ns,key")?;
    for r in records {
        let row = plan.rows[(r.row % plan.rows.len() as u64) as usize];
        let object = &plan.objects[row.object as usize];
        let op = if row.op == Op::Get { "get" } else { "put" };
        writeln!(
            out,
            "{},{op},{},{},{},{},{},{},{},{}",
            r.row,
            object.bytes,
            r.connection,
            r.status,
            r.ending.name(),
            r.start_ns,
            r.first_ns,
            r.last_ns,
            object.key
        )?;
    }
    out.flush().with_context(|| format!("writing {name}"))
}
