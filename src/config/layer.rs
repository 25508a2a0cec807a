//! One layer of settings, where each may be absent: flags with environment, or a TOML file.
//!
//! The same struct is the `serve` command line, the environment and the file, so that no setting
//! can exist in one and be missing in another. Names in the file are the flags' names.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::BoolishValueParser;
use serde::Deserialize;

use super::ByteSize;

/// When an acknowledged write is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The disk was flushed before the answer: survives kill -9 and power loss.
    Flush,
    /// The kernel flushes when it likes: survives kill -9, may lose seconds at power loss.
    Writeback,
}

/// The shape of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// Which requests get a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestLog {
    /// Every request.
    All,
    /// Those that failed in the server or were cut off.
    Errors,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    On,
    Off,
}

macro_rules! layer {
    ($( $(#[$meta:meta])* $field:ident: [$($ty:tt)*], )*) => {
        /// Settings that one source gave; `None` leaves the choice to the next source.
        #[derive(Clone, Debug, Default, PartialEq, clap::Args, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Layer {
            $( $(#[$meta])* pub $field: Option<$($ty)*>, )*
        }

        impl Layer {
            /// The names as they stand in the file; each also exists as `--name` and, in
            /// capitals with underscores behind `GOBLIN_`, in the environment.
            pub fn names() -> Vec<String> {
                [$(stringify!($field)),*].iter().map(|n| n.replace('_', "-")).collect()
            }

            /// This layer where it says something, `lower` elsewhere.
            pub fn or(self, lower: Layer) -> Layer {
                Layer { $( $field: self.$field.or(lower.$field), )* }
            }
        }
    };
}

layer! {
    /// Directory for all data; created when missing [default: ./goblin-data]
    #[arg(long, env = "GOBLIN_DATA_DIR", value_name = "DIR")]
    data_dir: [PathBuf],
    /// Address to serve S3 on [default: 127.0.0.1]
    #[arg(long, env = "GOBLIN_LISTEN_ADDRESS", value_name = "IP", help_heading = "Network")]
    listen_address: [IpAddr],
    /// Port to serve S3 on; 0 takes any free port [default: 9000]
    #[arg(long, env = "GOBLIN_HTTP_PORT", value_name = "PORT", help_heading = "Network")]
    http_port: [u16],
    /// Also serve S3 on this Unix socket, for a proxy on the same machine
    #[arg(long, env = "GOBLIN_UNIX_SOCKET", value_name = "PATH", help_heading = "Network")]
    unix_socket: [PathBuf],
    /// Metrics, health, administration [default: 127.0.0.1:9001; any free port with --http-port 0]
    #[arg(long, env = "GOBLIN_ADMIN_ADDRESS", value_name = "IP:PORT", help_heading = "Network")]
    admin_address: [SocketAddr],
    /// What clients call this server, when a proxy stands in front of it
    #[arg(long, env = "GOBLIN_EXTERNAL_URL", value_name = "URL", help_heading = "Network")]
    external_url: [String],
    /// Region that signatures must name [default: us-east-1]
    #[arg(long, env = "GOBLIN_REGION", value_name = "NAME", help_heading = "S3")]
    region: [String],
    /// Accept signatures for any region
    #[arg(long, env = "GOBLIN_ACCEPT_ANY_REGION", value_name = "BOOL", help_heading = "S3",
          num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    accept_any_region: [bool],
    /// Serve buckets as BUCKET.NAME too; may be repeated
    #[arg(long, env = "GOBLIN_DOMAIN", value_name = "NAME", help_heading = "S3",
          value_delimiter = ',')]
    domain: [Vec<String>],
    /// Accept signature version 2 [default: on]
    #[arg(long, env = "GOBLIN_SIGV2", value_name = "SWITCH", help_heading = "S3")]
    sigv2: [Switch],
    /// TOML file with users, keys and buckets to have, applied at every start
    #[arg(long, env = "GOBLIN_BOOTSTRAP", value_name = "FILE", help_heading = "S3")]
    bootstrap: [PathBuf],
    /// When a write is acknowledged; writeback may lose the last seconds at power loss
    /// [default: flush]
    #[arg(long, env = "GOBLIN_DURABILITY", value_name = "MODE", help_heading = "Storage")]
    durability: [Durability],
    /// Bytes per disk read [default: 256K]
    #[arg(long, env = "GOBLIN_IO_CHUNK", value_name = "SIZE", help_heading = "Storage")]
    io_chunk: [ByteSize],
    /// Bytes per disk write [default: 1M]
    #[arg(long, env = "GOBLIN_WRITE_IO_CHUNK", value_name = "SIZE", help_heading = "Storage")]
    write_io_chunk: [ByteSize],
    /// Objects up to this size live in the commit log [default: 256K]
    #[arg(long, env = "GOBLIN_PACK_MAX", value_name = "SIZE", help_heading = "Storage")]
    pack_max: [ByteSize],
    /// Size of a commit log segment [default: 256M]
    #[arg(long, env = "GOBLIN_LOG_SEGMENT", value_name = "SIZE", help_heading = "Storage")]
    log_segment: [ByteSize],
    /// Bytes per second that scrub reads; 0 is as fast as the disk [default: 64M]
    #[arg(long, env = "GOBLIN_SCRUB_RATE", value_name = "SIZE", help_heading = "Storage")]
    scrub_rate: [ByteSize],
    /// Hours from the end of one scrub to the next; 0 is never [default: 168]
    #[arg(long, env = "GOBLIN_SCRUB_EVERY_HOURS", value_name = "HOURS", help_heading = "Storage")]
    scrub_every_hours: [u64],
    /// RAM for the index of keys [default: 256M]
    #[arg(long, env = "GOBLIN_INDEX_MEMORY", value_name = "SIZE", help_heading = "Storage")]
    index_memory: [ByteSize],
    /// NUMA node to run on [default: any]
    #[arg(long, env = "GOBLIN_NUMA", value_name = "NODE", help_heading = "Memory and threads")]
    numa: [u32],
    /// Worker threads, one per core [default: every available core]
    #[arg(long, env = "GOBLIN_CORES", value_name = "N", help_heading = "Memory and threads")]
    cores: [usize],
    /// RAM for the first bytes of large objects [default: 256M]
    #[arg(long, env = "GOBLIN_MEMORY", value_name = "SIZE", help_heading = "Memory and threads")]
    memory: [ByteSize],
    /// RAM for small objects [default: 64M]
    #[arg(long, env = "GOBLIN_SMALL_MEMORY", value_name = "SIZE",
          help_heading = "Memory and threads")]
    small_memory: [ByteSize],
    /// Bytes of each object that stay in RAM [default: 1M]
    #[arg(long, env = "GOBLIN_RAM_HEAD", value_name = "SIZE", help_heading = "Memory and threads")]
    ram_head: [ByteSize],
    /// Block of the small-object pool, one huge page [default: 2M]
    #[arg(long, env = "GOBLIN_BLOCK", value_name = "SIZE", help_heading = "Memory and threads")]
    block: [ByteSize],
    /// Do not copy hot objects between NUMA nodes; there is one arena, so nothing is copied yet
    #[arg(long, env = "GOBLIN_NO_NUMA_PROMOTION", value_name = "BOOL",
          help_heading = "Memory and threads", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new())]
    no_numa_promotion: [bool],
    /// Client connections at once; more are answered 503 [default: 16384]
    #[arg(long, env = "GOBLIN_CONNECTIONS_MAX", value_name = "N", help_heading = "Limits")]
    connections_max: [u64],
    /// Connections waiting to be accepted [default: 4096]
    #[arg(long, env = "GOBLIN_LISTEN_BACKLOG", value_name = "N", help_heading = "Limits")]
    listen_backlog: [u32],
    /// Bytes of one request's line and headers [default: 64K]
    #[arg(long, env = "GOBLIN_HEADER_BYTES_MAX", value_name = "SIZE", help_heading = "Limits")]
    header_bytes_max: [ByteSize],
    /// Time for a request's header to arrive [default: 20]
    #[arg(long, env = "GOBLIN_HEADER_TIMEOUT_SECS", value_name = "SECS", help_heading = "Limits")]
    header_timeout_secs: [u64],
    /// Time that a connection may rest between requests [default: 75]
    #[arg(long, env = "GOBLIN_IDLE_TIMEOUT_SECS", value_name = "SECS", help_heading = "Limits")]
    idle_timeout_secs: [u64],
    /// Longest silence inside a request's body [default: 20]
    #[arg(long, env = "GOBLIN_BODY_TIMEOUT_SECS", value_name = "SECS", help_heading = "Limits")]
    body_timeout_secs: [u64],
    /// Longest time a client may take no byte of a response [default: 60]
    #[arg(long, env = "GOBLIN_SEND_TIMEOUT_SECS", value_name = "SECS", help_heading = "Limits")]
    send_timeout_secs: [u64],
    /// Time for requests in flight to finish after SIGTERM [default: 20]
    #[arg(long, env = "GOBLIN_SHUTDOWN_TIMEOUT_SECS", value_name = "SECS",
          help_heading = "Limits")]
    shutdown_timeout_secs: [u64],
    /// RAM for request bodies on their way to disk; beyond it 503 SlowDown [default: 256M]
    #[arg(long, env = "GOBLIN_UPLOAD_MEMORY", value_name = "SIZE", help_heading = "Limits")]
    upload_memory: [ByteSize],
    /// RAM for reading ahead of clients; beyond it reads go one by one [default: 256M]
    #[arg(long, env = "GOBLIN_DOWNLOAD_MEMORY", value_name = "SIZE", help_heading = "Limits")]
    download_memory: [ByteSize],
    /// Requests with a body at once; more are answered 503 SlowDown [default: 4096]
    #[arg(long, env = "GOBLIN_UPLOADS_MAX", value_name = "N", help_heading = "Limits")]
    uploads_max: [u64],
    /// SQLite connections for reads [default: 4]
    #[arg(long, env = "GOBLIN_CATALOG_READERS", value_name = "N", help_heading = "Limits")]
    catalog_readers: [u32],
    /// Changes waiting for the catalog's writer; more are answered 503 SlowDown [default: 4096]
    #[arg(long, env = "GOBLIN_COMMIT_QUEUE_MAX", value_name = "N", help_heading = "Limits")]
    commit_queue_max: [usize],
    /// Changes that share one flush [default: 256]
    #[arg(long, env = "GOBLIN_COMMIT_GROUP_MAX", value_name = "N", help_heading = "Limits")]
    commit_group_max: [usize],
    /// error, warn, info, debug, trace, or a filter by module [default: info]
    #[arg(long, env = "GOBLIN_LOG_LEVEL", value_name = "LEVEL", help_heading = "Log")]
    log_level: [String],
    /// Shape of log lines on standard error [default: text]
    #[arg(long, env = "GOBLIN_LOG_FORMAT", value_name = "FORMAT", help_heading = "Log")]
    log_format: [LogFormat],
    /// Which requests get a log line [default: all]
    #[arg(long, env = "GOBLIN_REQUEST_LOG", value_name = "WHICH", help_heading = "Log")]
    request_log: [RequestLog],
}
