//! Loads the rows that a group of commits looks at, with few statements for all of it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::SqliteConnection;

use super::index::Index;
use super::rows::{self, Args, RowsStatement, SqlResult};
use super::working::Working;
use crate::catalog::decide::CompletedUpload;
use crate::model::commit::{Mutation, ProposedData};
use crate::model::{
    BlobId, BlobPlace, BucketId, Extent, Key, ObjectVersion, Part, Proposal, Upload, UploadId,
};

const OBJECTS: RowsStatement = RowsStatement {
    text: "WITH wanted (bucket_id, key) AS (VALUES {rows}) \
           SELECT o.bucket_id, o.key, o.body FROM wanted CROSS JOIN objects o \
           ON o.bucket_id = wanted.bucket_id AND o.key = wanted.key",
    tuple: "(?, ?)",
};
const BLOBS: RowsStatement = RowsStatement {
    text: "SELECT id, state, refs, len, segment, record_offset, since_lsn FROM blobs \
           WHERE id IN ({rows})",
    tuple: "?",
};
const UPLOADS: RowsStatement =
    RowsStatement { text: "SELECT id, body FROM uploads WHERE id IN ({rows})", tuple: "?" };
const UPLOADS_OF_BUCKETS: RowsStatement =
    RowsStatement { text: "SELECT id, body FROM uploads WHERE bucket_id IN ({rows})", tuple: "?" };
const PARTS_OF_UPLOADS: RowsStatement = RowsStatement {
    text: "SELECT upload_id, body FROM parts WHERE upload_id IN ({rows})",
    tuple: "?",
};
const PARTS: RowsStatement = RowsStatement {
    text: "WITH wanted (upload_id, number) AS (VALUES {rows}) \
           SELECT p.upload_id, p.body FROM wanted CROSS JOIN parts p \
           ON p.upload_id = wanted.upload_id AND p.number = wanted.number",
    tuple: "(?, ?)",
};
const COMPLETED: RowsStatement = RowsStatement {
    text: "SELECT upload_id, bucket_id, key, digest, body FROM completed_uploads \
           WHERE upload_id IN ({rows})",
    tuple: "?",
};

/// Names the rows that a group looks at.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    objects: BTreeSet<(BucketId, Key)>,
    blobs: BTreeSet<BlobId>,
    uploads: BTreeSet<UploadId>,
    /// Uploads all of whose parts are needed.
    whole_uploads: BTreeSet<UploadId>,
    parts: BTreeSet<(UploadId, u32)>,
    completed: BTreeSet<UploadId>,
    /// Buckets that go, with all uploads in them.
    buckets: BTreeSet<BucketId>,
}

impl Wanted {
    pub fn for_proposal(&mut self, proposal: &Proposal) {
        match proposal {
            Proposal::BeginBlob { id } | Proposal::AbandonBlob { id } => {
                self.blobs.insert(*id);
            }
            Proposal::DeleteBucket { id } => {
                self.buckets.insert(*id);
            }
            Proposal::PutObject { bucket, key, data, .. } => {
                self.objects.insert((*bucket, key.clone()));
                self.data(data);
            }
            Proposal::CopyObject { bucket, key, source, .. } => {
                self.objects.insert((*bucket, key.clone()));
                self.objects.insert((source.bucket, source.key.clone()));
            }
            Proposal::DeleteObjects { bucket, entries } => {
                self.objects.extend(entries.iter().map(|e| (*bucket, e.key.clone())));
            }
            Proposal::CreateUpload { upload } => {
                self.uploads.insert(upload.id);
            }
            Proposal::PutPart { upload, number, data, .. } => {
                self.part(*upload, *number);
                self.data(data);
            }
            Proposal::CopyPart { upload, number, source, .. } => {
                self.part(*upload, *number);
                self.objects.insert((source.bucket, source.key.clone()));
            }
            Proposal::CompleteUpload { bucket, key, upload, .. } => {
                self.objects.insert((*bucket, key.clone()));
                self.whole_upload(*upload);
                self.completed.insert(*upload);
            }
            Proposal::AbortUpload { upload, .. } => self.whole_upload(*upload),
            Proposal::Relocate { data, .. } => {
                self.blobs.insert(data.id);
            }
            Proposal::SetObjectAcl { bucket, key, .. } => {
                self.objects.insert((*bucket, key.clone()));
            }
            Proposal::SetBucketAcl { .. }
            | Proposal::CreateBucket { .. }
            | Proposal::PutUser { .. }
            | Proposal::PutAccessKey { .. }
            | Proposal::DeleteAccessKey { .. } => {}
        }
    }

    pub fn for_mutation(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::DeleteBucket(id) => {
                self.buckets.insert(*id);
            }
            Mutation::PutObject { bucket, key, version, upload, .. } => {
                self.objects.insert((*bucket, key.clone()));
                self.extents(&version.extents);
                if let Some(upload) = upload {
                    self.whole_upload(*upload);
                }
            }
            Mutation::DeleteObjects { bucket, keys } => {
                self.objects.extend(keys.iter().map(|(key, _)| (*bucket, key.clone())));
            }
            Mutation::CreateUpload(upload) => {
                self.uploads.insert(upload.id);
            }
            Mutation::PutPart { upload, part, .. } => {
                self.part(*upload, part.number);
                self.extents(&part.extents);
            }
            Mutation::AbortUpload(id) => self.whole_upload(*id),
            Mutation::Relocate(id) => {
                self.blobs.insert(*id);
            }
            Mutation::SetObjectAcl { bucket, key, .. } => {
                self.objects.insert((*bucket, key.clone()));
            }
            Mutation::SetBucketAcl { .. }
            | Mutation::CreateBucket(_)
            | Mutation::PutUser(_)
            | Mutation::PutAccessKey(_)
            | Mutation::DeleteAccessKey(_) => {}
        }
    }

    fn data(&mut self, data: &ProposedData) {
        match data {
            ProposedData::Empty => {}
            ProposedData::Packed(packed) => {
                self.blobs.insert(packed.id);
            }
            ProposedData::File { id, .. } => {
                self.blobs.insert(*id);
            }
        }
    }

    fn part(&mut self, upload: UploadId, number: u32) {
        self.uploads.insert(upload);
        self.parts.insert((upload, number));
    }

    fn whole_upload(&mut self, upload: UploadId) {
        self.uploads.insert(upload);
        self.whole_uploads.insert(upload);
    }

    fn extents(&mut self, extents: &[Extent]) {
        self.blobs.extend(extents.iter().map(|e| e.blob.id));
    }

    /// Loads everything named, and the blobs of the objects and parts that were found.
    ///
    /// The index, where given, answers for the objects that it has.
    pub async fn load(
        mut self,
        conn: &mut SqliteConnection,
        index: Option<&Index>,
        working: &mut Working,
    ) -> SqlResult<()> {
        self.load_objects(conn, index, working).await?;
        self.load_uploads(conn, working).await?;
        self.load_parts(conn, working).await?;
        self.load_completed(conn, working).await?;
        self.load_blobs(conn, working).await
    }

    async fn load_objects(
        &mut self,
        conn: &mut SqliteConnection,
        index: Option<&Index>,
        working: &mut Working,
    ) -> SqlResult<()> {
        let mut missing = Vec::new();
        for (bucket, key) in std::mem::take(&mut self.objects) {
            let entry = (bucket, key);
            match index.and_then(|index| index.get(entry.0, &entry.1).ok()) {
                Some(version) => {
                    self.extents(&version.extents);
                    working.objects.load(entry, Some(version));
                }
                None => {
                    working.objects.load(entry.clone(), None);
                    missing.push(entry);
                }
            }
        }
        let bind = |args: &mut Args, (bucket, key): &(BucketId, Key)| {
            args.count(bucket.0)?;
            args.bytes(key.as_str().as_bytes())
        };
        OBJECTS
            .fetch(conn, &missing, bind, |row| {
                let bucket = BucketId(rows::count(&row, "bucket_id")?);
                let key = rows::key(&row)?;
                let version: ObjectVersion = rows::body(&row)?;
                self.extents(&version.extents);
                working.objects.load((bucket, key), Some(Arc::new(version)));
                Ok(())
            })
            .await
    }

    async fn load_uploads(
        &mut self,
        conn: &mut SqliteConnection,
        working: &mut Working,
    ) -> SqlResult<()> {
        let ids: Vec<UploadId> = self.uploads.iter().copied().collect();
        ids.iter().for_each(|id| working.uploads.load(*id, None));
        let buckets: Vec<BucketId> = self.buckets.iter().copied().collect();
        let mut found: HashMap<UploadId, Upload> = HashMap::new();
        let mut take = |row| {
            found.insert(UploadId(rows::id(&row, "id")?), rows::body(&row)?);
            Ok(())
        };
        UPLOADS.fetch(conn, &ids, |args, id| args.bytes(&id.0), &mut take).await?;
        let ended = &mut self.whole_uploads;
        UPLOADS_OF_BUCKETS
            .fetch(
                conn,
                &buckets,
                |args, id| args.count(id.0),
                |row| {
                    ended.insert(UploadId(rows::id(&row, "id")?));
                    take(row)
                },
            )
            .await?;
        for (id, upload) in found {
            working.uploads.load(id, Some(Arc::new(upload)));
        }
        // An upload that the group itself begins may end with its bucket, too.
        Ok(())
    }

    async fn load_parts(
        &mut self,
        conn: &mut SqliteConnection,
        working: &mut Working,
    ) -> SqlResult<()> {
        for (upload, number) in &self.parts {
            working.parts.entry(*upload).or_default().rows.insert(*number, None);
        }
        for upload in &self.whole_uploads {
            working.parts.entry(*upload).or_default().whole = true;
        }
        let whole: Vec<UploadId> = self.whole_uploads.iter().copied().collect();
        let single: Vec<(UploadId, u32)> =
            self.parts.iter().filter(|(id, _)| !self.whole_uploads.contains(id)).copied().collect();
        let mut blobs = Vec::new();
        let mut take = |row| {
            let upload = UploadId(rows::id(&row, "upload_id")?);
            let part: Part = rows::body(&row)?;
            blobs.extend(part.extents.iter().map(|e| e.blob.id));
            working.parts.entry(upload).or_default().rows.insert(part.number, Some(part));
            Ok(())
        };
        PARTS_OF_UPLOADS.fetch(conn, &whole, |args, id| args.bytes(&id.0), &mut take).await?;
        let bind = |args: &mut Args, (upload, number): &(UploadId, u32)| {
            args.bytes(&upload.0)?;
            args.int((*number).into())
        };
        PARTS.fetch(conn, &single, bind, &mut take).await?;
        self.blobs.extend(blobs);
        Ok(())
    }

    async fn load_completed(
        &mut self,
        conn: &mut SqliteConnection,
        working: &mut Working,
    ) -> SqlResult<()> {
        let ids: Vec<UploadId> = self.completed.iter().copied().collect();
        ids.iter().for_each(|id| working.completed.load(*id, None));
        let take = |row| {
            let completed = CompletedUpload {
                bucket: BucketId(rows::count(&row, "bucket_id")?),
                key: rows::key(&row)?,
                digest: rows::bytes(&row, "digest")?,
                version: Arc::new(rows::body(&row)?),
            };
            working.completed.load(UploadId(rows::id(&row, "upload_id")?), Some(completed));
            Ok(())
        };
        COMPLETED.fetch(conn, &ids, |args, id| args.bytes(&id.0), take).await
    }

    async fn load_blobs(
        &mut self,
        conn: &mut SqliteConnection,
        working: &mut Working,
    ) -> SqlResult<()> {
        let ids: Vec<BlobId> = self.blobs.iter().copied().collect();
        ids.iter().for_each(|id| working.blobs.load(*id, None));
        let take = |row| {
            let (id, blob) = rows::blob_row(&row)?;
            working.blobs.load(id, Some(blob));
            Ok(())
        };
        BLOBS.fetch(conn, &ids, |args, id| args.bytes(&id.0), take).await
    }
}

/// Reads the present places of the packed blobs of versions; false when one of them is gone.
pub(super) async fn place_version(
    conn: &mut SqliteConnection,
    version: &mut ObjectVersion,
) -> SqlResult<bool> {
    let packed: BTreeSet<BlobId> = version
        .extents
        .iter()
        .filter(|e| e.blob.place != BlobPlace::File)
        .map(|e| e.blob.id)
        .collect();
    let ids: Vec<BlobId> = packed.into_iter().collect();
    let mut places = HashMap::new();
    let take = |row| {
        let (id, _) = rows::blob_row(&row)?;
        places.insert(id, rows::place(&row)?);
        Ok(())
    };
    BLOBS.fetch(conn, &ids, |args, id| args.bytes(&id.0), take).await?;
    crate::catalog::decide::place_extents(&mut version.extents, &|id| {
        places.get(&id).copied().flatten()
    });
    Ok(places.len() == ids.len())
}
