//! Object lock: what keeps a version from being removed, and what a bucket gives new versions.

use minicbor::{Decode, Encode};

/// How strictly a retention holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum RetentionMode {
    /// Whoever may bypass it, and says so, may shorten it or remove the version.
    #[n(0)]
    Governance,
    /// Nobody may.
    #[n(1)]
    Compliance,
}

impl RetentionMode {
    /// The value of `x-amz-object-lock-mode`.
    pub fn name(self) -> &'static str {
        match self {
            RetentionMode::Governance => "GOVERNANCE",
            RetentionMode::Compliance => "COMPLIANCE",
        }
    }

    /// Exactly as AWS spells it.
    pub fn parse(name: &str) -> Option<RetentionMode> {
        [RetentionMode::Governance, RetentionMode::Compliance]
            .into_iter()
            .find(|m| m.name() == name)
    }
}

/// Until when a version may not be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Retention {
    #[n(0)]
    pub mode: RetentionMode,
    /// Milliseconds since the Unix epoch.
    #[n(1)]
    pub until_ms: i64,
}

/// How long a bucket retains new versions that bring no retention of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum RetentionPeriod {
    #[n(0)]
    Days(#[n(0)] u32),
    /// Of 365 days each.
    #[n(1)]
    Years(#[n(0)] u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct DefaultRetention {
    #[n(0)]
    pub mode: RetentionMode,
    #[n(1)]
    pub period: RetentionPeriod,
}

impl DefaultRetention {
    /// The retention of a version that is made at `now_ms`.
    pub fn from(&self, now_ms: i64) -> Retention {
        const DAY_MS: i64 = 24 * 3600 * 1000;
        let days = match self.period {
            RetentionPeriod::Days(days) => i64::from(days),
            RetentionPeriod::Years(years) => i64::from(years) * 365,
        };
        let until_ms = now_ms.saturating_add(days.saturating_mul(DAY_MS));
        Retention { mode: self.mode, until_ms }
    }
}

/// The configuration of a bucket that has object lock; it can never be taken off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ObjectLock {
    #[n(0)]
    pub default: Option<DefaultRetention>,
}
