//! The database's file as bytes: how a new one begins, and whether every page of one is sound.
//!
//! Never opens a database and never decides what becomes of a damaged one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::sys::sqlite_page::{self, LOCK_PAGE, PAGE_BYTES};

/// What stands at the beginning of a database file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstBytes {
    /// There is no file, or an empty one.
    None,
    /// An empty file whose contents were lost.
    Lost,
    /// A SQLite file without checksums.
    Unsummed { application: u32 },
    /// Ours, or nothing that is known; SQLite finds out.
    Other,
}

pub(super) fn first_bytes(path: &Path) -> io::Result<FirstBytes> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(FirstBytes::None),
        file => file?,
    };
    let mut start = Vec::new();
    file.take(PAGE_BYTES as u64).read_to_end(&mut start)?;
    // An empty file beside a log of its pages was not empty before.
    let logged = std::fs::metadata(with_suffix(path, "-wal")).is_ok_and(|wal| wal.len() > 0);
    // A damaged page of ours may look like anything, and ends as ours do.
    Ok(match sqlite_page::unsummed_application(&start) {
        Some(application) => FirstBytes::Unsummed { application },
        None if !start.is_empty() => FirstBytes::Other,
        None if logged => FirstBytes::Lost,
        None => FirstBytes::None,
    })
}

/// Makes a database without tables, durably: it is there whole or not at all.
pub(super) fn create_empty(path: &Path) -> io::Result<()> {
    let temporary = with_suffix(path, ".new");
    let mut file = File::create(&temporary)?;
    file.write_all(&sqlite_page::empty_database())?;
    file.sync_all()?;
    // A write-ahead log without its database belongs to nothing.
    for suffix in ["-wal", "-shm"] {
        remove_if_there(&with_suffix(path, suffix))?;
    }
    std::fs::rename(&temporary, path)?;
    sync_parent(path)
}

/// Numbers of the pages that are damaged, missing or too many, the first `max` of them, counted
/// from 1. For files that nobody writes meanwhile and that have no write-ahead log.
pub(super) fn damaged_pages(path: &Path, max: usize) -> io::Result<Vec<u64>> {
    let mut file = io::BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut page = vec![0; PAGE_BYTES];
    let mut damaged = Vec::new();
    let mut pages_max = 1;
    for number in 1.. {
        let filled = read_up_to(&mut file, &mut page)?;
        if damaged.len() >= max || filled == 0 && number > pages_max {
            break;
        }
        let sound = filled == PAGE_BYTES && sqlite_page::is_sound(&page, number);
        if sound && number == 1 {
            pages_max = sqlite_page::page_count(&page);
        }
        if (!sound && number != LOCK_PAGE) || number > pages_max {
            damaged.push(number);
        }
        if filled == 0 {
            break;
        }
    }
    Ok(damaged)
}

fn read_up_to(file: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read(&mut buf[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// `path` with `suffix` at its end.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Makes the entries of the directory of `path` durable.
pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}
