//! goblin-bench: a load generator that speaks HTTP/1.1 over io_uring.
//!
//! It knows the wire only, so that it measures any server alike. One event loop a client thread,
//! one request in flight a connection, one queue of rows for all; times are kept in RAM and
//! written after the pass.

#![deny(unsafe_code)]

mod args;
mod bucket;
mod content;
mod cpu;
mod engine;
mod files;
mod plan;
mod record;
mod report;
mod requests;
mod response;
mod rng;
mod run;
mod sigv4;
mod sys;
mod trace;

use anyhow::{Context, Result, bail};
use clap::Parser;

use args::{Cli, Command, TraceArgs};

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Get(args) => run::run(&args, 1.0),
        Command::Put(args) => run::run(&args, 0.0),
        Command::Mixed(args) => {
            if !(args.get_share > 0.0 && args.get_share < 1.0) {
                bail!("--get-share must lie between 0 and 1");
            }
            run::run(&args, args.get_share)
        }
        Command::Trace(args) => trace(&args),
        Command::Files(args) => {
            let content = content::Content::new(args.objects.seed);
            files::write(&args.out, &run::objects(&args.objects)?, &content)
        }
    }
}

fn trace(args: &TraceArgs) -> Result<()> {
    let shape = trace::Shape {
        objects: args.objects,
        requests: args.requests,
        size_max: args.size_max,
        zipf: args.zipf,
        seed: args.seed,
    };
    let plan = trace::make(&shape, &args.prefix)?;
    std::fs::create_dir_all(&args.out).with_context(|| format!("making {}", args.out.display()))?;
    plan::write_population(&args.out.join("population.csv"), &plan.objects)?;
    plan::write_measured(&args.out.join("measured.csv"), &plan)
}
