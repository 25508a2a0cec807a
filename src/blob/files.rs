//! The directory of blob files: names, creation, removal, listing.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::cache::ReaderCache;
use super::layout::Shape;
use super::{BlobError, BlobReader, BlobWriter};
use crate::model::{BlobId, BlobRef};
use crate::sys::engine::{DirectFile, IoEngine, OpenMode};

/// Directories made at a time by `prepare`, so that their flushes share journal commits.
const DIRS_AT_ONCE: usize = 64;

/// The blob files under one root, `<root>/<2 hex>/<32 hex>.blob`. Per thread; clones share the
/// open readers.
#[derive(Clone)]
pub struct BlobFiles {
    engine: Rc<dyn IoEngine>,
    root: Rc<Path>,
    readers: Rc<RefCell<ReaderCache>>,
}

impl BlobFiles {
    /// Files under `root`; every `open` opens the file.
    pub fn new(engine: Rc<dyn IoEngine>, root: PathBuf) -> BlobFiles {
        BlobFiles::with_cache(engine, root, 0)
    }

    /// Like `new`, and keeps up to `readers_max` readers open. Their owner must call `sweep`
    /// about once a second: an open reader keeps the disk space of a removed blob.
    pub fn with_cache(engine: Rc<dyn IoEngine>, root: PathBuf, readers_max: usize) -> BlobFiles {
        let readers = Rc::new(RefCell::new(ReaderCache::new(readers_max)));
        BlobFiles { engine, root: root.into(), readers }
    }

    /// Makes the root and its 256 directories, durably. Once per process, before any `create`:
    /// else a thread could acknowledge a blob in a directory that another thread made but has
    /// not flushed yet.
    pub async fn prepare(&self) -> io::Result<()> {
        self.engine.create_dir_all(&self.root).await?;
        let dirs = (0..=255u8).map(|n| self.root.join(hex::encode([n])));
        stream::iter(dirs)
            .map(|dir| async move { self.engine.create_dir_all(&dir).await })
            .buffer_unordered(DIRS_AT_ONCE)
            .try_collect::<()>()
            .await?;
        // Directories that a killed process made may not be flushed yet.
        self.engine.sync_dir(&self.root).await
    }

    /// Starts a new blob. With `expected_len` its space is reserved at once, so that a full disk
    /// is known before the first byte; the blob may still turn out shorter or longer.
    ///
    /// **Errors** `NoSpace`; `Io` of kind `AlreadyExists` when the id was used before.
    /// **Cancel** may leave an empty file: remove the id.
    pub async fn create(
        &self,
        blob: BlobId,
        expected_len: Option<u64>,
    ) -> Result<BlobWriter, BlobError> {
        let failed = |e| BlobError::from_io(blob, "create", e);
        let space = match expected_len.map(Shape::new) {
            Some(Some(shape)) => shape.file_bytes(),
            Some(None) => return Err(failed(io::ErrorKind::FileTooLarge.into())),
            None => 0,
        };
        let path = self.path(blob);
        let file = self.create_file(&path).await.map_err(failed)?;
        let allocated = if space == 0 { Ok(0) } else { reserve(&*file, space).await };
        match allocated {
            Ok(allocated) => Ok(BlobWriter::new(blob, path, self.engine.clone(), file, allocated)),
            Err(e) => {
                // The error that counts is the first one; the orphan search takes what stays.
                let _ = self.engine.remove(&path).await;
                Err(BlobError::from_io(blob, "reserve space", e))
            }
        }
    }

    async fn create_file(&self, path: &Path) -> io::Result<Rc<dyn DirectFile>> {
        match self.engine.open(path, OpenMode::CreateNew).await {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.engine.create_dir_all(path.parent().unwrap_or(&self.root)).await?;
                self.engine.open(path, OpenMode::CreateNew).await
            }
            other => other,
        }
    }

    /// Opens a sealed blob and verifies its footer and checksum table.
    ///
    /// **Errors** `NotFound`; `Corrupt` when the file is not that of this id and length, or not
    /// sealed; `Io`.
    pub async fn open(&self, blob: BlobRef) -> Result<BlobReader, BlobError> {
        let cached = self.readers.borrow_mut().get(blob.id);
        if let Some(reader) = cached.filter(|reader| reader.len() == blob.len) {
            return Ok(reader);
        }
        let path = self.path(blob.id);
        let opened = self.engine.open(&path, OpenMode::Read).await;
        let file = opened.map_err(|e| BlobError::from_io(blob.id, "open", e))?;
        let reader = BlobReader::open(blob.id, blob.len, file).await?;
        self.readers.borrow_mut().put(reader.clone());
        Ok(reader)
    }

    /// Removes a blob, finished or not; one that is gone already is fine. Not flushed: after a
    /// power cut the file may be there again, and the orphan search finds it.
    pub async fn remove(&self, blob: BlobId) -> Result<(), BlobError> {
        self.readers.borrow_mut().remove(blob);
        match self.engine.remove(&self.path(blob)).await {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(BlobError::from_io(blob, "remove", e))
            }
            _ => Ok(()),
        }
    }

    /// Ids of all blob files, sealed or not, in no order. Other files are skipped.
    pub async fn list(&self) -> io::Result<Vec<BlobId>> {
        self.list_all().await.map(|(blobs, _)| blobs)
    }

    /// As `list`, with the names of other files in the directories of blobs.
    pub async fn list_all(&self) -> io::Result<(Vec<BlobId>, Vec<String>)> {
        let (mut blobs, mut strangers) = (Vec::new(), Vec::new());
        for n in 0..=255u8 {
            let dir = hex::encode([n]);
            let names = match self.engine.list_dir(&self.root.join(&dir)).await {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            for name in names {
                match parse_name(&name).filter(|blob| blob.0[0] == n) {
                    Some(blob) => blobs.push(blob),
                    None => strangers.push(format!("{dir}/{name}")),
                }
            }
        }
        Ok((blobs, strangers))
    }

    /// Closes the cached readers that were not used since the last call.
    pub fn sweep(&self) {
        self.readers.borrow_mut().sweep();
    }

    fn path(&self, blob: BlobId) -> PathBuf {
        let name = blob.to_string();
        self.root.join(&name[..2]).join(name + ".blob")
    }

    #[cfg(test)]
    pub(super) fn cached(&self) -> usize {
        self.readers.borrow().len()
    }
}

/// Reserves `bytes` where the file system can; returns what it reserved.
async fn reserve(file: &dyn DirectFile, bytes: u64) -> io::Result<u64> {
    match file.allocate(0, bytes).await {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(0),
        other => other.map(|()| bytes),
    }
}

/// The id in a file's name, when it is exactly the name that we give.
fn parse_name(name: &str) -> Option<BlobId> {
    let blob = BlobId::from_hex(name.strip_suffix(".blob")?)?;
    (name.len() == 37 && blob.to_string() == name[..32]).then_some(blob)
}
