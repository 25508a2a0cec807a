"""POST object: forms as browsers send them, signed with version 4, version 2 or not at all."""

import base64
import datetime
import hashlib
import hmac
import json
import uuid

import pytest

import ops
from harness import MAIN, REGION
from ops import MIB, body_of, check
from raw import Client
from sign import amz_date, now

HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def stranger(endpoint):
    client = Client(endpoint, None)
    yield client
    client.close()


def form_body(fields, file=b"bar", file_name="f.txt", boundary="----bound"):
    out = [f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
           for name, value in fields]
    if file is not None:
        out.append(f'--{boundary}\r\nContent-Disposition: form-data; name="file"; '
                   f'filename="{file_name}"\r\nContent-Type: x/y\r\n\r\n'.encode() + file + b"\r\n")
    return b"".join(out) + f"--{boundary}--\r\n".encode()


def send(client, bucket, fields, file=b"bar", **form):
    return client.request(
        "POST", f"/{bucket}", headers={"Content-Type": "multipart/form-data; boundary=----bound"},
        body=form_body(fields, file, **form))


def policy_of(conditions, expires=None):
    expires = expires or now() + HOUR
    document = {"expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"), "conditions": conditions}
    return base64.b64encode(json.dumps(document).encode()).decode()


def sign_v4(policy, when=None):
    when = when or now()
    day = when.strftime("%Y%m%d")
    key = ("AWS4" + MAIN.secret_key).encode()
    for part in (day, REGION, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return [("policy", policy), ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
            ("x-amz-credential", f"{MAIN.access_key}/{day}/{REGION}/s3/aws4_request"),
            ("x-amz-date", amz_date(when)),
            ("x-amz-signature", hmac.new(key, policy.encode(), hashlib.sha256).hexdigest())]


def sign_v2(policy):
    digest = hmac.new(MAIN.secret_key.encode(), policy.encode(), hashlib.sha1).digest()
    return [("policy", policy), ("AWSAccessKeyId", MAIN.access_key),
            ("signature", base64.b64encode(digest).decode())]


SIGNED_BY_V4 = [["starts-with", f"$x-amz-{n}", ""] for n in ("algorithm", "credential", "date")]


def signed(bucket, fields, conditions=(), version=4, expires=None):
    conditions = [{"bucket": bucket}, ["starts-with", "$key", "u/"], *conditions]
    if version == 2:
        return [*fields, *sign_v2(policy_of(conditions, expires))]
    return [*fields, *sign_v4(policy_of([*conditions, *SIGNED_BY_V4], expires))]


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("size", [0, 1, 70_000, 300_000, 2 * MIB + 7])
def test_a_signed_form_stores_its_file(s3, stranger, bucket, version, size):
    file = body_of(size)
    fields = signed(bucket, [("key", "u/${filename}"), ("Content-Type", "text/plain"),
                             ("x-amz-meta-color", "blue"), ("x-ignore-me", "1")],
                    [["eq", "$Content-Type", "text/plain"], {"x-amz-meta-color": "blue"}], version)
    answer = check(send(stranger, bucket, fields, file, file_name="C:\\dir\\a b.txt"), 204)
    assert answer.body == b""
    got = ops.get(s3, bucket, "u/a b.txt")
    assert got.body == file and got.etag == answer.etag
    assert got.header("content-type") == "text/plain"
    assert got.header("x-amz-meta-color") == "blue"


def test_wrong_signatures_are_refused(s3, stranger, bucket):
    right = signed(bucket, [("key", "u/k")])
    for name, value, status, code in (
            ("x-amz-signature", "0" * 64, 403, "SignatureDoesNotMatch"),
            ("x-amz-credential", f"nobody/20260101/{REGION}/s3/aws4_request", 403,
             "InvalidAccessKeyId"),
            ("x-amz-credential", f"{MAIN.access_key}/20010101/{REGION}/s3/aws4_request", 400,
             "AuthorizationQueryParametersError"),
            ("x-amz-date", "yesterday", 400, "InvalidArgument"),
            ("x-amz-algorithm", "none", 400, "InvalidArgument"),
            ("policy", policy_of([]), 403, "SignatureDoesNotMatch")):
        fields = [(n, value if n == name else v) for n, v in right]
        check(send(stranger, bucket, fields), status, code)
    for missing in ("policy", "x-amz-signature", "x-amz-credential", "x-amz-date", "key"):
        fields = [(n, v) for n, v in right if n != missing]
        check(send(stranger, bucket, fields), 400, "InvalidArgument")
    check(s3.head(f"/{bucket}/u/k"), 404)


def test_a_policy_binds_the_form(s3, stranger, bucket):
    def refused(fields, conditions=(), expires=None, file=b"bar", status=403, code="AccessDenied"):
        answer = send(stranger, bucket, signed(bucket, fields, conditions, expires=expires), file)
        check(answer, status, code)
        return answer.text("Message")

    assert "Policy expired" in refused([("key", "u/k")], expires=now() - HOUR)
    assert "Policy Condition failed" in refused([("key", "v/k")])
    assert "Extra input fields: acl" in refused([("key", "u/k"), ("acl", "public-read")])
    assert "Policy Condition failed" in refused([("key", "u/k")], [{"acl": "private"}])
    length = [["content-length-range", 2, 4]]
    refused([("key", "u/k")], length, file=b"12345", status=400, code="EntityTooLarge")
    refused([("key", "u/k")], length, file=b"1", status=400, code="EntityTooSmall")
    refused([("key", "u/k")], [["content-length-range", 1]], status=400,
            code="InvalidPolicyDocument")
    refused([("key", "u/k")], [{}], status=400, code="InvalidPolicyDocument")
    assert ops.keys_of(s3, bucket) == []
    check(send(stranger, bucket, signed(bucket, [("key", "u/k")], length), b"1234"), 204)


def test_a_policy_for_another_bucket(stranger, bucket):
    fields = [("key", "u/k"), *sign_v4(policy_of(
        [{"bucket": f"{bucket}x"}, ["starts-with", "$key", ""], *SIGNED_BY_V4]))]
    check(send(stranger, bucket, fields), 403, "AccessDenied")


def test_without_a_signature_only_public_buckets_take_forms(s3, stranger, bucket):
    check(send(stranger, bucket, [("key", "k")]), 403, "AccessDenied")
    check(s3.put(f"/{bucket}", headers={"x-amz-acl": "public-read-write"}, query="acl="), 200)
    check(send(stranger, bucket, [("key", "k")]), 204)
    assert ops.get(s3, bucket, "k").body == b"bar"


def test_answers_are_as_the_form_wishes(stranger, bucket):
    def post(*more):
        names = [["starts-with", f"${name}", ""] for name, _ in more]
        return send(stranger, bucket, signed(bucket, [("key", "u/a&b"), *more], names))

    for wish, status in (("200", 200), ("204", 204), ("404", 204), ("x", 204)):
        assert check(post(("success_action_status", wish)), status).body == b""
    created = check(post(("success_action_status", "201")), 201)
    assert created.text("Key") == "u/a&b" and created.text("Bucket") == bucket
    etag = created.text("ETag")
    query = f"bucket={bucket}&key=u%2Fa%26b&etag=%22{etag.strip(chr(34))}%22"
    away = check(post(("success_action_redirect", "https://page.example/done")), 303)
    assert away.header("location") == f"https://page.example/done?{query}"
    more = check(post(("redirect", "https://page.example/done?a=1")), 303)
    assert more.header("location") == f"https://page.example/done?a=1&{query}"
    for wrong in ("javascript:alert(1)", "not a url", "/relative"):
        check(post(("success_action_redirect", wrong)), 204)


def test_checksums_and_tags_in_forms(s3, stranger, bucket):
    sha256 = base64.b64encode(hashlib.sha256(b"bar").digest()).decode()
    any_value = [["starts-with", "$tagging", ""]]
    tags = ("<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag>"
            "<Tag><Key>b</Key><Value>2</Value></Tag></TagSet></Tagging>")

    def post(sha256, tags):
        fields = [("key", "u/k"), ("x-amz-checksum-sha256", sha256), ("tagging", tags)]
        return send(stranger, bucket, signed(bucket, fields, any_value))

    check(post(base64.b64encode(bytes(32)).decode(), tags), 400, "BadDigest")
    check(post("sailor", tags), 400, "BadDigest")
    check(post(sha256, "<Tagging>"), 400, "MalformedXML")
    check(post(sha256, tags.replace("<Key>b<", "<Key>a<")), 400, "InvalidTag")
    check(s3.head(f"/{bucket}/u/k"), 404)
    assert check(post(sha256, tags), 204).header("x-amz-checksum-sha256") == sha256
    shown = s3.get(f"/{bucket}/u/k", "tagging=")
    assert shown.all("TagSet/Tag/Key") == ["a", "b"]


def test_bodies_that_are_no_forms(stranger, s3, bucket):
    check(s3.put(f"/{bucket}", headers={"x-amz-acl": "public-read-write"}, query="acl="), 200)
    form = {"Content-Type": "multipart/form-data; boundary=----bound"}
    check(stranger.post(f"/{bucket}", body=b"x"), 412, "PreconditionFailed")
    check(stranger.post(f"/{bucket}", body=b"x", headers=form), 400, "MalformedPOSTRequest")
    cut = form_body([("key", "k")])[:-12]
    check(stranger.post(f"/{bucket}", body=cut, headers=form), 400, "MalformedPOSTRequest")
    check(send(stranger, bucket, [("key", "k")], None), 400, "InvalidArgument")
    check(send(stranger, bucket, [("key", "k"), ("a", "x" * 30_000)]), 400,
          "MaxPostPreDataLengthExceededError")
    check(send(stranger, bucket, [("key", "")], file_name=""), 400, "InvalidArgument")
    check(send(stranger, bucket, [("key", "k" * 1025)]), 400, "KeyTooLongError")
    twice = [("key", "k"), ("Content-Type", "a/b"), ("content-type", "c/d")]
    check(send(stranger, bucket, twice), 400, "MalformedPOSTRequest")
    check(send(stranger, f"none-{uuid.uuid4()}", [("key", "k")]), 404, "NoSuchBucket")
    assert ops.keys_of(s3, bucket) == []
