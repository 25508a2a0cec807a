//! Random sequences of proposals: the same on the model one by one and on another catalog many at
//! a time, with the same answers and the same state at the end.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use proptest::prelude::*;

use super::kit::{Kit, MIB, blob_id, entry, etag, key, owner, packed, put, upload_id};
use super::objects::{if_absent, if_match};
use crate::catalog::{Catalog, ListObjects, ListRow, ListedVersion, MemoryCatalog};
use crate::clock::ManualClock;
use crate::model::commit::{CopySource, DeleteEntry, PackedBytes, ProposedData};
use crate::model::lock::{DefaultRetention, ObjectLock, Retention, RetentionMode, RetentionPeriod};
use crate::model::{
    BlobId, BlobPlace, BucketId, CommitError, Committed, Extent, Lsn, ObjectMetadata, Proposal,
    Upload, UploadId, VersionId, Versioning, WriteCondition,
};

const KEYS: [&str; 5] = ["a", "b/1", "b/2", "c", "ä"];

/// One step, in terms of few keys, uploads and blobs so that steps meet.
#[derive(Clone, Debug)]
pub enum Step {
    Put {
        key: usize,
        data: u8,
        condition: u8,
    },
    Copy {
        from: usize,
        to: usize,
        stale: bool,
        version: Option<usize>,
    },
    Rename {
        from: usize,
        to: usize,
        guarded: bool,
    },
    Delete {
        /// Keys, and which of their versions from the newest on.
        keys: Vec<(usize, Option<usize>)>,
        guarded: bool,
        bypass: bool,
    },
    Versioning {
        suspend: bool,
    },
    Begin,
    Abandon {
        back: u64,
    },
    CreateUpload {
        key: usize,
    },
    Part {
        upload: u64,
        number: u32,
        data: u8,
    },
    CopyPart {
        upload: u64,
        number: u32,
        from: usize,
    },
    Complete {
        upload: u64,
        numbers: Vec<u32>,
    },
    Abort {
        upload: u64,
    },
    Relocate {
        key: usize,
        right: bool,
    },
    Acl {
        key: usize,
        version: Option<usize>,
    },
    Tags {
        key: usize,
        version: Option<usize>,
    },
    /// Object lock for the bucket, with a default retention of so many days.
    Lock {
        days: Option<u32>,
    },
    Retain {
        key: usize,
        version: Option<usize>,
        compliance: bool,
        ms: Option<i64>,
        bypass: bool,
    },
    Hold {
        key: usize,
        version: Option<usize>,
        on: bool,
    },
    Config {
        name: usize,
        document: Option<u8>,
    },
    Buckets {
        delete: bool,
    },
    /// Lets all steps so far be committed together before the next begins.
    Pause {
        ms: i64,
    },
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..KEYS.len();
    let version = || prop::option::of(0..4usize);
    let numbers = || prop::collection::vec(1..4u32, 0..3);
    let step = prop_oneof![
        6 => (key(), 0..4u8, 0..6u8)
            .prop_map(|(key, data, condition)| Step::Put { key, data, condition }),
        3 => (key(), key(), prop::bool::weighted(0.1), version())
            .prop_map(|(from, to, stale, version)| Step::Copy { from, to, stale, version }),
        2 => (key(), key(), prop::bool::weighted(0.2))
            .prop_map(|(from, to, guarded)| Step::Rename { from, to, guarded }),
        4 => (
            prop::collection::vec((key(), version()), 1..6),
            prop::bool::weighted(0.2),
            any::<bool>(),
        )
            .prop_map(|(keys, guarded, bypass)| Step::Delete { keys, guarded, bypass }),
        1 => any::<bool>().prop_map(|suspend| Step::Versioning { suspend }),
        1 => Just(Step::Begin),
        1 => (0..4u64).prop_map(|back| Step::Abandon { back }),
        2 => key().prop_map(|key| Step::CreateUpload { key }),
        4 => (0..3u64, 1..4u32, 0..4u8)
            .prop_map(|(upload, number, data)| Step::Part { upload, number, data }),
        1 => (0..3u64, 1..4u32, key())
            .prop_map(|(upload, number, from)| Step::CopyPart { upload, number, from }),
        3 => (0..3u64, numbers()).prop_map(|(upload, mut numbers)| {
            numbers.sort();
            Step::Complete { upload, numbers }
        }),
        1 => (0..3u64).prop_map(|upload| Step::Abort { upload }),
        1 => (key(), prop::bool::weighted(0.8))
            .prop_map(|(key, right)| Step::Relocate { key, right }),
        1 => (key(), version()).prop_map(|(key, version)| Step::Acl { key, version }),
        1 => (key(), version()).prop_map(|(key, version)| Step::Tags { key, version }),
        1 => prop::option::weighted(0.2, 1..3u32).prop_map(|days| Step::Lock { days }),
        1 => (key(), version(), any::<bool>(), prop::option::of(-10..3000i64), any::<bool>())
            .prop_map(|(key, version, compliance, ms, bypass)| {
                Step::Retain { key, version, compliance, ms, bypass }
            }),
        1 => (key(), version(), prop::bool::weighted(0.3))
            .prop_map(|(key, version, on)| Step::Hold { key, version, on }),
        1 => (0..3usize, prop::option::of(any::<u8>()))
            .prop_map(|(name, document)| Step::Config { name, document }),
        1 => any::<bool>().prop_map(|delete| Step::Buckets { delete }),
        1 => (-500..2000i64).prop_map(|ms| Step::Pause { ms }),
    ];
    prop::collection::vec(step, 1..120)
}

/// The model, which goes ahead, and the catalog that is compared with it.
pub struct Pair {
    model: Kit,
    other: Arc<dyn Catalog>,
    clock: Arc<ManualClock>,
    waiting: Vec<(Proposal, Result<Committed, CommitError>)>,
    uploads: u64,
}

impl Pair {
    /// `clock` is that of `other`, which is fresh.
    pub async fn new(other: Arc<dyn Catalog>, clock: Arc<ManualClock>) -> Pair {
        let model = Arc::new(MemoryCatalog::new(clock.clone()));
        let kit = Kit::new(other.clone(), clock.clone()).await;
        let model = Kit::new(model, clock.clone()).await;
        assert_eq!(kit.bucket, model.bucket);
        Pair { model, other, clock, waiting: Vec::new(), uploads: 0 }
    }

    /// Lets go of the catalog, so that it can be closed and opened again.
    pub fn release_other(&mut self) -> Arc<dyn Catalog> {
        std::mem::replace(&mut self.other, self.model.catalog.clone())
    }

    pub async fn run(&mut self, steps: Vec<Step>) {
        for step in steps {
            if let Step::Pause { ms } = step {
                self.settle().await;
                self.clock.advance(ms);
                continue;
            }
            for proposal in self.proposals(step).await {
                let answer = self.model.catalog.commit(proposal.clone()).await;
                self.waiting.push((proposal, answer));
            }
        }
        self.settle().await;
    }

    /// Commits what waits, all at once but in order, and compares the answers.
    async fn settle(&mut self) {
        let (proposals, wanted): (Vec<_>, Vec<_>) = self.waiting.drain(..).unzip();
        // `join_all` polls in order, and the first poll queues.
        let commits = proposals.iter().map(|proposal| self.other.commit(proposal.clone()));
        let answers = join_all(commits).await;
        for ((proposal, wanted), got) in proposals.iter().zip(&wanted).zip(&answers) {
            assert_eq!(plain(got), plain(wanted), "{proposal:?}");
        }
    }

    fn upload(&self, back: u64) -> UploadId {
        upload_id(self.uploads.saturating_sub(back))
    }

    async fn upload_key(&self, id: UploadId) -> String {
        let all = ListObjects { limit: 100, ..ListObjects::default() };
        let page = self.model.catalog.list_uploads(self.model.bucket, &all, None).await.unwrap();
        let found = page.rows.into_iter().find_map(|row| match row {
            ListRow::Item(upload) if upload.id == id => Some(upload.key.to_string()),
            _ => None,
        });
        // A completed one is asked for again under a key that may or may not be its own.
        found.unwrap_or_else(|| KEYS[id.0[7] as usize % KEYS.len()].to_owned())
    }

    async fn data(&self, kind: u8, large: bool, out: &mut Vec<Proposal>) -> ProposedData {
        let n = self.model.fresh();
        match kind {
            0 => ProposedData::Empty,
            1 | 2 => packed(n, 100 + n as usize % 50),
            _ => {
                out.push(Proposal::BeginBlob { id: blob_id(n) });
                let len = if large { 5 * MIB + n } else { 300_000 + n };
                ProposedData::File { id: blob_id(n), len }
            }
        }
    }

    /// The `nth` newest version of a key; one that never was where there are fewer, often the
    /// null version. `None` for none.
    async fn version_at(&self, at: usize, nth: Option<usize>) -> Option<(VersionId, Lsn)> {
        let all = all_versions(&*self.model.catalog, self.model.bucket, 100, "").await;
        let of_key = all.iter().filter(|v| v.key.as_str() == KEYS[at]);
        let found = of_key.map(|v| (v.version.version_id, v.version.lsn)).nth(nth?);
        Some(found.unwrap_or(match nth {
            Some(3) => (VersionId([7; 16]), Lsn(7)),
            _ => (VersionId::NULL, Lsn(0)),
        }))
    }

    async fn source(&self, from: usize, stale: bool) -> CopySource {
        let version = self.model.get(KEYS[from]).await;
        let mut lsn = version.map_or(crate::model::Lsn(0), |v| v.lsn);
        if stale {
            lsn.0 += 1;
        }
        CopySource { bucket: self.model.bucket, key: key(KEYS[from]), version: None, lsn }
    }

    /// What a step asks for, in the light of the model's state.
    async fn proposals(&mut self, step: Step) -> Vec<Proposal> {
        let mut out = Vec::new();
        let bucket = self.model.bucket;
        let last = match step {
            Step::Put { key: at, data, condition } => {
                let data = self.data(data, false, &mut out).await;
                let mut last = put(bucket, KEYS[at], self.model.fresh(), data);
                let current = self.model.get(KEYS[at]).await;
                if let Proposal::PutObject { condition: slot, .. } = &mut last {
                    *slot = match (condition, current) {
                        (0, _) => if_absent(),
                        (1, Some(version)) => if_match(&version.etag.to_string()),
                        (2, _) => if_match("00"),
                        _ => WriteCondition::default(),
                    };
                }
                last
            }
            Step::Copy { from, to, stale, version } => {
                let mut source = self.source(from, stale).await;
                if let Some((id, lsn)) = self.version_at(from, version).await {
                    source.version = Some(id);
                    source.lsn = if stale { source.lsn } else { lsn };
                }
                self.model.copy(source, KEYS[to])
            }
            Step::Versioning { suspend } => Proposal::SetVersioning {
                bucket,
                versioning: if suspend { Versioning::Suspended } else { Versioning::Enabled },
            },
            Step::Rename { from, to, guarded } => Proposal::RenameObject {
                source: self.source(from, false).await,
                key: key(KEYS[to]),
                condition: if guarded { if_absent() } else { WriteCondition::default() },
            },
            Step::Delete { keys, guarded, bypass } => {
                let mut entries = Vec::new();
                for (at, version) in keys {
                    let version = self.version_at(at, version).await.map(|(id, _)| id);
                    entries.push(DeleteEntry { version, ..entry(KEYS[at]) });
                }
                if guarded {
                    entries[0].condition = if_match("00");
                }
                Proposal::DeleteObjects {
                    bucket,
                    owner: owner(),
                    bypass_governance: bypass,
                    entries,
                }
            }
            Step::Begin => Proposal::BeginBlob { id: blob_id(self.model.fresh()) },
            Step::Abandon { back } => {
                Proposal::AbandonBlob { id: blob_id(self.model.fresh().saturating_sub(back)) }
            }
            Step::Acl { key: at, version } => Proposal::SetObjectAcl {
                bucket,
                key: key(KEYS[at]),
                version: self.version_at(at, version).await.map(|(id, _)| id),
                acl: crate::model::CannedAcl::PublicRead,
            },
            step @ (Step::Lock { .. } | Step::Retain { .. } | Step::Hold { .. }) => {
                self.lock_step(step).await
            }
            Step::Tags { key: at, version } => Proposal::SetObjectTags {
                bucket,
                key: key(KEYS[at]),
                version: self.version_at(at, version).await.map(|(id, _)| id),
                tags: vec![("n".into(), self.model.fresh().to_string())],
            },
            Step::Config { name, document } => {
                let name = ["cors", "metrics/1", "tagging"][name].to_owned();
                let document = document.map(|byte| vec![byte; 9]);
                Proposal::SetBucketConfig { bucket, name, document }
            }
            Step::Relocate { key, right } => {
                self.settle().await;
                return self.relocate(key, right).await;
            }
            Step::Buckets { delete } => self.bucket_step(delete).await,
            Step::Pause { .. } => return out,
            other => self.upload_step(other, &mut out).await,
        };
        out.push(last);
        out
    }

    /// The proposal of a step that is about uploads.
    async fn upload_step(&mut self, step: Step, out: &mut Vec<Proposal>) -> Proposal {
        let bucket = self.model.bucket;
        match step {
            Step::CreateUpload { key: at } => {
                self.uploads += 1;
                let upload = Upload {
                    id: upload_id(self.uploads),
                    bucket,
                    key: key(KEYS[at]),
                    initiated_ms: 5,
                    owner: owner(),
                    metadata: ObjectMetadata::default(),
                    checksum: None,
                };
                Proposal::CreateUpload { upload }
            }
            Step::Part { upload, number, data } => {
                let upload = self.upload(upload);
                let data = self.data(data, true, out).await;
                let key = key(&self.upload_key(upload).await);
                let etag = etag(number.into());
                Proposal::PutPart { bucket, key, upload, number, etag, checksum: None, data }
            }
            Step::CopyPart { upload, number, from } => {
                let upload = self.upload(upload);
                Proposal::CopyPart {
                    bucket,
                    key: key(&self.upload_key(upload).await),
                    upload,
                    number,
                    source: self.source(from, false).await,
                    range: (10, 1000),
                    etag: etag(number.into()),
                    checksum: None,
                }
            }
            Step::Complete { upload, numbers } => {
                let upload = self.upload(upload);
                self.model.complete(&self.upload_key(upload).await, upload, &numbers)
            }
            Step::Abort { upload } => {
                let upload = self.upload(upload);
                let key = key(&self.upload_key(upload).await);
                Proposal::AbortUpload { bucket, key, upload }
            }
            other => unreachable!("no upload in {other:?}"),
        }
    }

    async fn lock_step(&self, step: Step) -> Proposal {
        let bucket = self.model.bucket;
        let id = async |at, nth| self.version_at(at, nth).await.map(|(id, _)| id);
        match step {
            Step::Lock { days } => {
                let mode = RetentionMode::Governance;
                let default = days.map(RetentionPeriod::Days);
                let default = default.map(|period| DefaultRetention { mode, period });
                Proposal::SetObjectLock { bucket, lock: ObjectLock { default } }
            }
            Step::Retain { key: at, version, compliance, ms, bypass } => {
                let mode =
                    if compliance { RetentionMode::Compliance } else { RetentionMode::Governance };
                let now = crate::clock::Clock::now_ms(&*self.clock);
                Proposal::SetRetention {
                    bucket,
                    key: key(KEYS[at]),
                    version: id(at, version).await,
                    retention: ms.map(|ms| Retention { mode, until_ms: now + ms }),
                    bypass_governance: bypass,
                }
            }
            Step::Hold { key: at, version, on } => Proposal::SetLegalHold {
                bucket,
                key: key(KEYS[at]),
                version: id(at, version).await,
                on,
            },
            other => unreachable!("no lock in {other:?}"),
        }
    }

    async fn bucket_step(&self, delete: bool) -> Proposal {
        match self.model.catalog.bucket("other") {
            Some(bucket) if delete => Proposal::DeleteBucket { id: bucket.id },
            Some(_) => Proposal::DeleteBucket { id: self.model.bucket },
            None => Proposal::CreateBucket {
                name: crate::model::BucketName::new("other").unwrap(),
                owner: owner(),
                location: String::new(),
                object_lock: false,
            },
        }
    }

    /// Places differ between the two, so each moves the blob from where it has it.
    async fn relocate(&self, at: usize, right: bool) -> Vec<Proposal> {
        let Some(version) = self.model.get(KEYS[at]).await else { return Vec::new() };
        let Some(Extent { blob, .. }) = version.extents.first().copied() else {
            return Vec::new();
        };
        if blob.place == BlobPlace::File {
            return Vec::new();
        }
        for catalog in [&self.model.catalog, &self.other] {
            let mut from = catalog.locate(blob.id).await.unwrap().unwrap().place;
            if !right {
                from = BlobPlace::Segment { segment: 9_999, record_offset: 1 };
            }
            let bytes = Bytes::from(vec![0; blob.len as usize]);
            let data = PackedBytes { id: blob.id, bytes };
            catalog.commit(Proposal::Relocate { data, from }).await.unwrap();
        }
        Vec::new()
    }

    /// Compares everything that a client can see. Also after `other` was opened again.
    pub async fn compare(&self, other: &dyn Catalog) {
        let model = &*self.model.catalog;
        let ids = [Some(self.model.bucket), model.bucket("other").map(|bucket| bucket.id)];
        for bucket in ids.into_iter().flatten() {
            assert_eq!(other.usage(bucket).await.unwrap(), model.usage(bucket).await.unwrap());
            for name in KEYS {
                let (a, b) = (
                    other.object(bucket, &key(name), None).await.unwrap(),
                    model.object(bucket, &key(name), None).await.unwrap(),
                );
                let placed = a.iter().flat_map(|v| &v.extents);
                for extent in placed {
                    let located = other.locate(extent.blob.id).await.unwrap();
                    assert_eq!(located.map(|b| b.len), Some(extent.blob.len));
                }
                let plain = |v| plain(&Ok(Committed::Object(v)));
                assert_eq!(a.map(plain), b.map(plain), "{name}");
            }
            self.compare_lists(other, bucket).await;
            self.compare_versions(other, bucket).await;
        }
        assert_eq!(names(other).await, names(model).await);
    }

    async fn compare_lists(&self, other: &dyn Catalog, bucket: BucketId) {
        let model = &*self.model.catalog;
        let all = ListObjects { limit: 100, ..ListObjects::default() };
        let keys = async |catalog: &dyn Catalog| {
            let page = catalog.list_objects(bucket, &all).await.unwrap();
            let keys = page.rows.into_iter().map(|row| match row {
                ListRow::Item(item) => (item.key.to_string(), item.version.lsn),
                ListRow::CommonPrefix(_) => panic!("no delimiter was given"),
            });
            keys.collect::<Vec<_>>()
        };
        assert_eq!(keys(other).await, keys(model).await);
        let uploads = async |catalog: &dyn Catalog| {
            catalog.list_uploads(bucket, &all, None).await.unwrap().rows
        };
        assert_eq!(uploads(other).await, uploads(model).await);
        for n in 1..=self.uploads {
            let parts = async |catalog: &dyn Catalog| {
                let page = catalog.parts(upload_id(n), 0, 100).await.unwrap();
                let plain = |part| plain(&Ok(Committed::Part(part)));
                page.rows.into_iter().map(plain).collect::<Vec<_>>()
            };
            assert_eq!(parts(other).await, parts(model).await);
        }
    }

    async fn compare_versions(&self, other: &dyn Catalog, bucket: BucketId) {
        let model = &*self.model.catalog;
        for (limit, delimiter) in [(100, ""), (1, ""), (3, ""), (1, "/"), (2, "/")] {
            let wanted = all_versions(model, bucket, limit, delimiter).await;
            let got = all_versions(other, bucket, limit, delimiter).await;
            let plain = |row: &ListedVersion| {
                let v = &row.version;
                let facts = (v.lsn, v.version_id, v.delete_marker, v.size, v.modified_ms, v.etag);
                format!("{} {} {facts:?}", row.key, row.is_latest)
            };
            let plain = |rows: &[ListedVersion]| rows.iter().map(plain).collect::<Vec<_>>();
            assert_eq!(plain(&got), plain(&wanted), "limit {limit} delimiter {delimiter:?}");
            let latest = wanted.iter().filter(|row| row.is_latest).count();
            let keys = wanted.iter().map(|row| &row.key).collect::<std::collections::BTreeSet<_>>();
            assert_eq!(latest, keys.len());
        }
        for row in all_versions(model, bucket, 100, "").await {
            let id = Some(row.version.version_id);
            let got = other.object(bucket, &row.key, id).await.unwrap();
            let wanted = model.object(bucket, &row.key, id).await.unwrap();
            let plain = |v| plain(&Ok(Committed::Object(v)));
            assert_eq!(got.map(plain), wanted.map(plain), "{} {id:?}", row.key);
        }
        let absent = other.object(bucket, &key(KEYS[0]), Some(VersionId([9; 16]))).await.unwrap();
        assert_eq!(absent, None);
    }

    /// Compares what only the garbage collector sees.
    pub async fn compare_blobs(&self, other: &dyn Catalog) {
        let model = &*self.model.catalog;
        assert_eq!(other.dead_blobs(1000).await.unwrap(), model.dead_blobs(1000).await.unwrap());
        let ids: Vec<BlobId> = (0..self.model.fresh()).map(blob_id).collect();
        let known = other.known_blobs(ids.clone()).await.unwrap();
        assert_eq!(known, model.known_blobs(ids).await.unwrap());
    }
}

/// All versions that stand under no common prefix, page by page.
async fn all_versions(
    catalog: &dyn Catalog,
    bucket: BucketId,
    limit: usize,
    delimiter: &str,
) -> Vec<ListedVersion> {
    let mut query = ListObjects { limit, delimiter: delimiter.into(), ..ListObjects::default() };
    let (mut all, mut prefixes, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page = catalog.list_versions(bucket, &query, after).await.unwrap();
        let Some(last) = page.rows.last() else { break };
        (query.after, query.after_is_prefix, after) = match last {
            ListRow::Item(row) => (row.key.to_string(), false, Some(row.version.version_id)),
            ListRow::CommonPrefix(prefix) => (prefix.clone(), true, None),
        };
        for row in page.rows {
            match row {
                ListRow::Item(row) => all.push(row),
                ListRow::CommonPrefix(prefix) => prefixes.push(prefix),
            }
        }
        if !page.truncated {
            break;
        }
    }
    assert!(prefixes.is_sorted_by(|a, b| a < b), "{prefixes:?}");
    all
}

async fn names(catalog: &dyn Catalog) -> Vec<String> {
    let page = catalog.buckets(None, "", "", 100).await.unwrap();
    page.rows.iter().map(|bucket| format!("{bucket:?}")).collect()
}

/// An answer without the places of packed blobs, which each catalog chooses for itself.
fn plain(answer: &Result<Committed, CommitError>) -> String {
    let hide = |extents: &mut Vec<Extent>| {
        for extent in extents.iter_mut().filter(|e| e.blob.place != BlobPlace::File) {
            extent.blob.place = BlobPlace::Segment { segment: 0, record_offset: 0 };
        }
    };
    let mut answer = answer.clone();
    match &mut answer {
        Ok(Committed::Object(version)) => hide(&mut Arc::make_mut(version).extents),
        Ok(Committed::Part(part)) => hide(&mut part.extents),
        _ => {}
    }
    format!("{answer:?}")
}
