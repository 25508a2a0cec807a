//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::engine::Verify;
use crate::plan::Order;
use crate::requests::{Payload, Sign};
use crate::sys::memory::Policy;

/// Load generator for S3 and plain HTTP servers.
#[derive(Debug, Parser)]
#[command(name = "goblin-bench", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Downloads objects and measures it
    #[command(args_override_self = true)]
    Get(RunArgs),
    /// Uploads objects and measures it
    #[command(args_override_self = true)]
    Put(RunArgs),
    /// Downloads and uploads; --get-share or the manifest says how many of each
    #[command(args_override_self = true)]
    Mixed(RunArgs),
    /// Writes a population and a measured manifest of synthetic web traffic
    Trace(TraceArgs),
    /// Writes the objects as files, for a static server to serve
    Files(FilesArgs),
}

/// Which objects there are.
#[derive(Clone, Debug, Args)]
pub struct Objects {
    /// How many objects of --size
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub objects: usize,
    /// Bytes of each object: 4096, 100K, 1M, 1G
    #[arg(long, default_value = "4K", value_parser = parse_size, value_name = "SIZE")]
    pub size: u64,
    /// What the names of objects begin with
    #[arg(long, default_value = "bench/", value_name = "TEXT")]
    pub prefix: String,
    /// Manifest of all objects (key,bytes) in place of the three above
    #[arg(long, value_name = "FILE")]
    pub population: Option<PathBuf>,
    /// Chooses what is in the objects, and every random order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// http://HOST:PORT/BUCKET, or a static server's http://HOST:PORT/DIRECTORY
    #[arg(long)]
    pub url: String,
    #[command(flatten)]
    pub objects: Objects,
    /// Manifest of requests in their order (op,key); it repeats when it is over
    #[arg(long, value_name = "FILE", requires = "population")]
    pub measured: Option<PathBuf>,
    /// Order of requests when there is no manifest of them
    #[arg(long, value_enum, default_value = "sequential")]
    pub order: Order,
    /// Share of downloads in `mixed` without a manifest
    #[arg(long, default_value_t = 0.9, value_name = "SHARE")]
    pub get_share: f64,
    /// Connections, each with one request in flight
    #[arg(short, long, default_value_t = 16, value_name = "N")]
    pub concurrency: usize,
    /// Client threads at most [default: one, or one for each processor of --pin]
    #[arg(long, value_name = "N")]
    pub loops: Option<usize>,
    /// Requests to make [default: each row once, or as many as fit into --duration]
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Seconds after which no request is started
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// Seconds of the same load before the measured pass
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    pub warmup: f64,
    /// Seconds that one request may take
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    pub timeout: f64,
    /// How requests are signed
    #[arg(long, value_enum, default_value = "header")]
    pub sign: Sign,
    /// Whether a signature in the header covers uploaded bodies
    #[arg(long, value_enum, default_value = "unsigned")]
    pub payload: Payload,
    #[arg(long, env = "AWS_ACCESS_KEY_ID", default_value = "")]
    pub access_key: String,
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", default_value = "", hide_env_values = true)]
    pub secret_key: String,
    #[arg(long, env = "AWS_REGION", default_value = "us-east-1")]
    pub region: String,
    /// A header field that every request has, such as 'x-amz-acl: public-read'; may be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = parse_header)]
    pub header: Vec<(String, String)>,
    /// Make the bucket of --url first
    #[arg(long)]
    pub create_bucket: bool,
    /// What of downloaded bodies is checked
    #[arg(long, value_enum, default_value = "length")]
    pub verify: Verify,
    /// Let the kernel count and throw away bodies without copying them, to spare the client
    #[arg(long)]
    pub discard: bool,
    /// Bytes of each connection's receive buffer
    #[arg(long, default_value = "128K", value_parser = parse_size, value_name = "SIZE")]
    pub buffer: u64,
    /// Processors to run the client's threads on, one each: 1 or 2,3
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub pin: Vec<usize>,
    /// Where the client's memory comes from: local, bind:NODE,... or interleave:NODE,...
    #[arg(long, value_parser = parse_policy, value_name = "POLICY")]
    pub memory_policy: Option<Policy>,
    /// Processes whose CPU time is reported as the server's
    #[arg(long, value_delimiter = ',', value_name = "PID,...")]
    pub server_pid: Vec<u32>,
    /// Write every request with its times, in nanoseconds
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Print the report as one line of JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub objects: usize,
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub requests: usize,
    /// No object is larger
    #[arg(long, default_value = "64M", value_parser = parse_size, value_name = "SIZE")]
    pub size_max: u64,
    /// Exponent of the popularity of objects by rank
    #[arg(long, default_value_t = 0.9)]
    pub zipf: f64,
    #[arg(long, default_value = "trace/", value_name = "TEXT")]
    pub prefix: String,
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where population.csv and measured.csv go
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub struct FilesArgs {
    #[command(flatten)]
    pub objects: Objects,
    /// Directory to write below; names of objects become paths
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

fn parse_size(text: &str) -> Result<u64, String> {
    let shift = match text.chars().last() {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(|| format!("{text} is no size; write 4096, 100K, 1M or 1G"))
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("want NAME: VALUE")?;
    if text.contains(['\r', '\n']) {
        return Err("a header field is one line".into());
    }
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

fn parse_policy(text: &str) -> Result<Policy, String> {
    let nodes = |list: &str| -> Result<Vec<u32>, String> {
        list.split(',').map(|n| n.parse().map_err(|_| format!("{n} is no node"))).collect()
    };
    match text.split_once(':') {
        None if text == "local" => Ok(Policy::Local),
        Some(("bind", list)) => Ok(Policy::Bind(nodes(list)?)),
        Some(("interleave", list)) => Ok(Policy::Interleave(nodes(list)?)),
        _ => Err("want local, bind:NODE,... or interleave:NODE,...".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_headers_and_policies() {
        assert_eq!(parse_size("100K"), Ok(102_400));
        assert_eq!(parse_size("7"), Ok(7));
        assert!(parse_size("K").is_err() && parse_size("-1").is_err() && parse_size("").is_err());
        assert_eq!(parse_header("X-A: b: c"), Ok(("x-a".into(), "b: c".into())));
        assert!(parse_header("x: a\r\nb: c").is_err());
        assert_eq!(parse_policy("bind:0,1"), Ok(Policy::Bind(vec![0, 1])));
        assert!(parse_policy("bind").is_err() && parse_policy("bind:x").is_err());
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
