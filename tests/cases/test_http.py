"""HTTP: ranges, HEAD, connections that survive errors, bodies that never end."""

import re
import socket
import threading
import time

import pytest

import ops
from harness import ALT, MAIN, User
from ops import MIB, check
from raw import Client, Connection, head_bytes
from sign import UNSIGNED, UNSIGNED_TRAILER, unsigned_chunks

TEN = b"0123456789"
BAD_KEY = User("bad", MAIN.access_key, "wrong", "", "", "")


@pytest.fixture
def ten(s3, bucket):
    ops.put(s3, bucket, "ten", TEN)
    return f"/{bucket}/ten"


def test_HTTP_01_ranges_of_an_empty_object(s3, bucket):
    ops.put(s3, bucket, "empty", b"")
    for value in ("bytes=0-", "bytes=0-0", "bytes=-0"):
        answer = check(s3.get(f"/{bucket}/empty", headers={"Range": value}), 416, "InvalidRange")
        assert answer.header("content-range") == "bytes */0"
    answer = s3.get(f"/{bucket}/empty", headers={"Range": "bytes=-5"})
    assert answer.status in (200, 416), answer
    assert answer.status == 416 or answer.body == b""


@pytest.mark.parametrize("value", ["bytes=abc", "bytes=7-3", "items=0-1", "bytes=", "bytes=1-2-3"])
def test_HTTP_02_unparsable_ranges_are_ignored(s3, ten, value):
    answer = check(s3.get(ten, headers={"Range": value}), 200)
    assert answer.body == TEN and answer.header("accept-ranges") == "bytes"


@pytest.mark.parametrize("value, first, last", [
    ("bytes=0-0", 0, 0), ("bytes=2-4", 2, 4), ("bytes=-3", 7, 9), ("bytes=5-", 5, 9),
    ("bytes=0-999", 0, 9), ("bytes=-999", 0, 9)])
def test_HTTP_02_ranges(s3, ten, value, first, last):
    for method in ("GET", "HEAD"):
        answer = check(s3.request(method, ten, headers={"Range": value}), 206)
        assert answer.header("content-range") == f"bytes {first}-{last}/10"
        assert answer.header("content-length") == str(last - first + 1)
        assert answer.body == (TEN[first:last + 1] if method == "GET" else b"")


def test_HTTP_02_unsatisfiable_and_several_ranges(s3, ten):
    for value in ("bytes=10-", "bytes=10-12", "bytes=-0"):
        answer = check(s3.get(ten, headers={"Range": value}), 416, "InvalidRange")
        assert answer.header("content-range") == "bytes */10"
    assert check(s3.get(ten, headers={"Range": "bytes=0-1,4-5"}), 200).body == TEN


def seam_ranges(size):
    """Ranges that start, end or lie across the 1 MiB seam, a page, and the end of the object."""
    edges = [e for e in (0, 1, 4095, 4096, MIB - 1, MIB, MIB + 1, size - 1) if 0 <= e < size]
    return sorted({(a, b) for a in edges for b in edges if a <= b})


@pytest.mark.parametrize("size", [4097, *ops.SEAM_SIZES, 2 * MIB + 7, 8 * MIB])
def test_HTTP_02_ranges_across_the_seam(s3, bucket, size):
    body = ops.body_of(size)
    ops.put(s3, bucket, "k", body)
    for first, last in seam_ranges(size):
        answer = check(s3.get(f"/{bucket}/k", headers={"Range": f"bytes={first}-{last}"}), 206)
        assert answer.body == body[first:last + 1], (first, last)
    for count in (1, 4096, size - 1, size):
        answer = check(s3.get(f"/{bucket}/k", headers={"Range": f"bytes=-{count}"}), 206)
        assert answer.body == body[-count:]


def test_HTTP_04_errors_of_head_have_no_body(s3, bucket, ten, endpoint):
    bad = Client(endpoint, BAD_KEY)
    rows = [("HEAD", f"/{bucket}/missing", s3, {}, 404), ("HEAD", ten, bad, {}, 403),
            ("HEAD", f"/{bucket}-missing/k", s3, {}, 404),
            ("HEAD", ten, s3, {"If-Match": '"x"'}, 412)]
    with Connection(endpoint) as connection:
        for method, path, client, headers, status in rows:
            out = client.signed_headers(method, path, headers=headers)
            connection.send(head_bytes(method, path, "", out))
            check(connection.response(method), status)
            assert connection.stray(0.05) == b""
        out = s3.signed_headers("PUT", ten, body=TEN) + [("Content-Length", "10")]
        connection.send(head_bytes("PUT", ten, "", out) + TEN)
        check(connection.response("PUT"), 200)
        connection.send(head_bytes("GET", ten, "", s3.signed_headers("GET", ten)))
        assert check(connection.response(), 200).body == TEN
        assert connection.stray(0.05) == b""


def refused_upload(client, path, length=300_000):
    headers = client.signed_headers("PUT", path, payload=UNSIGNED)
    return head_bytes("PUT", path, "", headers + [("Content-Length", str(length))])


def next_answer_after(connection, client, path):
    """Sends what is owed of the refused body, then a GET; None when the connection was closed.

    nginx closes a connection whose upload was answered early although it announced to keep it.
    """
    try:
        connection.send(b"u" * 290_000)
        connection.send(head_bytes("GET", path, "", client.signed_headers("GET", path)))
        return check(connection.response(), 200).body
    except (EOFError, OSError):
        return None


@pytest.mark.parametrize("rounds", [50])
def test_HTTP_05_a_refused_upload_poisons_no_connection(s3, ten, endpoint, rounds):
    bad = Client(endpoint, BAD_KEY)
    for _ in range(rounds):
        with Connection(endpoint) as connection:
            connection.send(refused_upload(bad, ten) + b"u" * 10_000)
            answer = check(connection.response("PUT"), 403, "SignatureDoesNotMatch")
            start = time.monotonic()
            if (answer.header("connection") or "").lower() != "close":
                assert next_answer_after(connection, s3, ten) in (TEN, None)
        assert s3.get(ten).body == TEN
        assert time.monotonic() - start < 1


@pytest.mark.parametrize("kind", ["plain", "chunked", "empty", "bad", "at once"])
def test_HTTP_07_expect_100_continue(s3, bucket, endpoint, kind):
    path = f"/{bucket}/k"
    client = Client(endpoint, BAD_KEY) if kind == "bad" else s3
    body = b"" if kind == "empty" else b"hello"
    headers = [("Expect", "100-continue")]
    if kind == "chunked":
        body = unsigned_chunks([b"hello"])
        headers += [("Content-Encoding", "aws-chunked"), ("x-amz-decoded-content-length", "5")]
    payload = UNSIGNED_TRAILER if kind == "chunked" else UNSIGNED
    out = client.signed_headers("PUT", path, headers=headers, payload=payload)
    out.append(("Content-Length", str(len(body))))
    with Connection(endpoint) as connection:
        start = time.monotonic()
        connection.send(head_bytes("PUT", path, "", out))
        if kind == "at once":
            connection.send(body)
        answer = connection.response("PUT", want_continue=True)
        if answer.status == 100:
            if kind not in ("empty", "at once"):
                connection.send(body)
            answer = connection.response("PUT")
        elif kind == "bad" and endpoint.name == "direct":
            assert answer.status == 403
        check(answer, 403 if kind == "bad" else 200)
        assert time.monotonic() - start < 1
    if kind == "bad":
        check(s3.head(path), 404)
    else:
        assert s3.get(path).body == (b"hello" if body else b"")


def test_HTTP_07_answers_come_without_delay(s3, ten, endpoint):
    """TCP_NODELAY: 200 small GETs on one connection take no 40 ms steps."""
    s3.get(ten)
    times = []
    for _ in range(200):
        start = time.monotonic()
        assert s3.get(ten).status == 200
        times.append(time.monotonic() - start)
    times.sort()
    assert times[100] < 0.02, f"median {times[100] * 1000:.1f} ms"


def test_HTTP_08_an_h2c_offer_is_ignored(s3, bucket, endpoint):
    path, body = f"/{bucket}/k", ops.body_of(8653)
    out = s3.signed_headers("PUT", path, body=body)
    out += [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"),
            ("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA"), ("Expect", "100-continue"),
            ("Content-Length", str(len(body)))]
    with Connection(endpoint) as connection:
        connection.send(head_bytes("PUT", path, "", out) + body)
        check(connection.response("PUT"), 200)
        connection.send(head_bytes("GET", path, "", s3.signed_headers("GET", path)))
        assert check(connection.response(), 200).body == body


@pytest.mark.parametrize("size", [5, 300_000])
@pytest.mark.parametrize("presigned", [False, True])
def test_HTTP_09_chunked_without_a_length(s3, bucket, endpoint, size, presigned):
    """Either a refusal with nothing stored, or the exact bytes."""
    path, body = f"/{bucket}/k", ops.body_of(size)
    if presigned:
        out = [("Host", endpoint.host_header)]
        query = s3.v4.presign("PUT", path, "", out)
    else:
        query, out = "", s3.signed_headers("PUT", path, payload=UNSIGNED)
    with Connection(endpoint) as connection:
        connection.send(head_bytes("PUT", path, query, out + [("Transfer-Encoding", "chunked")]))
        for start in range(0, size, 10_000):
            piece = body[start:start + 10_000]
            connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.send(b"0\r\n\r\n")
        answer = connection.response("PUT")
    if answer.status == 200:
        assert s3.get(path).body == body
    else:
        assert (answer.status, answer.code) in (
            (501, "NotImplemented"), (411, "MissingContentLength")), answer
        check(s3.head(path), 404)


@pytest.mark.parametrize("size", [10, MIB, MIB + 1, 64 * MIB])
@pytest.mark.parametrize("how", ["fin", "rst"])
def test_HTTP_10_the_client_dies_mid_put(s3, bucket, endpoint, size, how):
    """Left-over files are looked for in test_space.py, which has a server of its own."""
    upload = ops.create_upload(s3, bucket, "part")
    ops.put(s3, bucket, "old", b"before")
    targets = [(f"/{bucket}/new", ""), (f"/{bucket}/old", ""),
               (f"/{bucket}/part", ops.part_query(upload, 1))]
    for path, query in targets:
        for sent in {size // 2, size - 1}:
            out = s3.signed_headers("PUT", path, query, payload=UNSIGNED)
            out.append(("Content-Length", str(size)))
            connection = Connection(endpoint)
            connection.send(head_bytes("PUT", path, query, out) + b"d" * min(sent, 3 * MIB))
            connection.reset() if how == "rst" else connection.close()
    time.sleep(0.3)
    check(s3.head(f"/{bucket}/new"), 404)
    assert ops.get(s3, bucket, "old").body == b"before"
    listed = check(s3.get(f"/{bucket}/part", f"uploadId={upload}"), 200)
    assert listed.all("Part") == []


def test_HTTP_10_half_closed(s3, bucket, endpoint):
    """The client ends its side early but still reads: it learns what is wrong."""
    if endpoint.tls:
        pytest.skip("TLS has no half-close")
    path = f"/{bucket}/k"
    out = s3.signed_headers("PUT", path, payload=UNSIGNED) + [("Content-Length", "10")]
    with Connection(endpoint) as connection:
        connection.send(head_bytes("PUT", path, "", out) + b"12345")
        connection.sock.shutdown(socket.SHUT_WR)
        try:
            check(connection.response("PUT"), 400, "IncompleteBody")
        except (EOFError, ConnectionError):
            pass
    check(s3.head(path), 404)


def date_of(answer):
    return answer.header("last-modified")


def test_HTTP_14_dates_and_etags_agree(s3, bucket):
    etag = ops.put(s3, bucket, "k", b"hello").etag
    get, head = ops.get(s3, bucket, "k"), s3.head(f"/{bucket}/k")
    fix = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
    assert fix.fullmatch(date_of(get)) and date_of(get) == date_of(head)
    page = ops.list_page(s3, bucket)
    listed = page.text("Contents/LastModified")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", listed)
    moment = time.strptime(listed[:19], "%Y-%m-%dT%H:%M:%S")
    stamp = time.strftime("%a, %d %b %Y %H:%M:%S GMT", moment)
    assert stamp == date_of(head)
    copied = s3.put(f"/{bucket}/copy", headers={"x-amz-copy-source": f"{bucket}/k"})
    found = {etag, get.etag, head.etag, page.text("Contents/ETag"), copied.text("ETag")}
    assert found == {'"5d41402abc4b2a76b9719d911017c592"'}
    assert fix.fullmatch(get.header("date"))


def test_HTTP_15_probes_of_mounts(s3, bucket, endpoint):
    check(s3.head(f"/{bucket}/{'q' * 32}"), 404)
    check(s3.head(f"/{bucket}-missing/{'q' * 32}"), 404)
    bad = Client(endpoint, BAD_KEY)
    check(bad.head(f"/{bucket}/{'q' * 32}"), 403)
    page = ops.list_page(s3, bucket, prefix="absent/")
    assert page.all("Contents") == [] and page.text("KeyCount") == "0"


PROBES = {
    "acl=": (200, None), "versioning=": (200, None), "location=": (200, None),
    "policy=": (404, "NoSuchBucketPolicy"), "cors=": (404, "NoSuchCORSConfiguration"),
    "lifecycle=": (404, "NoSuchLifecycleConfiguration"), "tagging=": (404, "NoSuchTagSet"),
    "website=": (404, "NoSuchWebsiteConfiguration"),
    "replication=": (404, "ReplicationConfigurationNotFoundError"),
    "object-lock=": (404, "ObjectLockConfigurationNotFoundError"),
    "publicAccessBlock=": (404, "NoSuchPublicAccessBlockConfiguration"),
}


@pytest.mark.parametrize("query", PROBES)
def test_HTTP_15_probes_of_what_is_not_configured(s3, bucket, query):
    status, code = PROBES[query]
    check(s3.get(f"/{bucket}", query), status, code)
    check(s3.get(f"/{bucket}-missing", query), 404, "NoSuchBucket")


def test_HTTP_unknown_methods_and_subresources(s3, bucket, ten):
    for method in ("PATCH", "FOO"):
        answer = s3.request(method, ten)
        assert answer.status in (400, 405, 501), answer
    answer = s3.request("POST", ten, "no-such-thing=")
    assert answer.status in (400, 405, 501) and answer.code, answer
    assert s3.get(ten).body == TEN


def test_HTTP_response_overrides(s3, ten):
    query = ops.query(response_content_type="text/x", response_cache_control="no-store",
                      response_content_disposition="attachment; filename=\"ä.txt\"",
                      response_content_encoding="identity", response_content_language="de",
                      response_expires="Thu, 01 Jan 2026 00:00:00 GMT")
    answer = check(s3.get(ten, query), 200)
    assert answer.header("content-type") == "text/x"
    assert answer.header("cache-control") == "no-store"
    assert answer.header("content-language") == "de"
    assert answer.header("content-encoding") == "identity"
    assert answer.header("expires") == "Thu, 01 Jan 2026 00:00:00 GMT"
    for value in ("a\r\nx-evil: 1", "a\nb"):
        evil = s3.get(ten, ops.query(response_content_type=value))
        assert evil.header("x-evil") is None, evil


def test_HTTP_other_users_reach_nothing(s3, alt, bucket, ten):
    for method, path in (("GET", ten), ("HEAD", ten), ("PUT", ten), ("DELETE", ten),
                         ("GET", f"/{bucket}"), ("DELETE", f"/{bucket}")):
        answer = alt.request(method, path)
        assert answer.status == 403 and (method == "HEAD" or answer.code == "AccessDenied"), answer
    check(alt.put(f"/{bucket}"), 409, "BucketAlreadyExists")
    assert s3.get(ten).body == TEN
    names = alt.get("/").all("Buckets/Bucket/Name")
    assert bucket not in names
    assert alt.get("/").text("Owner/ID") == ALT.canonical_id


def test_RACE_01_gets_during_overwrites_are_whole(s3, bucket, endpoint):
    """Writers alternate sizes on both sides of the seam; every reply is one whole version."""
    sizes = (256, 300, MIB - 1, MIB + 1, 3 * MIB)
    path, stop, problems, reads = f"/{bucket}/k", threading.Event(), [], [0]
    check(s3.put(path, ops.body_of(256)), 200)

    def read():
        client = Client(endpoint, MAIN)
        while not stop.is_set():
            answer = client.get(path)
            if answer.status != 200 or answer.etag.strip('"') != ops.md5(answer.body):
                problems.append(repr(answer))
            reads[0] += 1
        client.close()

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    deadline, number = time.monotonic() + 4, 0
    while time.monotonic() < deadline:
        check(s3.put(path, ops.body_of(sizes[number % len(sizes)], number)), 200)
        number += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems and reads[0] > 20, problems[:3]


def test_RACE_05_concurrent_overwrites_leave_one_writer(s3, bucket, endpoint):
    path = f"/{bucket}/k"
    bodies = [ops.body_of(size, n) for n, size in enumerate((200, 400_000, MIB + 1, 2 * MIB) * 2)]

    def write(body):
        client = Client(endpoint, MAIN)
        check(client.put(path, body), 200)
        client.close()

    for _ in range(5):
        threads = [threading.Thread(target=write, args=(body,)) for body in bodies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = ops.get(s3, bucket, "k")
        assert found.body in bodies and found.etag.strip('"') == ops.md5(found.body)
        page = ops.list_page(s3, bucket)
        assert page.text("Contents/ETag") == found.etag
        assert page.text("Contents/Size") == str(len(found.body))
    check(s3.delete(path), 204)
    check(s3.get(path), 404, "NoSuchKey")
