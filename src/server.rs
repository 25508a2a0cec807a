//! The one composition root: builds every component from the settings and wires them.
//!
//! Owns the order of start and stop. It has no policy of its own: what a setting means is decided
//! by the component that gets it.
//!
//! ```text
//!   main thread: signals, admin listeners          worker 0..N-1: HTTP, S3 front, store
//!        |  starts, watches, stops                     |
//!        +--> catalog writer, hashing threads <--------+
//! ```

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::admin::api::{AdminState, basic_credentials};
use crate::arena::{Arena, ArenaError, ArenaSettings};
use crate::blob::BlobFiles;
use crate::catalog::Catalog;
use crate::catalog::sqlite::{CompactSettings, OpenError, SqliteCatalog, SqliteSettings};
use crate::clock::{Clock, SystemClock};
use crate::config::{Durability, Settings};
use crate::http::accept;
use crate::limits::Limits;
use crate::log::LogSettings;
use crate::maintenance::Backups;
use crate::maintenance::scrub::{ScrubHandle, ScrubSettings};
use crate::metrics::Metrics;
use crate::rng::Rng;
use crate::runtime::shutdown::{self, Shutdown, ShutdownTrigger, Signals};
use crate::runtime::worker::{self, Ended, Placement, PlacementError};
use crate::store::{Abandoned, Compaction, Shared, StoreSettings};
use crate::sys::process;
use crate::sys::uring::{self, UringEngine};

mod admin_listener;
mod banner;
pub mod bootstrap;
pub mod credentials;
pub mod data_dir;
mod figures;
mod front;

use bootstrap::{Bootstrap, BootstrapError};
use credentials::{CredentialsError, KeyPair, RootKeys};
use data_dir::{DataDir, DataDirError};
use front::WorkerParts;

/// Segments of the log that wait for a snapshot of the catalog before one is taken.
const SNAPSHOT_AFTER_SEGMENTS: u64 = 4;

/// Why the server cannot start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error(transparent)]
    Catalog(#[from] OpenError),
    #[error(
        "{path} has data, but neither catalog.sqlite nor a commit log; nothing was touched: bring \
         one of them back, or restore a backup"
    )]
    Lost { path: String },
    #[error(transparent)]
    Arena(#[from] ArenaError),
    #[error("cannot listen on {address}: {source}; choose another {flag}")]
    Bind { address: String, flag: &'static str, source: io::Error },
    #[error("cannot {action}: {source}")]
    Io { action: &'static str, source: io::Error },
    #[error("worker {worker} stopped: {reason}")]
    Worker { worker: usize, reason: String },
}

/// Descriptors that are not for connections: segments, blob files, SQLite, rings, listeners.
const FILES_RESERVED: u64 = 1024;

fn io_error(action: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    move |source| ServeError::Io { action, source }
}

/// Opens the catalog of a data directory, replaying its log. Blocks.
///
/// **Errors** `Catalog`; `Lost` when there is data and nothing that tells what it is.
pub fn open_catalog(
    settings: &Settings,
    data_dir: &DataDir,
    clock: Arc<dyn Clock>,
    rng: Rng,
) -> Result<Arc<SqliteCatalog>, ServeError> {
    // A catalog without a row would call every file nobody's, and have it removed.
    if data_dir.lost_its_catalog().map_err(io_error("look into the data directory"))? {
        return Err(ServeError::Lost { path: data_dir.path().display().to_string() });
    }
    Ok(SqliteCatalog::open(sqlite_settings(settings, data_dir), clock, rng)?)
}

/// What the catalog of a data directory is made of.
pub fn sqlite_settings(settings: &Settings, data_dir: &DataDir) -> SqliteSettings {
    let storage = &settings.storage;
    SqliteSettings {
        path: data_dir.catalog(),
        log_dir: data_dir.log(),
        log: LogSettings {
            segment_bytes: storage.log_segment_bytes,
            flush: storage.durability == Durability::Flush,
        },
        readers: storage.catalog_readers,
        index_bytes_max: storage.index_bytes_max,
        queue_max: storage.commit_queue_max,
        group_max: storage.commit_group_max,
    }
}

/// Runs the server until a signal ends it.
///
/// **Errors** When it cannot start, or when a part of it stopped; what was acknowledged is safe.
pub fn serve(mut settings: Settings, root: Option<KeyPair>) -> Result<(), ServeError> {
    let (clock, rng): (Arc<dyn Clock>, _) = (Arc::new(SystemClock), Rng::system());
    let data_dir = DataDir::open(&settings.data_dir)?;
    settings.limits.connections_max = check_machine(&settings)?;
    let placements = worker::place(&settings.runtime)?;
    let root_keys = credentials::settle(&data_dir.credentials(), root, &rng)?;
    let wanted = settings.bootstrap.as_deref().map(Bootstrap::read).transpose()?;
    let catalog = open_catalog(&settings, &data_dir, clock.clone(), rng.clone())?;
    prepare_blobs(data_dir.blobs()).map_err(io_error("make the blob directories"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(io_error("start the main thread's runtime"))?;
    let parts = Parts { settings, data_dir, placements, root_keys, wanted, catalog, clock, rng };
    runtime.block_on(run(parts))
}

/// Makes the directories of blob files durable before any worker writes into one.
fn prepare_blobs(root: PathBuf) -> io::Result<()> {
    uring::run(async { BlobFiles::new(Rc::new(UringEngine::new()), root).prepare().await })?
}

/// What `serve` has when the runtime starts.
struct Parts {
    settings: Settings,
    data_dir: DataDir,
    placements: Vec<Placement>,
    root_keys: RootKeys,
    wanted: Option<Bootstrap>,
    catalog: Arc<SqliteCatalog>,
    clock: Arc<dyn Clock>,
    rng: Rng,
}

async fn run(parts: Parts) -> Result<(), ServeError> {
    let mut signals = Signals::listen().map_err(io_error("listen for signals"))?;
    let catalog: Arc<dyn Catalog> = parts.catalog.clone();
    bootstrap::apply_root(&catalog, &parts.root_keys, &parts.rng).await?;
    if let Some(wanted) = &parts.wanted {
        bootstrap::apply(&catalog, wanted, &parts.rng).await?;
    }
    let (trigger, stop) = shutdown::channel();
    let (worker_parts, abandoned) = share(&parts, &catalog, stop.clone())?;
    let (scrub, scrub_thread) = start_scrub(&parts, &worker_parts)?;
    let admin = Arc::new(AdminState {
        catalog: catalog.clone(),
        scrub,
        backups: Some(Backups::new(
            parts.catalog.clone(),
            worker_parts.shared.clone(),
            parts.clock.clone(),
            parts.data_dir.path().to_owned(),
        )),
        metrics: worker_parts.metrics.clone(),
        rng: parts.rng.clone(),
        ready: AtomicBool::new(true),
        root_credentials: basic_credentials(
            &parts.root_keys.current.access_key,
            &parts.root_keys.current.secret_key,
        ),
    });
    let compaction = start_compaction(&parts, &worker_parts)?;
    let mut running = start_workers(&parts, worker_parts, abandoned)?;
    let admin_address = admin_listener::start(&parts, admin.clone(), stop)?;
    announce(&parts, running.address, admin_address)?;
    let ended = tokio::select! {
        signal = signals.next() => {
            info!(signal, "stopping; a second signal ends at once");
            None
        }
        ended = running.ended.recv() => ended,
    };
    admin.ready.store(false, Ordering::Release);
    let failed = stop_all(&parts, running, trigger, &mut signals, ended).await;
    compaction.join();
    if scrub_thread.join().is_err() {
        warn!("the scrub thread ended in a panic");
    }
    catalog.close().await;
    info!("stopped");
    failed.map_or(Ok(()), Err)
}

/// The workers, once they are started.
struct Running {
    address: SocketAddr,
    workers: usize,
    ended: mpsc::UnboundedReceiver<Ended>,
}

/// The arena that these settings ask for.
pub fn arena_settings(settings: &Settings) -> ArenaSettings {
    ArenaSettings {
        head_bytes: settings.arena.head_bytes,
        packed_bytes: settings.arena.small_bytes,
        head_slot_bytes: settings.arena.ram_head_bytes as usize,
        block_bytes: settings.arena.block_bytes as usize,
        numa_node: settings.runtime.numa_node,
        ..ArenaSettings::default()
    }
}

/// Builds what all workers share.
fn share(
    parts: &Parts,
    catalog: &Arc<dyn Catalog>,
    shutdown: Shutdown,
) -> Result<(WorkerParts, Abandoned), ServeError> {
    let settings = &parts.settings;
    let arena = Arena::new(arena_settings(settings))?;
    let store = StoreSettings {
        pack_bytes_max: settings.storage.pack_bytes_max as usize,
        read_chunk_bytes: settings.storage.io_chunk_bytes as usize,
        write_chunk_bytes: settings.storage.write_io_chunk_bytes as usize,
        read_budget_bytes: settings.storage.download_bytes_max as usize,
        write_budget_bytes: settings.storage.upload_bytes_max as usize,
        ..StoreSettings::default()
    };
    let (shared, abandoned) = Shared::new(store, catalog.clone(), arena, parts.rng.clone())
        .map_err(io_error("start the hashing threads"))?;
    let metrics = Arc::new(Metrics::new(parts.placements.len()));
    let limits = Limits::new(&settings.limits);
    let sources = figures::Sources {
        limits: limits.clone(),
        store: shared.clone(),
        catalog: parts.catalog.clone(),
        data_dir: parts.data_dir.path().to_owned(),
        workers: parts.placements.len(),
        started_ms: parts.clock.now_ms(),
    };
    figures::register(&metrics, sources);
    let worker_parts = WorkerParts {
        settings: settings.clone(),
        blobs: parts.data_dir.blobs(),
        log: parts.data_dir.log(),
        shared,
        limits,
        metrics,
        clock: parts.clock.clone(),
        rng: parts.rng.clone(),
        shutdown,
    };
    Ok((worker_parts, abandoned))
}

/// Starts the thread that keeps the commit log small.
fn start_compaction(parts: &Parts, shared: &WorkerParts) -> Result<Compaction, ServeError> {
    let settings = CompactSettings {
        snapshot_after_bytes: SNAPSHOT_AFTER_SEGMENTS * parts.settings.storage.log_segment_bytes,
        ..CompactSettings::default()
    };
    let mut stop = shared.shutdown.clone();
    let compaction = Compaction::start(
        shared.shared.clone(),
        parts.catalog.clone(),
        parts.data_dir.log(),
        settings,
        async move { stop.requested().await },
    )
    .map_err(io_error("start the compaction thread"))?;
    figures::register_compaction(&shared.metrics, compaction.stats());
    Ok(compaction)
}

/// Starts the thread that verifies what is stored.
fn start_scrub(
    parts: &Parts,
    shared: &WorkerParts,
) -> Result<(Arc<ScrubHandle>, std::thread::JoinHandle<()>), ServeError> {
    let settings = ScrubSettings {
        blobs: parts.data_dir.blobs(),
        log: parts.data_dir.log(),
        state: parts.data_dir.scrub_state(),
        rate: parts.settings.storage.scrub_rate,
        every: parts.settings.storage.scrub_every,
    };
    let mut stop = shared.shutdown.clone();
    let stop = async move { stop.requested().await };
    let (catalog, clock) = (parts.catalog.clone(), parts.clock.clone());
    let (handle, thread) = ScrubHandle::start(settings, catalog, clock, stop)
        .map_err(io_error("start the scrub thread"))?;
    figures::register_scrub(&shared.metrics, handle.clone());
    Ok((handle, thread))
}

/// Binds the listeners and starts one worker for each.
fn start_workers(
    parts: &Parts,
    worker_parts: WorkerParts,
    abandoned: Abandoned,
) -> Result<Running, ServeError> {
    let http = &parts.settings.http;
    let mut address = SocketAddr::new(http.listen_address, http.http_port);
    let cannot_bind = |address: SocketAddr| {
        let address = address.to_string();
        move |source| ServeError::Bind { address, flag: "--http-port", source }
    };
    accept::ensure_unused(address).map_err(cannot_bind(address))?;
    let mut unix = http.unix_socket.as_deref().map(bind_unix_socket).transpose()?;
    let mut listeners = Vec::new();
    for _ in &parts.placements {
        let listener = accept::bind_tcp(address, http.listen_backlog);
        let listener = listener.map_err(cannot_bind(address))?;
        // The first one settles port 0; the others share its port.
        address = listener.local_addr().map_err(io_error("read the listener's address"))?;
        listeners.push(listener);
    }
    let (sender, ended) = mpsc::unbounded_channel();
    let mut abandoned = Some(abandoned);
    for (placement, listener) in parts.placements.iter().zip(listeners) {
        let (worker_parts, placement) = (worker_parts.clone(), *placement);
        let duties = front::Duties { tcp: listener, unix: unix.take(), collect: abandoned.take() };
        worker::start(placement, sender.clone(), move || {
            front::run(worker_parts, placement.worker, duties)
        })
        .map_err(io_error("start a worker thread"))?;
    }
    Ok(Running { address, workers: parts.placements.len(), ended })
}

/// Anybody on this machine may connect, as to a TCP port: requests prove who they are by their
/// signature, and the proxy runs as another user.
fn bind_unix_socket(path: &Path) -> Result<UnixListener, ServeError> {
    let open_to_all =
        |listener| std::fs::set_permissions(path, Permissions::from_mode(0o666)).map(|()| listener);
    accept::bind_unix(path).and_then(open_to_all).map_err(|source| ServeError::Bind {
        address: path.display().to_string(),
        flag: "--unix-socket",
        source,
    })
}

/// Writes where we are to files and to standard output.
fn announce(parts: &Parts, address: SocketAddr, admin: SocketAddr) -> Result<(), ServeError> {
    let (local, admin) = (banner::url(address), banner::url(admin));
    let write = |path: &Path, url: &str| std::fs::write(path, format!("{url}\n"));
    write(&parts.data_dir.endpoint(), &local)
        .and_then(|()| write(&parts.data_dir.admin_endpoint(), &admin))
        .map_err(io_error("write the endpoint files"))?;
    let credentials = parts.data_dir.credentials();
    print!(
        "{}",
        banner::text(&banner::Banner {
            endpoint: parts.settings.http.external_url.as_deref().unwrap_or(&local),
            admin: &admin,
            region: &parts.settings.s3.region,
            credentials: &credentials,
            access_key: &parts.root_keys.current.access_key,
            secret_key: &parts.root_keys.current.secret_key,
        })
    );
    if parts.settings.storage.durability == Durability::Writeback {
        warn!("--durability writeback: a power cut may take the last acknowledged writes");
    }
    let workers = parts.placements.len();
    info!(endpoint = local, admin, workers, data_dir = %parts.data_dir.path().display(), "serving");
    Ok(())
}

/// Lets the workers finish, up to a deadline that they keep themselves. A second signal ends the
/// process: nothing acknowledged is lost by that.
async fn stop_all(
    parts: &Parts,
    mut running: Running,
    trigger: ShutdownTrigger,
    signals: &mut Signals,
    first: Option<Ended>,
) -> Option<ServeError> {
    let mut failed = None;
    let mut left = running.workers;
    let mut note = |(worker, result): Ended, left: &mut usize| {
        *left -= 1;
        // A worker that ends before it was asked to is a failure, however it ended.
        if let Err(reason) = result {
            failed.get_or_insert(ServeError::Worker { worker, reason });
        }
    };
    if let Some((worker, result)) = first {
        let result = result.and_then(|()| Err("it ended unasked".to_owned()));
        note((worker, result), &mut left);
    }
    trigger.request();
    while left > 0 {
        tokio::select! {
            ended = running.ended.recv() => match ended {
                Some(ended) => note(ended, &mut left),
                None => break,
            },
            signal = signals.next() => {
                warn!(signal, "ending at once");
                std::process::exit(130);
            }
        }
    }
    let files = [parts.data_dir.endpoint(), parts.data_dir.admin_endpoint()];
    for path in files.iter().chain(&parts.settings.http.unix_socket) {
        // They only help to find a running server.
        let _ = std::fs::remove_file(path);
    }
    failed
}

/// Raises the limit on open files and says what the machine will not give. Returns how many
/// connections fit: a client that is refused can wait, a file that cannot be opened is an error.
fn check_machine(settings: &Settings) -> Result<u64, ServeError> {
    let files =
        process::raise_open_files_limit().map_err(io_error("raise the open files limit"))?;
    let wanted = settings.limits.connections_max;
    // Each connection has one descriptor; files, rings and the database have the others.
    let room = (files / 2).max(files.saturating_sub(FILES_RESERVED)).max(1);
    if room < wanted {
        warn!(
            open_files = files,
            connections = room,
            wanted,
            "fewer connections than --connections-max; raise the limit on open files (ulimit -n)"
        );
    }
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    if somaxconn.trim().parse().is_ok_and(|n: u32| n < settings.http.listen_backlog) {
        warn!(
            somaxconn = somaxconn.trim(),
            "the kernel caps --listen-backlog (net.core.somaxconn)"
        );
    }
    Ok(room.min(wanted))
}
