//! Deciding parts and completions.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{
    CompletedUpload, Decided, Decision, Moment, OBJECT_BYTES_MAX, View, install, locks,
    modified_ms, new_version_id, require_bucket,
};
use crate::digest;
use crate::model::commit::{CompletedPart, Mutation, PackedBytes};
use crate::model::{
    BucketId, Checksum, ChecksumAlgorithm, ChecksumKind, CommitError, Committed, ETag, Extent, Key,
    ObjectVersion, Part, PartRecord, Upload, UploadId, WriteCondition,
};

/// The shortest part that may stand before another.
///
/// **Source** AWS S3 user guide, "Amazon S3 multipart upload limits".
pub(super) const PART_BYTES_MIN: u64 = 5 << 20;

pub(super) fn require_upload(
    view: &dyn View,
    bucket: BucketId,
    key: &Key,
    upload: UploadId,
) -> Result<Arc<Upload>, CommitError> {
    require_bucket(view, bucket)?;
    view.upload(upload)
        .filter(|u| u.bucket == bucket && u.key == *key)
        .ok_or(CommitError::NoSuchUpload)
}

pub(super) fn create(view: &dyn View, at: Moment, upload: Upload) -> Decided {
    let bucket = require_bucket(view, upload.bucket)?;
    locks::check_wanted(&bucket, &upload.metadata, at)?;
    Ok(Decision::done(Mutation::CreateUpload(upload)))
}

pub(super) fn abort(view: &dyn View, bucket: BucketId, key: &Key, upload: UploadId) -> Decided {
    require_upload(view, bucket, key, upload)?;
    Ok(Decision::done(Mutation::AbortUpload(upload)))
}

/// A part's fields beside its bytes.
pub(super) struct PartFields {
    pub upload: UploadId,
    pub number: u32,
    pub etag: ETag,
    pub checksum: Option<Checksum>,
}

impl PartFields {
    /// The decision that stores the part, replacing a former one of the same number.
    pub fn install(
        self,
        at: Moment,
        extents: Vec<Extent>,
        packed: Option<PackedBytes>,
    ) -> Decision {
        let part = Part {
            number: self.number,
            size: extents.iter().map(|e| e.len).sum(),
            md5: self.etag.md5,
            modified_ms: at.now_ms,
            checksum: self.checksum,
            extents,
        };
        let answer = Committed::Part(part.clone());
        let carried = packed.as_ref().map(|p| p.id);
        let mutation = Mutation::PutPart { upload: self.upload, part, packed: carried };
        Decision::logged(mutation, packed, answer)
    }
}

/// What the client says of the whole object.
pub(super) struct Expected {
    pub size: Option<u64>,
    pub checksum: Option<Checksum>,
}

/// The fields of `Proposal::CompleteUpload`.
pub(super) struct Completion {
    pub bucket: BucketId,
    pub key: Key,
    pub upload: UploadId,
    pub parts: Vec<CompletedPart>,
    pub expected: Expected,
    pub condition: WriteCondition,
}

/// Makes the object of an upload's parts. A request that repeats the one which completed the
/// upload gets the same answer again and changes nothing, whatever its conditions say by now.
pub(super) fn complete(view: &dyn View, at: Moment, c: Completion) -> Decided {
    let digest = part_list_digest(&c.parts);
    let upload = match require_upload(view, c.bucket, &c.key, c.upload) {
        Ok(upload) => upload,
        Err(CommitError::NoSuchUpload) => return repeat(view, &c, &digest),
        Err(error) => return Err(error),
    };
    let bucket = require_bucket(view, c.bucket)?;
    let current = view.current(c.bucket, &c.key);
    c.condition.check(current.as_deref())?;
    let parts = chosen_parts(view, &c)?;
    let size = total_size(&parts)?;
    if c.expected.size.is_some_and(|expected| expected != size) {
        return Err(CommitError::SizeMismatch);
    }
    let checksum = whole_checksum(&upload, &parts)?;
    if let Some(expected) = &c.expected.checksum {
        verify_checksum(expected, checksum.as_ref(), &parts)?;
    }
    let md5s: Vec<[u8; 16]> = parts.iter().map(|p| p.md5).collect();
    let mut metadata = upload.metadata.clone();
    locks::add_default(&bucket, &mut metadata, at);
    let record =
        |p: &Part| PartRecord { number: p.number, size: p.size, checksum: p.checksum.clone() };
    let version = ObjectVersion {
        lsn: at.lsn,
        version_id: new_version_id(&bucket, &c.key, at),
        delete_marker: false,
        size,
        modified_ms: modified_ms(at, current.as_deref()),
        etag: digest::multipart_etag(&md5s),
        owner: upload.owner.clone(),
        metadata,
        checksum,
        parts: parts.iter().map(record).collect(),
        extents: parts.into_iter().flat_map(|p| p.extents).collect(),
    };
    Ok(install(c.bucket, c.key, version, Some((c.upload, digest)), None))
}

fn repeat(view: &dyn View, c: &Completion, digest: &[u8]) -> Decided {
    let same = |done: &CompletedUpload| {
        done.bucket == c.bucket && done.key == c.key && done.digest == digest
    };
    match view.completed(c.upload).filter(same) {
        Some(done) => Ok(Decision::nothing(Committed::Object(done.version))),
        None => Err(CommitError::NoSuchUpload),
    }
}

/// The stored parts that the request names, in its order, each as the request says.
fn chosen_parts(view: &dyn View, c: &Completion) -> Result<Vec<Part>, CommitError> {
    let Some(last) = c.parts.last() else {
        // The front refuses an empty list as malformed; here no part can be right.
        return Err(CommitError::InvalidPart { number: 1 });
    };
    if !c.parts.is_sorted_by(|a, b| a.number < b.number) {
        return Err(CommitError::InvalidPartOrder);
    }
    let mut chosen = Vec::with_capacity(c.parts.len());
    for asked in &c.parts {
        let part = view
            .part(c.upload, asked.number)
            .filter(|part| hex::encode(part.md5).eq_ignore_ascii_case(&asked.etag))
            .filter(|part| asked.checksum.as_ref().is_none_or(|want| says(part, want)))
            .ok_or(CommitError::InvalidPart { number: asked.number })?;
        chosen.push(part);
    }
    match chosen.iter().find(|p| p.size < PART_BYTES_MIN && p.number != last.number) {
        Some(small) => Err(CommitError::EntityTooSmall { number: small.number, size: small.size }),
        None => Ok(chosen),
    }
}

/// True when the part's stored checksum is `want`.
fn says(part: &Part, want: &Checksum) -> bool {
    part.checksum
        .as_ref()
        .is_some_and(|have| have.algorithm == want.algorithm && have.value == want.value)
}

fn total_size(parts: &[Part]) -> Result<u64, CommitError> {
    let sum = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.size));
    sum.filter(|size| *size <= OBJECT_BYTES_MAX).ok_or(CommitError::EntityTooLarge)
}

/// What a retried completion has to repeat.
fn part_list_digest(parts: &[CompletedPart]) -> Vec<u8> {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.number.to_be_bytes());
        hash.update((part.etag.len() as u64).to_be_bytes());
        hash.update(part.etag.to_ascii_lowercase());
    }
    hash.finalize().to_vec()
}

/// The object's checksum as the upload asked for it. An upload that asked for none gets the CRC64
/// of the whole object when its parts have theirs, as AWS computes it by default.
fn whole_checksum(upload: &Upload, parts: &[Part]) -> Result<Option<Checksum>, CommitError> {
    let Some((algorithm, kind)) = upload.checksum else {
        let all = checksums(parts);
        let whole =
            || digest::combine(ChecksumAlgorithm::Crc64Nvme, ChecksumKind::FullObject, &all);
        return Ok(if all.len() == parts.len() { whole() } else { None });
    };
    let lacking = parts
        .iter()
        .find(|part| part.checksum.as_ref().is_none_or(|checksum| checksum.algorithm != algorithm));
    if let Some(part) = lacking {
        return Err(CommitError::InvalidPart { number: part.number });
    }
    Ok(digest::combine(algorithm, kind, &checksums(parts)))
}

/// Compares what the client says with the stored checksum, or with what the parts' checksums
/// give when the upload itself asked for none.
fn verify_checksum(
    expected: &Checksum,
    stored: Option<&Checksum>,
    parts: &[Part],
) -> Result<(), CommitError> {
    let same_algorithm = stored.filter(|stored| stored.algorithm == expected.algorithm).cloned();
    let actual = same_algorithm
        .or_else(|| digest::combine(expected.algorithm, expected.kind, &checksums(parts)));
    match actual {
        Some(actual) if actual.value == expected.value => Ok(()),
        _ => Err(CommitError::BadDigest),
    }
}

fn checksums(parts: &[Part]) -> Vec<(Checksum, u64)> {
    parts.iter().filter_map(|part| Some((part.checksum.clone()?, part.size))).collect()
}
