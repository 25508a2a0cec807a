//! The doctor: what this machine gives, what is missing, and what to do about it.
//!
//! Owns the judgement of facts that `sys` reads: one finding for each, ok, note or problem. Never
//! changes anything, and never needs a running server. `/sys` and `/proc` are read below a root
//! that is a parameter, so that tests bring the tree of another machine.

mod disk;
mod memory;
mod system;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::arena::{ArenaError, ArenaSettings};

/// What is examined.
#[derive(Clone, Debug)]
pub struct DoctorSettings {
    /// Where /sys and /proc are; "/" except in tests.
    pub root: PathBuf,
    /// The data directory; it need not exist yet.
    pub data_dir: PathBuf,
    /// The arena that is to be had.
    pub arena: ArenaSettings,
    /// Connections that are to wait for accept.
    pub listen_backlog: u32,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, but could be better, or could not be found out.
    Note,
    /// Needs a human.
    Problem,
}

/// One fact about the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was examined, in a word or two.
    pub about: &'static str,
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do about it; never empty for a problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// True when the server cannot start, or cannot keep its promises, like this.
    pub forbids_serving: bool,
}

impl Finding {
    fn ok(about: &'static str, found: impl Into<String>) -> Finding {
        let found = found.into();
        Finding { about, level: Level::Ok, found, advice: None, forbids_serving: false }
    }

    fn note(about: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        let advice = Some(advice.into());
        Finding { level: Level::Note, advice, ..Finding::ok(about, found) }
    }

    fn problem(
        about: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding { level: Level::Problem, ..Finding::note(about, found, advice) }
    }

    fn fatal(about: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { forbids_serving: true, ..Finding::problem(about, found, advice) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Problem => "PROBLEM",
        };
        write!(f, "{level:<8} {}: {}", self.about, self.found)?;
        match &self.advice {
            Some(advice) => write!(f, " -> {advice}"),
            None => Ok(()),
        }
    }
}

/// All findings, in the order of the examination.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// False when a finding forbids serving.
    pub can_serve: bool,
    pub findings: Vec<Finding>,
}

impl fmt::Display for Report {
    /// One line for each finding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.findings.iter().try_for_each(|finding| writeln!(f, "{finding}"))
    }
}

/// Examines the machine.
///
/// **Errors** `ArenaError::Settings` when the wanted arena cannot be laid out at all.
pub fn run(settings: &DoctorSettings) -> Result<Report, ArenaError> {
    let wanted = memory::Wanted {
        bytes: settings.arena.mapped_bytes()?.next_multiple_of(memory::HUGE_PAGE_BYTES),
        node: settings.arena.numa_node,
        pages: settings.arena.pages,
    };
    let mut findings = system::examine(&settings.root, settings.listen_backlog);
    findings.extend(memory::examine(&settings.root, wanted));
    findings.extend(disk::examine(&settings.root, &settings.data_dir));
    let can_serve = !findings.iter().any(|finding| finding.forbids_serving);
    Ok(Report { can_serve, findings })
}

/// A small file of /sys or /proc, without the line's end.
fn read(root: &Path, path: &str) -> Option<String> {
    Some(fs::read_to_string(root.join(path)).ok()?.trim().to_owned())
}

/// As `read`, for a number.
fn read_number(root: &Path, path: &str) -> Option<u64> {
    read(root, path)?.parse().ok()
}

/// Bytes for people: "48.0 GiB".
fn human(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.into_iter().find(|(_, shift)| bytes >= 1 << shift) {
        Some((unit, shift)) => {
            // One digit behind the point is all that anybody reads.
            let tenths = (u128::from(bytes) * 10) >> shift;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a sample tree: (path, contents).
    pub fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn sizes_read_well() {
        let cases =
            [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (48 << 30, "48.0 GiB")];
        for (bytes, text) in cases {
            assert_eq!(human(bytes), text);
        }
        assert_eq!(human(u64::MAX), "16777215.9 TiB");
    }

    #[test]
    fn this_machine_can_be_examined_twice_with_the_same_result() {
        let data = tempfile::tempdir().unwrap();
        let settings = DoctorSettings {
            root: PathBuf::from("/"),
            data_dir: data.path().join("not/yet/there"),
            arena: ArenaSettings {
                head_bytes: 4 << 20,
                packed_bytes: 2 << 20,
                ..Default::default()
            },
            listen_backlog: 1024,
        };
        let report = run(&settings).unwrap();
        assert!(report.can_serve, "{report}");
        assert!(report.findings.len() > 10);
        assert!(report.findings.iter().all(|f| f.level == Level::Ok || f.advice.is_some()));
        assert_eq!(report.to_string().lines().count(), report.findings.len());
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["can_serve"], true);
        assert_eq!(json["findings"][0]["level"], "ok");
        let names = |report: &Report| report.findings.iter().map(|f| f.about).collect::<Vec<_>>();
        assert_eq!(names(&report), names(&run(&settings).unwrap()));
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0, "nothing was made");
    }

    #[test]
    fn an_arena_that_the_machine_cannot_give_forbids_serving() {
        let settings = DoctorSettings {
            root: PathBuf::from("/"),
            data_dir: std::env::temp_dir(),
            arena: ArenaSettings { head_bytes: 1 << 46, ..Default::default() },
            listen_backlog: 1024,
        };
        let report = run(&settings).unwrap();
        assert!(!report.can_serve);
        assert!(report.to_string().contains("PROBLEM"), "{report}");
    }
}
