//! What the commands for a stopped store share: the lock, the catalog, a ring.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::catalog::sqlite::SqliteCatalog;
use crate::clock::SystemClock;
use crate::config::{self, Layer, Settings};
use crate::maintenance::Disk;
use crate::rng::Rng;
use crate::server;
use crate::server::data_dir::DataDir;
use crate::sys::uring;

#[derive(clap::Args)]
pub struct Common {
    /// Data directory of the store
    #[arg(long, env = "GOBLIN_DATA_DIR", value_name = "DIR", default_value = "goblin-data")]
    pub data_dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The locked data directory of a store that does not run.
pub struct Stopped {
    pub settings: Settings,
    pub data_dir: DataDir,
}

impl Stopped {
    /// **Errors** When a server uses the directory, or it is none of ours.
    pub fn open(path: &Path) -> anyhow::Result<Stopped> {
        anyhow::ensure!(
            path.join("format").exists(),
            "{} holds no data of goblin-store; name the directory with --data-dir",
            path.display()
        );
        let settings = config::load(Layer::default(), None)?;
        Ok(Stopped { settings, data_dir: DataDir::open(path)? })
    }

    /// Opens the catalog as a start would: the log is replayed.
    pub fn catalog(&self) -> Result<Arc<SqliteCatalog>, server::ServeError> {
        let clock = Arc::new(SystemClock);
        server::open_catalog(&self.settings, &self.data_dir, clock, Rng::system())
    }

    /// Makes the catalog again, and opens it.
    pub fn recover(
        &self,
    ) -> anyhow::Result<(Arc<SqliteCatalog>, crate::catalog::sqlite::Recovered)> {
        let settings = server::sqlite_settings(&self.settings, &self.data_dir);
        Ok(SqliteCatalog::recover(settings, Arc::new(SystemClock), Rng::system())?)
    }

    /// Runs `work` with the files inside a ring, and closes the catalog behind it.
    pub fn run<T>(
        &self,
        catalog: &Arc<SqliteCatalog>,
        work: impl AsyncFnOnce(&SqliteCatalog, &Disk) -> T,
    ) -> anyhow::Result<T> {
        let (blobs, log) = (self.data_dir.blobs(), self.data_dir.log());
        Ok(uring::run(async {
            let disk = Disk::new(&blobs, &log);
            let done = work(catalog, &disk).await;
            catalog.close().await;
            done
        })?)
    }
}
