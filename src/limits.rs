//! Shared budgets: connections, uploads at once.
//!
//! Owns the counters that keep descriptors and memory bounded whatever clients do. A budget never
//! waits: who does not get its share at once answers 503 SlowDown, so that nobody queues while
//! holding other resources. Leaf: imports nothing of ours. Any thread may call it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sabotage::{self, Sabotage};

/// An amount that many take shares of and that is never exceeded.
#[derive(Debug)]
pub struct Budget {
    name: &'static str,
    max: u64,
    used: AtomicU64,
    peak: AtomicU64,
    refused: AtomicU64,
}

/// What a budget looks like at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetReport {
    pub name: &'static str,
    pub max: u64,
    pub used: u64,
    /// The most that was ever in use at once.
    pub peak: u64,
    /// How often a share was refused.
    pub refused: u64,
}

impl Budget {
    /// A budget of `max` units; `name` is its label in the metrics.
    pub fn new(name: &'static str, max: u64) -> Arc<Budget> {
        Arc::new(Budget {
            name,
            max,
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Takes `amount` units if that many are free, else counts a refusal and returns `None`.
    pub fn try_acquire(self: &Arc<Self>, amount: u64) -> Option<Permit> {
        self.take(amount).then(|| Permit { budget: self.clone(), amount })
    }

    pub fn report(&self) -> BudgetReport {
        BudgetReport {
            name: self.name,
            max: self.max,
            used: self.used.load(Ordering::Relaxed),
            peak: self.peak.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    fn take(&self, amount: u64) -> bool {
        let fits = |used: u64| {
            used.checked_add(amount)
                .filter(|sum| *sum <= self.max || sabotage::is(Sabotage::UnboundedBudget))
        };
        match self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fits) {
            Ok(before) => {
                self.peak.fetch_max(before + amount, Ordering::Relaxed);
                true
            }
            Err(_) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    fn give_back(&self, amount: u64) {
        let before = self.used.fetch_sub(amount, Ordering::AcqRel);
        assert!(before >= amount, "budget {} got back more than it gave", self.name);
    }
}

/// A share of a budget; dropping it gives the share back.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<Budget>,
    amount: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.give_back(self.amount);
    }
}

/// Sizes of the process-wide budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// Client connections at once, all workers together.
    pub connections_max: u64,
    /// Requests with a body being received at once.
    pub uploads_max: u64,
}

/// The process-wide budgets, shared by every worker.
#[derive(Clone, Debug)]
pub struct Limits {
    pub connections: Arc<Budget>,
    pub uploads: Arc<Budget>,
}

impl Limits {
    pub fn new(settings: &LimitSettings) -> Limits {
        Limits {
            connections: Budget::new("connections", settings.connections_max),
            uploads: Budget::new("uploads", settings.uploads_max),
        }
    }

    /// All budgets, for the metrics.
    pub fn reports(&self) -> [BudgetReport; 2] {
        [&self.connections, &self.uploads].map(|budget| budget.report())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_returns_when_dropped_and_refusals_are_counted() {
        let budget = Budget::new("test", 10);
        let first = budget.try_acquire(7).expect("fits");
        assert!(budget.try_acquire(4).is_none());
        let second = budget.try_acquire(3).expect("exactly fits");
        drop(first);
        assert_eq!(budget.report().used, 3);
        drop(second);
        let report = budget.report();
        assert_eq!((report.used, report.peak, report.refused), (0, 10, 1));
    }

    #[test]
    fn an_amount_near_the_end_of_u64_does_not_wrap() {
        let budget = Budget::new("test", u64::MAX);
        let _most = budget.try_acquire(u64::MAX - 1).expect("fits");
        assert!(budget.try_acquire(2).is_none());
    }

    #[test]
    fn threads_together_never_exceed_the_budget() {
        let budget = Budget::new("test", 5);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let _share = budget.try_acquire(1);
                        assert!(budget.report().used <= 5);
                    }
                });
            }
        });
        assert_eq!(budget.report().used, 0);
        assert!(budget.report().peak <= 5);
    }
}
