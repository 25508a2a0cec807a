"""Cross-origin requests: what a browser asks before, and what it is told with the answer."""

import base64
import hashlib

import pytest

import ops
from ops import check
from raw import Client

PAGE = "https://page.example"
RULE = ("<CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>"
        "<AllowedMethod>PUT</AllowedMethod><AllowedMethod>POST</AllowedMethod>"
        "<AllowedHeader>*</AllowedHeader><ExposeHeader>ETag</ExposeHeader>"
        "<MaxAgeSeconds>3000</MaxAgeSeconds></CORSRule>")


def configure(client, bucket, rules):
    body = f"<CORSConfiguration>{rules}</CORSConfiguration>".encode()
    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    return client.put(f"/{bucket}", body, {"Content-MD5": md5}, query="cors=")


def preflight(client, path, origin=PAGE, method="PUT", headers="content-type,x-amz-date"):
    return client.request("OPTIONS", path, headers={
        "Origin": origin, "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": headers})


@pytest.fixture
def stranger(endpoint):
    """A client without a key, as a browser's preflight is."""
    client = Client(endpoint, None)
    yield client
    client.close()


def test_CORS_01_preflight_and_real_requests(s3, stranger, bucket):
    path = f"/{bucket}/k"
    check(preflight(stranger, path), 403, "AccessForbidden")
    check(configure(s3, bucket, RULE), 200)
    asked = check(preflight(stranger, path), 200)
    assert asked.header("access-control-allow-origin") == "*"
    assert asked.header("access-control-allow-methods") == "GET, PUT, POST"
    assert asked.header("access-control-allow-headers") == "content-type, x-amz-date"
    assert asked.header("access-control-max-age") == "3000"
    assert "Origin" in asked.header("vary")
    check(preflight(stranger, path, method="DELETE"), 403, "AccessForbidden")
    for answer in (s3.put(path, b"x", {"Origin": PAGE}), s3.get(path, headers={"Origin": PAGE})):
        check(answer, 200)
        assert answer.header("access-control-allow-origin") == "*"
        assert answer.header("access-control-expose-headers") == "ETag"
    plain = ops.get(s3, bucket, "k")
    assert plain.header("access-control-allow-origin") is None
    assert "Origin" in plain.header("vary")


def test_CORS_01_an_origin_that_is_not_allowed(s3, stranger, bucket):
    check(configure(s3, bucket, RULE.replace("*</AllowedOrigin>", f"{PAGE}</AllowedOrigin>")), 200)
    path = f"/{bucket}/k"
    other = check(preflight(stranger, path, origin="https://other"), 403, "AccessForbidden")
    assert other.header("access-control-allow-origin") is None
    put = check(s3.put(path, b"x", {"Origin": "https://other"}), 200)
    assert put.header("access-control-allow-origin") is None
    # Why a request was refused is for the page to read.
    refused = check(stranger.get(path, headers={"Origin": PAGE}), 403, "AccessDenied")
    assert refused.header("access-control-allow-origin") == PAGE


def test_documents_that_are_refused_change_nothing(s3, bucket):
    check(configure(s3, bucket, RULE), 200)
    before = s3.get(f"/{bucket}", "cors=").body
    for rules, code in (
            ("", "MalformedXML"),
            ("<CORSRule/>", "MalformedXML"),
            (RULE.replace("PUT", "PATCH"), "InvalidRequest"),
            (RULE.replace("<AllowedOrigin>*<", "<AllowedOrigin>*.*<"), "InvalidRequest"),
            (RULE.replace("ETag", "*"), "InvalidRequest"),
            (RULE * 101, "InvalidRequest")):
        check(configure(s3, bucket, rules), 400, code)
    assert s3.get(f"/{bucket}", "cors=").body == before
