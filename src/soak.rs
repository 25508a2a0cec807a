//! The long form of some unit tests: new seeds until the time is up. Test builds only.
//!
//! `tests/reliability` starts them with RELIABILITY_SECS and RELIABILITY_SEED and adds up the line
//! that each prints at its end.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Seeds for as long as the run lasts, and what was counted meanwhile.
pub struct Soak {
    until: Instant,
    seed: u64,
    counts: Vec<(&'static str, u64)>,
}

impl Soak {
    pub fn start() -> Soak {
        let number = |name: &str, default| {
            std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
        };
        let until = Instant::now() + Duration::from_secs(number("RELIABILITY_SECS", 1));
        Soak { until, seed: number("RELIABILITY_SEED", 1), counts: Vec::new() }
    }

    /// The next seed, until the time is up; printed, so that a failure tells it.
    pub fn next(&mut self) -> Option<u64> {
        if Instant::now() >= self.until {
            return None;
        }
        self.seed += 1;
        println!("seed {}", self.seed);
        Some(self.seed)
    }

    pub fn count(&mut self, what: &'static str, amount: u64) {
        match self.counts.iter_mut().find(|(name, _)| *name == what) {
            Some((_, total)) => *total += amount,
            None => self.counts.push((what, amount)),
        }
    }

    /// Prints the counts for `tests/reliability`.
    pub fn report(self) {
        let mut line = "reliability:".to_owned();
        for (what, total) in self.counts {
            let _ = write!(line, " {what}={total}");
        }
        println!("{line}");
    }
}
