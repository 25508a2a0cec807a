//! The bytes of a blob file: where data, checksum table and footer are, and how they are coded.
//!
//! Pure: no I/O. The drawing is in docs/on-disk-format.md, section "Blob files".
//!
//! ```text
//! 0            len       data_end                 data_end + table_bytes      file_bytes
//! | data       | zeros   | table: CRC32C x blocks, zeros | footer, 4096 bytes |
//! ```

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

use super::Damage;
use crate::model::BlobId;
use crate::sys::aligned_buf::{ALIGN, AlignedBuf};

/// Bytes that one checksum covers. A ranged read touches whole blocks: smaller costs table space,
/// larger costs small reads.
pub const BLOCK_BYTES: usize = 128 * 1024;
/// The longest range that one read returns, in bytes.
pub const READ_BYTES_MAX: usize = 1024 * 1024;
/// The longest blob in bytes. S3's largest single upload is 5 GiB; the bound keeps the checksum
/// table, which readers and writers hold in memory, at 512 KiB.
pub const BLOB_BYTES_MAX: u64 = 16 << 30;

/// The footer is one direct write of the strictest alignment, and the last bytes of the file.
pub const FOOTER_BYTES: usize = ALIGN;

const MAGIC: [u8; 8] = *b"GOBLBLOB";
const VERSION: u32 = 1;
/// Offset of the footer's own checksum, its last field.
const FOOTER_CRC_AT: usize = FOOTER_BYTES - 4;

/// The places in the file of a blob of `len` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    len: u64,
}

impl Shape {
    /// `None` for a length above `BLOB_BYTES_MAX`.
    pub fn new(len: u64) -> Option<Shape> {
        (len <= BLOB_BYTES_MAX).then_some(Shape { len })
    }

    /// Number of blocks, so of checksums.
    pub fn blocks(self) -> usize {
        self.len.div_ceil(BLOCK_BYTES as u64) as usize
    }

    /// Where the zeros behind the data end and the table begins.
    pub fn data_end(self) -> u64 {
        self.len.next_multiple_of(ALIGN as u64)
    }

    /// Length of the table with its zeros.
    pub fn table_bytes(self) -> usize {
        (self.blocks() * 4).next_multiple_of(ALIGN)
    }

    /// Length of table and footer, which are written and read as one.
    pub fn tail_bytes(self) -> usize {
        self.table_bytes() + FOOTER_BYTES
    }

    /// Length of the whole file.
    pub fn file_bytes(self) -> u64 {
        self.data_end() + self.tail_bytes() as u64
    }
}

/// The checksums of a stream, one for each block, computed as the bytes pass.
pub struct BlockSums {
    done: Vec<u32>,
    current: Digest,
    /// Bytes of the current block that passed already.
    filled: usize,
}

impl BlockSums {
    pub fn start() -> BlockSums {
        let current = Digest::new(CrcAlgorithm::Crc32Iscsi);
        BlockSums { done: Vec::new(), current, filled: 0 }
    }

    pub fn update(&mut self, mut bytes: &[u8]) {
        if self.filled > 0 {
            let (head, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.filled));
            self.fill(head);
            bytes = rest;
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        self.done.extend(blocks.iter().map(|block| crc32_iscsi(block)));
        self.fill(rest);
    }

    fn fill(&mut self, bytes: &[u8]) {
        self.current.update(bytes);
        self.filled += bytes.len();
        if self.filled == BLOCK_BYTES {
            self.close();
        }
    }

    fn close(&mut self) {
        self.done.push(self.current.finalize_reset() as u32);
        self.filled = 0;
    }

    /// The table, the last block being closed as it is.
    pub fn finish(mut self) -> Vec<u32> {
        if self.filled > 0 {
            self.close();
        }
        self.done
    }
}

/// Encodes table and footer of a blob of `shape`, whose blocks have the checksums `sums`.
pub fn encode_tail(blob: BlobId, shape: Shape, sums: &[u32]) -> AlignedBuf {
    assert_eq!(sums.len(), shape.blocks(), "one checksum for each block");
    let mut tail = AlignedBuf::with_capacity(shape.tail_bytes());
    for sum in sums {
        tail.extend_from_slice(&sum.to_le_bytes());
    }
    tail.pad_to(ALIGN);
    let table_crc = crc32_iscsi(&tail);
    tail.extend_from_slice(&MAGIC);
    tail.extend_from_slice(&VERSION.to_le_bytes());
    tail.extend_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
    tail.extend_from_slice(&blob.0);
    tail.extend_from_slice(&shape.len.to_le_bytes());
    tail.extend_from_slice(&table_crc.to_le_bytes());
    tail.set_len(shape.tail_bytes());
    let footer = shape.table_bytes();
    let footer_crc = crc32_iscsi(&tail[footer..footer + FOOTER_CRC_AT]);
    tail[footer + FOOTER_CRC_AT..].copy_from_slice(&footer_crc.to_le_bytes());
    tail
}

/// Verifies table and footer, as read from the end of the file, and returns the checksums.
///
/// **Shape** `tail` has `shape.tail_bytes()` bytes.
pub fn decode_tail(blob: BlobId, shape: Shape, tail: &[u8]) -> Result<Vec<u32>, Damage> {
    assert_eq!(tail.len(), shape.tail_bytes(), "table and footer, whole");
    let (table, footer) = tail.split_at(shape.table_bytes());
    let (fields, crc) = footer.split_at(FOOTER_CRC_AT);
    if crc32_iscsi(fields).to_le_bytes() != *crc {
        return Err(Damage::FooterChecksum);
    }
    let known = [&MAGIC[..], &VERSION.to_le_bytes(), &(BLOCK_BYTES as u32).to_le_bytes()].concat();
    if fields[..16] != known {
        return Err(Damage::FooterFormat);
    }
    let id = BlobId(field(fields, 16));
    if id != blob {
        return Err(Damage::OtherBlob(id));
    }
    let len = u64::from_le_bytes(field(fields, 32));
    if len != shape.len {
        return Err(Damage::Length { expected: shape.len, found: len });
    }
    if u32::from_le_bytes(field(fields, 40)) != crc32_iscsi(table) {
        return Err(Damage::Table);
    }
    let (sums, _) = table.as_chunks::<4>();
    Ok(sums[..shape.blocks()].iter().map(|sum| u32::from_le_bytes(*sum)).collect())
}

/// `N` bytes at a fixed offset within the footer.
fn field<const N: usize>(fields: &[u8], at: usize) -> [u8; N] {
    let mut raw = [0; N];
    raw.copy_from_slice(&fields[at..at + N]);
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: BlobId = BlobId([7; 16]);

    fn sums_of(bytes: &[u8], step: usize) -> Vec<u32> {
        let mut sums = BlockSums::start();
        bytes.chunks(step).for_each(|chunk| sums.update(chunk));
        sums.finish()
    }

    #[test]
    fn sums_do_not_depend_on_how_the_bytes_arrive() {
        let bytes: Vec<u8> = (0..3 * BLOCK_BYTES + 4096).map(|i| (i % 251) as u8).collect();
        let whole = sums_of(&bytes, bytes.len());
        let expected: Vec<u32> = bytes.chunks(BLOCK_BYTES).map(crc32_iscsi).collect();
        assert_eq!(whole, expected);
        for step in [4096, 8192 + 512, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES + 3] {
            assert_eq!(sums_of(&bytes, step), whole);
        }
    }

    #[test]
    fn shapes() {
        let check = |len, blocks, data_end, table| {
            let shape = Shape::new(len).expect("a length within the bound");
            assert_eq!(
                (shape.blocks(), shape.data_end(), shape.table_bytes()),
                (blocks, data_end, table)
            );
            assert_eq!(shape.file_bytes() % 4096, 0);
        };
        check(0, 0, 0, 0);
        check(1, 1, 4096, 4096);
        check(131_072, 1, 131_072, 4096);
        check(131_073, 2, 135_168, 4096);
        check(1025 * 131_072, 1025, 1025 * 131_072, 8192);
        assert_eq!(Shape::new(BLOB_BYTES_MAX + 1), None);
    }

    #[test]
    fn the_tail_comes_back_and_names_its_damage() {
        let shape = Shape::new(200_000).expect("a length within the bound");
        let tail = encode_tail(ID, shape, &[1, 2]);
        assert_eq!(decode_tail(ID, shape, &tail), Ok(vec![1, 2]));
        let other = BlobId([8; 16]);
        assert_eq!(decode_tail(other, shape, &tail), Err(Damage::OtherBlob(ID)));
        let longer = Shape::new(200_001).expect("a length within the bound");
        let lengths = Damage::Length { expected: 200_001, found: 200_000 };
        assert_eq!(decode_tail(ID, longer, &tail), Err(lengths));
        for at in 0..tail.len() {
            let mut bad = tail.to_vec();
            bad[at] ^= 0x10;
            assert!(decode_tail(ID, shape, &bad).is_err(), "byte {at} is not covered");
        }
    }

    /// Fixed forever: files written by an older version must stay readable.
    #[test]
    fn the_footer_is_as_documented() {
        let shape = Shape::new(5).expect("a length within the bound");
        let tail = encode_tail(ID, shape, &[0x0102_0304]);
        let footer = &tail[4096..];
        assert_eq!(tail[..4], [4, 3, 2, 1]);
        assert_eq!(&footer[..8], b"GOBLBLOB");
        assert_eq!(footer[8..12], 1u32.to_le_bytes());
        assert_eq!(footer[12..16], 131_072u32.to_le_bytes());
        assert_eq!(footer[16..32], [7; 16]);
        assert_eq!(footer[32..40], 5u64.to_le_bytes());
        assert_eq!(footer[40..44], crc32_iscsi(&tail[..4096]).to_le_bytes());
        assert!(footer[44..4092].iter().all(|b| *b == 0));
        assert_eq!(footer[4092..], crc32_iscsi(&footer[..4092]).to_le_bytes());
    }
}
