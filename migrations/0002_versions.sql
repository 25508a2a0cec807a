-- Versions that are not current, and delete markers, newest first. No program has written a row of
-- the former table, so it is made anew with the columns that a listing shows.
DROP TABLE versions;

CREATE TABLE versions (
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
    delete_marker      INTEGER NOT NULL,
    body               BLOB NOT NULL,
    PRIMARY KEY (bucket_id, key, lsn DESC)
) STRICT, WITHOUT ROWID;

-- The null version of a key, where it is not current: versions with an id are found by the commit
-- that their id tells, this one by its key.
CREATE UNIQUE INDEX versions_null ON versions (bucket_id, key)
    WHERE version_id = x'00000000000000000000000000000000';
