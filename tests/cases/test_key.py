"""Key names: keys are bytes, without normalisation and without directories."""

import pytest

import ops
from ops import check
from raw import head_bytes


def test_KEY_01_dot_segments_are_keys(s3, bucket):
    forms = {f"/{bucket}/%2E": ".", f"/{bucket}/./a": "./a", f"/{bucket}/a/./b": "a/./b"}
    for number, path in enumerate(forms):
        check(s3.put(path, b"x%d" % number), 200)
    for number, path in enumerate(forms):
        assert s3.get(path).body == b"x%d" % number
    assert ops.keys_of(s3, bucket) == sorted(forms.values())
    check(s3.get(f"/{bucket}/a"), 404, "NoSuchKey")
    check(s3.get(f"/{bucket}/a/b"), 404, "NoSuchKey")
    check(s3.head(f"/{bucket}"), 200)


def tree(directory):
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*"))


def test_KEY_02_double_dots_never_leave_the_bucket(s3, bucket, store):
    outside = store.data.parent if store.data else None
    before = outside and [p for p in tree(outside) if not p.startswith("data")]
    paths = ["/a..b", "/a/../c", "/%2E%2E/x", "/..%2Fx"]
    stored = []
    for path in paths:
        answer = s3.put(f"/{bucket}{path}", b"y")
        assert answer.status == 200 or (400 <= answer.status < 500 and answer.code), answer
        if answer.status == 200:
            assert s3.get(f"/{bucket}{path}").body == b"y"
            stored.append(path)
    assert {"/a..b", "/a/../c"} <= set(stored)
    check(s3.get(f"/{bucket}/c"), 404, "NoSuchKey")
    check(s3.head("/x"), 404)
    if outside:
        assert [p for p in tree(outside) if not p.startswith("data")] == before


def test_KEY_02_parent_of_the_root(s3, bucket):
    answer = s3.put(f"/{bucket}/../../x", b"y")
    assert answer.status in (200, 400, 404), answer
    check(s3.head("/x"), 404)


def test_KEY_04_a_key_may_be_a_prefix_of_another(s3, bucket):
    for key, body in (("p/foo/bar", b"1"), ("p/foo", b"2"), ("q/foo", b""), ("q/foo/bar", b"4")):
        ops.put(s3, bucket, key, body)
    assert ops.get(s3, bucket, "p/foo/bar").body == b"1"
    assert ops.get(s3, bucket, "p/foo").body == b"2"
    assert ops.get(s3, bucket, "q/foo").body == b""
    assert ops.keys_of(s3, bucket) == ["p/foo", "p/foo/bar", "q/foo", "q/foo/bar"]
    check(s3.delete(f"/{bucket}/q/foo"), 204)
    assert ops.get(s3, bucket, "q/foo/bar").body == b"4"
    check(s3.get(f"/{bucket}/q/foo"), 404, "NoSuchKey")


LONGEST = ["x" * 255, "x" * 256, "x" * 512, "x" * 1024, "あ" * 341 + "z"]


@pytest.mark.parametrize("key", LONGEST, ids=lambda k: str(len(k.encode())))
def test_KEY_06_up_to_1024_bytes(s3, bucket, key):
    ops.put(s3, bucket, key, b"long")
    assert ops.get(s3, bucket, key).body == b"long"
    assert ops.keys_of(s3, bucket) == [key]
    check(s3.delete(ops.key_path(bucket, key)), 204)
    assert ops.keys_of(s3, bucket) == []


@pytest.mark.parametrize("key", ["x" * 1025, "あ" * 342], ids=["ascii-1025", "utf8-1026"])
def test_KEY_06_above_1024_bytes(s3, bucket, key):
    check(s3.put(ops.key_path(bucket, key), b"long"), 400, "KeyTooLongError")
    assert ops.keys_of(s3, bucket) == []


NON_ASCII = ["a/c/あ", "名/kéy –.txt", "📦", "nfc-\u00e9", "nfd-e\u0301"]


def test_KEY_07_non_ascii_keys(s3, bucket):
    for number, key in enumerate(NON_ASCII):
        ops.put(s3, bucket, key, b"%d" % number)
    for number, key in enumerate(NON_ASCII):
        path = ops.key_path(bucket, key)
        assert s3.get(path).body == b"%d" % number
        check(s3.head(path), 200)
        host = [("Host", s3.endpoint.host_header)]
        query = s3.v4.presign("GET", path, "", host)
        presigned = s3.exchange("GET", head_bytes("GET", path, query, host))
        assert presigned.body == b"%d" % number, presigned
    assert ops.keys_of(s3, bucket) == sorted(NON_ASCII, key=str.encode)
    for key in NON_ASCII:
        check(s3.delete(ops.key_path(bucket, key)), 204)
    assert ops.keys_of(s3, bucket) == []


def test_KEY_07_byte_order_beyond_the_basic_plane(s3, bucket):
    """UTF-16 order would put U+10000 before U+FFFD."""
    keys = ["\ufffd", "\U00010000", "z", "é"]
    for key in keys:
        ops.put(s3, bucket, key)
    assert ops.keys_of(s3, bucket) == sorted(keys, key=str.encode)


def test_KEY_09_slash_and_underscore_differ(s3, bucket):
    ops.put(s3, bucket, "a/b", b"1")
    ops.put(s3, bucket, "a_b", b"2")
    assert s3.get(f"/{bucket}/a%2Fb").body == b"1"
    check(s3.put(f"/{bucket}/a%2Fb", b"3"), 200)
    assert ops.get(s3, bucket, "a/b").body == b"3"
    assert ops.get(s3, bucket, "a_b").body == b"2"
    ops.put(s3, bucket, "some/path/example", b"4")
    check(s3.delete(f"/{bucket}/some/path"), 204)
    check(s3.get(f"/{bucket}/some/path/"), 404, "NoSuchKey")
    assert ops.get(s3, bucket, "some/path/example").body == b"4"


def test_KEY_10_plus_is_plus_in_a_path(s3, bucket):
    key = "dag=2026-01-01/2026-01-01T00:00:00.5+00:00.parquet"
    ops.put(s3, bucket, key, b"parquet")
    for form in ("+", "%2B"):
        path = f"/{bucket}/dag=2026-01-01/2026-01-01T00:00:00.5{form}00:00.parquet"
        assert check(s3.get(path), 200).body == b"parquet"
    path = f"/{bucket}/dag=2026-01-01/2026-01-01T00:00:00.5%2000:00.parquet"
    check(s3.get(path), 404, "NoSuchKey")


def test_KEY_11_control_characters(s3, bucket):
    numbers = range(1, 32)
    for number in numbers:
        check(s3.put(f"/{bucket}/c%{number:02X}", b"x"), 200)
    assert ops.keys_of(s3, bucket, encoding_type="url") == [f"c%{n:02X}" for n in numbers]
    plain = ops.list_page(s3, bucket)
    assert plain.body.rstrip().endswith(b"</ListBucketResult>")
    assert not [b for b in plain.body if b < 32 and b not in b"\r\n\t"]
    for number in numbers:
        check(s3.delete(f"/{bucket}/c%{number:02X}"), 204)
    assert ops.keys_of(s3, bucket) == []
