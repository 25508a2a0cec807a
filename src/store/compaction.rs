//! Compaction of the commit log beside the running store.
//!
//! Owns one thread with a ring of its own, since compaction reads whole segments and waits for
//! flushes, and the wait between "nothing alive is left in this segment" and its removal: a read
//! that began before may still go there, also for an object that was replaced meanwhile.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

use super::Shared;
use crate::catalog::sqlite::{
    CompactError, CompactSettings, CompactStats, Compactor, SqliteCatalog,
};
use crate::log::{LogFiles, SegmentNumber};
use crate::sys::uring::{self, UringEngine};

/// How often the log is looked at. A look costs the headers of all segments.
const ROUND_EVERY: Duration = Duration::from_secs(5);

/// The running thread.
pub struct Compaction {
    thread: JoinHandle<()>,
    stats: Arc<Mutex<CompactStats>>,
}

impl Compaction {
    /// Starts the thread. It ends soon after `stop` completes; what it was doing then is done
    /// again after the next start.
    ///
    /// **Errors** When the thread cannot be started.
    pub fn start(
        shared: Arc<Shared>,
        catalog: Arc<SqliteCatalog>,
        log_dir: PathBuf,
        settings: CompactSettings,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<Compaction> {
        let stats = Arc::new(Mutex::new(CompactStats::default()));
        let published = Arc::clone(&stats);
        let thread = std::thread::Builder::new().name("compaction".into()).spawn(move || {
            let work = async {
                let files = LogFiles::new(Rc::new(UringEngine::new()), log_dir);
                let compactor = Compactor::new(catalog, files, settings);
                let work = Work { shared, compactor, waiting: HashMap::new(), published };
                tokio::select! {
                    () = work.run() => {}
                    () = stop => {}
                }
            };
            if let Err(error) = uring::run(work) {
                warn!(%error, "the log is not compacted: no ring for its thread");
            }
        })?;
        Ok(Compaction { thread, stats })
    }

    /// A function that tells what was done so far, for the metrics.
    pub fn stats(&self) -> impl Fn() -> CompactStats + Send + Sync + 'static {
        let stats = Arc::clone(&self.stats);
        move || *stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the thread's end, after `stop`.
    pub fn join(self) {
        if self.thread.join().is_err() {
            warn!("the compaction thread ended in a panic");
        }
    }
}

struct Work {
    shared: Arc<Shared>,
    compactor: Compactor,
    /// Segments that may go: the epoch that must pass, and when the grace ends.
    waiting: HashMap<SegmentNumber, (u64, Instant)>,
    published: Arc<Mutex<CompactStats>>,
}

impl Work {
    async fn run(mut self) {
        let mut ticks = interval(ROUND_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.round().await {
                warn!(%error, "cannot compact the log; trying again");
            }
            let stats = self.compactor.stats();
            *self.published.lock().unwrap_or_else(PoisonError::into_inner) = stats;
        }
    }

    async fn round(&mut self) -> Result<(), CompactError> {
        let may_go = self.compactor.round().await?;
        self.waiting.retain(|number, _| may_go.contains(number));
        let epoch = self.shared.pins.advance();
        let now = Instant::now();
        let due = now + self.shared.settings.delete_grace;
        for number in &may_go {
            self.waiting.entry(*number).or_insert((epoch, due));
        }
        let passed = |(epoch, due): &(u64, Instant)| *due <= now && self.shared.pins.passed(*epoch);
        let ready: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, wait)| passed(wait))
            .map(|(number, _)| *number)
            .collect();
        if ready.is_empty() {
            return Ok(());
        }
        self.compactor.remove(&ready).await?;
        info!(segments = ready.len(), "removed segments of the log that hold nothing alive");
        Ok(())
    }
}
