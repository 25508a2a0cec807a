"""S3 operations over the raw client, for tests that need them as set-up or in passing."""

import hashlib
from urllib.parse import quote

from xml.sax.saxutils import escape

# Object sizes on both sides of every boundary that the store has (pack limit, head, page).
SEAM_SIZES = ((1 << 20) - 1, 1 << 20, (1 << 20) + 1)
MIB = 1 << 20


def body_of(size, seed=0):
    """`size` reproducible bytes that differ at every offset of a page."""
    block = hashlib.shake_128(f"goblin {seed}".encode()).digest(65521)
    return (block * (size // len(block) + 1))[:size]


def md5(data):
    return hashlib.md5(data).hexdigest()


def key_path(bucket, key):
    """The raw path of a key, every byte outside the unreserved set escaped, slashes kept."""
    return f"/{bucket}/{quote(key, safe='/-_.~')}"


def query(**params):
    """`list_type=2` becomes list-type=2; values are escaped; None is left out."""
    return "&".join(f"{n.replace('_', '-')}={quote(str(v), safe='')}"
                    for n, v in params.items() if v is not None)


def list_page(client, bucket, **params):
    answer = client.get(f"/{bucket}", query(list_type=2, **params))
    assert answer.status == 200, answer
    return answer


def keys_of(client, bucket, **params):
    return list_page(client, bucket, **params).all("Contents/Key")


def put(client, bucket, key, body=b"x", headers=None):
    answer = client.put(key_path(bucket, key), body, headers)
    assert answer.status == 200, answer
    return answer


def get(client, bucket, key, headers=None):
    answer = client.get(key_path(bucket, key), headers=headers)
    assert answer.status in (200, 206), answer
    return answer


def create_upload(client, bucket, key, headers=None):
    answer = client.post(key_path(bucket, key), "uploads=", headers=headers)
    assert answer.status == 200, answer
    return answer.text("UploadId")


def part_query(upload, number):
    return f"partNumber={number}&uploadId={quote(upload, safe='')}"


def upload_part(client, bucket, key, upload, number, body, headers=None):
    answer = client.put(key_path(bucket, key), body, headers, query=part_query(upload, number))
    assert answer.status == 200, answer
    return answer.etag


def parts_xml(parts):
    inner = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{escape(e)}</ETag></Part>"
                    for n, e in parts)
    return f"<CompleteMultipartUpload>{inner}</CompleteMultipartUpload>".encode()


def complete(client, bucket, key, upload, parts, headers=None):
    """Sends Complete and returns the answer, whatever it is."""
    return client.post(
        key_path(bucket, key), f"uploadId={quote(upload, safe='')}", parts_xml(parts), headers)


def completed(client, bucket, key, upload, parts):
    answer = complete(client, bucket, key, upload, parts)
    assert answer.status == 200 and answer.text("ETag"), answer
    return answer


def abort(client, bucket, key, upload):
    return client.delete(key_path(bucket, key), f"uploadId={quote(upload, safe='')}")


def delete_xml(keys, quiet=False):
    inner = "".join(f"<Object><Key>{escape(k)}</Key></Object>" for k in keys)
    return f"<Delete>{'<Quiet>true</Quiet>' if quiet else ''}{inner}</Delete>".encode()


def check(answer, status, code=None):
    """One assertion for an expected answer; a code is wanted exactly when it is given."""
    assert answer.status == status, f"wanted {status} {code or ''}, got {answer!r}"
    if code is not None:
        assert answer.code == code, f"wanted {status} {code}, got {answer!r}"
    return answer
