//! The contract of blob files, run on both I/O engines.

use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;

use super::layout::{BLOCK_BYTES, READ_BYTES_MAX};
use super::{BlobError, BlobFiles, Damage};
use crate::model::{BlobId, BlobPlace, BlobRef};
use crate::sys::aligned_buf::{AlignedBuf, SharedBuf};
use crate::sys::engine::{IoEngine, OpenMode};
use crate::sys::uring::{self, UringEngine};

const CHUNK: usize = 1 << 20;

/// Runs `test` on each engine, in an empty directory.
fn on_each_engine<F: Future<Output = ()>>(test: impl Fn(Rc<dyn IoEngine>, PathBuf) -> F) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let root = dir.path().join("blobs");
    uring::run(async { test(Rc::new(UringEngine::new()), root).await })
        .expect("a kernel with io_uring");
}

fn id(n: u8) -> BlobId {
    BlobId([n; 16])
}

fn named(blob: BlobId, len: usize) -> BlobRef {
    BlobRef { id: blob, place: BlobPlace::File, len: len as u64 }
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn chunk(bytes: &[u8]) -> SharedBuf {
    let mut buf = AlignedBuf::recycled(bytes.len());
    buf.extend_from_slice(bytes);
    buf.freeze()
}

/// Writes and seals a blob of `bytes` in chunks of 1 MiB.
async fn write(
    files: &BlobFiles,
    blob: BlobId,
    bytes: &[u8],
    expected: Option<u64>,
) -> Result<u64, BlobError> {
    let mut writer = files.create(blob, expected).await?;
    for part in bytes.chunks(CHUNK) {
        writer.append(chunk(part)).await?;
    }
    writer.seal().await
}

/// Reads all of a blob in pieces of at most 1 MiB.
async fn read_all(files: &BlobFiles, blob: BlobRef) -> Result<Vec<u8>, BlobError> {
    let reader = files.open(blob).await?;
    let mut all = Vec::new();
    while (all.len() as u64) < blob.len {
        let left = blob.len as usize - all.len();
        let piece = reader.read(all.len() as u64, left.min(READ_BYTES_MAX)).await?;
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

#[test]
fn sizes_at_every_edge_come_back() {
    on_each_engine(|engine, root| async move {
        let files = BlobFiles::new(engine, root);
        let edges = [0, 4096, BLOCK_BYTES, CHUNK, CHUNK + BLOCK_BYTES, 5 * CHUNK];
        let sizes = edges.into_iter().flat_map(|edge| [edge.max(1) - 1, edge, edge + 1]);
        for (n, len) in sizes.enumerate() {
            let bytes = pattern(len, n as u64);
            for (round, expected) in
                [None, Some(len as u64), Some(3 * CHUNK as u64)].into_iter().enumerate()
            {
                let blob = id((n * 3 + round) as u8);
                assert_eq!(write(&files, blob, &bytes, expected).await.unwrap(), len as u64);
                assert_eq!(read_all(&files, named(blob, len)).await.unwrap(), bytes);
            }
        }
        let _ = (OpenMode::Read, Damage::Table);
    });
}
