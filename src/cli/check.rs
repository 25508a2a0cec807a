//! `goblin-store check` and `goblin-store recover`.

use std::process::ExitCode;

use serde::Serialize;

use super::offline::{Common, Stopped};
use crate::catalog::sqlite::OpenError;
use crate::maintenance::{self, CheckReport};
use crate::server::ServeError;

/// What the exit code says when the work was done and problems were found.
pub(super) const EXIT_PROBLEMS: u8 = 3;

#[derive(clap::Args)]
#[command(after_help = "Works on a stopped store, and replays its commit log first, as a start \
would. Reads rows, footers and record headers; scrub reads the bytes of objects, too. \
Exit code 0: all agrees; 1: could not check; 3: problems were found.")]
pub struct CheckArgs {
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
#[command(after_help = "Works on a stopped store whose catalog.sqlite is lost or damaged. The \
former file is kept beside the new one, as catalog.sqlite.former-TIME; remove it when all is well. \
Exit code 0: made again, and all agrees; 1: could not; 3: made again, and problems were found.")]
pub struct RecoverArgs {
    #[command(flatten)]
    common: Common,
}

/// What `check` prints.
#[derive(Serialize)]
struct Checked {
    ok: bool,
    #[serde(flatten)]
    report: CheckReport,
}

pub fn check(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let stopped = Stopped::open(&args.common.data_dir)?;
    let catalog = match stopped.catalog() {
        Err(ServeError::Catalog(error @ (OpenError::Damaged { .. } | OpenError::Log(_)))) => {
            let mut report = CheckReport::default();
            report.problems.push(error.to_string());
            report.problems_total = 1;
            return Ok(show_check(args.common.json, report)?);
        }
        opened => opened?,
    };
    let report =
        stopped.run(&catalog, async |catalog, disk| maintenance::check(catalog, disk).await)?;
    let report = match report {
        // A damaged page ends the walk.
        Err(error @ maintenance::MaintenanceError::Read(_)) => CheckReport {
            problems: vec![format!("{error}; `goblin-store recover` makes the catalog again")],
            problems_total: 1,
            ..CheckReport::default()
        },
        report => report?,
    };
    Ok(show_check(args.common.json, report)?)
}

pub fn recover(args: RecoverArgs) -> anyhow::Result<ExitCode> {
    let stopped = Stopped::open(&args.common.data_dir)?;
    let (catalog, recovered) = stopped.recover()?;
    if !args.common.json {
        match recovered.snapshot {
            Some(lsn) => println!("from the snapshot at commit {} and the commit log", lsn.0),
            None => println!("from the commit log alone"),
        }
        recovered.refused.iter().for_each(|what| println!("not used: {what}"));
        if let Some(former) = &recovered.former {
            println!("the former catalog is kept: {}", former.display());
        }
    }
    let report =
        stopped.run(&catalog, async |catalog, disk| maintenance::check(catalog, disk).await)??;
    Ok(show_check(args.common.json, report)?)
}

pub(super) fn show_check(json: bool, report: CheckReport) -> serde_json::Result<ExitCode> {
    let ok = report.problems_total == 0;
    if json {
        println!("{}", serde_json::to_string_pretty(&Checked { ok, report })?);
    } else {
        print(&report);
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(EXIT_PROBLEMS) })
}

fn print(report: &CheckReport) {
    report.problems.iter().for_each(|problem| println!("problem: {problem}"));
    let more = report.problems_total - report.problems.len() as u64;
    if more > 0 {
        println!("... and {more} more");
    }
    let r = report;
    println!(
        "{} buckets, {} objects, {} other versions, {} parts, {} bytes",
        r.buckets, r.objects, r.other_versions, r.parts_of_uploads, r.bytes
    );
    println!(
        "{} blob files, {} small objects in the log, {} files to be removed, {} records to replay",
        r.blob_files, r.packed_blobs, r.waiting_files, r.log_records
    );
    match r.problems_total {
        0 => println!("all agrees"),
        1 => println!("1 problem"),
        n => println!("{n} problems"),
    }
}
