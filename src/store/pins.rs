//! Which reads are under way, so that the collector never takes bytes from under one.
//!
//! Time is counted in epochs: a read pins the epoch in which it began; the collector opens a new
//! epoch when it learns that a blob is dead, and takes the blob once no pin is older than that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Default)]
struct Epochs {
    now: u64,
    /// Reads under way, by the epoch in which they began.
    active: BTreeMap<u64, usize>,
}

/// Shared by all workers and the collector.
#[derive(Clone, Debug, Default)]
pub struct Pins(Arc<Mutex<Epochs>>);

/// Keeps every blob that was alive when it was made; dropping it lets go.
#[derive(Debug)]
pub struct Pin {
    epochs: Pins,
    epoch: u64,
}

impl Pins {
    fn lock(&self) -> std::sync::MutexGuard<'_, Epochs> {
        // The guarded section cannot panic half-way, so a poisoned lock is still consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn pin(&self) -> Pin {
        let mut epochs = self.lock();
        let epoch = epochs.now;
        *epochs.active.entry(epoch).or_default() += 1;
        Pin { epochs: self.clone(), epoch }
    }

    /// Opens a new epoch and returns it: pins made from now on are not older than it.
    pub fn advance(&self) -> u64 {
        let mut epochs = self.lock();
        epochs.now += 1;
        epochs.now
    }

    /// True when every read that began before `epoch` has ended.
    pub fn passed(&self, epoch: u64) -> bool {
        self.lock().active.keys().next().is_none_or(|oldest| *oldest >= epoch)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut epochs = self.epochs.lock();
        if let Some(count) = epochs.active.get_mut(&self.epoch) {
            *count -= 1;
            if *count == 0 {
                epochs.active.remove(&self.epoch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_passes_when_the_reads_before_it_end() {
        let pins = Pins::default();
        let before = pins.pin();
        let epoch = pins.advance();
        let after = pins.pin();
        assert!(!pins.passed(epoch), "a read that began earlier is still under way");
        drop(before);
        assert!(pins.passed(epoch), "later reads do not hold the epoch");
        drop(after);
        assert!(pins.passed(pins.advance()));
    }
}
