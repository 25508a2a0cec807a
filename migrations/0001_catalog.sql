-- The catalog of one store. Keys and ids are BLOBs, compared byte by byte; times are milliseconds
-- since the Unix epoch; a "body" is the CBOR form of the model type of that name.

-- Counters of the store: applied_lsn (the last commit of the log that this file contains) and
-- last_bucket_id (never given again).
CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta (name, value) VALUES ('applied_lsn', 0), ('last_bucket_id', 0);

CREATE TABLE buckets (
    id           INTEGER NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    object_count INTEGER NOT NULL,
    object_bytes INTEGER NOT NULL,
    body         BLOB NOT NULL
) STRICT;

-- Configuration documents of a bucket (policy, CORS, lifecycle and so on), one row each.
CREATE TABLE bucket_config (
    bucket_id INTEGER NOT NULL,
    name      TEXT NOT NULL,
    document  BLOB NOT NULL,
    PRIMARY KEY (bucket_id, name)
) STRICT, WITHOUT ROWID;

-- The current live version of each key and nothing else, so that a listing is one range scan.
-- The columns before "body" are what ListObjectsV2 shows; blob_id is the one packed blob of a
-- version that has exactly one, so that a read joins its place without decoding the body.
CREATE TABLE objects (
    bucket_id          INTEGER NOT NULL,
    key                BLOB NOT NULL,
    lsn                INTEGER NOT NULL,
    version_id         BLOB NOT NULL,
    size               INTEGER NOT NULL,
    modified_ms        INTEGER NOT NULL,
    etag_md5           BLOB NOT NULL,
    etag_parts         INTEGER NOT NULL,
    owner              TEXT NOT NULL,
    storage_class      TEXT,
    checksum_algorithm INTEGER,
    checksum_kind      INTEGER,
    blob_id            BLOB,
    body               BLOB NOT NULL,
    PRIMARY KEY (bucket_id, key)
) STRICT, WITHOUT ROWID;

-- Versions that are not current, and delete markers, newest first. Empty while no bucket is
-- versioned.
CREATE TABLE versions (
    bucket_id  INTEGER NOT NULL,
    key        BLOB NOT NULL,
    lsn        INTEGER NOT NULL,
    version_id BLOB NOT NULL,
    body       BLOB NOT NULL,
    PRIMARY KEY (bucket_id, key, lsn DESC)
) STRICT, WITHOUT ROWID;

-- state: 0 pending (announced, not committed), 1 live, 2 dead (a file that may be removed).
-- A packed blob has the segment and the offset of the record that carries it; a file has NULL.
-- since_lsn orders the dead.
CREATE TABLE blobs (
    id            BLOB NOT NULL PRIMARY KEY,
    state         INTEGER NOT NULL,
    refs          INTEGER NOT NULL,
    len           INTEGER NOT NULL,
    segment       INTEGER,
    record_offset INTEGER,
    since_lsn     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX blobs_not_live ON blobs (state, since_lsn, id) WHERE state <> 1;

-- What is alive in each segment of the commit log, and which commits the segment holds.
CREATE TABLE segments (
    segment    INTEGER NOT NULL PRIMARY KEY,
    live_bytes INTEGER NOT NULL,
    live_blobs INTEGER NOT NULL,
    first_lsn  INTEGER NOT NULL,
    last_lsn   INTEGER NOT NULL
) STRICT;

CREATE TABLE uploads (
    bucket_id    INTEGER NOT NULL,
    key          BLOB NOT NULL,
    initiated_ms INTEGER NOT NULL,
    id           BLOB NOT NULL,
    body         BLOB NOT NULL,
    PRIMARY KEY (bucket_id, key, initiated_ms, id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX uploads_by_id ON uploads (id);

CREATE TABLE parts (
    upload_id BLOB NOT NULL,
    number    INTEGER NOT NULL,
    body      BLOB NOT NULL,
    PRIMARY KEY (upload_id, number)
) STRICT, WITHOUT ROWID;

-- Answers for a CompleteMultipartUpload that is sent again.
CREATE TABLE completed_uploads (
    upload_id    BLOB NOT NULL PRIMARY KEY,
    bucket_id    INTEGER NOT NULL,
    key          BLOB NOT NULL,
    digest       BLOB NOT NULL,
    completed_ms INTEGER NOT NULL,
    body         BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX completed_uploads_by_time ON completed_uploads (completed_ms);

CREATE TABLE users (
    id   TEXT NOT NULL PRIMARY KEY,
    body BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE access_keys (
    access_key TEXT NOT NULL PRIMARY KEY,
    body       BLOB NOT NULL
) STRICT, WITHOUT ROWID;
