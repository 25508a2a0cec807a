//! `goblin-store scrub`.
//!
//! A running server does the reading itself and is asked how far it is; on a stopped store the
//! walk runs here.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use super::check::EXIT_PROBLEMS;
use super::offline::{Common, Stopped};
use super::remote::Remote;
use crate::catalog::Catalog;
use crate::clock::SystemClock;
use crate::config::ByteSize;
use crate::maintenance::Disk;
use crate::maintenance::scrub::{ScrubControl, ScrubState, Scrubber, StartScrub};
use crate::sys::uring;

/// How often the progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(clap::Args)]
#[command(after_help = "Reads every stored byte and verifies its checksum, and the log, the \
snapshots and the catalog with them. Ctrl-C leaves the walk to the server, or stops it where no \
server runs; the next scrub goes on from there. \
Exit code 0: all that was read is sound; 1: could not scrub; 3: damage was found.")]
pub struct ScrubArgs {
    #[command(flatten)]
    common: Common,
    /// Bytes to read per second; 0 is as fast as the disk
    /// [default: the server's --scrub-rate; 0 on a stopped store]
    #[arg(long, value_name = "SIZE")]
    rate: Option<ByteSize>,
    /// Begin anew, also when a walk is not finished
    #[arg(long)]
    restart: bool,
    /// Only show the present or last walk
    #[arg(long, conflicts_with_all = ["restart", "stop"])]
    status: bool,
    /// Stop the server's walk until somebody starts it again
    #[arg(long, conflicts_with = "restart")]
    stop: bool,
}

pub fn run(args: ScrubArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let state = match runtime.block_on(Remote::connect(&args.common.data_dir))? {
        Some(server) => runtime.block_on(with_server(&args, server))?,
        None => {
            drop(runtime);
            stopped(&args)?
        }
    };
    if args.common.json {
        println!("{}", serde_json::to_string_pretty(&state)?);
    } else {
        print(&state);
    }
    Ok(if state.is_sound() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_PROBLEMS) })
}

async fn with_server(args: &ScrubArgs, mut server: Remote) -> anyhow::Result<ScrubState> {
    const PATH: &str = "/admin/scrub";
    if args.status {
        return server.ask(Method::GET, PATH, &()).await;
    }
    if args.stop {
        return server.ask(Method::DELETE, PATH, &()).await;
    }
    let start = StartScrub { rate: args.rate.map(|rate| rate.0), restart: args.restart };
    let mut state: ScrubState = server.ask(Method::POST, PATH, &start).await?;
    let bar = Bar::new();
    loop {
        bar.show(&state);
        tokio::time::sleep(LOOK_EVERY).await;
        state = server.ask(Method::GET, PATH, &()).await?;
        if state.phase.is_over() || !state.running {
            bar.clear();
            return Ok(state);
        }
    }
}

fn stopped(args: &ScrubArgs) -> anyhow::Result<ScrubState> {
    let store = Stopped::open(&args.common.data_dir)?;
    let (catalog, path) = (store.catalog()?, store.data_dir.scrub_state());
    let (blobs, log) = (store.data_dir.blobs(), store.data_dir.log());
    let control = ScrubControl::default();
    control.set_rate(args.rate.map_or(0, |rate| rate.0));
    uring::run(async {
        let clock = Arc::new(SystemClock);
        let disk = Disk::new(&blobs, &log);
        let mut scrubber = Scrubber::new(catalog.clone(), disk, clock, path, control.clone())?;
        if !args.status && !args.stop {
            let done = watched(&mut scrubber, &control, args.restart).await;
            catalog.close().await;
            done?;
        } else {
            catalog.close().await;
        }
        Ok(control.state())
    })?
}

/// Runs the walk with a progress bar; Ctrl-C stops it in good order.
async fn watched(
    scrubber: &mut Scrubber,
    control: &ScrubControl,
    restart: bool,
) -> anyhow::Result<()> {
    let bar = Bar::new();
    let walk = scrubber.run(restart);
    tokio::pin!(walk);
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    let done = loop {
        tokio::select! {
            done = &mut walk => break done,
            _ = ticks.tick() => bar.show(&control.state()),
            _ = tokio::signal::ctrl_c() => control.stop(),
        }
    };
    bar.clear();
    Ok(done?)
}

/// A progress bar on standard error, where that is a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Bar {
        let bar = ProgressBar::new(0);
        let style = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta} {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Bar(bar)
    }

    fn show(&self, state: &ScrubState) {
        self.0.set_length(state.bytes_total.max(state.bytes_done));
        self.0.set_position(state.bytes_done);
        let damaged = state.damaged_total + state.problems.len() as u64;
        if damaged > 0 {
            self.0.set_message(format!("{damaged} damaged"));
        }
    }

    fn clear(&self) {
        self.0.finish_and_clear();
    }
}

fn print(state: &ScrubState) {
    for damaged in &state.damaged {
        println!("damaged: {} ({}): {}", damaged.blob, damaged.place, damaged.damage);
        damaged.objects.iter().for_each(|object| println!("  object {object}"));
    }
    let more = state.damaged_total - state.damaged.len() as u64;
    if more > 0 {
        println!("... and {more} more");
    }
    state.problems.iter().for_each(|problem| println!("problem: {problem}"));
    let now = match (&state.phase.is_over(), state.running, state.started_ms) {
        (_, _, 0) => "no scrub was begun",
        (true, ..) => "finished",
        (false, true, _) => "under way",
        (false, false, _) => "stopped; the next scrub goes on from here",
    };
    println!(
        "{now}: {} of {} blobs, {} read, {} damaged, {} sound when read again",
        state.blobs_done,
        state.blobs_total,
        HumanBytes(state.bytes_done),
        state.damaged_total,
        state.sound_when_read_again
    );
}
