"""Signatures, presigned URLs and host names."""

import datetime

import pytest

import ops
from harness import MAIN, User
from ops import check
from raw import Client, Connection, head_bytes
from sign import EMPTY_SHA256, UNSIGNED, V2, V4, amz_date, http_date, now

MINUTE = datetime.timedelta(minutes=1)


@pytest.fixture
def path(s3, bucket):
    ops.put(s3, bucket, "a.txt", b"hello")
    return f"/{bucket}/a.txt"


def send(client, method, path, query="", headers=None, body=b""):
    """A request exactly as given, with the host and, for a body, its length."""
    out = [("Host", client.endpoint.host_header), *(headers or [])]
    if body or method == "PUT":
        out.append(("Content-Length", str(len(body))))
    return client.exchange(method, head_bytes(method, path, query, out), body)


def presigned(client, path, query="", method="GET", **options):
    headers = [("Host", client.endpoint.host_header)]
    return client.v4.presign(method, path, query, headers, **options)


def test_SIG_01_presigned_expiry(s3, path):
    """The very second of expiry is tested with a fake clock beside the code."""
    for ago, expires, status, codes in (
            (20, 3600, 200, ()), (120, 3600, 403, ("AccessDenied",)),
            (0, 604801, 400, ("AuthorizationQueryParametersError",)),
            (0, 604800, 200, ()),
            (0, 0, None, ("AccessDenied", "AuthorizationQueryParametersError")),
            (0, -7, None, ("AccessDenied", "AuthorizationQueryParametersError")),
            (-60, 3600, 403, ("AccessDenied", "RequestTimeTooSkewed"))):
        query = presigned(s3, path, expires=expires, when=now() - ago * MINUTE)
        answer = send(s3, "GET", path, query)
        assert answer.status == status or (status is None and answer.status in (400, 403)), answer
        assert not codes or answer.code in codes, answer


@pytest.mark.parametrize("form", ["attachment%3Bfilename%3D%22t.txt%22",
                                  "attachment;filename=%22t.txt%22"])
def test_SIG_02_decoded_semicolon(s3, path, form):
    signed = presigned(s3, path, "response-content-disposition=attachment%3Bfilename%3D%22t.txt%22")
    rest = signed.split("&", 1)[1]
    answer = send(s3, "GET", path, f"response-content-disposition={form}&{rest}")
    check(answer, 200)
    assert answer.header("content-disposition") == 'attachment;filename="t.txt"'


def test_SIG_04_unusual_percent_encodings(s3, bucket, path):
    ops.put(s3, bucket, "b+c!*()'", b"marks")
    headers = s3.signed_headers("GET", path)
    sent = f"/{bucket}/%61.txt"
    assert check(s3.exchange("GET", head_bytes("GET", sent, "", headers)), 200).body == b"hello"
    canonical = ops.key_path(bucket, "b+c!*()'")
    for raw in (f"/{bucket}/b%2bc!*()'", f"/{bucket}/b%2Bc%21%2a%28%29%27", canonical):
        headers = s3.signed_headers("GET", canonical)
        answer = s3.exchange("GET", head_bytes("GET", raw, "", headers))
        assert check(answer, 200).body == b"marks", raw
    ops.put(s3, bucket, "a b", b"space")
    headers = s3.signed_headers("GET", f"/{bucket}/a%20b")
    answer = s3.exchange("GET", head_bytes("GET", f"/{bucket}/a+b", "", headers))
    assert answer.status in (403, 404), answer


def test_SIG_05_many_and_long_signed_headers(s3, bucket):
    metadata = [(f"x-amz-meta-n{n:02}", "v" * 20) for n in range(60)]
    check(s3.put(f"/{bucket}/many", b"x", metadata), 200)
    answer = s3.head(f"/{bucket}/many")
    assert all(answer.header(n) == v for n, v in metadata)
    check(s3.put(f"/{bucket}/long", b"x", [("x-amz-meta-l", "w" * 1900)]), 200)
    assert s3.head(f"/{bucket}/long").header("x-amz-meta-l") == "w" * 1900
    check(s3.put(f"/{bucket}/big", b"x", [("x-amz-meta-b", "w" * 2048)]), 400, "MetadataTooLarge")
    check(s3.head(f"/{bucket}/big"), 404)


def test_SIG_05_spaces_fold_and_repeats_join(s3, bucket):
    headers = [("x-amz-meta-s", "a  b   c"), ("x-amz-meta-r", "1"), ("x-amz-meta-r", "2")]
    check(s3.put(f"/{bucket}/k", b"x", headers), 200)
    answer = s3.head(f"/{bucket}/k")
    assert answer.header("x-amz-meta-s") in ("a  b   c", "a b c")
    assert answer.header("x-amz-meta-r") in ("1,2", "1, 2")


def test_SIG_06_region_service_and_date_of_the_scope(s3, bucket, path, endpoint):
    other = Client(endpoint, MAIN, region="eu-x")
    answer = check(other.get(path), 400, "AuthorizationHeaderMalformed")
    assert answer.text("Region") == "us-east-1"
    answer = s3.get(path, v4=V4(MAIN, service="ec2"))
    check(answer, 400, "AuthorizationHeaderMalformed")
    when = now() - datetime.timedelta(days=1)
    headers = s3.signed_headers("GET", path, when=when)
    headers = [(n, amz_date(now()) if n == "x-amz-date" else v) for n, v in headers]
    answer = s3.exchange("GET", head_bytes("GET", path, "", headers))
    assert answer.status in (400, 403) and answer.code, answer
    assert s3.head(f"/{bucket}").header("x-amz-bucket-region") == "us-east-1"


HOSTS = [("{b}.s3.test", True), ("{b}.s3.test:9000", True), ("{b}.S3.TEST", True),
         ("{b}.s3.test.", True), ("s3.test", False), ("localhost:9000", False),
         ("127.0.0.1:9000", False), ("[::1]:9000", False), ("S3.TEST.", False),
         ("other.test", False)]


@pytest.mark.parametrize("form, virtual", HOSTS)
def test_SIG_07_hosts(s3, bucket, path, form, virtual):
    host = form.format(b=bucket)
    sent = "/a.txt" if virtual else path
    assert check(s3.get(sent, host=host), 200).body == b"hello"
    if virtual:
        check(s3.head("/", host=form.format(b="absent-bucket")), 404)
        check(s3.head("/", host=form.format(b="my.dotted.bkt")), 404)
        check(s3.head("/", host=host), 200)
    else:
        assert bucket in check(s3.get("/", host=host), 200).all("Buckets/Bucket/Name")


def test_SIG_07_dotted_bucket(s3, bucket):
    name = f"{bucket}.with.dots"
    check(s3.put(f"/{name}"), 200)
    check(s3.put("/k", b"dots", host=f"{name}.s3.test"), 200)
    assert s3.get(f"/{name}/k").body == b"dots"


def test_SIG_09_the_host_must_be_signed(s3, path):
    query = s3.v4.presign("GET", path, "", [("x-amz-date", "")], signed=())
    answer = send(s3, "GET", path, query)
    assert answer.status in (400, 403) and answer.code in (
        "AccessDenied", "AuthorizationQueryParametersError", "SignatureDoesNotMatch"), answer


@pytest.mark.parametrize("name, value", [("x-amz-acl", "public-read"), ("x-amz-meta-a", "1")])
def test_SIG_09_unsigned_amz_headers_are_refused(s3, bucket, name, value):
    headers = s3.signed_headers("PUT", f"/{bucket}/k", body=b"x")
    headers += [(name, value), ("Content-Length", "1")]
    answer = s3.exchange("PUT", head_bytes("PUT", f"/{bucket}/k", "", headers), b"x")
    check(answer, 403, "AccessDenied")
    assert answer.text("HeadersNotSigned") == name
    query = presigned(s3, f"/{bucket}/k", method="PUT")
    answer = send(s3, "PUT", f"/{bucket}/k", query, [(name, value)], b"x")
    check(answer, 403, "AccessDenied")
    check(s3.head(f"/{bucket}/k"), 404)


def test_SIG_09_presigned_put_with_an_unsigned_checksum(s3, bucket):
    query = presigned(s3, f"/{bucket}/k", method="PUT")
    checksum = [("x-amz-checksum-crc32", "NhCmhg==")]
    answer = send(s3, "PUT", f"/{bucket}/k", query, checksum, b"hello")
    check(answer, 403, "AccessDenied")
    check(s3.head(f"/{bucket}/k"), 404)


def test_SIG_presigned_put_of_a_browser_sdk(s3, bucket):
    """The JS SDK signs the checksum of an empty body into the query; the body is another."""
    path = f"/{bucket}/k"
    query = presigned(s3, path, "x-amz-checksum-crc32=AAAAAA%3D%3D"
                      "&x-amz-sdk-checksum-algorithm=CRC32&x-id=PutObject", method="PUT")
    check(send(s3, "PUT", path, query, body=b"hello"), 200)
    assert s3.get(path).body == b"hello"


def test_SIG_wrong_and_unknown_keys(s3, path, endpoint):
    wrong = Client(endpoint, User("x", MAIN.access_key, "other", "", "", ""))
    answer = check(wrong.get(path), 403, "SignatureDoesNotMatch")
    assert MAIN.secret_key.encode() not in answer.body
    assert b"CanonicalRequest" not in answer.body
    unknown = Client(endpoint, User("x", "NOSUCHKEY00000000000", "other", "", "", ""))
    check(unknown.get(path), 403, "InvalidAccessKeyId")
    check(send(s3, "GET", path), 403, "AccessDenied")


@pytest.mark.parametrize("value", [
    "", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=x", "Basic Zm9vOmJhcg==", "AWS :", "AWS",
    "AWS4-HMAC-SHA256 Credential=a/b/c/d/e, SignedHeaders=host, Signature=zz",
    "AWS4-HMAC-SHA256 Credential=/20260101/us-east-1/s3/aws4_request,SignedHeaders=,Signature="])
def test_SIG_malformed_authorization(s3, path, value):
    headers = [("Authorization", value), ("x-amz-date", amz_date(now()))]
    answer = send(s3, "GET", path, headers=headers)
    assert 400 <= answer.status < 500 and answer.code, answer


@pytest.mark.parametrize("minutes, status", [(14, 200), (-14, 200), (20, 403), (-20, 403)])
def test_SIG_clock_skew(s3, path, minutes, status):
    answer = s3.get(path, when=now() + minutes * MINUTE)
    check(answer, status, None if status == 200 else "RequestTimeTooSkewed")


def test_SIG_payload_hash_is_verified(s3, bucket):
    path = f"/{bucket}/k"
    answer = s3.put(path, b"hello", payload=EMPTY_SHA256)
    check(answer, 400, "XAmzContentSHA256Mismatch")
    check(s3.head(path), 404)
    check(s3.put(path, b"hello", payload=UNSIGNED), 200)
    for payload in ("abc", "STREAMING-SOMETHING"):
        answer = s3.put(path, b"x", payload=payload)
        assert answer.status == 400 and answer.code, answer


def test_SIG_the_date_header_is_enough(s3, path):
    """Without x-amz-date the Date header is signed; both forms of its text are known."""
    when = now()
    headers = [("Host", s3.endpoint.host_header), ("Date", http_date(when)),
               ("x-amz-content-sha256", EMPTY_SHA256)]
    signed = ["date", "host", "x-amz-content-sha256"]
    value = s3.v4.authorization("GET", path, "", headers, EMPTY_SHA256, when, signed)
    # The string to sign carries the ISO form; a server that accepts Date must do the same.
    answer = s3.exchange("GET", head_bytes("GET", path, "", [*headers, ("Authorization", value)]))
    check(answer, 200)


def test_SIG_v2_header(s3, bucket, path):
    v2 = V2(MAIN)
    for method, target, query, body in (
            ("GET", path, "", b""), ("HEAD", path, "", b""), ("PUT", f"/{bucket}/v2 k", "", b"two"),
            ("GET", f"/{bucket}", "location", b""), ("POST", f"/{bucket}/m", "uploads", b"")):
        target = target.replace(" ", "%20")
        date = http_date(now())
        headers = [("x-amz-meta-b", "2"), ("Content-Type", "text/plain"), ("Date", date)]
        value = v2.authorization(method, target, query, headers, date)
        answer = send(s3, method, target, query, [*headers, ("Authorization", value)], body)
        check(answer, 200)
    answer = ops.get(s3, bucket, "v2 k")
    assert answer.body == b"two" and answer.header("x-amz-meta-b") == "2"
    date = http_date(now())
    wrong = V2(User("x", MAIN.access_key, "other", "", "", ""))
    bad = wrong.authorization("GET", path, "", [], date)
    check(send(s3, "GET", path, headers=[("Date", date), ("Authorization", bad)]),
          403, "SignatureDoesNotMatch")


def test_SIG_v2_presigned(s3, path):
    v2, stamp = V2(MAIN), int(now().timestamp())
    check(send(s3, "GET", path, v2.presign("GET", path, "", expires_at=stamp + 60)), 200)
    check(send(s3, "GET", path, v2.presign("GET", path, "", expires_at=stamp - 60)),
          403, "AccessDenied")
    query = v2.presign("GET", path, "response-content-type=text%2Fx", expires_at=stamp + 60)
    assert send(s3, "GET", path, query).header("content-type") == "text/x"
    check(send(s3, "HEAD", path, v2.presign("GET", path, "", expires_at=stamp + 60)), 403)


def test_SIG_presigned_with_the_wrong_method_or_path(s3, bucket, path):
    query = presigned(s3, path)
    check(send(s3, "GET", path, query), 200)
    check(send(s3, "DELETE", path, query), 403, "SignatureDoesNotMatch")
    check(send(s3, "GET", f"/{bucket}/b.txt", query), 403, "SignatureDoesNotMatch")
    check(send(s3, "GET", path, query + "&x-extra=1"), 403, "SignatureDoesNotMatch")
    assert s3.get(path).body == b"hello"


def test_SIG_connection_is_usable_after_403(s3, path, endpoint):
    with Connection(endpoint) as connection:
        for _ in range(3):
            connection.send(head_bytes("GET", path, "", [("Host", endpoint.host_header)]))
            check(connection.response(), 403, "AccessDenied")
        connection.send(head_bytes("GET", path, "", s3.signed_headers("GET", path)))
        check(connection.response(), 200)
