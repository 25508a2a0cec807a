//! Deliberate defects, one for each thing that must never go wrong.
//!
//! A test runs each of them against the suite that has to catch it (`tests/sabotage.py`, section
//! `sabotage` of tests/run): a suite that passes with the defect proves nothing. Only test builds
//! have them; elsewhere `is` is a constant and the compiler removes what it guards. Leaf: imports
//! nothing.

/// A defect that can be switched on. The name is what GOBLIN_SABOTAGE says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// I1: a group of commits is answered before the log is flushed.
    SkipLogFlush,
    /// I1: a blob file is sealed without a flush of its contents.
    SkipBlobFlush,
    /// I1: a blob file's name is not flushed.
    SkipNameFlush,
    /// I2: readers see a group before it is in the log.
    PublishEarly,
    /// I3: the log gets a small object's length and checksum without its bytes.
    KeepBytesInRam,
    /// I4: a file whose last reference is gone is not marked for removal.
    LeakBlob,
    /// I4: moved and deleted small objects stay in the figures of their segment.
    LeakSegment,
    /// I5: blocks of blob files are not verified.
    SkipBlockChecksum,
    /// I5: packed bytes of log records are not verified.
    SkipRecordChecksum,
    /// I5: pages of the catalog's file are not verified.
    SkipPageChecksum,
    /// I5: a slot of the arena is shown under a new id before it is filled.
    ShowSlotEarly,
    /// I6: a change of an access list leaves no trace in the log.
    UnloggedChange,
    /// I7: a budget gives more than it has.
    UnboundedBudget,
    /// I8: listings ignore the case of letters.
    ForeignKeyOrder,
}

impl Sabotage {
    pub const ALL: [Sabotage; 14] = [
        Sabotage::SkipLogFlush,
        Sabotage::SkipBlobFlush,
        Sabotage::SkipNameFlush,
        Sabotage::PublishEarly,
        Sabotage::KeepBytesInRam,
        Sabotage::LeakBlob,
        Sabotage::LeakSegment,
        Sabotage::SkipBlockChecksum,
        Sabotage::SkipRecordChecksum,
        Sabotage::SkipPageChecksum,
        Sabotage::ShowSlotEarly,
        Sabotage::UnloggedChange,
        Sabotage::UnboundedBudget,
        Sabotage::ForeignKeyOrder,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Sabotage::SkipLogFlush => "skip-log-flush",
            Sabotage::SkipBlobFlush => "skip-blob-flush",
            Sabotage::SkipNameFlush => "skip-name-flush",
            Sabotage::PublishEarly => "publish-early",
            Sabotage::KeepBytesInRam => "keep-bytes-in-ram",
            Sabotage::LeakBlob => "leak-blob",
            Sabotage::LeakSegment => "leak-segment",
            Sabotage::SkipBlockChecksum => "skip-block-checksum",
            Sabotage::SkipRecordChecksum => "skip-record-checksum",
            Sabotage::SkipPageChecksum => "skip-page-checksum",
            Sabotage::ShowSlotEarly => "show-slot-early",
            Sabotage::UnloggedChange => "unlogged-change",
            Sabotage::UnboundedBudget => "unbounded-budget",
            Sabotage::ForeignKeyOrder => "foreign-key-order",
        }
    }
}

/// Whether the defect is switched on.
#[cfg(test)]
pub fn is(defect: Sabotage) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("GOBLIN_SABOTAGE").ok());
    chosen.as_deref() == Some(defect.name())
}

/// Never, outside of tests.
#[cfg(not(test))]
#[inline(always)]
pub const fn is(_: Sabotage) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/reliability.md lists each defect once, under its invariant, with what catches it.
    #[test]
    fn the_table_lists_every_defect() {
        let page = include_str!("../docs/reliability.md");
        let rows: Vec<Vec<&str>> = page
            .lines()
            .filter(|line| line.starts_with("| I"))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let named: Vec<&str> = rows.iter().map(|row| row[1].trim_matches('`')).collect();
        let wanted: Vec<&str> = Sabotage::ALL.iter().map(|defect| defect.name()).collect();
        assert_eq!(named, wanted);
        for number in 1..=8 {
            let invariant = format!("I{number}");
            assert!(rows.iter().any(|row| row[0] == invariant), "{invariant} has no defect");
        }
        assert!(rows.iter().all(|row| row.len() == 4 && row[3].contains("::")), "{rows:?}");
    }
}
