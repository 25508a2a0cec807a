//! The directory tree of a simulated disk: what is seen, and what a power cut leaves of it.
//!
//! An entry that was made, removed or renamed is durable only after `sync_dir` of its directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Survivors;
use super::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(u64),
}

/// Whole paths to what they name. Parents sort before their children.
type Tree = BTreeMap<PathBuf, Node>;

enum Change {
    Link { path: PathBuf, node: Node },
    Unlink { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, node: Node },
}

impl Change {
    fn apply(&self, tree: &mut Tree) {
        match self {
            Change::Link { path, node } => {
                tree.insert(path.clone(), *node);
            }
            Change::Unlink { path } => {
                tree.remove(path);
            }
            Change::Rename { from, to, node } => {
                tree.remove(from);
                tree.insert(to.clone(), *node);
            }
        }
    }

    fn dirs(&self) -> Vec<PathBuf> {
        let paths = match self {
            Change::Link { path, .. } | Change::Unlink { path } => vec![path],
            Change::Rename { from, to, .. } => vec![from, to],
        };
        paths.into_iter().map(|path| dir_of(path).to_path_buf()).collect()
    }
}

fn dir_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

#[derive(Default)]
pub(super) struct Names {
    seen: Tree,
    durable: Tree,
    pending: Vec<Change>,
}

impl Names {
    pub(super) fn get(&self, path: &Path) -> Option<Node> {
        self.seen.get(path).copied()
    }

    /// True for a directory. The root needs no making.
    pub(super) fn is_dir(&self, path: &Path) -> bool {
        let root = path.as_os_str().is_empty() || path == Path::new("/");
        root || self.get(path) == Some(Node::Dir)
    }

    /// True when an entry can be made at `path`.
    pub(super) fn has_parent(&self, path: &Path) -> bool {
        self.is_dir(dir_of(path))
    }

    /// Makes a directory and its parents, durably. False when a file is in the way.
    pub(super) fn make_dirs(&mut self, path: &Path) -> bool {
        let mut missing: Vec<&Path> = path.ancestors().filter(|p| !self.is_dir(p)).collect();
        missing.reverse();
        if missing.iter().any(|path| self.seen.contains_key(*path)) {
            return false;
        }
        for path in missing {
            self.seen.insert(path.to_path_buf(), Node::Dir);
            self.durable.insert(path.to_path_buf(), Node::Dir);
        }
        true
    }

    pub(super) fn link(&mut self, path: &Path, node: Node) {
        self.change(Change::Link { path: path.to_path_buf(), node });
    }

    pub(super) fn unlink(&mut self, path: &Path) {
        self.change(Change::Unlink { path: path.to_path_buf() });
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, node: Node) {
        self.change(Change::Rename { from: from.to_path_buf(), to: to.to_path_buf(), node });
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.pending.push(change);
    }

    /// Makes the changes of one directory durable, and with a rename those of its other one.
    pub(super) fn sync(&mut self, dir: &Path) {
        for change in self.take_of(dir) {
            change.apply(&mut self.durable);
        }
    }

    /// A directory flush that failed: some of the changes are durable, the others never will be.
    pub(super) fn fail_sync(&mut self, dir: &Path, random: &mut Random) {
        for change in self.take_of(dir) {
            if random.coin() {
                change.apply(&mut self.durable);
            }
        }
    }

    /// Takes the pending changes that touch `dir`, in order. A change that spans two directories
    /// brings along what came before it in the other.
    fn take_of(&mut self, dir: &Path) -> Vec<Change> {
        let mut dirs = vec![dir.to_path_buf()];
        let mut taken = Vec::new();
        let mut left = Vec::new();
        for change in std::mem::take(&mut self.pending).into_iter().rev() {
            let touched = change.dirs();
            if touched.iter().any(|dir| dirs.contains(dir)) {
                dirs.extend(touched);
                taken.push(change);
            } else {
                left.push(change);
            }
        }
        left.reverse();
        taken.reverse();
        self.pending = left;
        taken
    }

    pub(super) fn crash(&mut self, survivors: Survivors, random: &mut Random) {
        for change in std::mem::take(&mut self.pending) {
            let survives = match survivors {
                Survivors::None => false,
                Survivors::All => true,
                Survivors::Random => random.coin(),
            };
            if survives {
                change.apply(&mut self.durable);
            }
        }
        self.seen = self.durable.clone();
    }

    /// Names in a directory.
    pub(super) fn list(&self, dir: &Path) -> Vec<String> {
        let entries = self.seen.keys().filter(|path| dir_of(path) == dir);
        entries.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
    }

    /// All files with their numbers, in the order of their paths.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.seen.iter().filter_map(|(path, node)| match node {
            Node::File(number) => Some((path.as_path(), *number)),
            Node::Dir => None,
        })
    }
}
