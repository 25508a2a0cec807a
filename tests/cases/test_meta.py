"""Metadata and standard headers; buckets and their names."""

import base64

import pytest

import ops
from harness import MAIN
from ops import check
from raw import Client

STANDARD = {
    "Content-Type": "text/plain; charset=utf-8", "Cache-Control": "max-age=60, public",
    "Content-Disposition": 'attachment; filename="a b.txt"', "Content-Language": "de, en",
    "Expires": "Thu, 01 Jan 2032 00:00:00 GMT",
}


@pytest.mark.parametrize("size", [0, 5, 300_000, ops.MIB + 1])
def test_META_standard_headers_come_back(s3, bucket, size):
    ops.put(s3, bucket, "k", ops.body_of(size), STANDARD)
    for answer in (s3.get(f"/{bucket}/k"), s3.head(f"/{bucket}/k")):
        for name, value in STANDARD.items():
            assert answer.header(name) == value
        assert answer.header("content-length") == str(size)


def test_META_default_content_type(s3, bucket):
    ops.put(s3, bucket, "k", b"x")
    assert s3.head(f"/{bucket}/k").header("content-type") == "binary/octet-stream"


def test_META_user_metadata(s3, bucket):
    sent = {"x-amz-meta-Plain": "value", "x-amz-meta-under_score": "1", "x-amz-meta-dot.ted": "2",
            "x-amz-meta-empty": "", "x-amz-meta-comma": "a,b;c=d"}
    ops.put(s3, bucket, "k", b"x", sent)
    answer = s3.head(f"/{bucket}/k")
    for name, value in sent.items():
        assert answer.header(name.lower()) == value, name


def test_META_utf8_values_come_back_as_an_encoded_word(s3, bucket):
    """RFC 2047, as AWS answers; what was encoded by the client comes back as it was."""
    value = "grüße-世界"
    encoded = "=?UTF-8?B?" + base64.b64encode(value.encode()).decode() + "?="
    ops.put(s3, bucket, "k", b"x", {"x-amz-meta-u": value, "x-amz-meta-e": encoded})
    answer = s3.head(f"/{bucket}/k")
    assert answer.header("x-amz-meta-u") == encoded
    assert answer.header("x-amz-meta-e") == encoded


def test_META_limits(s3, bucket):
    name = "x-amz-meta-a"
    fits = 2048 - len("a")
    check(s3.put(f"/{bucket}/k", b"x", {name: "v" * fits}), 200)
    check(s3.put(f"/{bucket}/k2", b"x", {name: "v" * (fits + 1)}), 400, "MetadataTooLarge")
    check(s3.head(f"/{bucket}/k2"), 404)


def test_META_multipart_keeps_the_metadata_of_its_start(s3, bucket):
    upload = ops.create_upload(s3, bucket, "k", STANDARD | {"x-amz-meta-a": "1"})
    etag = ops.upload_part(s3, bucket, "k", upload, 1, b"part")
    ops.completed(s3, bucket, "k", upload, [(1, etag)])
    answer = s3.head(f"/{bucket}/k")
    for name, value in (STANDARD | {"x-amz-meta-a": "1"}).items():
        assert answer.header(name) == value


def test_META_overwrite_replaces_all_metadata(s3, bucket):
    ops.put(s3, bucket, "k", b"x", STANDARD | {"x-amz-meta-a": "1"})
    ops.put(s3, bucket, "k", b"y")
    answer = s3.head(f"/{bucket}/k")
    assert answer.header("x-amz-meta-a") is None and answer.header("cache-control") is None


SIZES = [0, 1, 4095, 4096, 4097, 256 * 1024, 256 * 1024 + 1, *ops.SEAM_SIZES, 8 * ops.MIB,
         64 * ops.MIB + 3]


@pytest.mark.parametrize("size", SIZES)
def test_META_byte_exact_round_trip(s3, bucket, size):
    body = ops.body_of(size, size)
    answer = ops.put(s3, bucket, "k", body)
    assert answer.etag.strip('"') == ops.md5(body)
    found = ops.get(s3, bucket, "k")
    assert found.body == body and found.etag == answer.etag
    assert s3.head(f"/{bucket}/k").header("content-length") == str(size)


@pytest.mark.parametrize("size", [1, 4097, *ops.SEAM_SIZES, 8 * ops.MIB, 64 * ops.MIB + 3])
def test_META_byte_exact_multipart(s3, bucket, size):
    body = ops.body_of(size, size)
    upload = ops.create_upload(s3, bucket, "k")
    step = 5 * ops.MIB + 1
    parts = [(n, ops.upload_part(s3, bucket, "k", upload, n, body[at:at + step]))
             for n, at in enumerate(range(0, size, step), 1)]
    ops.completed(s3, bucket, "k", upload, parts)
    assert ops.get(s3, bucket, "k").body == body
    for first in (0, step - 1, step, ops.MIB - 1, ops.MIB):
        if first + 2 < size:
            answer = s3.get(f"/{bucket}/k", headers={"Range": f"bytes={first}-{first + 2}"})
            assert answer.body == body[first:first + 3]


@pytest.mark.parametrize("kill", [False, True])
def test_META_byte_exact_after_a_restart(own_store, kill):
    client = Client(own_store.endpoint(), MAIN)
    check(client.put("/again"), 200)
    bodies = {f"k{size}": ops.body_of(size, size) for size in SIZES}
    for key, body in bodies.items():
        ops.put(client, "again", key, body, STANDARD)
    own_store.restart(kill=kill)
    client.close()
    for key, body in bodies.items():
        found = ops.get(client, "again", key)
        assert found.body == body, key
        assert found.header("cache-control") == STANDARD["Cache-Control"]
        if len(body) > ops.MIB:
            answer = client.get(f"/again/{key}", headers={
                "Range": f"bytes={ops.MIB - 2}-{ops.MIB}"})
            assert answer.body == body[ops.MIB - 2:ops.MIB + 1]
    assert ops.keys_of(client, "again") == sorted(bodies)


@pytest.mark.parametrize("name", ["ab", "A-upper", "a..b", "-ab", "ab-", "a_b", "192.168.1.1",
                                  "x" * 64, "a b"])
def test_META_bad_bucket_names(s3, name):
    answer = s3.put(f"/{ops.quote(name)}")
    check(answer, 400, "InvalidBucketName")


def test_META_bucket_life(s3, bucket):
    check(s3.put(f"/{bucket}"), 200)
    ops.put(s3, bucket, "k")
    check(s3.delete(f"/{bucket}"), 409, "BucketNotEmpty")
    check(s3.delete(f"/{bucket}/k"), 204)
    check(s3.delete(f"/{bucket}"), 204)
    check(s3.head(f"/{bucket}"), 404)
    check(s3.get(f"/{bucket}", "list-type=2"), 404, "NoSuchBucket")
    check(s3.delete(f"/{bucket}"), 404, "NoSuchBucket")
    check(s3.put(f"/{bucket}/k", b"x"), 404, "NoSuchBucket")


def test_META_list_buckets(s3, bucket):
    answer = check(s3.get("/"), 200)
    assert bucket in answer.all("Buckets/Bucket/Name")
    assert answer.text("Owner/ID") == MAIN.canonical_id
    assert answer.text("Owner/DisplayName") == MAIN.display_name
    names = []
    token = None
    while True:
        page = check(s3.get("/", ops.query(max_buckets=2, prefix=bucket[:4],
                                           continuation_token=token)), 200)
        names += page.all("Buckets/Bucket/Name")
        token = page.text("ContinuationToken")
        if not token:
            break
    assert bucket in names and names == sorted(set(names))


def test_META_owner_in_listings(s3, bucket):
    ops.put(s3, bucket, "k")
    page = ops.list_page(s3, bucket, fetch_owner="true")
    assert page.text("Contents/Owner/ID") == MAIN.canonical_id
    assert ops.list_page(s3, bucket).text("Contents/Owner/ID") is None
    versions = check(s3.get(f"/{bucket}", "versions="), 200)
    assert versions.all("Version/VersionId") == ["null"]
    assert versions.text("Version/IsLatest") == "true"
