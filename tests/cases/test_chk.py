"""aws-chunked framing, trailers and checksums."""

import base64
import gzip
import hashlib
import subprocess
import time

import pytest

import ops
from ops import check
from raw import Connection, head_bytes
from sign import STREAMING, STREAMING_TRAILER, UNSIGNED_TRAILER, now

HELLO = {
    "x-amz-checksum-crc32": "NhCmhg==",
    "x-amz-checksum-crc32c": "mnG7TA==",
    "x-amz-checksum-crc64nvme": "M3eFcAZSQlc=",
    "x-amz-checksum-sha1": "qvTGHdzF6KLavt4PO0gs2a6pQ00=",
    "x-amz-checksum-sha256": "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=",
}
MODE = {"x-amz-checksum-mode": "ENABLED"}


def spoiled(value):
    data = bytearray(base64.b64decode(value))
    data[0] ^= 1
    return base64.b64encode(data).decode()


def test_CHK_01_no_trailer_at_all(s3, bucket):
    path = f"/{bucket}/k"
    answer = s3.put_streaming(path, [b"hello"], payload=UNSIGNED_TRAILER)
    check(answer, 200)
    assert answer.header("x-amz-checksum-crc64nvme") == "M3eFcAZSQlc="
    assert s3.get(path).body == b"hello"


@pytest.mark.parametrize("name", HELLO)
@pytest.mark.parametrize("payload", [UNSIGNED_TRAILER, STREAMING_TRAILER])
def test_CHK_02_trailer_checksums(s3, bucket, name, payload):
    path, value = f"/{bucket}/k", HELLO[name]
    ops.put(s3, bucket, "k", b"before")
    bad = s3.put_streaming(path, [b"hello"], payload=payload, trailers=[(name, spoiled(value))])
    check(bad, 400, "BadDigest")
    assert s3.get(path).body == b"before"
    good = s3.put_streaming(path, [b"hello"], payload=payload, trailers=[(name, value)])
    check(good, 200)
    assert good.header(name) == value
    head = check(s3.head(path, headers=MODE), 200)
    assert head.header(name) == value and head.header("x-amz-checksum-type") == "FULL_OBJECT"
    assert s3.get(path, headers=MODE).header(name) == value
    assert s3.get(path).header(name) is None
    assert s3.get(path, headers=MODE | {"Range": "bytes=0-1"}).header(name) is None


@pytest.mark.parametrize("name", HELLO)
def test_CHK_02_checksum_in_a_header(s3, bucket, name):
    path = f"/{bucket}/k"
    check(s3.put(path, b"hello", {name: spoiled(HELLO[name])}), 400, "BadDigest")
    check(s3.head(path), 404)
    answer = check(s3.put(path, b"hello", {name: HELLO[name]}), 200)
    assert answer.header(name) == HELLO[name]
    check(s3.put(path, b"hello", {name: "not base64"}), 400, "BadDigest")


def test_CHK_02_declared_trailer_is_absent(s3, bucket):
    answer = s3.put_streaming(
        f"/{bucket}/k", [b"hello"], {"x-amz-trailer": "x-amz-checksum-crc32"},
        payload=UNSIGNED_TRAILER)
    check(answer, 400)
    assert answer.code
    check(s3.head(f"/{bucket}/k"), 404)


def test_CHK_02_header_and_trailer_together(s3, bucket):
    answer = s3.put_streaming(
        f"/{bucket}/k", [b"hello"], {"x-amz-checksum-crc32": HELLO["x-amz-checksum-crc32"]},
        payload=UNSIGNED_TRAILER, trailers=[("x-amz-checksum-crc32", "NhCmhg==")])
    check(answer, 400, "InvalidRequest")
    check(s3.head(f"/{bucket}/k"), 404)


@pytest.mark.parametrize("sent, stored", [
    ("aws-chunked", None), ("aws-chunked,gzip", "gzip"), ("gzip, aws-chunked", "gzip")])
def test_CHK_04_aws_chunked_is_not_stored(s3, bucket, sent, stored):
    check(s3.put_streaming(f"/{bucket}/k", [b"hello"], {"Content-Encoding": sent},
                           payload=UNSIGNED_TRAILER), 200)
    check(s3.put(f"/{bucket}/copy", headers={"x-amz-copy-source": f"{bucket}/k"}), 200)
    for key in ("k", "copy"):
        for answer in (s3.get(f"/{bucket}/{key}"), s3.head(f"/{bucket}/{key}")):
            assert answer.header("content-encoding") == stored
    assert s3.get(f"/{bucket}/k").body == b"hello"


def test_CHK_04_gzip_is_kept_and_never_unpacked(s3, bucket, endpoint, tmp_path):
    packed = gzip.compress(b"hello " * 100)
    check(s3.put(f"/{bucket}/k", packed, {"Content-Encoding": "gzip"}), 200)
    answer = s3.get(f"/{bucket}/k")
    assert answer.body == packed and answer.header("content-encoding") == "gzip"
    query = s3.v4.presign("GET", f"/{bucket}/k", "", [("Host", endpoint.host_header)])
    command = ["curl", "-sS", "--compressed", f"{endpoint.url}/{bucket}/k?{query}"]
    command += ["--cacert", endpoint.ca_file] if endpoint.tls else []
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"hello " * 100


PIECES = [b"x", b"y" * 0xFF7, b"z" * 4096, b"w" * 65536]


def signed_stream(client, path, pieces, decoded=None):
    """Head and framed body of a signed aws-chunked PUT, to be sent as a test likes."""
    when = now()
    headers = [("Content-Encoding", "aws-chunked"),
               ("x-amz-decoded-content-length", str(decoded or sum(map(len, pieces))))]
    out = client.signed_headers("PUT", path, headers=headers, payload=STREAMING, when=when)
    framed = client.framed(pieces, out, STREAMING, when, None)
    return out, framed


def send_split(endpoint, path, headers, framed, places, length=None):
    """Sends `framed` in pieces that end at `places`; the answer, or None when cut off."""
    with Connection(endpoint) as connection:
        headers = [*headers, ("Content-Length", str(length or len(framed)))]
        connection.send(head_bytes("PUT", path, "", headers))
        start = 0
        for place in [*places, len(framed)]:
            connection.send(framed[start:place])
            start = place
        return connection.response("PUT")


def test_CHK_06_one_byte_at_a_time(s3, bucket, endpoint):
    path, pieces = f"/{bucket}/k", [b"x", b"yy" * 40]
    headers, framed = signed_stream(s3, path, pieces)
    check(send_split(endpoint, path, headers, framed, range(1, len(framed))), 200)
    assert s3.get(path).body == b"".join(pieces)


def test_CHK_06_split_inside_every_header_and_line_end(s3, bucket, endpoint):
    path = f"/{bucket}/k"
    headers, framed = signed_stream(s3, path, PIECES)
    places = set()
    position = 0
    for piece in [*PIECES, b""]:
        data = framed.index(b"\r\n", position) + 2
        places |= set(range(position + 1, data + 1))
        position = data + len(piece) + (2 if piece else 0)
        places |= {position - 1, position}
    check(send_split(endpoint, path, headers, framed, sorted(places)), 200)
    assert s3.get(path).body == b"".join(PIECES)
    for place in sorted(places)[::7]:
        check(send_split(endpoint, path, headers, framed, [place]), 200)
    assert s3.get(path).body == b"".join(PIECES)


def unsigned_put(client, path, framed, decoded):
    return client.put_streaming(path, [], payload=UNSIGNED_TRAILER, framed=framed, decoded=decoded)


@pytest.mark.parametrize("framed", [b"5\r\nhello\r\n0\r\n\r\n", b"0005\r\nhello\r\n00\r\n\r\n",
                                    b"1\r\nh\r\n4\r\nello\r\n0\r\n\r\n"])
def test_CHK_06_good_forms(s3, bucket, framed):
    check(unsigned_put(s3, f"/{bucket}/k", framed, 5), 200)
    assert s3.get(f"/{bucket}/k").body == b"hello"


@pytest.mark.parametrize("size", [b"1a", b"1A"])
def test_CHK_06_hex_of_both_cases(s3, bucket, size):
    framed = size + b"\r\n" + b"h" * 26 + b"\r\n0\r\n\r\n"
    check(unsigned_put(s3, f"/{bucket}/k", framed, 26), 200)


BROKEN = {
    "cut before the last line end": (b"5\r\nhello\r\n0\r\n", 5),
    "cut inside the data": (b"5\r\nhel", 5),
    "no last chunk": (b"5\r\nhello\r\n", 5),
    "no line end behind the data": (b"5\r\nhelloXX0\r\n\r\n", 5),
    "a size that never comes": (b"499602D2\r\nhello", 0x499602D2),
    "size is no number": (b"zz\r\nhello\r\n0\r\n\r\n", 5),
    "size overflows": (b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n", 5),
    "less than declared": (b"5\r\nhello\r\n0\r\n\r\n", 6),
    "more than declared": (b"5\r\nhello\r\n0\r\n\r\n", 4),
}


@pytest.mark.parametrize("name", BROKEN)
def test_CHK_06_broken_forms(s3, bucket, name):
    framed, decoded = BROKEN[name]
    answer = unsigned_put(s3, f"/{bucket}/k", framed, decoded)
    assert answer.status == 400, answer
    assert answer.code in ("IncompleteBody", "InvalidRequest", "MalformedTrailerError"), answer
    check(s3.head(f"/{bucket}/k"), 404)


def test_CHK_06_wrong_chunk_signature(s3, bucket, endpoint):
    """DUR-06 in part: the last chunk is wrong, the old object stays."""
    path = f"/{bucket}/k"
    ops.put(s3, bucket, "k", b"before")
    headers, framed = signed_stream(s3, path, PIECES)
    mark = framed.rindex(b"chunk-signature=") + 16
    broken = framed[:mark] + bytes([framed[mark] ^ 1]) + framed[mark + 1:]
    answer = send_split(endpoint, path, headers, broken, [])
    check(answer, 403, "SignatureDoesNotMatch")
    assert s3.get(path).body == b"before"


def test_CHK_08_sdk_checksum_algorithm(s3, bucket):
    path, crc = f"/{bucket}/k", HELLO["x-amz-checksum-crc32"]
    name = "x-amz-sdk-checksum-algorithm"
    check(s3.put(path, b"hello", {name: "CRC32", "x-amz-checksum-crc32": crc}), 200)
    check(s3.put(path, b"hello", {name: "CRC32C", "x-amz-checksum-crc32": crc}), 400)
    check(s3.put(path, b"hello", {name: "CRC32"}), 400)


MD5_ROWS = [("XUFAKrxLKna5cZ2REBfFkg==", 200, None),
            (base64.b64encode(hashlib.md5(b"other").digest()).decode(), 400, "BadDigest"),
            ("", 400, "InvalidDigest"), ("abc", 400, "InvalidDigest"),
            (base64.b64encode(b"8 bytes!").decode(), 400, "InvalidDigest")]


@pytest.mark.parametrize("value, status, code", MD5_ROWS)
@pytest.mark.parametrize("target", ["put", "part"])
def test_CHK_09_content_md5(s3, bucket, value, status, code, target):
    key = "k"
    ops.put(s3, bucket, key, b"before")
    query = ""
    if target == "part":
        query = ops.part_query(ops.create_upload(s3, bucket, key), 1)
    answer = s3.put(f"/{bucket}/{key}", b"hello", {"Content-MD5": value}, query=query)
    check(answer, status, code)
    wanted = b"hello" if (status, target) == (200, "put") else b"before"
    assert ops.get(s3, bucket, key).body == wanted


@pytest.mark.parametrize("value, status, code", MD5_ROWS[:2])
def test_CHK_09_content_md5_by_presigned_url(s3, bucket, endpoint, value, status, code):
    path = f"/{bucket}/k"
    signed = [("Host", endpoint.host_header), ("Content-MD5", value)]
    query = s3.v4.presign("PUT", path, "", signed, signed=("content-md5", "host"))
    head = head_bytes("PUT", path, query, [*signed, ("Content-Length", "5")])
    check(s3.exchange("PUT", head, b"hello"), status, code)


def test_CHK_multipart_checksums_fold(s3, bucket):
    """A composite SHA-256 is the hash of the part hashes; a CRC64NVME covers the whole object."""
    part = b"p" * (5 << 20)
    bodies = [part, b"tail"]
    upload = ops.create_upload(s3, bucket, "k", {"x-amz-checksum-algorithm": "SHA256"})
    parts = []
    for number, body in enumerate(bodies, 1):
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        parts.append((number, ops.upload_part(
            s3, bucket, "k", upload, number, body, {"x-amz-checksum-sha256": digest})))
    answer = ops.completed(s3, bucket, "k", upload, parts)
    folded = hashlib.sha256(b"".join(hashlib.sha256(b).digest() for b in bodies)).digest()
    wanted = base64.b64encode(folded).decode() + "-2"
    assert answer.text("ChecksumSHA256") == wanted
    head = s3.head(f"/{bucket}/k", headers=MODE)
    assert head.header("x-amz-checksum-sha256") == wanted
    assert head.header("x-amz-checksum-type") == "COMPOSITE"


def test_CHK_multipart_crc64nvme_is_of_the_whole_object(s3, bucket):
    part = b"p" * (5 << 20)
    whole = s3.put_streaming(f"/{bucket}/whole", [part, b"tail"], payload=UNSIGNED_TRAILER)
    wanted = check(whole, 200).header("x-amz-checksum-crc64nvme")
    upload = ops.create_upload(s3, bucket, "k", {"x-amz-checksum-algorithm": "CRC64NVME"})
    parts = []
    for number, body in enumerate((part, b"tail"), 1):
        answer = s3.put_streaming(f"/{bucket}/k", [body], payload=UNSIGNED_TRAILER,
                                  query=ops.part_query(upload, number))
        parts.append((number, check(answer, 200).etag))
    answer = ops.completed(s3, bucket, "k", upload, parts)
    assert answer.text("ChecksumCRC64NVME") == wanted
    assert answer.text("ChecksumType") == "FULL_OBJECT"


def test_CHK_06_a_huge_declared_chunk_costs_no_memory(s3, bucket, endpoint):
    """The server is alive and quick while 20 clients promise a 1.2 GB chunk."""
    path = f"/{bucket}/huge"
    headers = s3.signed_headers("PUT", path, payload=UNSIGNED_TRAILER, headers=[
        ("Content-Encoding", "aws-chunked"), ("x-amz-decoded-content-length", str(0x499602D2))])
    headers.append(("Content-Length", str(0x499602D2 + 20)))
    held = []
    for _ in range(20):
        connection = Connection(endpoint)
        connection.send(head_bytes("PUT", path, "", headers) + b"499602D2\r\nhello")
        held.append(connection)
    start = time.monotonic()
    ops.put(s3, bucket, "other", b"x")
    assert time.monotonic() - start < 2
    for connection in held:
        connection.close()
    check(s3.head(path), 404)
