//! Every setting of the server, with its unit and the reason for its default.
//!
//! Owns what can be configured and how it is found: flag, else environment (`GOBLIN_...`), else
//! TOML file, else default. `Settings` is plain data: components are built from it in `server`,
//! and nothing here opens, binds or spawns. Unknown settings are refused, never ignored.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

mod layer;
mod load;
mod resolve;
mod size;

pub use layer::{Durability, Layer, LogFormat, RequestLog, Switch};
pub use load::{ConfigError, ENV_ONLY, load, names_of_environment};
pub use size::ByteSize;

use crate::limits::LimitSettings;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Everything that `serve` needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Directory that holds all state; created with mode 0700 when it is missing.
    pub data_dir: PathBuf,
    pub http: HttpSettings,
    pub runtime: RuntimeSettings,
    pub s3: S3Settings,
    pub storage: StorageSettings,
    pub arena: ArenaMemory,
    pub limits: LimitSettings,
    pub log: LogSettings,
    /// TOML file with users, keys and buckets, applied at every start.
    pub bootstrap: Option<PathBuf>,
}

/// Listeners and the bounds on what one client connection may do.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpSettings {
    /// Loopback by default: nothing is reachable from outside until the operator says so.
    pub listen_address: IpAddr,
    /// 0 takes any free port, which is written to `<data-dir>/endpoint`.
    pub http_port: u16,
    /// A second way in for a proxy on the same machine: no TCP, no port.
    pub unix_socket: Option<PathBuf>,
    /// Metrics, health and administration; keep it off public networks.
    pub admin_address: SocketAddr,
    /// What clients call us, when a proxy stands in front; only shown, never signed over.
    pub external_url: Option<String>,
    /// Connections that the kernel may hold before accept takes them; bursts of clients
    /// that connect at once are refused beyond it.
    pub listen_backlog: u32,
    /// Bytes of one request's line and headers together. S3 allows 2 KiB of user metadata and
    /// 8 KiB in all, to which proxies and session tokens add. Beside it, hyper takes at most 100
    /// headers.
    pub header_bytes_max: usize,
    /// From the first byte of a request's header to its end: stops slow-loris clients.
    pub header_timeout: Duration,
    /// How long a kept-alive connection may rest. Longer than the 60 s of nginx, so that the
    /// proxy is the one that closes and never sends into a closing connection.
    pub idle_timeout: Duration,
    /// Longest silence inside a request's body; AWS uses about 20 s.
    pub body_timeout: Duration,
    /// Longest time a client may take no byte of a response: frees the RAM that it pins.
    pub send_timeout: Duration,
    /// How long in-flight requests may go on after SIGTERM.
    pub shutdown_timeout: Duration,
    /// After refusing an upload unread, how long and how much of it is read and thrown away, so
    /// that the client sees the answer and not a reset.
    pub linger_timeout: Duration,
    pub linger_bytes_max: u64,
}

/// Threads and their processors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeSettings {
    /// NUMA node for workers and arena; `None` takes whatever the process may use.
    pub numa_node: Option<u32>,
    /// Number of worker threads; `None` is one per available processor.
    pub cores: Option<usize>,
}

/// What S3 clients see.
#[derive(Clone, Debug, PartialEq)]
pub struct S3Settings {
    /// The region that signatures must name.
    pub region: String,
    /// Accept a signature for any region, for clients that cannot be told ours.
    pub accept_any_region: bool,
    /// Names under which `bucket.NAME` addresses a bucket.
    pub domains: Vec<String>,
    /// Accept signature version 2, which boto3 still uses for presigned URLs by default.
    pub sigv2: bool,
}

/// Disk format parameters and the catalog's bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageSettings {
    pub durability: Durability,
    /// Bytes per read of an object's tail.
    pub io_chunk_bytes: u64,
    /// Bytes per write of an object's data.
    pub write_io_chunk_bytes: u64,
    /// Objects up to this many bytes are packed into the commit log: one flush for data and name.
    pub pack_bytes_max: u64,
    /// Size of a commit log segment, preallocated.
    pub log_segment_bytes: u64,
    /// RAM for request bodies on their way to the disk; beyond it clients are told to slow down.
    pub upload_bytes_max: u64,
    /// RAM for object tails read ahead on their way to clients; beyond it reads go one by one.
    pub download_bytes_max: u64,
    /// RAM for the index of keys; beyond it the least used keys are asked from SQLite again.
    pub index_bytes_max: u64,
    /// Bytes per second that scrub reads beside the requests; 0 is as fast as the disk.
    pub scrub_rate: u64,
    /// From the end of one scrub to the beginning of the next; zero is never. Disks decay slowly:
    /// a week finds damage while the array still has its redundancy.
    pub scrub_every: Duration,
    /// SQLite connections for reads.
    pub catalog_readers: u32,
    /// Changes that may wait for the single writer; more are answered 503.
    pub commit_queue_max: usize,
    /// Changes that share one flush.
    pub commit_group_max: usize,
}

/// How much RAM holds heads and small objects.
#[derive(Clone, Debug, PartialEq)]
pub struct ArenaMemory {
    /// Bytes for heads of large objects (`--memory`).
    pub head_bytes: u64,
    /// Bytes for whole small objects (`--small-memory`).
    pub small_bytes: u64,
    /// Bytes of each object that stay in RAM (`--ram-head`).
    pub ram_head_bytes: u64,
    /// Bytes of one block of the small-object pool (`--block`): one huge page.
    pub block_bytes: u64,
    /// Copy heads that are hot on a remote node to the local one. Accepted, and without effect
    /// while there is one arena per process.
    pub numa_promotion: bool,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSettings {
    /// A level, or a filter such as `info,goblin_store::s3=debug`.
    pub level: String,
    pub format: LogFormat,
    pub requests: RequestLog,
}
