//! Scrub beside a running server: a thread of its own, by schedule and on request.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{Disk, ScrubControl, ScrubState, Scrubber};
use crate::catalog::sqlite::SqliteCatalog;
use crate::clock::Clock;
use crate::sys::uring;

/// How often the schedule is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Where and how the service works.
#[derive(Clone, Debug)]
pub struct ScrubSettings {
    pub blobs: PathBuf,
    pub log: PathBuf,
    /// The state file.
    pub state: PathBuf,
    /// **Units** bytes per second; 0 is as fast as the disk.
    pub rate: u64,
    /// From the end of one walk to the beginning of the next; zero is never.
    pub every: Duration,
}

/// What a request to start says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StartScrub {
    /// **Units** bytes per second, for this walk; `None` is the setting's.
    pub rate: Option<u64>,
    /// From the beginning, also when one is under way.
    pub restart: bool,
}

enum Command {
    Start(StartScrub),
    Pause,
}

/// The running service, as the admin API and the metrics see it.
pub struct ScrubHandle {
    control: ScrubControl,
    commands: mpsc::UnboundedSender<Command>,
    rate: u64,
}

impl ScrubHandle {
    /// Starts the thread. It ends soon after `stop` completes; a walk goes on at the next start.
    ///
    /// **Errors** When the thread cannot be started.
    pub fn start(
        settings: ScrubSettings,
        catalog: Arc<SqliteCatalog>,
        clock: Arc<dyn Clock>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<(Arc<ScrubHandle>, JoinHandle<()>)> {
        let control = ScrubControl::default();
        let (commands, requests) = mpsc::unbounded_channel();
        let handle = ScrubHandle { control: control.clone(), commands, rate: settings.rate };
        let thread = std::thread::Builder::new().name("scrub".into()).spawn(move || {
            let work = async {
                let stopper = control.clone();
                let disk = Disk::new(&settings.blobs, &settings.log);
                let path = settings.state.clone();
                match Scrubber::new(catalog, disk, clock.clone(), path, control) {
                    Ok(scrubber) => {
                        let service = Service { scrubber, settings, clock, requests };
                        service.run(stop, stopper).await;
                    }
                    Err(error) => warn!(%error, "there is no scrub"),
                }
            };
            if let Err(error) = uring::run(work) {
                warn!(%error, "there is no scrub: no ring for its thread");
            }
        })?;
        Ok((Arc::new(handle), thread))
    }

    pub fn state(&self) -> ScrubState {
        self.control.state()
    }

    /// Starts a walk or goes on with one.
    pub fn begin(&self, request: StartScrub) {
        self.control.set_rate(request.rate.unwrap_or(self.rate));
        match (request.restart, self.control.state().running) {
            (true, _) => self.control.stop(),
            (false, true) => return,
            (false, false) => {}
        }
        // Without a receiver the server is stopping.
        let _ = self.commands.send(Command::Start(request));
    }

    /// Ends a walk for now.
    pub fn pause(&self) {
        self.control.stop();
        let _ = self.commands.send(Command::Pause);
    }

    /// One that does nothing, for tests of what is built on it.
    #[cfg(test)]
    pub fn idle() -> Arc<ScrubHandle> {
        let (commands, _) = mpsc::unbounded_channel();
        Arc::new(ScrubHandle { control: ScrubControl::default(), commands, rate: 0 })
    }
}

struct Service {
    scrubber: Scrubber,
    settings: ScrubSettings,
    clock: Arc<dyn Clock>,
    requests: mpsc::UnboundedReceiver<Command>,
}

impl Service {
    async fn run(mut self, stop: impl Future<Output = ()>, control: ScrubControl) {
        tokio::pin!(stop);
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            let restart = tokio::select! {
                () = &mut stop => return,
                command = self.requests.recv() => match command {
                    Some(Command::Start(request)) => Some(request.restart),
                    Some(Command::Pause) => { self.note_pause(&control); None }
                    None => return,
                },
                _ = ticks.tick() => self.is_due(&control).then(|| {
                    control.set_rate(self.settings.rate);
                    false
                }),
            };
            let Some(restart) = restart else { continue };
            control.lock().paused = false;
            info!(rate = self.settings.rate, "scrub begins or goes on");
            let walk = self.scrubber.run(restart);
            tokio::pin!(walk);
            let (ended, last) = tokio::select! {
                ended = &mut walk => (ended, false),
                () = &mut stop => {
                    control.stop();
                    (walk.await, true)
                }
            };
            report(ended, &control.state());
            if last {
                return;
            }
        }
    }

    fn note_pause(&mut self, control: &ScrubControl) {
        control.lock().paused = true;
        if let Err(error) = self.scrubber.save() {
            warn!(%error, "scrub cannot keep its state");
        }
    }

    /// An unfinished walk goes on, and a finished one is repeated when its time has come.
    fn is_due(&self, control: &ScrubControl) -> bool {
        let state = control.state();
        if self.settings.every.is_zero() || state.paused {
            return false;
        }
        if !state.phase.is_over() {
            return true;
        }
        let since = state.finished_ms.unwrap_or(state.updated_ms);
        if since == 0 {
            // The first one: a new store has nothing to read.
            control.lock().updated_ms = self.clock.now_ms();
            return false;
        }
        let waited = self.clock.now_ms().saturating_sub(since);
        u128::try_from(waited).unwrap_or_default() >= self.settings.every.as_millis()
    }
}

fn report(ended: Result<(), super::MaintenanceError>, state: &ScrubState) {
    let (damaged, problems) = (state.damaged_total, state.problems.len());
    match ended {
        Err(error) => warn!(%error, "scrub was interrupted; it goes on later"),
        Ok(()) if !state.phase.is_over() => info!("scrub is stopped and can go on"),
        Ok(()) if state.is_sound() => info!(bytes = state.bytes_done, "scrub: all is sound"),
        Ok(()) => tracing::error!(damaged, problems, "scrub found damage: `goblin-store scrub`"),
    }
}
