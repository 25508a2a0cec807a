//! The rows of `versions` in the working set: what is not current, and delete markers.
//!
//! Of a key only the rows that the group may need are loaded: the newest few, the null version,
//! versions that a proposal names. Like the rest of the working set this does no I/O, and panics
//! when a row is looked at that was not loaded: a decision on a guess could lose data.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::model::{BucketId, Key, Lsn, ObjectVersion, VersionId};

pub(super) type Entry = (BucketId, Key);

/// What is known of one key's rows.
#[derive(Debug)]
struct KeyRows {
    /// Rows by commit, and where there are none. What is not named is absent from `known_from` on.
    now: BTreeMap<Lsn, Option<Arc<ObjectVersion>>>,
    /// All rows of commits from here on are known.
    known_from: Lsn,
    /// True when the null version's row is known.
    null_known: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Noncurrent {
    keys: HashMap<Entry, KeyRows>,
    changed: BTreeSet<(Entry, Lsn)>,
}

/// What a group needs to know of a key's rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    /// How many of the newest.
    pub newest: usize,
    pub null: bool,
    pub lsns: BTreeSet<Lsn>,
}

impl Need {
    pub fn version(&mut self, id: VersionId) {
        match id.lsn() {
            Some(lsn) => {
                self.lsns.insert(lsn);
            }
            None => self.null = true,
        }
    }
}

impl Noncurrent {
    /// Records what was read for `need`: the newest rows, and those that were asked for by name.
    pub fn load(
        &mut self,
        entry: Entry,
        need: &Need,
        newest: Vec<Arc<ObjectVersion>>,
        named: Vec<Arc<ObjectVersion>>,
    ) {
        let known_from = match newest.iter().map(|v| v.lsn).min() {
            _ if need.newest == 0 => Lsn(u64::MAX),
            Some(oldest) if newest.len() >= need.newest => oldest,
            _ => Lsn(0),
        };
        let absent = need.lsns.iter().map(|lsn| (*lsn, None));
        let present = newest.into_iter().chain(named).map(|v| (v.lsn, Some(v)));
        let now = absent.chain(present).collect();
        self.keys.insert(entry, KeyRows { now, known_from, null_known: need.null });
    }

    /// Records that a key has no rows.
    pub fn load_none(&mut self, entry: Entry) {
        let none = KeyRows { now: BTreeMap::new(), known_from: Lsn(0), null_known: true };
        self.keys.insert(entry, none);
    }

    fn rows(&self, entry: &Entry) -> &KeyRows {
        self.keys.get(entry).expect("versions are loaded before they are looked at")
    }

    /// The version of that id.
    pub fn version(&self, entry: &Entry, id: VersionId) -> Option<&Arc<ObjectVersion>> {
        let rows = self.rows(entry);
        match id.lsn() {
            Some(lsn) => {
                let row = rows.now.get(&lsn);
                assert!(row.is_some() || lsn >= rows.known_from, "a version is loaded first");
                row?.as_ref().filter(|v| v.version_id == id)
            }
            None => {
                let known = rows.null_known || rows.known_from == Lsn(0);
                assert!(known, "the null version is loaded first");
                rows.now.values().flatten().find(|v| v.version_id == id)
            }
        }
    }

    /// The newest version that `skip` does not name.
    pub fn newest(
        &self,
        entry: &Entry,
        skip: impl Fn(VersionId) -> bool,
    ) -> Option<&Arc<ObjectVersion>> {
        let rows = self.rows(entry);
        let mut present = rows.now.range(rows.known_from..).rev().filter_map(|(_, v)| v.as_ref());
        let found = present.find(|v| !skip(v.version_id));
        assert!(found.is_some() || rows.known_from == Lsn(0), "the newest versions are loaded");
        found
    }

    pub fn insert(&mut self, entry: &Entry, version: Arc<ObjectVersion>) {
        self.set(entry, version.lsn, Some(version));
    }

    pub fn remove(&mut self, entry: &Entry, lsn: Lsn) {
        self.set(entry, lsn, None);
    }

    fn set(&mut self, entry: &Entry, lsn: Lsn, row: Option<Arc<ObjectVersion>>) {
        let rows = self.keys.get_mut(entry).expect("versions are loaded before they change");
        rows.now.insert(lsn, row);
        self.changed.insert((entry.clone(), lsn));
    }

    /// The version of that id, to be changed.
    pub fn change(&mut self, entry: &Entry, id: VersionId) -> Option<&mut ObjectVersion> {
        let lsn = self.version(entry, id)?.lsn;
        self.changed.insert((entry.clone(), lsn));
        self.keys.get_mut(entry)?.now.get_mut(&lsn)?.as_mut().map(Arc::make_mut)
    }

    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Rows that are to be written, in the order of the table's keys.
    pub fn upserts(&self) -> impl Iterator<Item = (&Entry, &Arc<ObjectVersion>)> {
        self.changed
            .iter()
            .filter_map(|(entry, lsn)| Some((entry, self.keys.get(entry)?.now.get(lsn)?.as_ref()?)))
    }

    /// Rows that are to be written, for a last touch.
    pub fn upserts_mut(&mut self) -> impl Iterator<Item = &mut Arc<ObjectVersion>> {
        let changed = &self.changed;
        self.keys.iter_mut().flat_map(move |(entry, rows)| {
            let touched = rows.now.iter_mut();
            let touched = touched.filter(|(lsn, _)| changed.contains(&(entry.clone(), **lsn)));
            touched.filter_map(|(_, row)| row.as_mut())
        })
    }

    /// Rows that are to be removed.
    pub fn removals(&self) -> impl Iterator<Item = &(Entry, Lsn)> {
        self.changed.iter().filter(|(entry, lsn)| {
            matches!(self.keys.get(entry).and_then(|rows| rows.now.get(lsn)), Some(None))
        })
    }
}
