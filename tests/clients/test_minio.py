"""minio-py."""

import io
import ssl

import pytest
import urllib3
from minio import Minio
from minio.commonconfig import REPLACE, ComposeSource, CopySource
from minio.deleteobjects import DeleteObject

from awkward import AWKWARD_KEYS
from harness import MAIN, REGION
from ops import MIB, body_of

REFUSED_BY_THE_CLIENT = {"a//b", "up/../x", "dir/./y"}


@pytest.fixture
def client(endpoint):
    pool = None
    if endpoint.tls:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
        pool = urllib3.PoolManager(ssl_context=context)
    return Minio(endpoint.host_header, access_key=MAIN.access_key, secret_key=MAIN.secret_key,
                 region=REGION, secure=endpoint.tls, http_client=pool)


def put(client, bucket, key, body, **options):
    return client.put_object(bucket, key, io.BytesIO(body), len(body), **options)


def get(client, bucket, key, **options):
    answer = client.get_object(bucket, key, **options)
    try:
        return answer.read()
    finally:
        answer.close()
        answer.release_conn()


@pytest.mark.parametrize("size", [0, 5, MIB + 1, 12 * MIB])
def test_put_get_stat(client, bucket, size):
    body = body_of(size)
    put(client, bucket, "k", body, part_size=5 * MIB, metadata={"colour": "blue"})
    assert get(client, bucket, "k") == body
    stat = client.stat_object(bucket, "k")
    assert stat.size == size and stat.metadata["x-amz-meta-colour"] == "blue"


@pytest.mark.parametrize("key", [k for k in AWKWARD_KEYS if k not in REFUSED_BY_THE_CLIENT])
def test_awkward_keys(client, bucket, key):
    put(client, bucket, key, b"x")
    assert get(client, bucket, key) == b"x"
    assert [o.object_name for o in client.list_objects(bucket, recursive=True)] == [key]
    client.remove_object(bucket, key)
    assert list(client.list_objects(bucket, recursive=True)) == []


def test_stream_of_unknown_size(client, bucket):
    body = body_of(12 * MIB)
    client.put_object(bucket, "k", io.BytesIO(body), -1, part_size=5 * MIB)
    assert get(client, bucket, "k") == body
    assert get(client, bucket, "k", offset=MIB - 1, length=3) == body[MIB - 1:MIB + 2]


def test_copy_and_compose(client, bucket):
    put(client, bucket, "one", body_of(5 * MIB))
    put(client, bucket, "two", b"tail")
    client.copy_object(bucket, "copy", CopySource(bucket, "one"), metadata={"n": "1"},
                       metadata_directive=REPLACE)
    assert client.stat_object(bucket, "copy").metadata["x-amz-meta-n"] == "1"
    client.compose_object(bucket, "whole", [ComposeSource(bucket, "one"),
                                            ComposeSource(bucket, "two")])
    assert get(client, bucket, "whole") == body_of(5 * MIB) + b"tail"


def test_bulk_delete_and_prefixes(client, bucket):
    for number in range(5):
        put(client, bucket, f"dir/{number}", b"x")
    assert [o.object_name for o in client.list_objects(bucket)] == ["dir/"]
    names = [DeleteObject(o.object_name) for o in client.list_objects(bucket, recursive=True)]
    assert list(client.remove_objects(bucket, names)) == []
    assert list(client.list_objects(bucket, recursive=True)) == []


def test_presigned_and_unicode_metadata(client, bucket, endpoint):
    put(client, bucket, "k", b"hello", metadata={"name": "gruesse"})
    url = client.presigned_get_object(bucket, "k")
    pool = urllib3.PoolManager(ca_certs=endpoint.ca_file) if endpoint.tls else urllib3.PoolManager()
    assert pool.request("GET", url).data == b"hello"
