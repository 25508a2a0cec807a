//! The data directory: who may use it, and where things are in it.
//!
//! Owns its creation, the `format` file and the lock that keeps a second process out. Never reads
//! or writes what the layers keep in it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub use crate::sys::durable::write_durably;

/// What `format` says. A later layout gets a later number.
const FORMAT: &str = "goblin-store 1\n";
/// What may stand in a directory that we take over: an empty mount point has it.
const IGNORED: [&str; 2] = ["lost+found", "LOCK"];

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: String, source: io::Error },
    #[error("{path} is in use by {holder}; stop it first, or choose another --data-dir")]
    Locked { path: String, holder: String },
    #[error("{path} holds other files and no data of goblin-store; choose an empty --data-dir")]
    Foreign { path: String },
    #[error("{path} has the format {found:?}; this version knows {FORMAT:?} only")]
    Format { path: String, found: String },
}

/// An open data directory. Holds the lock while it lives.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Creates (mode 0700) or opens the directory, and locks it.
    ///
    /// **Errors** `Locked` when another process has it, `Foreign` when it is something else's,
    /// `Format` when another version made it.
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        let io = |action| {
            move |source| DataDirError::Io { action, path: path.display().to_string(), source }
        };
        let create = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        create.map_err(io("create"))?;
        let path = fs::canonicalize(path).map_err(io("find"))?;
        let shown = path.display().to_string();
        let io = |action| {
            let path = shown.clone();
            move |source| DataDirError::Io { action, path, source }
        };
        let format = path.join("format");
        let fresh = !format.exists();
        if fresh && !is_vacant(&path).map_err(io("list"))? {
            return Err(DataDirError::Foreign { path: shown });
        }
        let lock = lock(&path, &shown)?;
        if fresh {
            write_durably(&format, FORMAT.as_bytes(), 0o644).map_err(io("write the format of"))?;
        }
        let found = fs::read_to_string(&format).map_err(io("read the format of"))?;
        if found != FORMAT {
            return Err(DataDirError::Format { path: shown, found });
        }
        Ok(DataDir { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The catalog's SQLite file.
    pub fn catalog(&self) -> PathBuf {
        self.path.join("catalog.sqlite")
    }

    /// The commit log's segments.
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    pub fn blobs(&self) -> PathBuf {
        self.path.join("blobs")
    }

    /// True when objects are here, but neither a catalog nor a commit log that tells of them.
    pub fn lost_its_catalog(&self) -> io::Result<bool> {
        if self.catalog().exists() || has_entry(&self.log(), ".seg")? {
            return Ok(false);
        }
        let mut has_data = has_entry(&self.path.join("snapshots"), ".sqlite")?;
        if self.blobs().exists() {
            for dir in fs::read_dir(self.blobs())? {
                has_data = has_data || has_entry(&dir?.path(), ".blob")?;
            }
        }
        Ok(has_data)
    }

    /// How far a scrub is and what it found.
    pub fn scrub_state(&self) -> PathBuf {
        self.path.join("scrub.json")
    }

    /// The root key pair, mode 0600.
    pub fn credentials(&self) -> PathBuf {
        self.path.join("credentials")
    }

    /// One line: the URL that S3 is served on, while it is.
    pub fn endpoint(&self) -> PathBuf {
        self.path.join("endpoint")
    }

    /// One line: the URL of the admin listener, while it is served.
    pub fn admin_endpoint(&self) -> PathBuf {
        self.path.join("admin-endpoint")
    }
}

/// The Unix socket that the command line talks to.
pub fn admin_socket(data_dir: &Path) -> PathBuf {
    data_dir.join("admin.sock")
}

fn is_vacant(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if !IGNORED.iter().any(|ignored| name == *ignored) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a directory has a file whose name ends so; one that is not there has none.
fn has_entry(dir: &Path, ending: &str) -> io::Result<bool> {
    let entries = match fs::read_dir(dir) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        entries => entries?,
    };
    for entry in entries {
        if entry?.file_name().to_string_lossy().ends_with(ending) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Takes the lock, and writes who has it for the next one who tries.
fn lock(path: &Path, shown: &str) -> Result<File, DataDirError> {
    let io = |action| {
        let path = shown.to_owned();
        move |source| DataDirError::Io { action, path, source }
    };
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(path.join("LOCK")).map_err(io("open the lock of"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only the message depends on it.
            let _ = file.read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "another process".to_owned(),
                pid => format!("process {pid}"),
            };
            return Err(DataDirError::Locked { path: shown.to_owned(), holder });
        }
        Err(TryLockError::Error(source)) => return Err(io("lock")(source)),
    }
    let id = format!("{}\n", std::process::id());
    let write =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(id.as_bytes()));
    write.map_err(io("write the lock of"))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("exists").permissions().mode() & 0o777
    }

    #[test]
    fn a_new_directory_is_private_and_opens_again() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("a/b");
        drop(DataDir::open(&path).expect("is created"));
        assert_eq!(mode(&path), 0o700);
        DataDir::open(&path).expect("opens again");
    }

    #[test]
    fn a_second_holder_is_told_who_has_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let _first = DataDir::open(dir.path()).expect("opens");
        let error = DataDir::open(dir.path()).expect_err("is locked").to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    }

    #[test]
    fn a_directory_of_something_else_is_left_alone() {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::write(dir.path().join("thesis.tex"), "x").expect("writable");
        assert!(matches!(DataDir::open(dir.path()), Err(DataDirError::Foreign { .. })));
        assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), 1);
    }

    #[test]
    fn data_without_a_catalog_is_noticed() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let data = DataDir::open(dir.path()).expect("opens");
        let lost = || data.lost_its_catalog().expect("readable");
        assert!(!lost(), "nothing is here");
        fs::create_dir_all(data.blobs().join("00")).expect("writable");
        assert!(!lost(), "still nothing");
        fs::write(data.blobs().join("00/x.blob"), "x").expect("writable");
        assert!(lost());
        fs::create_dir(data.log()).expect("writable");
        fs::write(data.log().join("1.seg"), "x").expect("writable");
        assert!(!lost(), "the log tells");
    }

    #[test]
    fn another_format_is_refused() {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::write(dir.path().join("format"), "goblin-store 2\n").expect("writable");
        assert!(matches!(DataDir::open(dir.path()), Err(DataDirError::Format { .. })));
    }

    #[test]
    fn a_durable_file_has_its_mode_even_over_a_left_over() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("secret");
        fs::write(dir.path().join("secret.new"), "left over").expect("writable");
        write_durably(&path, b"x", 0o600).expect("writes");
        write_durably(&path, b"y", 0o600).expect("writes again");
        assert_eq!((mode(&path), fs::read(&path).expect("reads")), (0o600, b"y".to_vec()));
    }
}
