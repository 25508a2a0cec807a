//! Random sequences of operations on the whole store (catalog, commit log, blob files, arena)
//! against a plain map of every key's versions. In half of the runs versioning is enabled and
//! suspended in between. Every so often the store is dropped without a close, as kill -9 would, and
//! opened again. The seed of a failing run is in the message.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use goblin_store::arena::{Arena, ArenaSettings};
use goblin_store::blob::BlobFiles;
use goblin_store::catalog::Catalog;
use goblin_store::catalog::sqlite::{SqliteCatalog, SqliteSettings};
use goblin_store::clock::SystemClock;
use goblin_store::digest::DigestRequest;
use goblin_store::log::{LogSettings, SegmentReader};
use goblin_store::model::commit::{CompletedPart, DeleteEntry};
use goblin_store::model::{
    BucketId, BucketName, EtagMatch, Key, ObjectMetadata, ObjectVersion, OwnerId, Upload, UploadId,
    VersionId, Versioning, WriteCondition,
};
use goblin_store::rng::Rng;
use goblin_store::store::{
    Collector, CompleteUpload, CopyObject, ListObjects, ListRow, ObjectBody, ObjectStore,
    PutObject, PutPart, Shared, StoreError, StoreResult, StoreSettings, WriteOptions, Written,
};
use goblin_store::sys::mapping::{LockWanted, PagesWanted};
use goblin_store::sys::uring::{self, UringEngine};

/// Sizes on both sides of every border: packing, a block, the head, a buffer.
const SIZES: [usize; 14] = [
    0,
    1,
    4095,
    4096,
    4097,
    100_000,
    (256 << 10) - 1,
    256 << 10,
    (256 << 10) + 1,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    3 << 20,
    (5 << 20) + 3,
];

/// A store in a directory, with the task that collects its garbage.
struct Opened {
    store: ObjectStore,
    collector: tokio::task::JoinHandle<()>,
}

async fn open(root: &Path) -> Opened {
    let settings = SqliteSettings {
        path: root.join("catalog.sqlite"),
        log_dir: root.join("log"),
        log: LogSettings { segment_bytes: 4 << 20, flush: false },
        readers: 1,
        index_bytes_max: 20_000,
        queue_max: 64,
        group_max: 16,
    };
    let catalog = SqliteCatalog::open(settings, Arc::new(SystemClock), Rng::system());
    let arena = Arena::new(ArenaSettings {
        head_bytes: 8 << 20,
        packed_bytes: 4 << 20,
        pages: PagesWanted::Small,
        prefault: false,
        lock: LockWanted::No,
        ..ArenaSettings::default()
    });
    let settings = StoreSettings {
        hash_threads: 1,
        delete_grace: std::time::Duration::ZERO,
        ..StoreSettings::default()
    };
    let (catalog, arena) = (catalog.expect("a catalog"), arena.expect("memory"));
    let (shared, abandoned) =
        Shared::new(settings, catalog, arena, Rng::system()).expect("threads");
    let engine = Rc::new(UringEngine::new());
    let blobs = BlobFiles::new(engine.clone(), root.join("blobs"));
    blobs.prepare().await.expect("directories");
    let segments = Rc::new(SegmentReader::new(engine, root.join("log")));
    let store = ObjectStore::new(shared, blobs, segments);
    let collector = tokio::task::spawn_local(Collector::new(store.clone(), abandoned).run());
    Opened { store, collector }
}

/// The run: the store, the map that it must agree with, and the dice.
struct Run {
    root: PathBuf,
    opened: Option<Opened>,
    bucket: BucketId,
    /// Versions of each key, newest first; without bytes is a delete marker.
    expected: BTreeMap<String, Vec<(VersionId, Option<Bytes>)>>,
    /// True when the run enables and suspends versioning.
    versioned: bool,
    versioning: Option<Versioning>,
    rng: Rng,
    uploads: u32,
}

impl Run {
    fn dice(&self, sides: usize) -> usize {
        u32::from_le_bytes(self.rng.bytes()) as usize % sides
    }

    fn store(&self) -> &ObjectStore {
        &self.opened.as_ref().expect("open").store
    }

    fn key(&self) -> Key {
        let names = ["a", "a/b", "a/b/c", "b", "b//c", "z é", "zz"];
        Key::new(names[self.dice(names.len())]).expect("a valid key")
    }

    fn content(&self, size: usize) -> Bytes {
        let salt: [u8; 8] = self.rng.bytes();
        (0..size).map(|i| salt[i % 8] ^ (i / 8) as u8 ^ (i >> 16) as u8).collect::<Vec<_>>().into()
    }

    async fn written(&self, content: &Bytes) -> Written {
        let digests = DigestRequest { checksum: None, payload_sha256: false };
        let hint = (self.dice(2) == 0).then_some(content.len() as u64);
        let options = WriteOptions { size_hint: hint, digests };
        let mut writer = self.store().writer(options).await.expect("a writer");
        let mut rest = content.clone();
        while !rest.is_empty() {
            let n = (1 + self.dice(700_000)).min(rest.len());
            writer.write(rest.split_to(n)).await.expect("a write");
        }
        writer.finish().await.expect("finished")
    }

    async fn put(&mut self, condition: WriteCondition) -> StoreResult<()> {
        let (key, content) = (self.key(), self.content(SIZES[self.dice(SIZES.len())]));
        let written = self.written(&content).await;
        let put = PutObject {
            bucket: self.bucket,
            key: key.clone(),
            owner: OwnerId::new("owner"),
            metadata: ObjectMetadata::default(),
            checksum: None,
            condition,
            written,
        };
        let existed = self.live(&key).is_some();
        match self.store().put_object(put).await {
            Ok(version) => {
                assert_eq!(version.size, content.len() as u64);
                self.install(&key, &version, content);
            }
            Err(error) => {
                assert!(existed, "only If-None-Match may refuse here: {error}");
                return Err(error);
            }
        }
        Ok(())
    }

    /// The bytes of the key's current version.
    fn live(&self, key: &Key) -> Option<&Bytes> {
        self.expected.get(key.as_str())?.first()?.1.as_ref()
    }

    /// Records what a write made, and checks its id.
    fn install(&mut self, key: &Key, version: &ObjectVersion, content: Bytes) {
        let id = version.version_id;
        assert_eq!(id != VersionId::NULL, self.versioning == Some(Versioning::Enabled));
        self.front(key, id, Some(content));
    }

    fn front(&mut self, key: &Key, id: VersionId, content: Option<Bytes>) {
        let versions = self.expected.entry(key.as_str().to_owned()).or_default();
        versions.retain(|(other, _)| *other != VersionId::NULL || id != VersionId::NULL);
        assert!(versions.iter().all(|(other, _)| *other != id), "{id} twice");
        versions.insert(0, (id, content));
    }

    async fn set_versioning(&mut self) {
        if self.versioned {
            let which = [Versioning::Enabled, Versioning::Enabled, Versioning::Suspended];
            let versioning = which[self.dice(3)];
            self.store().set_versioning(self.bucket, versioning).await.expect("set");
            self.versioning = Some(versioning);
        }
    }

    /// A version of the key by its place, and now and then one that never was.
    fn some_version(&self, key: &Key) -> VersionId {
        let versions = self.expected.get(key.as_str()).map_or(&[][..], Vec::as_slice);
        let made_up = VersionId([u8::MAX; 16]);
        versions.get(self.dice(versions.len() + 1)).map_or(made_up, |(id, _)| *id)
    }

    async fn delete_version(&mut self) {
        let key = self.key();
        let id = self.some_version(&key);
        let condition = WriteCondition::default();
        let entry = DeleteEntry { key: key.clone(), version: Some(id), condition };
        let owner = OwnerId::new("owner");
        let outcome = self.store().delete_objects(self.bucket, owner, false, vec![entry]).await;
        let deleted = outcome.expect("deleted").remove(0).expect("no condition");
        let Some(versions) = self.expected.get_mut(key.as_str()) else { return };
        let Some(at) = versions.iter().position(|(other, _)| *other == id) else { return };
        let (_, content) = versions.remove(at);
        assert_eq!(deleted.marker, content.is_none().then_some(id));
        if versions.is_empty() {
            self.expected.remove(key.as_str());
        }
    }

    async fn check_version(&self) {
        let key = self.key();
        let id = self.some_version(&key);
        let versions = self.expected.get(key.as_str()).map_or(&[][..], Vec::as_slice);
        let expected = versions.iter().find(|(other, _)| *other == id);
        match (self.store().lookup(self.bucket, &key, Some(id)).await, expected) {
            (Err(StoreError::NoSuchVersion), None) => {}
            (Ok(version), Some((_, None))) => assert!(version.delete_marker),
            (Ok(version), Some((_, Some(content)))) => {
                let body = self.store().read(&version, 0, version.size).await.expect("a body");
                assert!(collect(body).await == *content, "{key} {id}");
            }
            (found, expected) => panic!("{key} {id}: {found:?}, wanted {}", expected.is_some()),
        }
    }

    /// All versions, page by page, are the map.
    async fn check_versions(&self) {
        let mut query = ListObjects { limit: 1 + self.dice(6), ..ListObjects::default() };
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = self.store().list_versions(self.bucket, &query, after).await;
            let page = page.expect("a page");
            for row in page.rows {
                let ListRow::Item(item) = row else { panic!("no delimiter was asked for") };
                let (id, marker) = (item.version.version_id, item.version.delete_marker);
                (query.after, after) = (item.key.as_str().to_owned(), Some(id));
                let size = (!marker).then_some(item.version.size);
                seen.push((item.key.as_str().to_owned(), id, size, item.is_latest));
            }
            if !page.truncated {
                break;
            }
        }
        let mut expected = Vec::new();
        for (key, versions) in &self.expected {
            for (at, (id, content)) in versions.iter().enumerate() {
                let size = content.as_ref().map(|content| content.len() as u64);
                expected.push((key.clone(), *id, size, at == 0));
            }
        }
        assert_eq!(seen, expected);
    }

    async fn delete(&mut self) {
        let key = self.key();
        let entry =
            DeleteEntry { key: key.clone(), version: None, condition: WriteCondition::default() };
        let outcome = self
            .store()
            .delete_objects(self.bucket, OwnerId::new("owner"), false, vec![entry])
            .await;
        let marker = outcome.expect("deleted").remove(0).expect("no condition").marker;
        assert_eq!(marker.is_some(), self.versioning.is_some());
        match marker {
            Some(id) => self.front(&key, id, None),
            None => drop(self.expected.remove(key.as_str())),
        }
    }

    async fn copy(&mut self) {
        let (from, to) = (self.key(), self.key());
        let named = (self.dice(2) == 0).then(|| self.some_version(&from));
        let source = match self.store().lookup(self.bucket, &from, named).await {
            Ok(source) if source.delete_marker => return,
            Ok(source) => source,
            Err(StoreError::NoSuchVersion) => return,
            Err(StoreError::NoSuchKey) => {
                assert!(self.live(&from).is_none(), "{from} is lost");
                return;
            }
            Err(error) => panic!("lookup of {from}: {error}"),
        };
        let versions = &self.expected[from.as_str()];
        let content = versions.iter().find(|(id, _)| *id == source.version_id);
        let content = content.and_then(|(_, content)| content.clone()).expect("an object");
        let copy = CopyObject {
            bucket: self.bucket,
            key: to.clone(),
            owner: OwnerId::new("owner"),
            source_bucket: self.bucket,
            source_key: from.clone(),
            source,
            metadata: None,
            checksum: None,
            condition: WriteCondition::default(),
        };
        let version = self.store().copy_object(copy).await.expect("copied");
        self.install(&to, &version, content);
    }

    async fn multipart(&mut self) {
        self.uploads += 1;
        let (key, id) = (self.key(), UploadId(self.rng.bytes()));
        let upload = Upload {
            id,
            bucket: self.bucket,
            key: key.clone(),
            initiated_ms: i64::from(self.uploads),
            owner: OwnerId::new("owner"),
            metadata: ObjectMetadata::default(),
            checksum: None,
        };
        self.store().create_upload(upload).await.expect("an upload");
        let mut whole = Vec::new();
        let mut parts = Vec::new();
        for (number, size) in [(2, 5 << 20), (7, SIZES[self.dice(SIZES.len())])] {
            let content = self.content(size);
            let written = self.written(&content).await;
            let put = PutPart {
                bucket: self.bucket,
                key: key.clone(),
                upload: id,
                number,
                checksum: None,
                written,
            };
            let part = self.store().put_part(put).await.expect("a part");
            whole.extend_from_slice(&content);
            parts.push(CompletedPart { number, etag: hex::encode(part.md5), checksum: None });
        }
        if self.dice(4) == 0 {
            let aborted = self.store().abort_upload(self.bucket, key, id).await;
            return aborted.expect("aborted");
        }
        let complete = CompleteUpload {
            bucket: self.bucket,
            key: key.clone(),
            upload: id,
            parts,
            expected_size: None,
            expected_checksum: None,
            condition: WriteCondition::default(),
        };
        let version = self.store().complete_upload(complete).await.expect("completed");
        self.install(&key, &version, whole.into());
    }

    async fn check_one(&self) {
        let key = self.key();
        let expected = self.live(&key);
        let version = match self.store().lookup(self.bucket, &key, None).await {
            Ok(version) if version.delete_marker => {
                return assert!(expected.is_none(), "{key} is lost");
            }
            Ok(version) => version,
            Err(StoreError::NoSuchKey) => return assert!(expected.is_none(), "{key} is lost"),
            Err(error) => panic!("lookup of {key}: {error}"),
        };
        let expected = expected.unwrap_or_else(|| panic!("{key} should be gone"));
        let size = expected.len();
        assert_eq!(version.size, size as u64);
        let first = if self.dice(2) == 0 { 0 } else { self.dice(size + 1) };
        let len = if self.dice(2) == 0 { size - first } else { self.dice(size - first + 1) };
        let body = self.store().read(&version, first as u64, len as u64).await.expect("a body");
        assert!(collect(body).await == expected[first..first + len], "{key}: {first}+{len}");
    }

    /// The listing, page by page, is the map.
    async fn check_listing(&self) {
        let limit = 1 + self.dice(4);
        let mut seen = Vec::new();
        let mut query = ListObjects { limit, ..ListObjects::default() };
        loop {
            let page = self.store().list_objects(self.bucket, &query).await.expect("a page");
            for row in &page.rows {
                let ListRow::Item(item) = row else { panic!("no delimiter was asked for") };
                seen.push((item.key.as_str().to_owned(), item.version.size));
            }
            if !page.truncated {
                break;
            }
            query.after = seen.last().expect("a truncated page has rows").0.clone();
        }
        let live = self.expected.iter().filter_map(|(k, v)| Some((k, v.first()?.1.as_ref()?)));
        let expected: Vec<_> = live.map(|(k, v)| (k.clone(), v.len() as u64)).collect();
        assert_eq!(seen, expected);
    }

    /// What kill -9 does to a process, short of the process: nothing is closed.
    async fn reopen(&mut self) {
        let opened = self.opened.take().expect("open");
        opened.collector.abort();
        let _ = opened.collector.await;
        drop(opened.store);
        self.opened = Some(open(&self.root).await);
    }

    async fn step(&mut self) {
        match self.dice(30) {
            0..=6 => self.put(WriteCondition::default()).await.expect("a put"),
            7 => {
                let condition =
                    WriteCondition { if_none_match: Some(EtagMatch::Any), ..Default::default() };
                let _ = self.put(condition).await;
            }
            8..=9 => self.delete().await,
            10..=12 => self.copy().await,
            13 => self.multipart().await,
            14..=21 => self.check_one().await,
            22 => self.check_listing().await,
            23 => self.check_versions().await,
            24 => self.set_versioning().await,
            25..=26 => self.delete_version().await,
            27..=28 => self.check_version().await,
            _ => self.reopen().await,
        }
    }
}

async fn collect(body: ObjectBody) -> Vec<u8> {
    match body {
        ObjectBody::Empty => Vec::new(),
        ObjectBody::Resident(bytes) | ObjectBody::Bytes(bytes) => bytes.to_vec(),
        ObjectBody::Stream(mut stream) => {
            let mut all = Vec::new();
            while let Some(piece) = stream.next().await {
                all.extend_from_slice(&piece.expect("a piece"));
            }
            all
        }
    }
}

/// After all work the blob directory holds exactly the files that the catalog refers to.
async fn check_no_leaks(run: &Run) {
    let engine = Rc::new(UringEngine::new());
    let blobs = BlobFiles::new(engine, run.root.join("blobs"));
    let catalog: &dyn Catalog = run.store().catalog();
    for _ in 0..100 {
        if catalog.dead_blobs(1).await.expect("dead blobs").is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let files = blobs.list().await.expect("files");
    let known = catalog.known_blobs(files.clone()).await.expect("known blobs");
    assert_eq!(known.len(), files.len(), "files that nothing refers to");
    let versions = run.expected.values().flatten().filter_map(|(_, content)| content.as_ref());
    let big = versions.filter(|v| v.len() > 256 << 10).count();
    assert!(files.len() <= 2 * big + 2, "{} files for {big} large objects", files.len());
}

fn run_seed(seed: u64, steps: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().to_owned();
    println!("seed {seed}");
    let done = uring::run(async move {
        let opened = open(&root).await;
        let name = BucketName::new("model").expect("a valid name");
        let owner = OwnerId::new("owner");
        let made = opened.store.create_bucket(name, owner, String::new(), false).await;
        let bucket = made.expect("a bucket").0.id;
        let rng = Rng::seeded(seed);
        let expected = BTreeMap::new();
        let mut run = Run {
            root,
            opened: Some(opened),
            bucket,
            expected,
            versioned: seed.is_multiple_of(2),
            versioning: None,
            rng,
            uploads: 0,
        };
        for _ in 0..steps {
            run.step().await;
        }
        run.check_listing().await;
        run.check_versions().await;
        check_no_leaks(&run).await;
    });
    done.expect("io_uring");
}

#[test]
fn random_operations_agree_with_a_map() {
    let number =
        |name, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let first: u64 = number("MODEL_FIRST_SEED", 1);
    for seed in first..first + number("MODEL_SEEDS", 6) {
        run_seed(seed, 300);
    }
}
