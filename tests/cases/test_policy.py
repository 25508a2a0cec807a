"""Buckets that everybody may read: policies in their simplest form, and what blocks them."""

import base64
import hashlib
import json

import pytest

import ops
from ops import check
from raw import Client


@pytest.fixture
def stranger(endpoint):
    client = Client(endpoint, None)
    yield client
    client.close()


def put_document(client, bucket, name, body):
    body = body.encode()
    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    return client.put(f"/{bucket}", body, {"Content-MD5": md5}, query=f"{name}=")


def policy(bucket, prefix="*", **changes):
    statement = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"],
                 "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/{prefix}"]}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement | changes]})


def block(client, bucket, **fields):
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
    document = f"<PublicAccessBlockConfiguration>{inner}</PublicAccessBlockConfiguration>"
    return put_document(client, bucket, "publicAccessBlock", document)


def test_everybody_reads_what_the_policy_opens(s3, alt, stranger, bucket):
    ops.put(s3, bucket, "open/k", b"hello")
    ops.put(s3, bucket, "shut", b"secret")
    path = f"/{bucket}/open/k"
    check(stranger.get(path), 403, "AccessDenied")
    text = policy(bucket, "open/*")
    check(put_document(s3, bucket, "policy", text), 204)
    got = s3.get(f"/{bucket}", "policy=")
    assert got.body.decode() == text and got.header("content-type") == "application/json"
    for client in (stranger, alt):
        assert check(client.get(path), 200).body == b"hello"
        assert client.head(path).status == 200
        assert check(client.get(path, headers={"Range": "bytes=1-2"}), 206).body == b"el"
        assert ops.keys_of(client, bucket) == ["open/k", "shut"]
        check(client.get(f"/{bucket}/gone"), 404, "NoSuchKey")
        check(client.get(f"/{bucket}/shut"), 403, "AccessDenied")
        check(client.put(path, b"x"), 403, "AccessDenied")
        check(client.delete(path), 403, "AccessDenied")
        check(client.get(f"/{bucket}", "policy="), 403, "AccessDenied")
        check(put_document(client, bucket, "policy", text), 403, "AccessDenied")
    check(s3.delete(f"/{bucket}", "policy="), 204)
    check(stranger.get(path), 403, "AccessDenied")
    check(s3.get(f"/{bucket}", "policy="), 404, "NoSuchBucketPolicy")


def test_without_listing_nobody_learns_what_is_there(s3, stranger, bucket):
    ops.put(s3, bucket, "k")
    text = policy(bucket, Action="s3:GetObject", Resource=f"arn:aws:s3:::{bucket}/*")
    check(put_document(s3, bucket, "policy", text), 204)
    check(stranger.get(f"/{bucket}/k"), 200)
    check(stranger.get(f"/{bucket}/gone"), 403, "AccessDenied")
    check(stranger.get(f"/{bucket}", "list-type=2"), 403, "AccessDenied")


def test_policies_that_are_refused_change_nothing(s3, stranger, bucket):
    ops.put(s3, bucket, "k")
    check(put_document(s3, bucket, "policy", policy(bucket)), 204)
    for text, status, code in (
            ("no json", 400, "MalformedPolicy"),
            ("{}", 400, "MalformedPolicy"),
            (policy(bucket, Effect="Maybe"), 400, "MalformedPolicy"),
            (policy("another-bucket"), 400, "MalformedPolicy"),
            (policy(bucket, NotPrincipal="*"), 400, "MalformedPolicy"),
            (policy(bucket, Effect="Deny"), 501, "NotImplemented"),
            (policy(bucket, Action="s3:PutObject"), 501, "NotImplemented"),
            (policy(bucket, Principal={"AWS": "arn:aws:iam::1:root"}), 501, "NotImplemented"),
            (policy(bucket, Condition={"Bool": {"aws:SecureTransport": "true"}}), 501,
             "NotImplemented"),
            (policy(bucket, Sid="x" * 21_000), 400, "MalformedPolicy")):
        check(put_document(s3, bucket, "policy", text), status, code)
    check(stranger.get(f"/{bucket}/k"), 200)


def test_the_block_on_public_access(s3, stranger, bucket):
    ops.put(s3, bucket, "k")
    path, everybody = f"/{bucket}/k", {"x-amz-acl": "public-read"}
    check(put_document(s3, bucket, "policy", policy(bucket)), 204)
    check(s3.put(f"/{bucket}", headers=everybody, query="acl="), 200)
    check(stranger.get(path), 200)
    check(block(s3, bucket, RestrictPublicBuckets="true", IgnorePublicAcls="true"), 200)
    check(stranger.get(path), 403, "AccessDenied")
    check(stranger.get(f"/{bucket}", "list-type=2"), 403, "AccessDenied")
    assert s3.get(f"/{bucket}", "policyStatus=").text("IsPublic") == "false"
    check(block(s3, bucket, BlockPublicAcls="true", BlockPublicPolicy="true"), 200)
    check(stranger.get(path), 200)
    check(put_document(s3, bucket, "policy", policy(bucket)), 403, "AccessDenied")
    check(s3.put(f"/{bucket}", headers=everybody, query="acl="), 403, "AccessDenied")
    check(s3.put(path, headers=everybody, query="acl="), 403, "AccessDenied")
    check(s3.put(path, b"new", everybody), 403, "AccessDenied")
    check(s3.put(f"/{bucket}/c", headers=everybody | {"x-amz-copy-source": f"{bucket}/k"}),
          403, "AccessDenied")
    check(s3.post(path, "uploads=", headers=everybody), 403, "AccessDenied")
    check(s3.put(path, b"new", {"x-amz-acl": "private"}), 200)
    check(block(s3, bucket, Unknown="true"), 400, "MalformedXML")
    shown = s3.get(f"/{bucket}", "publicAccessBlock=")
    assert (shown.text("BlockPublicAcls"), shown.text("IgnorePublicAcls")) == ("true", "false")
    check(s3.delete(f"/{bucket}", "publicAccessBlock="), 204)
    check(s3.get(f"/{bucket}", "publicAccessBlock="), 404, "NoSuchPublicAccessBlockConfiguration")
    assert s3.get(f"/{bucket}", "policyStatus=").text("IsPublic") == "true"
