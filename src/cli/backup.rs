//! `goblin-store backup` and `goblin-store restore`.

use std::path::PathBuf;
use std::process::ExitCode;

use http::Method;

use super::check::show_check;
use super::offline::{Common, Stopped};
use super::remote::Remote;
use crate::clock::{Clock, SystemClock};
use crate::maintenance::{self, BackupRequest, BackupSummary};
use crate::server::data_dir::DataDir;

#[derive(clap::Args)]
#[command(
    after_help = "Copies the catalog, small objects and blob files, as they are at one commit. \
Beside a running server the server writes the copy, as its own user. A directory that holds an \
earlier backup gets only the blobs that are new."
)]
pub struct BackupArgs {
    #[command(flatten)]
    common: Common,
    /// Directory to write to: missing, empty, or with an earlier backup
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Leave the blob files out; copy them by manifest.jsonl before the blobs are deleted
    #[arg(long)]
    without_blobs: bool,
}

#[derive(clap::Args)]
#[command(
    after_help = "Fills a new data directory from a backup, and checks it. Users and keys are \
those of the backup; a new root key pair is made at the first start. \
Exit code 0: restored, and all agrees; 1: could not; 3: restored, and problems were found."
)]
pub struct RestoreArgs {
    #[command(flatten)]
    common: Common,
    /// Directory of the backup
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
}

pub fn backup(args: BackupArgs) -> anyhow::Result<ExitCode> {
    // The server has another working directory.
    let to = std::path::absolute(&args.to)?;
    let request = BackupRequest { to, without_blobs: args.without_blobs };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = runtime.block_on(Remote::connect(&args.common.data_dir))?;
    let summary: BackupSummary = match server {
        Some(mut server) => {
            runtime.block_on(server.ask(Method::POST, "/admin/backup", &request))?
        }
        None => {
            drop(runtime);
            let store = Stopped::open(&args.common.data_dir)?;
            let catalog = store.catalog()?;
            store.run(&catalog, async |catalog, disk| {
                let now_ms = SystemClock.now_ms();
                maintenance::backup(catalog, disk, store.data_dir.path(), &request, now_ms).await
            })??
        }
    };
    if args.common.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        println!(
            "backup at commit {}: {} blobs, {} bytes, {} files copied, {} log segments",
            summary.last_commit,
            summary.blobs,
            summary.bytes,
            summary.files_copied,
            summary.segments.len()
        );
    }
    Ok(ExitCode::SUCCESS)
}

pub fn restore(args: RestoreArgs) -> anyhow::Result<ExitCode> {
    let path = &args.common.data_dir;
    anyhow::ensure!(
        !path.join("format").exists(),
        "{} has data already; name a new directory with --data-dir",
        path.display()
    );
    let backup = maintenance::inspect(&args.from)?;
    let data_dir = DataDir::open(path)?;
    let summary = maintenance::restore(backup, data_dir.path())?;
    drop(data_dir);
    if !args.common.json {
        println!("restored commit {}; comparing", summary.last_commit);
    }
    let store = Stopped::open(path)?;
    let catalog = store.catalog()?;
    let report =
        store.run(&catalog, async |catalog, disk| maintenance::check(catalog, disk).await)??;
    Ok(show_check(args.common.json, report)?)
}
