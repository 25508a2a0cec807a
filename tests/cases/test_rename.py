"""RenameObject: a key moves in one step and no byte with it."""

import datetime

import pytest

import ops
from ops import MIB, body_of, check
from sign import http_date, now

DAY = datetime.timedelta(days=1)


def rename(client, bucket, source, key, headers=None):
    return client.put(ops.key_path(bucket, key), headers={"x-amz-rename-source": source}
                      | (headers or {}), query="renameObject=")


@pytest.mark.parametrize("size", [0, 5, 300_000, 2 * MIB + 1])
def test_a_rename_moves_the_object(s3, bucket, size):
    body = body_of(size)
    ops.put(s3, bucket, "a/b c", body, {"Content-Type": "text/x", "x-amz-meta-a": "1"})
    before = s3.head(ops.key_path(bucket, "a/b c"))
    check(rename(s3, bucket, "a/b%20c", "new/é"), 200)
    check(s3.head(ops.key_path(bucket, "a/b c")), 404)
    after = ops.get(s3, bucket, "new/é")
    assert after.body == body
    for name in ("etag", "content-type", "x-amz-meta-a"):
        assert after.header(name) == before.header(name), name
    assert ops.keys_of(s3, bucket) == ["new/é"]
    # Behind its bucket the source may be named, too.
    check(rename(s3, bucket, f"/{bucket}/new/%C3%A9", "back"), 200)
    assert ops.keys_of(s3, bucket) == ["back"]


def test_renames_that_are_refused_change_nothing(s3, alt, bucket):
    ops.put(s3, bucket, "a", b"one")
    etag = ops.put(s3, bucket, "b", b"two").etag
    path = f"/{bucket}/b"
    check(s3.put(path, query="renameObject="), 400, "InvalidRequest")
    check(rename(s3, bucket, "gone", "b"), 404, "NoSuchKey")
    check(rename(s3, bucket, "b", "b"), 400, "InvalidRequest")
    check(rename(s3, bucket, "%FF", "b"), 400, "InvalidArgument")
    check(rename(alt, bucket, "a", "b"), 403, "AccessDenied")
    past, future = http_date(now() - DAY), http_date(now() + DAY)
    for headers in ({"If-None-Match": "*"}, {"If-Match": '"0"'}, {"If-None-Match": etag},
                    {"If-Unmodified-Since": past}, {"If-Modified-Since": future},
                    {"x-amz-rename-source-if-match": etag},
                    {"x-amz-rename-source-if-none-match": "*"},
                    {"x-amz-rename-source-if-unmodified-since": past},
                    {"x-amz-rename-source-if-modified-since": future}):
        check(rename(s3, bucket, "a", "b", headers), 412, "PreconditionFailed")
    check(rename(s3, bucket, "a", "c", {"If-Match": "*"}), 404, "NoSuchKey")
    assert ops.get(s3, bucket, "a").body == b"one" and ops.get(s3, bucket, "b").body == b"two"
    check(rename(s3, bucket, "a", "b", {"If-Match": etag, "If-Unmodified-Since": past}), 200)
    assert ops.get(s3, bucket, "b").body == b"one"
    assert ops.keys_of(s3, bucket) == ["b"]


def test_a_rename_survives_a_restart(own_store):
    from harness import MAIN
    from raw import Client
    client = Client(own_store.endpoint(), MAIN)
    check(client.put("/kept"), 200)
    bodies = {"small": body_of(100), "large": body_of(3 * MIB)}
    for key, body in bodies.items():
        ops.put(client, "kept", key, body)
        check(rename(client, "kept", key, f"{key}-new"), 200)
    client.close()
    own_store.restart(kill=True)
    client = Client(own_store.endpoint(), MAIN)
    for key, body in bodies.items():
        assert ops.get(client, "kept", f"{key}-new").body == body
        check(client.head(f"/kept/{key}"), 404)
    client.close()


def test_where_versions_are_kept_the_old_key_gets_a_marker(s3, bucket):
    enable = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    check(s3.put(f"/{bucket}", enable, query="versioning="), 200)
    old = ops.put(s3, bucket, "a", b"one").header("x-amz-version-id")
    check(rename(s3, bucket, "a", "b"), 200)
    assert ops.get(s3, bucket, "b").body == b"one"
    check(s3.get(f"/{bucket}/a"), 404, "NoSuchKey")
    assert check(s3.get(f"/{bucket}/a", f"versionId={old}"), 200).body == b"one"
