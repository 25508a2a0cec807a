//! Digests of object bytes: MD5 for ETags, the checksums that clients ask for, and the SHA-256 of
//! a signed payload; how part digests fold into those of a completed upload.
//!
//! Pure computation on whatever thread calls it: no I/O, no allocation per update, no policy about
//! which digest is wanted. Each byte is hashed once per algorithm, never twice.

use crc_fast::CrcAlgorithm;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use crate::model::{Checksum, ChecksumAlgorithm, ChecksumKind, ETag};

/// Which digests to compute beside MD5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DigestRequest {
    pub checksum: Option<ChecksumAlgorithm>,
    /// Wanted when the request's signature covers the payload's SHA-256.
    pub payload_sha256: bool,
}

/// The finished digests of one run of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests {
    pub md5: [u8; 16],
    /// Of kind `FullObject`, when the request named an algorithm.
    pub checksum: Option<Checksum>,
    pub payload_sha256: Option<[u8; 32]>,
}

/// Hashes a stream of bytes as a `DigestRequest` says.
pub struct Digester {
    md5: Md5,
    crc: Option<(ChecksumAlgorithm, crc_fast::Digest)>,
    sha1: Option<Sha1>,
    /// Serves both a SHA256 checksum and the payload hash.
    sha256: Option<Sha256>,
    request: DigestRequest,
}

impl Digester {
    pub fn new(request: &DigestRequest) -> Digester {
        let crc = request
            .checksum
            .and_then(|a| crc_algorithm(a).map(|crc| (a, crc_fast::Digest::new(crc))));
        let wants_sha256 =
            request.payload_sha256 || request.checksum == Some(ChecksumAlgorithm::Sha256);
        Digester {
            md5: Md5::new(),
            crc,
            sha1: (request.checksum == Some(ChecksumAlgorithm::Sha1)).then(Sha1::new),
            sha256: wants_sha256.then(Sha256::new),
            request: *request,
        }
    }

    /// Hashes the next bytes of the stream.
    pub fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        if let Some((_, crc)) = &mut self.crc {
            crc.update(bytes);
        }
        if let Some(sha1) = &mut self.sha1 {
            sha1.update(bytes);
        }
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(bytes);
        }
    }

    pub fn finish(self) -> Digests {
        let sha256: Option<[u8; 32]> = self.sha256.map(|h| h.finalize().into());
        let value = if let Some((algorithm, crc)) = self.crc {
            Some(crc_value(algorithm, crc.finalize()))
        } else if let Some(sha1) = self.sha1 {
            Some(sha1.finalize().to_vec())
        } else if self.request.checksum.is_some() {
            sha256.map(|h| h.to_vec())
        } else {
            None
        };
        let checksum = self.request.checksum.zip(value).map(|(algorithm, value)| Checksum {
            algorithm,
            kind: ChecksumKind::FullObject,
            value,
        });
        Digests {
            md5: self.md5.finalize().into(),
            checksum,
            payload_sha256: sha256.filter(|_| self.request.payload_sha256),
        }
    }
}

/// The digests of bytes that are all at hand.
pub fn digest(request: &DigestRequest, bytes: &[u8]) -> Digests {
    let mut digester = Digester::new(request);
    digester.update(bytes);
    digester.finish()
}

/// SHA-256 of bytes that are all at hand.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The ETag of a completed upload: the MD5 of the parts' MD5s, and their number.
///
/// **Shape** At most 10,000 parts, so the count fits.
pub fn multipart_etag(parts: &[[u8; 16]]) -> ETag {
    let mut md5 = Md5::new();
    for part in parts {
        md5.update(part);
    }
    ETag { md5: md5.finalize().into(), parts: parts.len() as u32 }
}

/// Folds the checksums of parts, each with its length in bytes, into the object's.
///
/// `Composite` hashes the concatenated raw values; `FullObject` combines CRCs into the CRC of the
/// concatenated bytes. `None` when there are no parts, when a part has another algorithm, or when
/// the algorithm has no full-object form (SHA-1 and SHA-256 cannot be combined).
///
/// **Source** AWS S3 user guide, "Checking object integrity", composite and full object types.
pub fn combine(
    algorithm: ChecksumAlgorithm,
    kind: ChecksumKind,
    parts: &[(Checksum, u64)],
) -> Option<Checksum> {
    let fits = |c: &Checksum| c.algorithm == algorithm && c.value.len() == algorithm.len_bytes();
    if parts.is_empty() || !parts.iter().all(|(c, _)| fits(c)) {
        return None;
    }
    match kind {
        ChecksumKind::Composite => {
            let mut digester =
                Digester::new(&DigestRequest { checksum: Some(algorithm), payload_sha256: false });
            for (part, _) in parts {
                digester.update(&part.value);
            }
            let checksum = digester.finish().checksum?;
            Some(Checksum { kind, ..checksum })
        }
        ChecksumKind::FullObject => {
            let crc = crc_algorithm(algorithm)?;
            let mut whole = 0u64;
            for (part, len) in parts {
                let value = part.value.iter().fold(0u64, |acc, b| (acc << 8) | u64::from(*b));
                whole = crc_fast::checksum_combine(crc, whole, value, *len);
            }
            Some(Checksum { algorithm, kind, value: crc_value(algorithm, whole) })
        }
    }
}

fn crc_algorithm(algorithm: ChecksumAlgorithm) -> Option<CrcAlgorithm> {
    match algorithm {
        ChecksumAlgorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        ChecksumAlgorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        ChecksumAlgorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        ChecksumAlgorithm::Sha1 | ChecksumAlgorithm::Sha256 => None,
    }
}

/// Big-endian bytes of a CRC, as long as its algorithm's values are.
fn crc_value(algorithm: ChecksumAlgorithm, crc: u64) -> Vec<u8> {
    crc.to_be_bytes()[8 - algorithm.len_bytes()..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    fn base64_of(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> String {
        let request = DigestRequest { checksum: Some(algorithm), payload_sha256: true };
        STANDARD.encode(digest(&request, bytes).checksum.unwrap().value)
    }

    #[test]
    fn known_answers_for_hello() {
        let plain = digest(&DigestRequest::default(), b"hello");
        assert_eq!(hex::encode(plain.md5), "5d41402abc4b2a76b9719d911017c592");
        assert_eq!(plain.checksum, None);
        assert_eq!(plain.payload_sha256, None);
        let expected = [
            (ChecksumAlgorithm::Crc32, "NhCmhg=="),
            (ChecksumAlgorithm::Crc32c, "mnG7TA=="),
            (ChecksumAlgorithm::Crc64Nvme, "M3eFcAZSQlc="),
            (ChecksumAlgorithm::Sha1, "qvTGHdzF6KLavt4PO0gs2a6pQ00="),
            (ChecksumAlgorithm::Sha256, "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="),
        ];
        for (algorithm, value) in expected {
            assert_eq!(base64_of(algorithm, b"hello"), value, "{algorithm:?}");
        }
    }

    #[test]
    fn payload_hash_comes_only_when_asked() {
        let sha = Some(ChecksumAlgorithm::Sha256);
        let without = digest(&DigestRequest { checksum: sha, payload_sha256: false }, b"hello");
        assert_eq!(without.payload_sha256, None);
        let with = digest(&DigestRequest { checksum: None, payload_sha256: true }, b"");
        assert_eq!(
            hex::encode(with.payload_sha256.unwrap()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    /// Known answer from MPU-05 of the public bug reports: one empty part.
    #[test]
    fn etag_of_one_empty_part() {
        let empty = digest(&DigestRequest::default(), b"").md5;
        assert_eq!(multipart_etag(&[empty]).to_string(), "59adb24ef3cdbe0297f05b395827453f-1");
    }

    #[test]
    fn composite_is_the_digest_of_the_raw_part_values() {
        for algorithm in ChecksumAlgorithm::ALL {
            let request = DigestRequest { checksum: Some(algorithm), payload_sha256: false };
            let one = digest(&request, b"hello").checksum.unwrap();
            let two = digest(&request, b"world").checksum.unwrap();
            let joined = [one.value.clone(), two.value.clone()].concat();
            let whole = combine(algorithm, ChecksumKind::Composite, &[(one, 5), (two, 5)]).unwrap();
            assert_eq!(whole.kind, ChecksumKind::Composite);
            assert_eq!(whole.value, digest(&request, &joined).checksum.unwrap().value);
        }
    }

    #[test]
    fn combine_refuses_what_it_cannot_do() {
        let request =
            DigestRequest { checksum: Some(ChecksumAlgorithm::Sha1), payload_sha256: false };
        let sha1 = digest(&request, b"x").checksum.unwrap();
        let parts = [(sha1, 1)];
        assert_eq!(combine(ChecksumAlgorithm::Sha1, ChecksumKind::FullObject, &parts), None);
        assert_eq!(combine(ChecksumAlgorithm::Crc32, ChecksumKind::Composite, &parts), None);
        assert_eq!(combine(ChecksumAlgorithm::Crc32, ChecksumKind::FullObject, &[]), None);
    }

    proptest! {
        #[test]
        fn full_object_combination_equals_the_crc_of_the_whole(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 1..6),
            which in 0usize..3,
        ) {
            let algorithm = ChecksumAlgorithm::ALL[which];
            let request = DigestRequest { checksum: Some(algorithm), payload_sha256: false };
            let sums: Vec<_> = parts
                .iter()
                .map(|p| (digest(&request, p).checksum.unwrap(), p.len() as u64))
                .collect();
            let whole = digest(&request, &parts.concat()).checksum.unwrap();
            let combined = combine(algorithm, ChecksumKind::FullObject, &sums).unwrap();
            prop_assert_eq!(combined, whole);
        }

        #[test]
        fn splitting_an_update_changes_nothing(
            bytes in prop::collection::vec(any::<u8>(), 0..3000),
            cut in 0usize..3000,
            which in 0usize..5,
        ) {
            let request = DigestRequest {
                checksum: Some(ChecksumAlgorithm::ALL[which]),
                payload_sha256: true,
            };
            let cut = cut.min(bytes.len());
            let mut digester = Digester::new(&request);
            digester.update(&bytes[..cut]);
            digester.update(&bytes[cut..]);
            prop_assert_eq!(digester.finish(), digest(&request, &bytes));
        }
    }
}
