//! The bytes of one record of the commit log: pure encoding and checked decoding.
//!
//! Owns the record layout. Never does I/O, never panics on bytes that came from a disk, and never
//! yields a field before the checksum over it was verified.
//!
//! ```text
//! byte 0        64            64 + 4n, padded     + data, padded      + body, padded
//! +-------------+-------------+-------------------+-------------------+
//! | header      | n block CRCs| packed data       | body: CBOR        |   all 8-byte aligned,
//! | 64 bytes    | of the data | data_len bytes    | body_len bytes    |   padding is zero
//! +-------------+-------------+-------------------+-------------------+
//! ```
//! The data stands before the body so that a reader who knows only (offset, length) of a packed
//! blob fetches exactly what it has to verify, in one read.

use std::ops::Range;

use bytes::Bytes;
use crc_fast::crc32_iscsi as crc32c;

use crate::model::commit::{Mutation, PackedBytes};
use crate::model::{BlobId, Lsn};
use crate::sabotage::{self, Sabotage};

/// Length of the fixed part of a record in bytes.
pub const HEADER_BYTES: usize = 64;
/// Alignment of a record and of each of its parts, in bytes.
pub const RECORD_ALIGN: usize = 8;
/// Bytes of packed data under one checksum.
pub const DATA_BLOCK_BYTES: usize = 128 * 1024;
/// The longest packed data in bytes; `pack_max` is far below. Bounds what replay buffers.
pub const DATA_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The longest body in bytes: an object of 10,000 parts takes about 1 MiB.
pub const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

const MAGIC: [u8; 4] = *b"GREC";
const VERSION: u8 = 1;
const FLAG_GROUP_START: u8 = 1;
const FLAG_PACKED: u8 = 2;

/// 64 random bits of a segment, repeated in each of its records: bytes of another segment, and
/// records forged inside the data of an object, never pass for records of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(pub u64);

/// A committed change with the bytes that it brings along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub lsn: Lsn,
    pub mutation: Mutation,
    pub packed: Option<PackedBytes>,
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("nothing was written here")]
    Blank,
    #[error("the bytes are not a record")]
    NotARecord,
    #[error("the record format {0} is newer than this program")]
    Version(u8),
    #[error("the header's checksum is wrong")]
    HeaderChecksum,
    #[error("the header contradicts itself")]
    Header,
    #[error("the checksum of block {0} of the data is wrong")]
    DataChecksum(usize),
    #[error("the body's checksum is wrong")]
    BodyChecksum,
    #[error("the body is not a known change")]
    Body,
    #[error("padding is not zero")]
    Padding,
    #[error("the bytes end inside the record")]
    Short,
}

/// The verified head of a record: all that is needed to find and check the rest.
///
/// ```text
///  0  4 magic "GREC"      8  8 salt         40  4 data_len      52  8 zero
///  4  1 version = 1      16  8 lsn          44  4 body_len      60  4 CRC32C of bytes 0..60
///  5  1 flags            24 16 blob id      48  4 CRC32C of        and the table behind
///  6  2 zero                                      the body
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHead {
    pub salt: Salt,
    pub lsn: Lsn,
    /// True for the first record of a group; it stands at a multiple of 4096.
    pub group_start: bool,
    /// The blob that the record carries.
    pub blob: Option<BlobId>,
    pub data_len: usize,
    body_len: usize,
    body_crc: u32,
}

impl RecordHead {
    /// Verifies header and block table at the start of `bytes`.
    ///
    /// **Errors** `Blank` where all is zero, `NotARecord` when the magic is missing, `Short` when
    /// `bytes` ends too early.
    pub fn decode(bytes: &[u8]) -> Result<RecordHead, RecordError> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(RecordError::Short)?;
        if field::<4>(header, 0) != MAGIC {
            let blank = header.iter().all(|b| *b == 0);
            return Err(if blank { RecordError::Blank } else { RecordError::NotARecord });
        }
        let data_len = read_u32(header, 40) as usize;
        let body_len = read_u32(header, 44) as usize;
        if data_len > DATA_BYTES_MAX || body_len > BODY_BYTES_MAX {
            return Err(RecordError::Header);
        }
        let table = bytes.get(HEADER_BYTES..data_offset(data_len)).ok_or(RecordError::Short)?;
        if header_crc(header, table) != read_u32(header, 60) {
            return Err(RecordError::HeaderChecksum);
        }
        if header[4] != VERSION {
            return Err(RecordError::Version(header[4]));
        }
        let flags = header[5];
        let packed = flags & FLAG_PACKED != 0;
        if flags & !(FLAG_GROUP_START | FLAG_PACKED) != 0 || (!packed && data_len != 0) {
            return Err(RecordError::Header);
        }
        Ok(RecordHead {
            salt: Salt(read_u64(header, 8)),
            lsn: Lsn(read_u64(header, 16)),
            group_start: flags & FLAG_GROUP_START != 0,
            blob: packed.then(|| BlobId(field(header, 24))),
            data_len,
            body_len,
            body_crc: read_u32(header, 48),
        })
    }

    /// Length of the whole record in bytes, padding included.
    pub fn record_len(&self) -> usize {
        self.body_range().start + self.body_len.next_multiple_of(RECORD_ALIGN)
    }

    /// Where the packed data stands, from the record's first byte.
    pub fn data_range(&self) -> Range<usize> {
        let start = data_offset(self.data_len);
        start..start + self.data_len
    }

    fn body_range(&self) -> Range<usize> {
        let start = self.data_range().end.next_multiple_of(RECORD_ALIGN);
        start..start + self.body_len
    }

    /// Verifies every block of the data; `record` starts with the record this head came from.
    ///
    /// **Errors** `DataChecksum`, or `Short` when `record` ends before the data does.
    pub fn check_data<'a>(&self, record: &'a [u8]) -> Result<&'a [u8], RecordError> {
        let data = record.get(self.data_range()).ok_or(RecordError::Short)?;
        for (index, block) in data.chunks(DATA_BLOCK_BYTES).enumerate() {
            let sound = crc32c(block) == read_u32(record, HEADER_BYTES + 4 * index);
            if !sound && !sabotage::is(Sabotage::SkipRecordChecksum) {
                return Err(RecordError::DataChecksum(index));
            }
        }
        Ok(data)
    }

    /// Verifies everything behind the header and decodes the body.
    #[cfg(test)]
    pub fn decode_rest(&self, record: &[u8]) -> Result<Mutation, RecordError> {
        self.check_data(record)?;
        self.decode_body(record)
    }

    /// Verifies and decodes the body, and leaves the data alone.
    pub fn decode_body(&self, record: &[u8]) -> Result<Mutation, RecordError> {
        let record = record.get(..self.record_len()).ok_or(RecordError::Short)?;
        let body_range = self.body_range();
        let body = &record[body_range.clone()];
        if crc32c(body) != self.body_crc {
            return Err(RecordError::BodyChecksum);
        }
        let pads = [self.data_range().end..body_range.start, body_range.end..record.len()];
        if pads.into_iter().any(|pad| record[pad].iter().any(|b| *b != 0)) {
            return Err(RecordError::Padding);
        }
        decode_body(body)
    }
}

/// Bytes to read from a record's start to verify the packed data of a blob of `data_len` bytes.
pub fn packed_read_len(data_len: usize) -> usize {
    data_offset(data_len) + data_len
}

/// Bytes to read from a record's start to verify its head, for packed data of `data_len` bytes.
pub fn head_read_len(data_len: usize) -> usize {
    data_offset(data_len)
}

/// A record that is ready to be written, except for the salt of its segment.
#[derive(Clone, Debug)]
pub struct EncodedRecord {
    lsn: Lsn,
    packed: Option<(BlobId, Bytes)>,
    body: Vec<u8>,
}

impl EncodedRecord {
    /// `None` when the body or the data is longer than the format allows.
    pub fn new(lsn: Lsn, mutation: &Mutation, packed: Option<&PackedBytes>) -> Option<Self> {
        let body = encode_body(mutation);
        let data_len = packed.map_or(0, |p| p.bytes.len());
        let fits = body.len() <= BODY_BYTES_MAX && data_len <= DATA_BYTES_MAX;
        fits.then(|| EncodedRecord { lsn, packed: packed.map(|p| (p.id, p.bytes.clone())), body })
    }

    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn data(&self) -> &[u8] {
        self.packed.as_ref().map_or(&[], |(_, bytes)| bytes)
    }

    /// Length of the record in bytes, padding included.
    pub fn len(&self) -> usize {
        let body_start = packed_read_len(self.data().len()).next_multiple_of(RECORD_ALIGN);
        body_start + self.body.len().next_multiple_of(RECORD_ALIGN)
    }

    /// Writes the record to the start of `out`, which is zero and at least `len()` long.
    pub fn write_to(&self, out: &mut [u8], salt: Salt, group_start: bool) {
        let data = self.data();
        let blob = self.packed.as_ref().map_or([0; 16], |(id, _)| id.0);
        let data_start = data_offset(data.len());
        let body_start = packed_read_len(data.len()).next_multiple_of(RECORD_ALIGN);
        if !sabotage::is(Sabotage::KeepBytesInRam) {
            out[data_start..data_start + data.len()].copy_from_slice(data);
        }
        out[body_start..body_start + self.body.len()].copy_from_slice(&self.body);
        for (index, block) in data.chunks(DATA_BLOCK_BYTES).enumerate() {
            let at = HEADER_BYTES + 4 * index;
            out[at..at + 4].copy_from_slice(&crc32c(block).to_le_bytes());
        }
        let (header, table) = out[..data_start].split_at_mut(HEADER_BYTES);
        header[0..4].copy_from_slice(&MAGIC);
        header[4] = VERSION;
        header[5] = u8::from(group_start) * FLAG_GROUP_START
            + u8::from(self.packed.is_some()) * FLAG_PACKED;
        header[8..16].copy_from_slice(&salt.0.to_le_bytes());
        header[16..24].copy_from_slice(&self.lsn.0.to_le_bytes());
        header[24..40].copy_from_slice(&blob);
        header[40..44].copy_from_slice(&(data.len() as u32).to_le_bytes());
        header[44..48].copy_from_slice(&(self.body.len() as u32).to_le_bytes());
        header[48..52].copy_from_slice(&crc32c(&self.body).to_le_bytes());
        let crc = header_crc(header, table);
        header[60..64].copy_from_slice(&crc.to_le_bytes());
    }
}

fn encode_body(mutation: &Mutation) -> Vec<u8> {
    let mut body = Vec::with_capacity(512);
    match minicbor::encode(mutation, &mut body) {
        Ok(()) => body,
        Err(e) => unreachable!("writing to memory cannot fail: {e}"),
    }
}

fn decode_body(body: &[u8]) -> Result<Mutation, RecordError> {
    let mut decoder = minicbor::Decoder::new(body);
    let mutation = decoder.decode().map_err(|_| RecordError::Body)?;
    if decoder.position() == body.len() { Ok(mutation) } else { Err(RecordError::Body) }
}

/// Where data of `data_len` bytes starts: behind the header and the table of block checksums.
fn data_offset(data_len: usize) -> usize {
    let table = 4 * data_len.div_ceil(DATA_BLOCK_BYTES);
    HEADER_BYTES + table.next_multiple_of(RECORD_ALIGN)
}

/// One checksum over header (without its checksum field) and table, padding included.
fn header_crc(header: &[u8], table: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&header[..60]);
    digest.update(table);
    digest.finalize() as u32
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// The little-endian number at `at`, which the caller has checked to be inside `bytes`.
pub(super) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

/// As `read_u32`, for 8 bytes.
pub(super) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::testing::{mutation, packed_put};
    use proptest::prelude::*;

    fn encoded(record: &Record, salt: Salt, group_start: bool) -> Vec<u8> {
        let encoded = EncodedRecord::new(record.lsn, &record.mutation, record.packed.as_ref());
        let encoded = encoded.expect("within the limits");
        let mut out = vec![0; encoded.len()];
        encoded.write_to(&mut out, salt, group_start);
        out
    }

    fn decoded(bytes: &[u8]) -> Result<(RecordHead, Mutation), RecordError> {
        let head = RecordHead::decode(bytes)?;
        let mutation = head.decode_rest(bytes)?;
        Ok((head, mutation))
    }

    #[track_caller]
    fn check_round_trip(record: &Record, salt: Salt, group_start: bool) {
        let bytes = encoded(record, salt, group_start);
        assert!(bytes.len().is_multiple_of(RECORD_ALIGN));
        let (head, mutation) = decoded(&bytes).expect("valid");
        assert_eq!((head.lsn, head.salt, head.group_start), (record.lsn, salt, group_start));
        assert_eq!(head.record_len(), bytes.len());
        assert_eq!(mutation, record.mutation);
        assert_eq!(head.blob, record.packed.as_ref().map(|p| p.id));
        let data = record.packed.as_ref().map_or(&[][..], |p| &p.bytes);
        assert_eq!(head.check_data(&bytes[..packed_read_len(data.len())]), Ok(data));
    }

    #[test]
    fn records_of_many_sizes_come_back_whole() {
        for len in [0, 1, 7, 8, 4096, 131_071, 131_072, 131_073, 262_144, 400_001] {
            check_round_trip(&packed_put(7, len), Salt(99), true);
        }
        for n in 0..mutation::KINDS {
            let record =
                Record { lsn: Lsn(u64::MAX), mutation: mutation::of_kind(n), packed: None };
            check_round_trip(&record, Salt(u64::MAX), false);
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for record in [packed_put(3, 13), packed_put(3, 0)] {
            let bytes = encoded(&record, Salt(5), true);
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(decoded(&bad).is_err(), "bit {bit} went unnoticed");
            }
        }
    }

    #[test]
    fn a_truncated_record_is_short() {
        let bytes = encoded(&packed_put(3, 200), Salt(5), true);
        for len in 0..bytes.len() {
            assert_eq!(decoded(&bytes[..len]), Err(RecordError::Short), "{len} bytes");
        }
    }

    #[test]
    fn what_exceeds_the_format_is_refused() {
        let mut record = packed_put(1, 0);
        let big = Bytes::from(vec![0; DATA_BYTES_MAX + 1]);
        record.packed = Some(PackedBytes { id: BlobId([1; 16]), bytes: big });
        let encoded = EncodedRecord::new(record.lsn, &record.mutation, record.packed.as_ref());
        assert!(encoded.is_none());
    }

    proptest! {
        #[test]
        fn any_packed_record_comes_back(lsn: u64, salt: u64, start: bool,
                                        data in proptest::collection::vec(any::<u8>(), 0..5000)) {
            let mut record = packed_put(lsn, 0);
            record.packed = Some(PackedBytes { id: BlobId([9; 16]), bytes: data.into() });
            check_round_trip(&record, Salt(salt), start);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = decoded(&bytes);
            let _ = decode_body(&bytes);
            let mut framed = MAGIC.to_vec();
            framed.extend_from_slice(&bytes);
            prop_assert!(decoded(&framed).is_err());
        }

        #[test]
        fn damage_behind_a_valid_header_is_noticed(at in 0usize..3000, value in 1u8..) {
            let mut bytes = encoded(&packed_put(4, 2000), Salt(1), false);
            let at = at % bytes.len();
            bytes[at] ^= value;
            prop_assert!(decoded(&bytes).is_err());
        }

        /// A valid checksum over a nonsense body: what a newer program's change looks like.
        #[test]
        fn an_unknown_body_is_an_error(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let record = EncodedRecord { lsn: Lsn(1), packed: None, body: body.clone() };
            let mut out = vec![0; record.len()];
            record.write_to(&mut out, Salt(1), true);
            let known = decode_body(&body).is_ok();
            prop_assert_eq!(decoded(&out).is_ok(), known);
        }
    }
}
