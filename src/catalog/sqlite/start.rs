//! Opening: the writer's thread, replay, and the hand-over to the callers.

use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, RwLock, mpsc as std_mpsc};

use sqlx::SqliteConnection;
use tokio::sync::mpsc;

use super::index::Index;
use super::readers::Readers;
use super::snapshots::Snapshots;
use super::writer::{Request, Writer};
use super::{OpenError, Shared, SqliteCatalog, SqliteSettings, replay, schema};
use crate::clock::Clock;
use crate::log::LogWriter;
use crate::rng::Rng;
use crate::sys::engine::IoEngine;
use crate::sys::uring::{self, UringEngine};

/// Where the commit log's bytes go.
pub(super) enum LogDisk {
    /// The file system, through io_uring.
    Real,
    /// A simulated disk.
    #[cfg(test)]
    Simulated(crate::sys::fault::FaultDisk),
}

impl SqliteCatalog {
    /// Opens the catalog, replays the log, and starts the writer. Blocks until that is done: call
    /// it before the runtimes start.
    ///
    /// **Errors** Every variant of `OpenError`; nothing is reset or overwritten.
    pub fn open(
        settings: SqliteSettings,
        clock: Arc<dyn Clock>,
        rng: Rng,
    ) -> Result<Arc<SqliteCatalog>, OpenError> {
        SqliteCatalog::open_on(LogDisk::Real, settings, clock, rng)
    }

    pub(super) fn open_on(
        disk: LogDisk,
        settings: SqliteSettings,
        clock: Arc<dyn Clock>,
        rng: Rng,
    ) -> Result<Arc<SqliteCatalog>, OpenError> {
        restore_if_missing(&settings.path)?;
        SqliteCatalog::open_as_is(disk, settings, clock, rng)
    }

    /// Opens without looking for a snapshot when the database is missing.
    pub(super) fn open_as_is(
        disk: LogDisk,
        settings: SqliteSettings,
        clock: Arc<dyn Clock>,
        rng: Rng,
    ) -> Result<Arc<SqliteCatalog>, OpenError> {
        let path = settings.path.clone();
        let (queue, requests) = mpsc::channel(settings.queue_max.max(1));
        let (ready, opened) = std_mpsc::sync_channel(1);
        let parts = Parts { settings, clock, rng, requests, ready };
        let thread =
            std::thread::Builder::new().name("catalog-writer".into()).spawn(move || {
                let failed = parts.ready.clone();
                if let Err(error) = run_on(disk, parts) {
                    // Nobody listens any more when the writer has already started.
                    let _ = failed.send(Err(error.into()));
                }
            })?;
        let shared = opened.recv().map_err(|_| std::io::Error::other("the writer panicked"))??;
        let thread = Mutex::new(Some(thread));
        Ok(Arc::new(SqliteCatalog { path, shared, queue: Some(queue), thread }))
    }
}

/// What the writer's thread takes along.
struct Parts {
    settings: SqliteSettings,
    clock: Arc<dyn Clock>,
    rng: Rng,
    requests: mpsc::Receiver<Request>,
    ready: std_mpsc::SyncSender<Result<Arc<Shared>, OpenError>>,
}

fn run_on(disk: LogDisk, parts: Parts) -> std::io::Result<()> {
    match disk {
        LogDisk::Real => uring::run(async {
            serve(Rc::new(UringEngine::new()), parts).await;
        }),
        #[cfg(test)]
        LogDisk::Simulated(disk) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let engine = Rc::new(crate::sys::fault::FaultEngine::new(&disk));
            runtime.block_on(serve(engine, parts));
            Ok(())
        }
    }
}

async fn serve(engine: Rc<dyn IoEngine>, parts: Parts) {
    let Parts { settings, clock, rng, requests, ready } = parts;
    let path = settings.path.clone();
    let started = start(engine, settings, clock, rng).await.map_err(|error| match error {
        OpenError::Sql(error) => schema::refused(&path, error),
        other => other,
    });
    match started {
        Ok(writer) => {
            let _ = ready.send(Ok(writer.shared.clone()));
            drop(ready);
            writer.run(requests).await;
        }
        Err(error) => {
            let _ = ready.send(Err(error));
        }
    }
}

async fn start(
    engine: Rc<dyn IoEngine>,
    settings: SqliteSettings,
    clock: Arc<dyn Clock>,
    rng: Rng,
) -> Result<Writer, OpenError> {
    let mut conn = schema::connect_writer(&settings.path).await?;
    let now_ms = clock.now_ms();
    let (state, log, shared) = match prepare(&mut conn, engine, &settings, clock, rng).await {
        Ok(prepared) => prepared,
        Err(error) => return Err(schema::close_after(conn, error).await),
    };
    let mut writer = Writer {
        conn,
        log,
        shared,
        names: state.names,
        usage: state.usage,
        last_lsn: state.last_lsn,
        group_max: settings.group_max.max(1),
        behind: None,
        next_purge_ms: now_ms,
    };
    writer.purge_completed().await?;
    Ok(writer)
}

/// Replays the log, opens its end for writing, and connects the readers.
async fn prepare(
    conn: &mut SqliteConnection,
    engine: Rc<dyn IoEngine>,
    settings: &SqliteSettings,
    clock: Arc<dyn Clock>,
    rng: Rng,
) -> Result<(replay::State, LogWriter, Arc<Shared>), OpenError> {
    let SqliteSettings { path, log_dir, .. } = settings;
    let mut state = replay::load_state(conn).await?;
    let end = replay::replay(conn, engine.clone(), log_dir, clock.now_ms(), &mut state).await?;
    let log = LogWriter::open(engine, log_dir, settings.log, end, rng).await?;
    let readers = Readers::open(path, settings.readers).await?;
    let shared = Arc::new(Shared {
        figures: super::CommitFigures::default(),
        clock,
        index: Index::new(settings.index_bytes_max),
        names: RwLock::new(state.names.clone()),
        readers,
    });
    Ok((state, log, shared))
}

/// A database that is lost is made again: from the newest snapshot, if any, and the log.
fn restore_if_missing(path: &Path) -> std::io::Result<()> {
    if let Some(lsn) = Snapshots::of(path).restore_missing(path)? {
        tracing::warn!(path = %path.display(), lsn = lsn.0, "no catalog here: took its snapshot");
    } else if !path.exists() {
        tracing::info!(path = %path.display(), "no catalog here: making one from the commit log");
    }
    Ok(())
}
