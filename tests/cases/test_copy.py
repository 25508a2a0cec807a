"""CopyObject and UploadPartCopy."""

import time

import pytest

import ops
from ops import MIB, check

META = {"x-amz-meta-a": "one", "Content-Type": "text/plain", "Cache-Control": "no-cache"}


def copy(client, bucket, key, source, headers=None):
    headers = {"x-amz-copy-source": source} | (headers or {})
    return client.put(ops.key_path(bucket, key), headers=headers)


def test_COPY_01_onto_itself(s3, bucket):
    before = ops.put(s3, bucket, "k", b"hello", META)
    source = f"{bucket}/k"
    check(copy(s3, bucket, "k", source), 400, "InvalidRequest")
    check(copy(s3, bucket, "k", source, {"x-amz-metadata-directive": "COPY"}),
          400, "InvalidRequest")
    first = s3.head(f"/{bucket}/k").header("last-modified")
    time.sleep(1.1)
    replace = {"x-amz-metadata-directive": "REPLACE"}
    check(copy(s3, bucket, "k", source, replace | {"x-amz-meta-a": "two"}), 200)
    answer = ops.get(s3, bucket, "k")
    assert answer.body == b"hello" and answer.etag == before.etag
    assert answer.header("x-amz-meta-a") == "two"
    assert answer.header("last-modified") != first
    check(copy(s3, bucket, "k", source, replace), 200)
    assert ops.get(s3, bucket, "k").header("x-amz-meta-a") is None
    check(copy(s3, bucket, "k", source, {"x-amz-storage-class": "STANDARD"}), 200)
    assert ops.get(s3, bucket, "k").body == b"hello"


@pytest.mark.parametrize("size", [0, 5, 300_000, *ops.SEAM_SIZES, 8 * MIB])
def test_COPY_01_copies_are_independent(s3, bucket, size):
    body = ops.body_of(size)
    ops.put(s3, bucket, "k", body, META)
    answer = check(copy(s3, bucket, "copy", f"{bucket}/k"), 200)
    assert answer.xml.tag == "CopyObjectResult" and answer.text("LastModified")
    assert answer.text("ETag").strip('"') == ops.md5(body)
    check(s3.delete(f"/{bucket}/k"), 204)
    found = ops.get(s3, bucket, "copy")
    assert found.body == body
    for name, value in META.items():
        assert found.header(name) == value
    check(copy(s3, bucket, "copy2", f"{bucket}/copy", {
        "x-amz-metadata-directive": "REPLACE", "Content-Type": "text/html"}), 200)
    found = ops.get(s3, bucket, "copy2")
    assert found.header("content-type") == "text/html" and found.header("x-amz-meta-a") is None


def test_COPY_01_missing_sources(s3, bucket):
    check(copy(s3, bucket, "copy", f"{bucket}/none"), 404, "NoSuchKey")
    check(copy(s3, bucket, "copy", f"{bucket}-none/k"), 404, "NoSuchBucket")
    check(s3.head(f"/{bucket}/copy"), 404)


def test_COPY_01_no_reach_into_other_users_buckets(s3, alt, bucket):
    ops.put(s3, bucket, "secret", b"hello")
    check(alt.put(f"/{bucket}-alt"), 200)
    answer = alt.put(f"/{bucket}-alt/stolen", headers={"x-amz-copy-source": f"{bucket}/secret"})
    check(answer, 403, "AccessDenied")


SOURCES = ["etc/c++", "a%2Fb", "Aliénor/u.pdf", "2017-11-21_22:24:03+0000.jpg"]


def encoded(text):
    return ops.quote(text, safe="/-_.~")


@pytest.mark.parametrize("key", SOURCES)
@pytest.mark.parametrize("operation", ["copy", "part"])
def test_COPY_03_source_is_decoded_once(s3, bucket, key, operation):
    body = f"body of {key}".encode()
    ops.put(s3, bucket, key, body)
    forms = [f"{bucket}/{encoded(key)}", f"/{bucket}/{encoded(key)}",
             ops.quote(f"/{bucket}/{key}", safe=""), f"{bucket}/{encoded(key)}?versionId=null"]
    for form in forms:
        if operation == "copy":
            check(copy(s3, bucket, "target", form), 200)
        else:
            upload = ops.create_upload(s3, bucket, "target")
            answer = check(s3.put(f"/{bucket}/target", query=ops.part_query(upload, 1),
                                  headers={"x-amz-copy-source": form}), 200)
            ops.completed(s3, bucket, "target", upload, [(1, answer.text("ETag"))])
        assert ops.get(s3, bucket, "target").body == body, form
        check(s3.delete(f"/{bucket}/target"), 204)


def test_COPY_03_raw_utf8_and_literal_percent(s3, bucket):
    ops.put(s3, bucket, "Aliénor/u.pdf", b"raw")
    check(copy(s3, bucket, "target", f"{bucket}/Aliénor/u.pdf"), 200)
    ops.put(s3, bucket, "a%2Fb", b"literal")
    ops.put(s3, bucket, "a/b", b"slash")
    check(copy(s3, bucket, "target", f"{bucket}/a%252Fb"), 200)
    assert ops.get(s3, bucket, "target").body == b"literal"
    check(copy(s3, bucket, "target", f"{bucket}/a%2Fb"), 200)
    assert ops.get(s3, bucket, "target").body == b"slash"


def test_COPY_03_a_plus_means_space(s3, bucket):
    ops.put(s3, bucket, "etc/c++", b"plus")
    check(copy(s3, bucket, "target", f"{bucket}/etc/c++"), 404, "NoSuchKey")
    ops.put(s3, bucket, "etc/c  ", b"space")
    check(copy(s3, bucket, "target", f"{bucket}/etc/c++"), 200)
    assert ops.get(s3, bucket, "target").body == b"space"


@pytest.mark.parametrize("form", ["{b}", "", "/", "{b}/", "/{b}/"])
def test_COPY_03_bad_sources(s3, bucket, form):
    answer = copy(s3, bucket, "target", form.format(b=bucket))
    assert answer.status == 400 and answer.code in ("InvalidArgument", "InvalidRequest"), answer
    check(s3.head(f"/{bucket}/target"), 404)
