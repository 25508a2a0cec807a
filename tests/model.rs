//! Random sequences of operations on the whole store (catalog, commit log, blob files, arena)
//! against a plain map. Every so often the store is dropped without a close, as kill -9 would, and
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
    BucketId, BucketName, EtagMatch, Key, ObjectMetadata, OwnerId, Upload, UploadId, WriteCondition,
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
    expected: BTreeMap<String, Bytes>,
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
        let existed = self.expected.contains_key(key.as_str());
        let answer = self.store().put_object(put).await;
        if answer.is_ok() {
            self.expected.insert(key.as_str().to_owned(), content);
        }
        match answer {
            Ok(version) => assert_eq!(version.size, self.expected[key.as_str()].len() as u64),
            Err(error) => {
                assert!(existed, "only If-None-Match may refuse here: {error}");
                return Err(error);
            }
        }
        Ok(())
    }

    async fn delete(&mut self) {
        let key = self.key();
        let entry =
            DeleteEntry { key: key.clone(), version: None, condition: WriteCondition::default() };
        let outcome = self.store().delete_objects(self.bucket, vec![entry]).await;
        assert!(outcome.expect("deleted")[0].is_ok());
        self.expected.remove(key.as_str());
    }

    async fn copy(&mut self) {
        let (from, to) = (self.key(), self.key());
        let source = match self.store().lookup(self.bucket, &from, None).await {
            Ok(source) => source,
            Err(StoreError::NoSuchKey) => {
                assert!(!self.expected.contains_key(from.as_str()), "{from} is lost");
                return;
            }
            Err(error) => panic!("lookup of {from}: {error}"),
        };
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
        self.store().copy_object(copy).await.expect("copied");
        let content = self.expected[from.as_str()].clone();
        self.expected.insert(to.as_str().to_owned(), content);
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
        self.store().complete_upload(complete).await.expect("completed");
        self.expected.insert(key.as_str().to_owned(), whole.into());
    }

    async fn check_one(&self) {
        let key = self.key();
        let expected = self.expected.get(key.as_str());
        let version = match self.store().lookup(self.bucket, &key, None).await {
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
        let expected: Vec<_> =
            self.expected.iter().map(|(k, v)| (k.clone(), v.len() as u64)).collect();
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
        match self.dice(24) {
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
    let big = run.expected.values().filter(|v| v.len() > 256 << 10).count();
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
        let made = opened.store.create_bucket(name, owner, String::new()).await;
        let bucket = made.expect("a bucket").0.id;
        let rng = Rng::seeded(seed);
        let expected = BTreeMap::new();
        let mut run = Run { root, opened: Some(opened), bucket, expected, rng, uploads: 0 };
        for _ in 0..steps {
            run.step().await;
        }
        run.check_listing().await;
        check_no_leaks(&run).await;
    });
    done.expect("io_uring");
}

#[test]
fn random_operations_agree_with_a_map() {
    let seeds: u64 = std::env::var("MODEL_SEEDS").ok().and_then(|v| v.parse().ok()).unwrap_or(6);
    for seed in 1..=seeds {
        run_seed(seed, 300);
    }
}
