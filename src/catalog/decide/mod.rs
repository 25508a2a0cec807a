//! Deciding: from a proposal and the state of this moment to a mutation or a refusal.
//!
//! Pure functions over a `View`. Nothing here changes state, does I/O or reads a clock; the caller
//! (the writer of an implementation) carries out the mutation. Both implementations of the catalog
//! decide with this code, so that they can differ only in how they keep and change state.

mod deletes;
mod locks;
mod multipart;
mod rename;
mod settings;

use std::collections::HashSet;
use std::sync::Arc;

use self::deletes::Deletes;
use self::multipart::{Completion, Expected, PartFields};
use crate::model::commit::{CopySource, Mutation, PackedBytes, ProposedData, slice_extents};
use crate::model::lock::ObjectLock;
use crate::model::{
    AccessKey, BlobId, BlobPlace, BlobRef, Bucket, BucketConfigs, BucketId, BucketName, Checksum,
    CommitError, Committed, ETag, Extent, Key, Lsn, ObjectMetadata, ObjectVersion, OwnerId, Part,
    Proposal, Upload, UploadId, VersionId, Versioning, WriteCondition,
};

/// What a blob file or packed blob is to the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobState {
    /// Announced by `BeginBlob`; its bytes are being written.
    Pending,
    /// Referred to by a version or a part; with its present place.
    Live(BlobPlace),
    /// A file that nothing refers to; the garbage collector may take it.
    Dead,
}

/// What remains of an upload after its completion, so that a retry gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedUpload {
    pub bucket: BucketId,
    pub key: Key,
    /// `part_list_digest` of the request that completed it.
    pub digest: Vec<u8>,
    /// The version that it made, without extents.
    pub version: Arc<ObjectVersion>,
}

/// The state that proposals are decided against.
pub trait View {
    fn bucket_named(&self, name: &str) -> Option<Arc<Bucket>>;
    fn bucket(&self, id: BucketId) -> Option<Arc<Bucket>>;
    /// An id that no bucket had before.
    fn next_bucket_id(&self) -> BucketId;
    /// True when no version of any key is left.
    fn bucket_is_empty(&self, id: BucketId) -> bool;
    /// The live current version; a delete marker counts as none.
    fn current(&self, bucket: BucketId, key: &Key) -> Option<Arc<ObjectVersion>>;
    /// The version of that id, also a delete marker.
    fn version(&self, bucket: BucketId, key: &Key, id: VersionId) -> Option<Arc<ObjectVersion>>;
    /// The newest version, also a delete marker, that would be left without those in `gone`; they
    /// are versions that the proposal itself names.
    fn latest_without(
        &self,
        bucket: BucketId,
        key: &Key,
        gone: &HashSet<VersionId>,
    ) -> Option<Arc<ObjectVersion>>;
    fn blob(&self, id: BlobId) -> Option<BlobState>;
    fn upload(&self, id: UploadId) -> Option<Arc<Upload>>;
    fn part(&self, upload: UploadId, number: u32) -> Option<Part>;
    fn completed(&self, upload: UploadId) -> Option<CompletedUpload>;
    fn user_exists(&self, id: &str) -> bool;
    fn access_key_exists(&self, access_key: &str) -> bool;
}

/// The commit's position and time.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub lsn: Lsn,
    pub now_ms: i64,
}

/// A change that is not logged: a crash may forget it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Begin(BlobId),
    Abandon(BlobId),
}

/// What is to be done for a proposal.
#[expect(clippy::large_enum_variant, reason = "moved once per commit; a box would cost more")]
#[derive(Debug)]
pub enum Change {
    /// Nothing: the state already is as wished.
    None,
    Intent(Intent),
    Logged {
        mutation: Mutation,
        packed: Option<PackedBytes>,
    },
}

/// A proposal that was accepted, and the answer once the change is durable. Extents of a packed
/// blob that this commit carries have the place `UNPLACED` until the log has placed the record.
#[derive(Debug)]
pub struct Decision {
    pub change: Change,
    pub answer: Committed,
}

/// Stands for the place of a packed blob whose record is not written yet.
pub const UNPLACED: BlobPlace = BlobPlace::Segment { segment: 0, record_offset: 0 };

/// The longest object. **Source** AWS S3 user guide, "Amazon S3 multipart upload limits".
pub const OBJECT_BYTES_MAX: u64 = 5 << 40;

type Decided = Result<Decision, CommitError>;

impl Decision {
    fn logged(mutation: Mutation, packed: Option<PackedBytes>, answer: Committed) -> Decision {
        Decision { change: Change::Logged { mutation, packed }, answer }
    }

    fn done(mutation: Mutation) -> Decision {
        Decision::logged(mutation, None, Committed::Done)
    }

    fn nothing(answer: Committed) -> Decision {
        Decision { change: Change::None, answer }
    }
}

/// Gives the packed blobs that an answer refers to their places, as `placed` knows them.
pub fn place_answer(answer: &mut Committed, placed: &dyn Fn(BlobId) -> Option<BlobPlace>) {
    match answer {
        Committed::Object(version) if version.extents.iter().any(is_packed) => {
            place_extents(&mut Arc::make_mut(version).extents, placed);
        }
        Committed::Part(part) => place_extents(&mut part.extents, placed),
        _ => {}
    }
}

/// Gives the packed blobs that a mutation refers to their places, as `placed` knows them.
pub fn place_mutation(mutation: &mut Mutation, placed: &dyn Fn(BlobId) -> Option<BlobPlace>) {
    match mutation {
        Mutation::PutObject { version, .. } => place_extents(&mut version.extents, placed),
        Mutation::PutPart { part, .. } => place_extents(&mut part.extents, placed),
        _ => {}
    }
}

fn is_packed(extent: &Extent) -> bool {
    extent.blob.place != BlobPlace::File
}

/// Gives packed blobs their places.
pub fn place_extents(extents: &mut [Extent], placed: &dyn Fn(BlobId) -> Option<BlobPlace>) {
    for extent in extents.iter_mut().filter(|e| is_packed(e)) {
        if let Some(place) = placed(extent.blob.id) {
            extent.blob.place = place;
        }
    }
}

/// What a retried completion answers: the version without what may be large or released by then.
pub fn completion_record(version: &ObjectVersion) -> ObjectVersion {
    ObjectVersion {
        metadata: ObjectMetadata::default(),
        parts: Vec::new(),
        extents: Vec::new(),
        ..version.clone()
    }
}

/// Decides one proposal.
///
/// **Errors** Each variant of `CommitError` that says something about the proposal; never `Busy`,
/// `NoSpace`; `Failed` only for a key pair of an unknown user.
pub fn decide(view: &dyn View, at: Moment, proposal: Proposal) -> Decided {
    match proposal {
        Proposal::CreateBucket { name, owner, location, object_lock } => {
            create_bucket(view, at, name, owner, location, object_lock)
        }
        Proposal::DeleteBucket { id } => delete_bucket(view, id),
        Proposal::BeginBlob { id } => begin_blob(view, id),
        Proposal::AbandonBlob { id } => Ok(abandon_blob(view, id)),
        Proposal::PutObject { bucket, key, owner, metadata, etag, checksum, data, condition } => {
            let put = Put { bucket, key, owner, metadata, etag, checksum, condition };
            put_object(view, at, put, data)
        }
        Proposal::CopyObject { bucket, key, owner, source, metadata, checksum, condition } => {
            let source = copy_source(view, bucket, &source)?;
            // What keeps the source from being removed does not keep its copies.
            let metadata = metadata.unwrap_or_else(|| ObjectMetadata {
                retention: None,
                legal_hold: None,
                ..source.metadata.clone()
            });
            let etag = source.etag;
            let put = Put { bucket, key, owner, metadata, etag, checksum, condition };
            copy_object(view, at, put, &source)
        }
        Proposal::DeleteObjects { bucket, owner, bypass_governance, entries } => {
            let deletes = Deletes::new(view, at, bucket, owner, bypass_governance)?;
            deletes.decide(entries)
        }
        Proposal::RenameObject { source, key, condition } => {
            rename::rename_object(view, at, source, key, &condition)
        }
        Proposal::CreateUpload { upload } => multipart::create(view, at, upload),
        Proposal::PutPart { bucket, key, upload, number, etag, checksum, data } => {
            multipart::require_upload(view, bucket, &key, upload)?;
            let (extents, packed) = take_data(view, data)?;
            Ok(PartFields { upload, number, etag, checksum }.install(at, extents, packed))
        }
        Proposal::CopyPart { bucket, key, upload, number, source, range, etag, checksum } => {
            multipart::require_upload(view, bucket, &key, upload)?;
            let source = copy_source(view, bucket, &source)?;
            let extents = slice_extents(&source.extents, range);
            Ok(PartFields { upload, number, etag, checksum }.install(at, extents, None))
        }
        Proposal::CompleteUpload {
            bucket,
            key,
            upload,
            parts,
            expected_size,
            expected_checksum,
            condition,
        } => {
            let expected = Expected { size: expected_size, checksum: expected_checksum };
            let complete = Completion { bucket, key, upload, parts, expected, condition };
            multipart::complete(view, at, complete)
        }
        Proposal::AbortUpload { bucket, key, upload } => {
            multipart::abort(view, bucket, &key, upload)
        }
        Proposal::PutUser { user } => Ok(Decision::done(Mutation::PutUser(user))),
        Proposal::PutAccessKey { key } => put_access_key(view, key),
        Proposal::DeleteAccessKey { access_key } => delete_access_key(view, access_key),
        Proposal::Relocate { data, from } => relocate(view, data, from),
        other => settings::decide(view, at, other),
    }
}

fn begin_blob(view: &dyn View, id: BlobId) -> Decided {
    match view.blob(id) {
        None => Ok(intent(Intent::Begin(id))),
        Some(_) => Err(CommitError::BlobNotPending(id)),
    }
}

fn abandon_blob(view: &dyn View, id: BlobId) -> Decision {
    match view.blob(id) {
        Some(BlobState::Pending) => intent(Intent::Abandon(id)),
        _ => Decision::nothing(Committed::Done),
    }
}

fn intent(intent: Intent) -> Decision {
    Decision { change: Change::Intent(intent), answer: Committed::Done }
}

fn require_bucket(view: &dyn View, id: BucketId) -> Result<Arc<Bucket>, CommitError> {
    view.bucket(id).ok_or(CommitError::NoSuchBucket)
}

/// The id of the version that a write to `key` makes.
fn new_version_id(bucket: &Bucket, key: &Key, at: Moment) -> VersionId {
    match bucket.versioning {
        Some(Versioning::Enabled) => VersionId::of_commit(bucket.id, key, at.lsn, at.now_ms),
        Some(Versioning::Suspended) | None => VersionId::NULL,
    }
}

fn create_bucket(
    view: &dyn View,
    at: Moment,
    name: BucketName,
    owner: OwnerId,
    location: String,
    object_lock: bool,
) -> Decided {
    if let Some(bucket) = view.bucket_named(name.as_str()) {
        if bucket.owner != owner {
            return Err(CommitError::BucketAlreadyExists);
        }
        return Ok(Decision::nothing(Committed::Bucket { bucket, existed: true }));
    }
    let id = view.next_bucket_id();
    let configs = BucketConfigs::default();
    let created_ms = at.now_ms;
    let versioning = object_lock.then_some(Versioning::Enabled);
    let object_lock = object_lock.then(ObjectLock::default);
    let bucket = Bucket {
        id,
        name,
        owner,
        created_ms,
        location,
        acl: None,
        versioning,
        object_lock,
        configs,
    };
    let answer = Committed::Bucket { bucket: Arc::new(bucket.clone()), existed: false };
    Ok(Decision::logged(Mutation::CreateBucket(bucket), None, answer))
}

/// Uploads in progress do not keep a bucket alive: they end with it, as on AWS.
fn delete_bucket(view: &dyn View, id: BucketId) -> Decided {
    require_bucket(view, id)?;
    if !view.bucket_is_empty(id) {
        return Err(CommitError::BucketNotEmpty);
    }
    Ok(Decision::done(Mutation::DeleteBucket(id)))
}

/// The fields that PutObject and CopyObject share.
struct Put {
    bucket: BucketId,
    key: Key,
    owner: OwnerId,
    metadata: ObjectMetadata,
    etag: ETag,
    checksum: Option<Checksum>,
    condition: WriteCondition,
}

fn put_object(view: &dyn View, at: Moment, put: Put, data: ProposedData) -> Decided {
    let bucket = require_bucket(view, put.bucket)?;
    let current = view.current(put.bucket, &put.key);
    put.condition.check(current.as_deref())?;
    locks::check_wanted(&bucket, &put.metadata, at)?;
    let mut metadata = put.metadata;
    locks::add_default(&bucket, &mut metadata, at);
    let (extents, packed) = take_data(view, data)?;
    let version = ObjectVersion {
        lsn: at.lsn,
        version_id: new_version_id(&bucket, &put.key, at),
        delete_marker: false,
        size: extents.iter().map(|e| e.len).sum(),
        modified_ms: modified_ms(at, current.as_deref()),
        etag: put.etag,
        owner: put.owner,
        metadata,
        checksum: put.checksum,
        parts: Vec::new(),
        extents,
    };
    Ok(install(put.bucket, put.key, version, None, packed))
}

fn copy_object(view: &dyn View, at: Moment, put: Put, source: &ObjectVersion) -> Decided {
    let bucket = require_bucket(view, put.bucket)?;
    let current = view.current(put.bucket, &put.key);
    put.condition.check(current.as_deref())?;
    let mut version = source.clone();
    version.lsn = at.lsn;
    version.version_id = new_version_id(&bucket, &put.key, at);
    version.modified_ms = modified_ms(at, current.as_deref());
    version.owner = put.owner;
    locks::check_wanted(&bucket, &put.metadata, at)?;
    version.metadata = put.metadata;
    locks::add_default(&bucket, &mut version.metadata, at);
    if put.checksum.is_some() {
        // The parts' checksums belong to the algorithm that is replaced.
        version.parts.iter_mut().for_each(|part| part.checksum = None);
        version.checksum = put.checksum;
    }
    Ok(install(put.bucket, put.key, version, None, None))
}

/// The time of a new version: never before that of the version it replaces.
fn modified_ms(at: Moment, current: Option<&ObjectVersion>) -> i64 {
    current.map_or(at.now_ms, |v| v.modified_ms.max(at.now_ms))
}

/// The decision that makes `version` current. `completes` names the upload that it ends and the
/// digest of its part list.
fn install(
    bucket: BucketId,
    key: Key,
    version: ObjectVersion,
    completes: Option<(UploadId, Vec<u8>)>,
    packed: Option<PackedBytes>,
) -> Decision {
    let answer = Committed::Object(Arc::new(version.clone()));
    let (upload, complete_digest) = completes.unzip();
    let mutation = Mutation::PutObject {
        bucket,
        key,
        version,
        upload,
        packed: packed.as_ref().map(|p| p.id),
        complete_digest,
    };
    Decision::logged(mutation, packed, answer)
}

/// Extents of proposed data, and the bytes that the record has to carry.
fn take_data(
    view: &dyn View,
    data: ProposedData,
) -> Result<(Vec<Extent>, Option<PackedBytes>), CommitError> {
    let whole = |id, place, len| vec![Extent { blob: BlobRef { id, place, len }, offset: 0, len }];
    match data {
        ProposedData::File { id, len } => {
            if view.blob(id) != Some(BlobState::Pending) {
                return Err(CommitError::BlobNotPending(id));
            }
            Ok((whole(id, BlobPlace::File, len), None))
        }
        ProposedData::Packed(packed) if !packed.bytes.is_empty() => {
            if view.blob(packed.id).is_some() {
                return Err(CommitError::BlobNotPending(packed.id));
            }
            let len = packed.bytes.len() as u64;
            Ok((whole(packed.id, UNPLACED, len), Some(packed)))
        }
        ProposedData::Packed(_) | ProposedData::Empty => Ok((Vec::new(), None)),
    }
}

/// The source of a copy into `bucket`, if it still is what the caller looked at.
fn copy_source(
    view: &dyn View,
    bucket: BucketId,
    source: &CopySource,
) -> Result<Arc<ObjectVersion>, CommitError> {
    require_bucket(view, bucket)?;
    require_bucket(view, source.bucket)?;
    let found = match source.version {
        None => view.current(source.bucket, &source.key),
        Some(id) => view.version(source.bucket, &source.key, id),
    };
    let wanted = |v: &Arc<ObjectVersion>| v.lsn == source.lsn && !v.delete_marker;
    found.filter(wanted).ok_or(CommitError::SourceChanged)
}

fn put_access_key(view: &dyn View, key: AccessKey) -> Decided {
    if !view.user_exists(&key.user) {
        return Err(CommitError::Failed(format!("no user is called {:?}", key.user).into()));
    }
    Ok(Decision::done(Mutation::PutAccessKey(key)))
}

fn delete_access_key(view: &dyn View, access_key: String) -> Decided {
    if !view.access_key_exists(&access_key) {
        return Err(CommitError::NoSuchAccessKey);
    }
    Ok(Decision::done(Mutation::DeleteAccessKey(access_key)))
}

fn relocate(view: &dyn View, data: PackedBytes, from: BlobPlace) -> Decided {
    if view.blob(data.id) != Some(BlobState::Live(from)) {
        return Ok(Decision::nothing(Committed::Done));
    }
    let mutation = Mutation::Relocate(data.id);
    Ok(Decision::logged(mutation, Some(data), Committed::Done))
}
