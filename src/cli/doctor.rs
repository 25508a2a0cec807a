//! `goblin-store doctor`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::{self, Layer};
use crate::doctor::{self, DoctorSettings};
use crate::server;

#[derive(clap::Args)]
#[command(after_help = "Takes the settings of serve, and judges the machine by them. \
Exit code 0: can serve; 1: a problem forbids it.")]
pub struct DoctorArgs {
    /// Print JSON: {"can_serve": ..., "findings": [...]}
    #[arg(long)]
    json: bool,
    /// TOML file with settings, named as the flags are (http-port = 9000)
    #[arg(long, env = "GOBLIN_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Layer,
}

pub fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let settings = config::load(args.settings, args.config.as_deref())?;
    let report = doctor::run(&DoctorSettings {
        root: PathBuf::from("/"),
        arena: server::arena_settings(&settings),
        listen_backlog: settings.http.listen_backlog,
        data_dir: settings.data_dir,
    })?;
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(if report.can_serve { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
