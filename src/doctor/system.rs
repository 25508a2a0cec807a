//! The kernel and the process: io_uring, limits, processor, clock.

use std::io;
use std::path::Path;

use super::{Finding, read, read_number};
use crate::sys::probe::{self, Limit, Resource};
use crate::sys::uring;

/// Each connection is a file, each blob being read or written another.
const OPEN_FILES_WANTED: u64 = 65_536;

pub(super) fn examine(root: &Path, listen_backlog: u32) -> Vec<Finding> {
    vec![
        kernel(root),
        io_uring(uring::probe(), read_number(root, "proc/sys/kernel/io_uring_disabled")),
        open_files(probe::resource_limit(Resource::OpenFiles)),
        backlog(read_number(root, "proc/sys/net/core/somaxconn"), listen_backlog),
        processor(read(root, "proc/cpuinfo").unwrap_or_default().as_str()),
        clock(probe::clock_is_synchronised()),
    ]
}

fn kernel(root: &Path) -> Finding {
    match read(root, "proc/sys/kernel/osrelease") {
        Some(release) => Finding::ok("kernel", format!("Linux {release}")),
        None => Finding::note("kernel", "release unknown", "mount /proc"),
    }
}

fn io_uring(probe: io::Result<()>, disabled: Option<u64>) -> Finding {
    let setting = match disabled {
        Some(value) => format!("kernel.io_uring_disabled is {value}"),
        None => "the kernel has no switch for it".to_owned(),
    };
    match probe {
        Ok(()) => Finding::ok("io_uring", format!("a ring can be set up; {setting}")),
        Err(error) => {
            let advice = "Linux 5.11 or later, sysctl kernel.io_uring_disabled=0, and in a \
                          container a seccomp profile that allows io_uring_setup, io_uring_enter \
                          and io_uring_register";
            Finding::fatal("io_uring", format!("no ring can be set up: {error}; {setting}"), advice)
        }
    }
}

fn open_files(limit: io::Result<Limit>) -> Finding {
    const ABOUT: &str = "open files";
    match limit {
        Ok(limit) if limit.hard >= OPEN_FILES_WANTED => {
            Finding::ok(ABOUT, format!("up to {} (the server raises its limit)", limit.hard))
        }
        Ok(limit) => Finding::note(
            ABOUT,
            format!("at most {}", limit.hard),
            format!("LimitNOFILE={OPEN_FILES_WANTED} in the service unit, for many connections"),
        ),
        Err(error) => Finding::note(ABOUT, format!("limit unknown: {error}"), "mount /proc"),
    }
}

fn backlog(somaxconn: Option<u64>, wanted: u32) -> Finding {
    const ABOUT: &str = "accept queue";
    match somaxconn {
        Some(limit) if limit >= u64::from(wanted) => {
            Finding::ok(ABOUT, format!("{wanted} connections (net.core.somaxconn is {limit})"))
        }
        Some(limit) => Finding::note(
            ABOUT,
            format!("cut to {limit} connections by net.core.somaxconn; {wanted} are wanted"),
            format!("sysctl net.core.somaxconn={wanted}"),
        ),
        None => Finding::note(ABOUT, "net.core.somaxconn unknown", "mount /proc"),
    }
}

/// Instructions that the hashes use, as x86 and ARM kernels name them, and what they are for.
const INSTRUCTIONS: [(&[&str], &str); 3] = [
    (&["sha_ni", "sha2"], "SHA-256"),
    (&["pclmulqdq", "pmull"], "CRC"),
    (&["avx512f", "sve", "asimd"], "wide vectors"),
];

fn processor(cpuinfo: &str) -> Finding {
    const ABOUT: &str = "processor";
    let flags = cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        matches!(name.trim(), "flags" | "Features").then_some(value)
    });
    let Some(flags) = flags else {
        return Finding::note(ABOUT, "features unknown", "mount /proc");
    };
    let has = |flag: &str| flags.split_whitespace().any(|known| known == flag);
    let (mut present, mut missing) = (Vec::new(), Vec::new());
    for (names, purpose) in INSTRUCTIONS {
        match names.iter().find(|name| has(name)) {
            Some(name) => present.push(*name),
            None => missing.push(format!("{} for {purpose}", names[0])),
        }
    }
    if missing.is_empty() {
        return Finding::ok(ABOUT, format!("has {}", present.join(", ")));
    }
    let found = match present.is_empty() {
        true => format!("no {}", missing.join(", no ")),
        false => format!("has {}; no {}", present.join(", "), missing.join(", no ")),
    };
    Finding::note(
        ABOUT,
        found,
        "hashing of uploads is slower; in a virtual machine pass the \
                                 host's CPU model through",
    )
}

fn clock(synchronised: io::Result<bool>) -> Finding {
    const ABOUT: &str = "clock";
    const ADVICE: &str = "run chrony or systemd-timesyncd: a signature is refused when the clocks \
                          of client and server are 15 minutes apart";
    match synchronised {
        Ok(true) => Finding::ok(ABOUT, "synchronised"),
        Ok(false) => Finding::note(ABOUT, "the kernel knows of no synchronisation", ADVICE),
        Err(error) => Finding::note(ABOUT, format!("state unknown: {error}"), ADVICE),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn without_io_uring_nothing_can_be_served() {
        let refused = io_uring(Err(io::ErrorKind::PermissionDenied.into()), Some(2));
        assert!(refused.forbids_serving && refused.found.contains("io_uring_disabled is 2"));
        assert_eq!(io_uring(Ok(()), None).level, Level::Ok);
    }

    #[test]
    fn low_limits_are_noted_with_a_remedy() {
        let low = Limit { soft: 1024, hard: 4096 };
        assert_eq!(open_files(Ok(low)).level, Level::Note);
        let high = Limit { soft: 1024, hard: 1 << 20 };
        assert_eq!(open_files(Ok(high)).level, Level::Ok);
        assert_eq!(backlog(Some(4096), 4096).level, Level::Ok);
        let cut = backlog(Some(128), 4096);
        assert_eq!(cut.advice.as_deref(), Some("sysctl net.core.somaxconn=4096"));
    }

    #[test]
    fn processors_of_both_families_are_understood() {
        let x86 = "processor\t: 0\nflags\t\t: fpu sha_ni pclmulqdq avx512f\n";
        assert_eq!(processor(x86).found, "has sha_ni, pclmulqdq, avx512f");
        let arm = "processor\t: 0\nFeatures\t: fp asimd pmull sha2\n";
        assert_eq!(processor(arm).found, "has sha2, pmull, asimd");
        let old = processor("flags : fpu pclmulqdq\n");
        assert_eq!(old.level, Level::Note);
        assert_eq!(old.found, "has pclmulqdq; no sha_ni for SHA-256, no avx512f for wide vectors");
        assert_eq!(processor("").level, Level::Note);
    }
}
