"""boto3: client and resource, transfers, checksums, presigned URLs of both versions."""

import io
import socket
import subprocess
from dataclasses import replace

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

from awkward import AWKWARD_KEYS
from harness import MAIN, REGION
from ops import MIB, body_of

CHECKSUMS = ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]


def make_client(endpoint, kind="client", **config):
    factory = boto3.client if kind == "client" else boto3.resource
    return factory(
        "s3", endpoint_url=endpoint.url, region_name=REGION, verify=endpoint.ca_file or False,
        aws_access_key_id=MAIN.access_key, aws_secret_access_key=MAIN.secret_key,
        config=Config(retries={"max_attempts": 1}, **config))


@pytest.fixture
def client(endpoint):
    return make_client(endpoint)


@pytest.mark.parametrize("size", [0, 1, 5, 300_000, MIB + 1, 9 * MIB])
def test_put_get_head(client, bucket, size):
    body = body_of(size)
    put = client.put_object(Bucket=bucket, Key="k", Body=body, Metadata={"a": "b"})
    got = client.get_object(Bucket=bucket, Key="k")
    assert got["Body"].read() == body and got["ETag"] == put["ETag"]
    assert got["Metadata"] == {"a": "b"}
    assert client.head_object(Bucket=bucket, Key="k")["ContentLength"] == size


@pytest.mark.parametrize("key", AWKWARD_KEYS)
def test_awkward_keys(client, bucket, key):
    client.put_object(Bucket=bucket, Key=key, Body=b"x")
    assert client.get_object(Bucket=bucket, Key=key)["Body"].read() == b"x"
    listed = client.list_objects_v2(Bucket=bucket)["Contents"]
    assert [o["Key"] for o in listed] == [key]
    client.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": key})
    result = client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key}]})
    assert [d["Key"] for d in result["Deleted"]] == [key]
    assert [o["Key"] for o in client.list_objects(Bucket=bucket)["Contents"]] == ["copy"]


@pytest.mark.parametrize("algorithm", CHECKSUMS)
def test_checksums(client, bucket, algorithm):
    if algorithm in ("CRC32C", "CRC64NVME"):
        pytest.importorskip("awscrt", reason="botocore needs awscrt for it")
    name = f"Checksum{algorithm}"
    put = client.put_object(Bucket=bucket, Key="k", Body=b"hello", ChecksumAlgorithm=algorithm)
    head = client.head_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert put[name] == head[name]
    assert client.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")["Body"].read()


@pytest.mark.parametrize("size", [8 * MIB, 8 * MIB + 1, 40 * MIB + 17])
def test_transfers(client, bucket, size, tmp_path):
    path, back = tmp_path / "up", tmp_path / "down"
    path.write_bytes(body_of(size))
    client.upload_file(str(path), bucket, "k", ExtraArgs={"Metadata": {"m": "1"}})
    client.download_file(bucket, "k", str(back))
    assert back.read_bytes() == path.read_bytes()
    assert client.head_object(Bucket=bucket, Key="k")["Metadata"] == {"m": "1"}
    client.copy({"Bucket": bucket, "Key": "k"}, bucket, "copy",
                Config=TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB))
    out = io.BytesIO()
    client.download_fileobj(bucket, "copy", out)
    assert out.getvalue() == path.read_bytes()


def test_ranges_and_conditions(client, bucket):
    etag = client.put_object(Bucket=bucket, Key="k", Body=b"0123456789")["ETag"]
    got = client.get_object(Bucket=bucket, Key="k", Range="bytes=2-4", IfMatch=etag)
    assert got["Body"].read() == b"234" and got["ContentRange"] == "bytes 2-4/10"
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket=bucket, Key="k", Body=b"x", IfNoneMatch="*")
    assert caught.value.response["Error"]["Code"] == "PreconditionFailed"
    with pytest.raises(ClientError) as caught:
        client.get_object(Bucket=bucket, Key="k", IfNoneMatch=etag)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 304


def test_paging_and_bulk_delete(client, bucket):
    for number in range(25):
        client.put_object(Bucket=bucket, Key=f"dir/{number:02} +", Body=b"")
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, PaginationConfig={"PageSize": 7})
    keys = [o["Key"] for page in pages for o in page["Contents"]]
    assert keys == [f"dir/{n:02} +" for n in range(25)]
    client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in keys]})
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_versions_of_an_unversioned_bucket(client, bucket):
    client.put_object(Bucket=bucket, Key="k", Body=b"x")
    versions = client.list_object_versions(Bucket=bucket)["Versions"]
    assert [(v["Key"], v["VersionId"], v["IsLatest"]) for v in versions] == [("k", "null", True)]
    assert client.get_object(Bucket=bucket, Key="k", VersionId="null")["Body"].read() == b"x"


def test_unicode_metadata(client, bucket):
    """boto3 refuses non-ASCII metadata itself; encoded text goes through untouched."""
    client.put_object(Bucket=bucket, Key="k", Body=b"", Metadata={"name": "gr%C3%BC%C3%9Fe"})
    assert client.head_object(Bucket=bucket, Key="k")["Metadata"] == {"name": "gr%C3%BC%C3%9Fe"}


def test_resource(endpoint, bucket):
    resource = make_client(endpoint, "resource")
    handle = resource.Bucket(bucket)
    handle.put_object(Key="a/b", Body=b"1")
    handle.upload_fileobj(io.BytesIO(body_of(9 * MIB)), "big")
    assert sorted(o.key for o in handle.objects.all()) == ["a/b", "big"]
    assert resource.Object(bucket, "a/b").get()["Body"].read() == b"1"
    handle.objects.all().delete()
    assert list(handle.objects.all()) == []


@pytest.mark.parametrize("version", ["s3", "s3v4"])
def test_presigned_urls(endpoint, bucket, version):
    client = make_client(endpoint, signature_version=version)
    names = {"Bucket": bucket, "Key": "a b+c/ü"}
    curl = ["curl", "-sSf"] + (["--cacert", endpoint.ca_file] if endpoint.tls else [])
    put = client.generate_presigned_url("put_object", Params=names)
    subprocess.run([*curl, "-X", "PUT", "--data-binary", "hello", "-H", "Content-Type:", put],
                   check=True, capture_output=True)
    get = client.generate_presigned_url("get_object", Params=names)
    assert subprocess.run([*curl, get], check=True, capture_output=True).stdout == b"hello"
    typed = client.generate_presigned_url(
        "get_object", Params=names | {"ResponseContentType": "text/x"})
    shown = subprocess.run([*curl, "-D", "-", typed], check=True, capture_output=True)
    assert b"text/x" in shown.stdout


@pytest.mark.parametrize("style", ["path", "virtual"])
def test_addressing(endpoint, bucket, style, monkeypatch):
    """Virtual-host names end in s3.localhost, which is this machine whatever the resolver says."""
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: resolve(
        "127.0.0.1" if host.endswith(".localhost") else host, *rest, **more))
    client = make_client(replace(endpoint, host="s3.localhost"), s3={"addressing_style": style})
    client.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert client.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"
    shown = client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    assert (f"//{bucket}.s3.localhost" in shown) == (style == "virtual")


def test_old_checksum_behaviour(endpoint, bucket):
    """`when_required`: no trailer, no aws-chunked; DeleteObjects still carries a checksum."""
    client = make_client(endpoint, request_checksum_calculation="when_required")
    client.put_object(Bucket=bucket, Key="k", Body=body_of(MIB))
    client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k"}]})
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_errors(client, bucket):
    for call, code in (
            (lambda: client.get_object(Bucket=bucket, Key="none"), "NoSuchKey"),
            (lambda: client.head_object(Bucket=bucket, Key="none"), "404"),
            (lambda: client.list_objects_v2(Bucket=f"{bucket}-none"), "NoSuchBucket"),
            (lambda: client.get_bucket_policy(Bucket=bucket), "NoSuchBucketPolicy"),
            (lambda: client.get_object(Bucket=bucket, Key="k", VersionId="x" * 32), None)):
        with pytest.raises(ClientError) as caught:
            call()
        assert code is None or caught.value.response["Error"]["Code"] == code


def test_bucket_configurations(client, bucket):
    rule = {"ID": "one", "AllowedOrigins": ["https://*.example"], "AllowedMethods": ["GET", "PUT"],
            "AllowedHeaders": ["*"], "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 60}
    tags = [{"Key": "a", "Value": "1"}, {"Key": "b c", "Value": ""}]
    for missing, call in (("NoSuchCORSConfiguration", client.get_bucket_cors),
                          ("NoSuchTagSet", client.get_bucket_tagging)):
        with pytest.raises(ClientError) as error:
            call(Bucket=bucket)
        assert error.value.response["Error"]["Code"] == missing
    client.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    client.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
    assert client.get_bucket_cors(Bucket=bucket)["CORSRules"] == [rule]
    assert client.get_bucket_tagging(Bucket=bucket)["TagSet"] == tags
    client.delete_bucket_cors(Bucket=bucket)
    client.delete_bucket_tagging(Bucket=bucket)
    with pytest.raises(ClientError):
        client.get_bucket_cors(Bucket=bucket)


def test_bucket_configurations_survive_a_restart(own_store):
    client = make_client(own_store.endpoint())
    client.create_bucket(Bucket="kept")
    tags = [{"Key": "a", "Value": "1"}]
    client.put_bucket_tagging(Bucket="kept", Tagging={"TagSet": tags})
    own_store.restart(kill=True)
    client = make_client(own_store.endpoint())
    assert client.get_bucket_tagging(Bucket="kept")["TagSet"] == tags


@pytest.mark.parametrize("signature", ["s3v4", "s3"])
def test_presigned_post(endpoint, bucket, signature):
    client = make_client(endpoint, signature_version=signature)
    post = client.generate_presigned_post(
        bucket, "up/${filename}", Fields={"acl": "private", "success_action_status": "201"},
        Conditions=[{"acl": "private"}, {"success_action_status": "201"},
                    ["content-length-range", 1, 100]])
    command = ["curl", "-sS", "-o", "-", "-w", "%{http_code}"]
    command += ["--cacert", endpoint.ca_file] if endpoint.ca_file else []
    for name, value in post["fields"].items():
        command += ["--form-string", f"{name}={value}"]
    done = subprocess.run([*command, "-F", "file=@-;filename=a.txt", post["url"]], input=b"hello",
                          capture_output=True, timeout=60)
    assert done.stdout.endswith(b"201"), done
    assert client.get_object(Bucket=bucket, Key="up/a.txt")["Body"].read() == b"hello"
