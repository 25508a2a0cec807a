"""Conditional requests: decided against the object that is there at the commit."""

import datetime

import pytest

import ops
from ops import MIB, check
from sign import http_date, now

DAY = datetime.timedelta(days=1)


def state_of(client, bucket, key):
    answer = ops.get(client, bucket, key)
    return answer.body, answer.etag, answer.header("last-modified")


def test_COND_01_conditional_writes(s3, bucket):
    ops.put(s3, bucket, "k", b"one")
    ops.put(s3, bucket, "source", b"two")
    before = state_of(s3, bucket, "k")
    path = f"/{bucket}/k"
    check(s3.put(path, b"two", {"If-None-Match": "*"}), 412, "PreconditionFailed")
    check(s3.put(path, b"two", {"If-Match": '"stale"'}), 412, "PreconditionFailed")
    check(s3.put(f"/{bucket}/new", b"two", {"If-None-Match": "*"}), 200)
    copy = {"x-amz-copy-source": f"{bucket}/source", "If-None-Match": "*"}
    check(s3.put(path, headers=copy), 412, "PreconditionFailed")
    assert state_of(s3, bucket, "k") == before
    check(s3.put(path, b"two", {"If-Match": before[1]}), 200)
    assert ops.get(s3, bucket, "k").body == b"two"


def test_COND_01_if_match_of_a_missing_key(s3, bucket):
    answer = s3.put(f"/{bucket}/none", b"x", {"If-Match": '"' + "0" * 32 + '"'})
    check(answer, 404, "NoSuchKey")
    check(s3.head(f"/{bucket}/none"), 404)


def test_COND_01_complete_is_conditional(s3, bucket):
    ops.put(s3, bucket, "k", b"one")
    upload = ops.create_upload(s3, bucket, "k")
    parts = [(1, ops.upload_part(s3, bucket, "k", upload, 1, b"two"))]
    check(ops.complete(s3, bucket, "k", upload, parts, {"If-None-Match": "*"}),
          412, "PreconditionFailed")
    assert ops.get(s3, bucket, "k").body == b"one"
    etag = ops.get(s3, bucket, "k").etag
    check(ops.complete(s3, bucket, "k", upload, parts, {"If-Match": etag}), 200)
    assert ops.get(s3, bucket, "k").body == b"two"


def test_COND_01_copy_source_conditions(s3, bucket):
    etag = ops.put(s3, bucket, "source", b"one").etag
    source = {"x-amz-copy-source": f"{bucket}/source"}
    for name, value, status in (
            ("x-amz-copy-source-if-match", etag, 200),
            ("x-amz-copy-source-if-match", '"x"', 412),
            ("x-amz-copy-source-if-none-match", etag, 412),
            ("x-amz-copy-source-if-none-match", '"x"', 200),
            ("x-amz-copy-source-if-modified-since", http_date(now() - DAY), 200),
            ("x-amz-copy-source-if-unmodified-since", http_date(now() - DAY), 412)):
        answer = s3.put(f"/{bucket}/copy", headers=source | {name: value})
        check(answer, status, None if status == 200 else "PreconditionFailed")


def test_COND_01_conditional_delete(s3, bucket):
    etag = ops.put(s3, bucket, "k", b"one").etag
    path = f"/{bucket}/k"
    check(s3.delete(path, headers={"If-Match": '"stale"'}), 412, "PreconditionFailed")
    assert ops.get(s3, bucket, "k").body == b"one"
    check(s3.delete(path, headers={"If-Match": etag}), 204)
    check(s3.head(path), 404)


MATCH_TABLE = [
    # If-Match holds?, If-Unmodified-Since holds?, status
    (True, True, 200), (True, False, 200), (False, True, 412), (False, False, 412),
    (None, True, 200), (None, False, 412), (True, None, 200), (False, None, 412),
]
NONE_MATCH_TABLE = [
    # If-None-Match matches?, modified since?, status
    (True, True, 304), (True, False, 304), (False, True, 200), (False, False, 200),
    (None, True, 200), (None, False, 304), (True, None, 304), (False, None, 200),
]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_COND_03_etag_conditions_beat_dates(s3, bucket, method):
    etag = ops.put(s3, bucket, "k", b"one").etag
    before, after = http_date(now() - DAY), http_date(now() + DAY)
    for match, date, status in MATCH_TABLE:
        headers = {}
        if match is not None:
            headers["If-Match"] = etag if match else '"x"'
        if date is not None:
            headers["If-Unmodified-Since"] = after if date else before
        check(s3.request(method, f"/{bucket}/k", headers=headers), status)
    for match, modified, status in NONE_MATCH_TABLE:
        headers = {}
        if match is not None:
            headers["If-None-Match"] = etag if match else '"x"'
        if modified is not None:
            # "Not modified since" a moment in the past that is not before the write.
            headers["If-Modified-Since"] = (
                before if modified else s3.head(f"/{bucket}/k").header("last-modified"))
        answer = check(s3.request(method, f"/{bucket}/k", headers=headers), status)
        if status == 304:
            assert answer.etag == etag and answer.body == b""


def test_COND_03_bad_dates_are_ignored(s3, bucket):
    ops.put(s3, bucket, "k", b"one")
    for name in ("If-Modified-Since", "If-Unmodified-Since"):
        for value in ("yesterday", "2026-01-01", "Thu, 99 Foo 2026 00:00:00 GMT", ""):
            check(s3.get(f"/{bucket}/k", headers={name: value}), 200)


def test_COND_05_lists_star_and_weak_forms(s3, bucket):
    etag = ops.put(s3, bucket, "k", b"one").etag
    bare = etag.strip('"')
    for name, value, status in (
            ("If-None-Match", f'"x", {etag}', 304), ("If-Match", "*", 200),
            ("If-None-Match", "*", 304), ("If-None-Match", bare, 304),
            ("If-Match", bare, 200), ("If-None-Match", f"W/{etag}", 304),
            ("If-Match", f'"x", {etag}', 200), ("If-Match", '"x", "y"', 412)):
        answer = s3.get(f"/{bucket}/k", headers={name: value})
        assert answer.status == status, (name, value, answer)


def test_COND_05_if_match_with_a_range(s3, bucket):
    etag = ops.put(s3, bucket, "k", b"0123456789").etag
    path = f"/{bucket}/k"
    part = check(s3.get(path, headers={"Range": "bytes=2-4", "If-Match": etag}), 206)
    assert part.body == b"234"
    check(s3.get(path, headers={"Range": "bytes=2-4", "If-Match": '"x"'}),
          412, "PreconditionFailed")


@pytest.mark.parametrize("size, rounds", [(300, 100), (MIB + 1, 20)])
def test_COND_07_a_stale_etag_never_passes(s3, bucket, size, rounds):
    path = f"/{bucket}/k"
    for number in range(rounds):
        first = check(s3.put(path, b"%08d" % number + b"a" * size), 200).etag
        check(s3.put(path, b"%08d" % number + b"b" * size, {"If-Match": first}), 200)
        check(s3.put(path, b"%08d" % number + b"c" * size, {"If-Match": first}),
              412, "PreconditionFailed")
    assert ops.get(s3, bucket, "k").body == b"%08d" % (rounds - 1) + b"b" * size
