//! The checksum at the end of each page of a SQLite file, and the first page of a new one.
//!
//! SQLite has none of its own: without this a flipped bit in a row is simply another row. Pure; no
//! I/O. The drawing is in docs/on-disk-format.md, section "The catalog's file".
//!
//! ```text
//! 0                                        8184      8188        8192
//! | what SQLite keeps in the page          | CRC32C  | "GSUM"    |
//! ```

use crc_fast::{CrcAlgorithm, Digest};

use crate::sabotage::{self, Sabotage};

/// Bytes of a page. Rows of a table without row ids live in every node of its tree; pages larger
/// than SQLite's default keep it flat.
pub const PAGE_BYTES: usize = 8192;
/// Bytes at the end of each page that SQLite leaves alone ("reserved space" in its header).
pub const SUM_BYTES: usize = 8;

const USABLE: usize = PAGE_BYTES - SUM_BYTES;
const MARK: [u8; 4] = *b"GSUM";
/// The page that SQLite never uses, because its locks stand there: byte 2^30 of the file.
pub const LOCK_PAGE: u64 = (1 << 30) / PAGE_BYTES as u64 + 1;
/// Where the header of page 1 says how many bytes are reserved.
const RESERVED_AT: usize = 20;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// CRC32C of the page's contents and of its number, so that a page in the place of another one
/// is noticed too.
fn sum(page: &[u8], number: u64) -> [u8; 4] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&page[..USABLE]);
    digest.update(&number.to_le_bytes());
    (digest.finalize() as u32).to_le_bytes()
}

/// Writes the checksum into a page. **Shape** `PAGE_BYTES` long; pages are counted from 1.
pub fn seal(page: &mut [u8], number: u64) {
    let sum = sum(page, number);
    page[USABLE..USABLE + 4].copy_from_slice(&sum);
    page[USABLE + 4..PAGE_BYTES].copy_from_slice(&MARK);
}

/// Whether a page is as `seal` left it. **Shape** as for `seal`.
pub fn is_sound(page: &[u8], number: u64) -> bool {
    let sound = page[USABLE..USABLE + 4] == sum(page, number);
    sound && page[USABLE + 4..PAGE_BYTES] == MARK || sabotage::is(Sabotage::SkipPageChecksum)
}

/// Whether the header in page 1 leaves room for the checksum in every page.
pub fn has_room(first_page: &[u8]) -> bool {
    first_page.get(RESERVED_AT) == Some(&(SUM_BYTES as u8))
}

/// How many pages the header in page 1 says there are.
pub fn page_count(first_page: &[u8]) -> u64 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&first_page[28..32]);
    u32::from_be_bytes(raw).into()
}

/// Of a SQLite file that begins with `start` and whose pages carry no checksums: its application
/// id. `None` for anything else.
pub fn unsummed_application(start: &[u8]) -> Option<u32> {
    let known = start.starts_with(MAGIC) && !has_room(start);
    let id = start.get(68..72).filter(|_| known && !start.ends_with(&MARK))?;
    id.try_into().map(u32::from_be_bytes).ok()
}

/// The one page of a database without tables, reserved space included. Only a new file can be
/// given reserved space, and SQLite offers no statement for it.
///
/// **Source** <https://www.sqlite.org/fileformat2.html>, sections 1.3 and 1.6.
pub fn empty_database() -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    page[..16].copy_from_slice(MAGIC);
    page[16..18].copy_from_slice(&(PAGE_BYTES as u16).to_be_bytes());
    // Rollback journal until SQLite is told otherwise; fixed fractions of the format.
    page[18..24].copy_from_slice(&[1, 1, SUM_BYTES as u8, 64, 32, 32]);
    let words = [(24, 1u32), (28, 1), (44, 4), (56, 1), (92, 1), (96, 3_034_000)];
    for (at, word) in words {
        page[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    // The root of the schema: a leaf of a table, without cells.
    page[100] = 13;
    page[105..107].copy_from_slice(&(USABLE as u16).to_be_bytes());
    seal(&mut page, 1);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let page = empty_database();
        assert!(is_sound(&page, 1) && has_room(&page) && unsummed_application(&page).is_none());
        assert!(!is_sound(&page, 2), "another page's place");
        for bit in 0..PAGE_BYTES * 8 {
            let mut bad = page.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_sound(&bad, 1), "bit {bit}");
        }
        assert!(!is_sound(&vec![0; PAGE_BYTES], 1));
    }
}
