//! The state of a simulated disk and every operation on it, as plain synchronous code.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::image::{Change, Inode};
use super::names::{Names, Node};
use super::random::Random;
use super::{Fault, FaultError, Op, Stats, Survivors};
use crate::sys::aligned_buf::{ALIGN, AlignedBuf, SharedBuf};
use crate::sys::engine::OpenMode;

pub(super) struct State {
    pub(super) random: Random,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    names: Names,
    pub(super) faults: Vec<Fault>,
    /// Mutating operations until the power goes.
    pub(super) power_cut_in: Option<u64>,
    powered: bool,
    /// Counts the crashes; handles of an earlier boot are dead.
    pub(super) boot: u64,
    pub(super) stats: Stats,
}

/// Why an operation does not succeed.
struct Refusal {
    error: io::Error,
    /// True when the device failed while it worked, so part of the effect may be there.
    midway: bool,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        refusal.error
    }
}

/// An open file as the disk knows it.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) boot: u64,
    inode: u64,
    /// The path it was opened by, for choosing faults.
    path: PathBuf,
    writable: bool,
}

impl State {
    pub(super) fn new(seed: u64) -> State {
        State {
            random: Random::new(seed),
            inodes: BTreeMap::new(),
            next_inode: 1,
            names: Names::default(),
            faults: Vec::new(),
            power_cut_in: None,
            powered: true,
            boot: 0,
            stats: Stats::default(),
        }
    }

    /// Decides whether an operation of the process of `boot` may go ahead, and counts it.
    fn admit(&mut self, boot: u64, op: Op, path: &Path) -> Result<(), Refusal> {
        let dead = |text: &str| Refusal { error: io::Error::other(text), midway: false };
        if boot != self.boot {
            return Err(dead("simulated: this handle is from before the crash"));
        }
        if !self.powered {
            return Err(dead("simulated: the power is off"));
        }
        self.stats.count(op);
        if op.mutates()
            && let Some(left) = &mut self.power_cut_in
        {
            if *left == 0 {
                self.powered = false;
                let error = io::Error::other("simulated: the power went");
                return Err(Refusal { error, midway: op == Op::Write });
            }
            *left -= 1;
        }
        match self.faults.iter_mut().find_map(|fault| fault.strike(op, path)) {
            Some(error) => Err(Refusal { error: error.into(), midway: error == FaultError::Io }),
            None => Ok(()),
        }
    }

    pub(super) fn open(&mut self, boot: u64, path: &Path, mode: OpenMode) -> io::Result<Handle> {
        let op = if mode == OpenMode::CreateNew { Op::Create } else { Op::Open };
        self.admit(boot, op, path)?;
        let inode = match (self.names.get(path), mode) {
            (Some(Node::Dir), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Node::File(inode)), _) => inode,
            (None, OpenMode::CreateNew) if self.names.has_parent(path) => {
                let inode = self.next_inode;
                self.next_inode += 1;
                self.inodes.insert(inode, Inode::default());
                self.names.link(path, Node::File(inode));
                inode
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Handle { boot, inode, path: path.to_path_buf(), writable: mode != OpenMode::Read })
    }

    /// The inode of an open file. It is there as long as the handle's boot lasts.
    fn inode(&mut self, file: &Handle) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&file.inode).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn admit_write(&mut self, file: &Handle, op: Op) -> Result<(), Refusal> {
        if !file.writable {
            let error = io::ErrorKind::PermissionDenied.into();
            return Err(Refusal { error, midway: false });
        }
        self.admit(file.boot, op, &file.path)
    }

    pub(super) fn read(
        &mut self,
        file: &Handle,
        offset: u64,
        buf: &mut AlignedBuf,
    ) -> io::Result<usize> {
        self.admit(file.boot, Op::Read, &file.path)?;
        check_alignment(offset, buf.capacity() as u64)?;
        buf.clear();
        let read = self.inode(file)?.volatile.read(offset, buf.spare());
        buf.set_len(read);
        Ok(read)
    }

    pub(super) fn write(&mut self, file: &Handle, offset: u64, bytes: SharedBuf) -> io::Result<()> {
        check_alignment(offset, bytes.len() as u64)?;
        if let Err(refusal) = self.admit_write(file, Op::Write) {
            if refusal.midway
                && let Some(inode) = self.inodes.get_mut(&file.inode)
            {
                inode.tear(offset, &bytes, &mut self.random);
            }
            return Err(refusal.error);
        }
        self.stats.bytes_written += bytes.len() as u64;
        self.inode(file)?.change(Change::Write { offset, bytes });
        Ok(())
    }

    pub(super) fn sync(&mut self, file: &Handle) -> io::Result<()> {
        let admitted = self.admit(file.boot, Op::Sync, &file.path);
        let inode = self.inodes.get_mut(&file.inode).ok_or(io::ErrorKind::NotFound)?;
        match admitted {
            Ok(()) => inode.sync(),
            Err(Refusal { error, midway }) => {
                if midway {
                    inode.fail_sync(&mut self.random);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn allocate(&mut self, file: &Handle, offset: u64, len: u64) -> io::Result<()> {
        self.admit_write(file, Op::Allocate)?;
        self.inode(file)?.change(Change::Extend(offset + len));
        Ok(())
    }

    pub(super) fn truncate(&mut self, file: &Handle, len: u64) -> io::Result<()> {
        self.admit_write(file, Op::Truncate)?;
        self.inode(file)?.change(Change::Truncate(len));
        Ok(())
    }

    pub(super) fn len(&mut self, file: &Handle) -> io::Result<u64> {
        self.admit(file.boot, Op::Read, &file.path)?;
        Ok(self.inode(file)?.volatile.len())
    }

    pub(super) fn remove(&mut self, boot: u64, path: &Path) -> io::Result<()> {
        self.admit(boot, Op::Remove, path)?;
        match self.names.get(path) {
            Some(Node::File(_)) => self.names.unlink(path),
            Some(Node::Dir) => return Err(io::ErrorKind::IsADirectory.into()),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, boot: u64, from: &Path, to: &Path) -> io::Result<()> {
        self.admit(boot, Op::Rename, from)?;
        match self.names.get(from) {
            Some(node @ Node::File(_)) if self.names.has_parent(to) && !self.names.is_dir(to) => {
                self.names.rename(from, to, node);
                Ok(())
            }
            // Nobody renames directories, so the simulation does not either.
            Some(Node::Dir) => Err(io::ErrorKind::Unsupported.into()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn create_dir_all(&mut self, boot: u64, path: &Path) -> io::Result<()> {
        self.admit(boot, Op::CreateDir, path)?;
        if self.names.make_dirs(path) { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    pub(super) fn sync_dir(&mut self, boot: u64, path: &Path) -> io::Result<()> {
        let admitted = self.admit(boot, Op::SyncDir, path);
        match admitted {
            Ok(()) if !self.names.is_dir(path) => return Err(io::ErrorKind::NotFound.into()),
            Ok(()) => self.names.sync(path),
            Err(Refusal { error, midway }) => {
                if midway {
                    self.names.fail_sync(path, &mut self.random);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn list_dir(&mut self, boot: u64, path: &Path) -> io::Result<Vec<String>> {
        self.admit(boot, Op::ListDir, path)?;
        if self.names.is_dir(path) {
            Ok(self.names.list(path))
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    pub(super) fn crash(&mut self, survivors: Survivors) {
        self.names.crash(survivors, &mut self.random);
        for inode in self.inodes.values_mut() {
            inode.crash(survivors, &mut self.random);
        }
        let linked: Vec<u64> = self.names.files().map(|(_, inode)| inode).collect();
        self.inodes.retain(|inode, _| linked.contains(inode));
        self.faults.clear();
        self.power_cut_in = None;
        self.powered = true;
        self.boot += 1;
    }

    /// Paths of all files with their lengths.
    pub(super) fn files(&self) -> Vec<(PathBuf, u64)> {
        let len = |inode| self.inodes.get(&inode).map_or(0, |inode| inode.volatile.len());
        self.names.files().map(|(path, inode)| (path.to_path_buf(), len(inode))).collect()
    }

    pub(super) fn flip_bit(&mut self, path: &Path, offset: u64, bit: u8) -> bool {
        let Some(Node::File(inode)) = self.names.get(path) else { return false };
        self.inodes.get_mut(&inode).is_some_and(|inode| inode.flip(offset, bit))
    }
}

/// O_DIRECT refuses what is not aligned; so does the simulation, to its strictest extent.
fn check_alignment(offset: u64, len: u64) -> io::Result<()> {
    let align = ALIGN as u64;
    if offset.is_multiple_of(align) && len.is_multiple_of(align) {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}
