//! Stopping: one request to stop reaches every task; a second signal ends the process at once.
//!
//! Owns the signals. Tasks hold a `Shutdown`, finish what they have, and end.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Asks everybody to stop. Dropping it asks too.
#[derive(Debug)]
pub struct ShutdownTrigger(watch::Sender<bool>);

/// Learns that it is time to stop. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// A trigger and what it reaches.
pub fn channel() -> (ShutdownTrigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (ShutdownTrigger(sender), Shutdown(receiver))
}

impl ShutdownTrigger {
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the request. **Cancel** Safe.
    pub async fn requested(&mut self) {
        // An error means that the trigger is gone, and with it the server.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

/// SIGTERM and SIGINT of this process.
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Starts listening; must be called within a runtime.
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next signal's name. **Cancel** Safe: a signal that came is told next time.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_reaches_those_who_wait_and_those_who_come_later() {
        let (trigger, shutdown) = channel();
        let mut early = shutdown.clone();
        let waiting = tokio::spawn(async move { early.requested().await });
        assert!(!shutdown.is_requested());
        trigger.request();
        waiting.await.expect("ends");
        assert!(shutdown.is_requested());
        shutdown.clone().requested().await;
    }

    #[tokio::test]
    async fn losing_the_trigger_counts_as_a_request() {
        let (trigger, mut shutdown) = channel();
        drop(trigger);
        shutdown.requested().await;
    }
}
