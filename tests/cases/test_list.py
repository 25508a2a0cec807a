"""Listing: encodings, paging and what a client needs to come to an end."""

import os
import random
import shutil
import subprocess

import pytest

import ops
from harness import MAIN, REGION, clean_environment
from ops import check
from raw import Client, Connection, head_bytes

AWKWARD = {"a b.txt": "a+b.txt", "a+b.txt": "a%2Bb.txt", "100%.csv": "100%25.csv",
           "한글/x.txt": "%ED%95%9C%EA%B8%80/x.txt", "run books/x.txt": "run+books/x.txt"}


def fill(client, bucket, keys):
    for key in keys:
        ops.put(client, bucket, key)


def walk(client, bucket, version=2, **params):
    """All pages: a list of (keys, prefixes, answer). Follows tokens (V2) or markers (V1)."""
    pages, position = [], {}
    while len(pages) < 2000:
        fixed = {"list_type": 2} if version == 2 else {}
        answer = check(client.get(f"/{bucket}", ops.query(**fixed, **params, **position)), 200)
        keys, prefixes = answer.all("Contents/Key"), answer.all("CommonPrefixes/Prefix")
        pages.append((keys, prefixes, answer))
        if answer.text("IsTruncated") == "false":
            return pages
        if version == 2:
            position = {"continuation_token": answer.text("NextContinuationToken")}
        else:
            position = {"marker": answer.text("NextMarker") or keys[-1]}
    raise AssertionError("the listing does not end")


@pytest.mark.parametrize("version", [1, 2])
def test_LIST_01_encoding_type_url(s3, bucket, version):
    fill(s3, bucket, AWKWARD)
    fixed = {"list_type": 2} if version == 2 else {}
    plain = check(s3.get(f"/{bucket}", ops.query(**fixed)), 200)
    assert plain.all("Contents/Key") == sorted(AWKWARD, key=str.encode)
    assert plain.text("EncodingType") is None
    url = check(s3.get(f"/{bucket}", ops.query(**fixed, encoding_type="url")), 200)
    assert url.text("EncodingType") == "url"
    assert url.all("Contents/Key") == [AWKWARD[k] for k in sorted(AWKWARD, key=str.encode)]
    folded = check(s3.get(f"/{bucket}", ops.query(
        **fixed, encoding_type="url", delimiter="/")), 200)
    assert folded.all("CommonPrefixes/Prefix") == ["run+books/", "%ED%95%9C%EA%B8%80/"]
    check(s3.get(f"/{bucket}", ops.query(**fixed, encoding_type="bad")), 400, "InvalidArgument")


def test_LIST_01_parameters_are_encoded_too(s3, bucket):
    fill(s3, bucket, AWKWARD)
    answer = ops.list_page(s3, bucket, encoding_type="url", prefix="run b", delimiter="+ /",
                           start_after="a b")
    assert answer.text("Prefix") == "run+b"
    assert answer.text("Delimiter") == "%2B+/"
    assert answer.text("StartAfter") == "a+b"
    plain = ops.list_page(s3, bucket, prefix="run b", delimiter="+ /", start_after="a b")
    assert [plain.text(n) for n in ("Prefix", "Delimiter", "StartAfter")] == ["run b", "+ /", "a b"]


def test_LIST_02_slash_stays_and_encoding_type_is_echoed(s3, bucket):
    fill(s3, bucket, ["dir1/dir2/f 1", "dir1/f2"])
    for query in ("list-type=2&encoding-type=url", "encoding-type=url",
                  "versions=&encoding-type=url"):
        body = check(s3.get(f"/{bucket}", query), 200).body
        assert b"dir1/dir2/f+1" in body and b"<EncodingType>url</EncodingType>" in body, query
    upload = ops.create_upload(s3, bucket, "dir 1/k")
    body = check(s3.get(f"/{bucket}", "uploads=&encoding-type=url"), 200).body
    assert b"<Key>dir+1/k</Key>" in body and b"<EncodingType>url</EncodingType>" in body
    ops.abort(s3, bucket, "dir 1/k", upload)


def test_LIST_02_second_sync_moves_nothing(s3, bucket, endpoint, tmp_path):
    source = tmp_path / "tree"
    for name in ("dir1/dir2/f 1", "dir1/f2", "plus+/100%"):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    env = clean_environment(
        AWS_ACCESS_KEY_ID=MAIN.access_key, AWS_SECRET_ACCESS_KEY=MAIN.secret_key,
        AWS_DEFAULT_REGION=REGION, HOME=str(tmp_path),
        **({"AWS_CA_BUNDLE": endpoint.ca_file} if endpoint.tls else {}))
    aws = shutil.which("aws") if os.path.exists("/usr/bin/aws") is False else "/usr/bin/aws"
    command = [aws, "--endpoint-url", endpoint.url, "s3", "sync", str(source), f"s3://{bucket}/"]
    first = subprocess.run(command, env=env, capture_output=True, text=True)
    assert first.returncode == 0 and first.stdout.count("upload:") == 3, first
    second = subprocess.run(command, env=env, capture_output=True, text=True)
    assert second.returncode == 0 and second.stdout.strip() == "", second


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_LIST_03_each_common_prefix_once(s3, bucket, version, size):
    fill(s3, bucket, [f"folder/sub{i}/f{j}" for i in range(5) for j in range(10)])
    pages = walk(s3, bucket, version, prefix="folder/", delimiter="/", max_keys=size)
    found = [p for _, prefixes, _ in pages for p in prefixes]
    assert found == [f"folder/sub{i}/" for i in range(5)]
    assert len(pages) == -(-5 // size)
    if version == 2:
        for _, prefixes, answer in pages:
            assert int(answer.text("KeyCount")) == len(prefixes)


def test_LIST_05_start_after_that_is_a_prefix_of_a_group(s3, bucket):
    fill(s3, bucket, ["prefix1/object", "prefix2/object"])
    answer = ops.list_page(s3, bucket, prefix="prefix", start_after="prefix1", delimiter="/")
    assert answer.all("CommonPrefixes/Prefix") == ["prefix1/", "prefix2/"]


def test_LIST_06_prefix_of_a_part_of_a_segment(s3, bucket):
    keys = ["data/a/1", "data/a/2", "data/ab/3"]
    fill(s3, bucket, keys)
    pages = walk(s3, bucket, prefix="data/a", max_keys=1)
    assert [k for page in pages for k in page[0]] == keys
    assert len(pages) == 3


@pytest.mark.parametrize("seed", range(3))
def test_LIST_06_any_page_size_gives_the_same(s3, bucket, seed):
    rng = random.Random(seed)
    keys = {"".join(rng.choice("ab/+é") for _ in range(rng.randint(1, 6))) for _ in range(25)}
    keys = {k for k in keys if not k.startswith("/")}
    fill(s3, bucket, keys)
    for version in (1, 2):
        for delimiter in (None, "/"):
            whole = walk(s3, bucket, version, delimiter=delimiter)
            assert len(whole) == 1
            for size in range(1, 6):
                pages = walk(s3, bucket, version, delimiter=delimiter, max_keys=size)
                assert [k for p in pages for k in p[0]] == whole[0][0]
                assert [k for p in pages for k in p[1]] == whole[0][1]
                check_ends(pages, version, delimiter, size)


def check_ends(pages, version, delimiter, size):
    """LIST-11: a truncated page always says how to go on, and is never empty."""
    for keys, prefixes, answer in pages:
        assert len(keys) + len(prefixes) <= size
        if answer.text("IsTruncated") == "true":
            assert keys or prefixes
            if version == 2:
                assert answer.text("NextContinuationToken")
            elif delimiter:
                assert answer.text("NextMarker")
            else:
                assert keys


@pytest.mark.parametrize("version", [1, 2])
def test_LIST_08_max_keys(s3, bucket, version):
    fill(s3, bucket, ["a", "b"])
    fixed = {"list_type": 2} if version == 2 else {}
    answer = check(s3.get(f"/{bucket}", ops.query(**fixed, max_keys=0)), 200)
    assert answer.all("Contents/Key") == []
    assert answer.text("IsTruncated") == "false"
    assert answer.text("MaxKeys") == "0"
    assert answer.text("NextContinuationToken") is None and answer.text("NextMarker") is None
    if version == 2:
        assert answer.text("KeyCount") == "0"
    for bad in ("-1", "abc"):
        check(s3.get(f"/{bucket}", ops.query(**fixed, max_keys=bad)), 400, "InvalidArgument")


def test_LIST_08_at_most_1000_a_page(s3, bucket):
    answer = ops.list_page(s3, bucket, max_keys=5000)
    assert answer.text("MaxKeys") == "1000"


def test_LIST_10_mixed_encoding_in_a_signed_query(s3, bucket):
    fill(s3, bucket, ["level1/8a", "level1/9"])
    plain = check(s3.get(f"/{bucket}", "marker=level1/8e%25%25FAH3"), 200)
    encoded = check(s3.get(f"/{bucket}", "marker=level1%2F8e%25%25FAH3"), 200)
    assert plain.all("Contents/Key") == encoded.all("Contents/Key") == ["level1/9"]
    assert plain.text("Marker") == "level1/8e%%FAH3"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("delimiter", [None, "/"])
def test_LIST_11_truncated_pages_say_how_to_go_on(s3, bucket, version, delimiter):
    fill(s3, bucket, ["a", "b/1", "b/2", "c"])
    pages = walk(s3, bucket, version, delimiter=delimiter, max_keys=1)
    check_ends(pages, version, delimiter, 1)
    assert len(pages) == (3 if delimiter else 4)


def test_LIST_12_trailing_slash_behind_the_bucket(s3, bucket):
    """restic in front of the same server is tested in clients/test_other.py."""
    fill(s3, bucket, ["k"])
    with_slash = check(s3.get(f"/{bucket}/", "list-type=2"), 200)
    without = check(s3.get(f"/{bucket}", "list-type=2"), 200)
    assert with_slash.body == without.body
    check(s3.head(f"/{bucket}/"), 200)
    check(s3.head(f"/{bucket}"), 200)
    check(s3.put(f"/{bucket}-new/"), 200)
    check(s3.head(f"/{bucket}-new"), 200)
    check(s3.delete(f"/{bucket}-new/"), 204)


def test_LIST_13_a_page_above_one_mebibyte(s3, bucket, endpoint):
    suffix = "k" * 1020
    fill(s3, bucket, [f"{n:04}{suffix}" for n in range(1000)])
    client = Client(endpoint, MAIN)
    headers = client.signed_headers("GET", f"/{bucket}", "list-type=2")
    with Connection(endpoint) as connection:
        for _ in range(2):
            connection.send(head_bytes("GET", f"/{bucket}", "list-type=2", headers))
            answer = check(connection.response(), 200)
            assert len(answer.body) > 1 << 20
            assert len(answer.all("Contents/Key")) == 1000
        assert connection.stray() == b""
