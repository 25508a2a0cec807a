//! Micro-benchmarks of the hot parts, each alone on one thread: `cargo bench -p goblin-micro`.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use goblin_micro::{ChunkedBody, signed_get, verifier};
use goblin_store::arena::{Arena, ArenaSettings};
use goblin_store::catalog::sqlite::{SqliteCatalog, SqliteSettings};
use goblin_store::catalog::{Catalog, ListObjects};
use goblin_store::clock::SystemClock;
use goblin_store::digest::{DigestRequest, digest};
use goblin_store::log::LogSettings;
use goblin_store::model::commit::{PackedBytes, ProposedData};
use goblin_store::model::{
    BlobId, BucketId, BucketName, ChecksumAlgorithm, Committed, ETag, Key, ObjectMetadata, OwnerId,
    Proposal, WriteCondition,
};
use goblin_store::rng::Rng;
use goblin_store::s3::xml::{self, XmlWriter};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn sigv4(c: &mut Criterion) {
    let (verifier, pair) = verifier();
    for (name, presigned) in [("header", false), ("presigned", true)] {
        let get = signed_get(presigned);
        c.bench_function(&format!("sigv4/{name}"), |b| b.iter(|| get.verify(&verifier, &pair)));
    }
}

fn aws_chunked(c: &mut Criterion) {
    let mut group = c.benchmark_group("aws-chunked");
    group.throughput(Throughput::Bytes(MIB as u64));
    for (name, signed) in [("unsigned", false), ("signed", true)] {
        let body = ChunkedBody::new(MIB, signed);
        group.bench_function(format!("{name}/1MiB"), |b| b.iter(|| body.decode()));
    }
    group.finish();
}

fn digests(c: &mut Criterion) {
    let mut group = c.benchmark_group("digest");
    let kinds = [
        ("md5", None, false),
        ("md5+crc32c", Some(ChecksumAlgorithm::Crc32c), false),
        ("md5+crc64nvme", Some(ChecksumAlgorithm::Crc64Nvme), false),
        ("md5+sha256", Some(ChecksumAlgorithm::Sha256), false),
        ("md5+payload-sha256", None, true),
    ];
    for bytes in [4 * KIB, MIB] {
        let data = vec![7u8; bytes];
        group.throughput(Throughput::Bytes(bytes as u64));
        for (name, checksum, payload_sha256) in kinds {
            let request = DigestRequest { checksum, payload_sha256 };
            group.bench_function(BenchmarkId::new(name, bytes), |b| {
                b.iter(|| digest(&request, black_box(&data)))
            });
        }
    }
    group.finish();
}

fn blob(number: u64) -> BlobId {
    let mut id = [1u8; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    BlobId(id)
}

fn arena(c: &mut Criterion) {
    let settings = ArenaSettings {
        head_bytes: 0,
        packed_bytes: (64 * MIB) as u64,
        ..ArenaSettings::default()
    };
    let data = vec![1u8; 4 * KIB];
    let mut group = c.benchmark_group("arena");
    let arena = Arena::new(settings.clone()).expect("memory");
    for number in 0..1000 {
        assert!(arena.insert(blob(number), &data));
    }
    let mut number = 0;
    group.bench_function("lookup", |b| {
        b.iter(|| {
            number = (number + 7) % 1000;
            arena.get(blob(number)).expect("resident")
        })
    });
    group.bench_function("miss", |b| b.iter(|| arena.get(blob(u64::MAX))));
    group.bench_function("insert+remove/4KiB", |b| {
        b.iter(|| {
            assert!(arena.insert(blob(5000), &data));
            arena.remove(blob(5000));
        })
    });
    // From here on the arena is full, and each insertion evicts.
    let full = Arena::new(settings).expect("memory");
    let mut next = 0;
    while next < 40_000 {
        full.insert(blob(next), &data);
        next += 1;
    }
    group.bench_function("insert+evict/4KiB", |b| {
        b.iter(|| {
            next += 1;
            full.insert(blob(next), &data)
        })
    });
    group.finish();
}

/// A catalog with its log on the disk of the temporary directory.
struct Place {
    catalog: Arc<SqliteCatalog>,
    bucket: BucketId,
    next: u64,
    _dir: tempfile::TempDir,
}

impl Place {
    async fn new() -> Place {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("log")).expect("a directory");
        let settings = SqliteSettings {
            path: dir.path().join("catalog.sqlite"),
            log_dir: dir.path().join("log"),
            log: LogSettings { segment_bytes: 256 << 20, flush: true },
            readers: 2,
            index_bytes_max: 256 << 20,
            queue_max: 4096,
            group_max: 256,
        };
        let catalog =
            SqliteCatalog::open(settings, Arc::new(SystemClock), Rng::system()).expect("opens");
        let proposal = Proposal::CreateBucket {
            name: BucketName::new("bench-1").expect("a name"),
            owner: OwnerId::new("o"),
            location: String::new(),
            object_lock: false,
        };
        let Committed::Bucket { bucket, .. } = catalog.commit(proposal).await.expect("commits")
        else {
            panic!("a bucket was made")
        };
        Place { catalog, bucket: bucket.id, next: 0, _dir: dir }
    }

    fn put(&mut self, data: usize) -> Proposal {
        self.next += 1;
        let bytes = Bytes::from(vec![3u8; data]);
        Proposal::PutObject {
            bucket: self.bucket,
            key: Key::new(&format!("folder/{:08}", self.next)).expect("a key"),
            owner: OwnerId::new("o"),
            metadata: ObjectMetadata::default(),
            etag: ETag { md5: [9; 16], parts: 0 },
            checksum: None,
            data: ProposedData::Packed(PackedBytes { id: blob(self.next), bytes }),
            condition: WriteCondition::default(),
        }
    }

    /// Commits `count` objects at once; the writer may take them in one group.
    async fn commit(&mut self, count: usize, data: usize) {
        let proposals: Vec<_> = (0..count).map(|_| self.put(data)).collect();
        for result in join_all(proposals.into_iter().map(|p| self.catalog.commit(p))).await {
            result.expect("commits");
        }
    }
}

fn catalog(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one");
    let mut group = c.benchmark_group("catalog");
    let mut place = runtime.block_on(Place::new());
    for count in [1, 16, 64, 256] {
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("commit/4KiB", count), |b| {
            b.iter(|| runtime.block_on(place.commit(count, 4 * KIB)))
        });
    }
    let mut place = runtime.block_on(async {
        let mut place = Place::new().await;
        for _ in 0..50 {
            place.commit(200, 1).await;
        }
        place
    });
    group.throughput(Throughput::Elements(1000));
    let query = ListObjects { limit: 1000, ..ListObjects::default() };
    group.bench_function("list/1000 of 10000", |b| {
        b.iter(|| {
            let page = runtime.block_on(place.catalog.list_objects(place.bucket, &query));
            assert_eq!(page.expect("reads").rows.len(), 1000);
        })
    });
    group.throughput(Throughput::Elements(1));
    let key = Key::new("folder/00000500").expect("a key");
    group.bench_function("lookup in RAM", |b| b.iter(|| place.catalog.cached(place.bucket, &key)));
    place.next = 0;
    group.finish();
}

fn xml(c: &mut Criterion) {
    let mut group = c.benchmark_group("xml");
    group.throughput(Throughput::Elements(1000));
    group.bench_function("write a page of 1000", |b| b.iter(|| page().len()));
    let mut body = String::from("<Delete>");
    for number in 0..1000 {
        body.push_str(&format!("<Object><Key>folder/a&amp;b-{number:08}</Key></Object>"));
    }
    body.push_str("</Delete>");
    group.bench_function("parse a Delete of 1000", |b| {
        b.iter(|| {
            let root = xml::parse(body.as_bytes()).expect("well formed");
            assert_eq!(root.children_named("Object").count(), 1000);
        })
    });
    group.finish();
}

/// As a listing writes it.
fn page() -> String {
    let mut page = XmlWriter::document("ListBucketResult", 300 * KIB);
    page.element("Name", "bucket");
    for number in 0..1000u64 {
        page.open("Contents");
        page.element("Key", &format!("folder/a&b-{number:08}"));
        page.element("LastModified", "2026-12-07T11:00:00.000Z");
        page.element("ETag", "\"00112233445566778899aabbccddeeff\"");
        page.number("Size", number);
        page.element("StorageClass", "STANDARD");
        page.close("Contents");
    }
    page.finish()
}

criterion_group!(benches, sigv4, aws_chunked, digests, arena, catalog, xml);
criterion_main!(benches);
