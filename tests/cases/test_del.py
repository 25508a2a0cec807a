"""DeleteObjects."""

import base64
import hashlib
import zlib

import pytest

import ops
from ops import check

KEYS = ["a", "b/c", "d e+f"]


def digests(body):
    crc = zlib.crc32(body).to_bytes(4, "big")
    return {
        "x-amz-checksum-crc32": base64.b64encode(crc).decode(),
        "x-amz-checksum-sha256": base64.b64encode(hashlib.sha256(body).digest()).decode(),
        "Content-MD5": base64.b64encode(hashlib.md5(body).digest()).decode(),
    }


def delete(client, bucket, body, headers=None):
    """POST ?delete; with Content-MD5 unless the test gives its own headers."""
    if headers is None:
        headers = {"Content-MD5": digests(body)["Content-MD5"]}
    return client.post(f"/{bucket}", "delete=", body, headers)


@pytest.fixture
def filled(s3, bucket):
    for key in KEYS:
        ops.put(s3, bucket, key)
    return bucket


@pytest.mark.parametrize("name", ["x-amz-checksum-crc32", "x-amz-checksum-sha256", "Content-MD5"])
def test_DEL_01_any_one_digest_will_do(s3, filled, name):
    body = ops.delete_xml(KEYS)
    answer = check(delete(s3, filled, body, {name: digests(body)[name]}), 200)
    assert sorted(answer.all("Deleted/Key")) == sorted(KEYS)
    assert ops.keys_of(s3, filled) == []


def test_DEL_01_crc64nvme(s3, filled):
    body = ops.delete_xml(KEYS)
    value = base64.b64encode(crc64nvme(body).to_bytes(8, "big")).decode()
    check(delete(s3, filled, body, {"x-amz-checksum-crc64nvme": value}), 200)
    assert ops.keys_of(s3, filled) == []


def crc64nvme(data):
    crc = 0xFFFFFFFFFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x9A6C9329AC4BC9B5 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFFFFFFFFFF


def test_DEL_01_none_and_wrong(s3, filled):
    body = ops.delete_xml(KEYS)
    answer = delete(s3, filled, body, {})
    assert answer.status == 400 and answer.code in ("InvalidRequest", "MissingContentMD5"), answer
    wrong = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    check(delete(s3, filled, body, {"Content-MD5": wrong}), 400, "BadDigest")
    check(delete(s3, filled, body, {"x-amz-checksum-crc32": "AAAAAA=="}), 400, "BadDigest")
    assert ops.keys_of(s3, filled) == sorted(KEYS)


def test_DEL_01_quiet_and_absent_keys(s3, filled):
    answer = check(delete(s3, filled, ops.delete_xml(["a", "none"], quiet=True)), 200)
    assert answer.xml.tag == "DeleteResult" and answer.all("Deleted") == []
    answer = check(delete(s3, filled, ops.delete_xml(["none", "b/c"])), 200)
    assert sorted(answer.all("Deleted/Key")) == ["b/c", "none"]
    assert ops.keys_of(s3, filled) == ["d e+f"]


def test_DEL_01_limits_and_malformed(s3, filled):
    check(delete(s3, filled, ops.delete_xml([f"k{n}" for n in range(1001)])), 400, "MalformedXML")
    check(delete(s3, filled, ops.delete_xml([f"k{n}" for n in range(1000)])), 200)
    for body in (b"<Delete>", b"<Delete></Delete>", b"<Other/>", b"", b"\xff\xfe"):
        check(delete(s3, filled, body), 400, "MalformedXML")
    bomb = (b'<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
            b"<Delete><Object><Key>&b;</Key></Object></Delete>")
    check(delete(s3, filled, bomb), 400, "MalformedXML")
    assert ops.keys_of(s3, filled) == sorted(KEYS)


EXACT = {"a\rb": "a&#13;b", "a\r\nb": "a&#xD;\nb", "a\nb": "a\nb",
         "x<y>&\"'z": "x&lt;y&gt;&amp;&quot;&apos;z", " lead": " lead", "trail ": "trail ",
         "c<d": "<![CDATA[c<d]]>", "é": "&#233;", "tab\tx": "tab&#9;x"}
OTHERS = ["ab", "lead", "trail", "a b", "x"]


def test_DEL_03_references_and_white_space(s3, bucket):
    for key in [*EXACT, *OTHERS]:
        ops.put(s3, bucket, key)
    inner = "".join(f"<Object><Key>{text}</Key></Object>" for text in EXACT.values())
    answer = check(delete(s3, bucket, f"<Delete>{inner}</Delete>".encode()), 200)
    assert sorted(answer.all("Deleted/Key")) == sorted(EXACT)
    assert ops.keys_of(s3, bucket) == sorted(OTHERS)


def test_DEL_03_raw_carriage_return_is_a_line_feed(s3, bucket):
    for key in ("a\rb", "a\nb", "a\r\nb"):
        ops.put(s3, bucket, key)
    body = b"<Delete><Object><Key>a\rb</Key></Object></Delete>"
    check(delete(s3, bucket, body), 200)
    assert sorted(ops.keys_of(s3, bucket, encoding_type="url")) == ["a%0D%0Ab", "a%0Db"]
