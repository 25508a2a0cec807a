"""Versions with boto3: history, delete markers, restores, suspended buckets, listings, batches."""

import pytest
from botocore.exceptions import ClientError

from ops import MIB, body_of
from test_boto3 import make_client


@pytest.fixture
def client(endpoint):
    return make_client(endpoint)


@pytest.fixture
def versioned(client, bucket):
    set_versioning(client, bucket, "Enabled")
    yield bucket
    remove_all(client, bucket)


def set_versioning(client, bucket, status):
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})


def remove_all(client, bucket, **options):
    """Every version, page by page, and then the bucket, which only an empty one can be."""
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
        rows = page.get("Versions", []) + page.get("DeleteMarkers", [])
        objects = [{"Key": row["Key"], "VersionId": row["VersionId"]} for row in rows]
        if objects:
            gone = client.delete_objects(Bucket=bucket, Delete={"Objects": objects}, **options)
            assert len(gone["Deleted"]) == len(objects), gone


def put(client, bucket, key, body):
    return client.put_object(Bucket=bucket, Key=key, Body=body).get("VersionId")


def read(client, bucket, key, version=None):
    named = {"VersionId": version} if version else {}
    return client.get_object(Bucket=bucket, Key=key, **named)["Body"].read()


def refused(call, status, code, **arguments):
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    answer = caught.value.response
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == status, answer
    assert answer["Error"]["Code"] == code, answer
    return answer["ResponseMetadata"]["HTTPHeaders"]


def listed(client, bucket, **arguments):
    """(key, version, latest, marker) of every row in the order of the answers' own lists."""
    answer = client.list_object_versions(Bucket=bucket, **arguments)
    rows = [(r["Key"], r["VersionId"], r["IsLatest"], False) for r in answer.get("Versions", [])]
    marks = answer.get("DeleteMarkers", [])
    return rows + [(r["Key"], r["VersionId"], r["IsLatest"], True) for r in marks]


@pytest.mark.parametrize("sizes", [(3, 0, 7), (300_000, 100, 400_000), (MIB + 1, 3 * MIB, 5)])
def test_every_version_stays_readable(client, versioned, sizes):
    bodies = [body_of(size, seed) for seed, size in enumerate(sizes)]
    ids = [put(client, versioned, "k", body) for body in bodies]
    assert len(set(ids)) == 3 and None not in ids
    for version, body in zip(ids, bodies):
        got = client.get_object(Bucket=versioned, Key="k", VersionId=version)
        assert got["Body"].read() == body and got["VersionId"] == version
        head = client.head_object(Bucket=versioned, Key="k", VersionId=version)
        assert head["ContentLength"] == len(body) and head["VersionId"] == version
        attributes = client.get_object_attributes(
            Bucket=versioned, Key="k", VersionId=version, ObjectAttributes=["ObjectSize"])
        assert attributes["ObjectSize"] == len(body) and attributes["VersionId"] == version
    assert read(client, versioned, "k") == bodies[-1]
    newest_first = [("k", version, version == ids[2], False) for version in reversed(ids)]
    assert listed(client, versioned) == newest_first
    client.delete_object(Bucket=versioned, Key="k", VersionId=ids[2])
    assert read(client, versioned, "k") == bodies[1]
    refused(client.get_object, 404, "NoSuchVersion", Bucket=versioned, Key="k", VersionId=ids[2])


def test_delete_markers(client, versioned):
    version = put(client, versioned, "k", b"one")
    deleted = client.delete_object(Bucket=versioned, Key="k")
    marker = deleted["VersionId"]
    assert deleted["DeleteMarker"] and marker != version
    headers = refused(client.get_object, 404, "NoSuchKey", Bucket=versioned, Key="k")
    assert (headers["x-amz-delete-marker"], headers["x-amz-version-id"]) == ("true", marker)
    headers = refused(client.head_object, 404, "404", Bucket=versioned, Key="k")
    assert (headers["x-amz-delete-marker"], headers["x-amz-version-id"]) == ("true", marker)
    named = {"Bucket": versioned, "Key": "k", "VersionId": marker}
    headers = refused(client.get_object, 405, "MethodNotAllowed", **named)
    assert headers["x-amz-delete-marker"] == "true" and headers["allow"] == "DELETE"
    assert "last-modified" in headers
    refused(client.head_object, 405, "405", **named)
    source = {"Bucket": versioned, "Key": "k", "VersionId": marker}
    refused(client.copy_object, 400, "InvalidRequest", Bucket=versioned, Key="c", CopySource=source)
    source = {"Bucket": versioned, "Key": "k"}
    refused(client.copy_object, 404, "NoSuchKey", Bucket=versioned, Key="c", CopySource=source)
    assert "Contents" not in client.list_objects_v2(Bucket=versioned)
    removed = client.delete_object(**named)
    assert removed["DeleteMarker"] and removed["VersionId"] == marker
    assert read(client, versioned, "k") == b"one"
    gone = client.delete_object(Bucket=versioned, Key="k", VersionId=version)
    assert gone["VersionId"] == version and "DeleteMarker" not in gone
    refused(client.get_object, 404, "NoSuchKey", Bucket=versioned, Key="k")


def test_a_suspended_bucket(client, bucket):
    assert "Status" not in client.get_bucket_versioning(Bucket=bucket)
    assert put(client, bucket, "k", b"before") is None
    set_versioning(client, bucket, "Enabled")
    assert client.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    kept = put(client, bucket, "k", b"kept")
    assert read(client, bucket, "k", "null") == b"before"
    set_versioning(client, bucket, "Suspended")
    assert client.get_bucket_versioning(Bucket=bucket)["Status"] == "Suspended"
    assert put(client, bucket, "k", b"null one") is None
    assert put(client, bucket, "k", b"null two") is None
    assert read(client, bucket, "k", "null") == b"null two" == read(client, bucket, "k")
    assert listed(client, bucket) == [("k", "null", True, False), ("k", kept, False, False)]
    deleted = client.delete_object(Bucket=bucket, Key="k")
    assert deleted["DeleteMarker"] and deleted["VersionId"] == "null"
    assert listed(client, bucket) == [("k", kept, False, False), ("k", "null", True, True)]
    assert read(client, bucket, "k", kept) == b"kept"
    remove_all(client, bucket)


def test_copies_and_multipart_make_versions(client, versioned):
    first = put(client, versioned, "k", b"first")
    put(client, versioned, "k", b"second")
    source = {"Bucket": versioned, "Key": "k", "VersionId": first}
    copied = client.copy_object(Bucket=versioned, Key="k", CopySource=source)
    assert copied["CopySourceVersionId"] == first and copied["VersionId"] != first
    assert read(client, versioned, "k") == b"first"
    assert len(listed(client, versioned)) == 3
    large = body_of(6 * MIB)
    whole = put(client, versioned, "large", large)
    upload = client.create_multipart_upload(Bucket=versioned, Key="large")["UploadId"]
    parts = []
    for number, limits in enumerate(("0-5242879", f"5242880-{6 * MIB - 1}"), 1):
        part = client.upload_part_copy(
            Bucket=versioned, Key="large", UploadId=upload, PartNumber=number,
            CopySource={"Bucket": versioned, "Key": "large", "VersionId": whole},
            CopySourceRange=f"bytes={limits}")
        assert part["CopySourceVersionId"] == whole
        parts.append({"PartNumber": number, "ETag": part["CopyPartResult"]["ETag"]})
    done = client.complete_multipart_upload(
        Bucket=versioned, Key="large", UploadId=upload, MultipartUpload={"Parts": parts})
    assert done["VersionId"] not in (None, whole)
    client.delete_object(Bucket=versioned, Key="large", VersionId=whole)
    assert read(client, versioned, "large", done["VersionId"]) == large


def test_pages_of_versions(client, versioned):
    for key in ("a", "b/1", "b/2", "c d", "é"):
        for n in range(3):
            put(client, versioned, key, b"%d" % n)
    client.delete_object(Bucket=versioned, Key="c d")
    everything = set(listed(client, versioned))
    assert len(everything) == 16
    for size in (1, 2, 5, 16):
        seen, more = [], {}
        while True:
            page = client.list_object_versions(Bucket=versioned, MaxKeys=size, **more)
            rows = page.get("Versions", []) + page.get("DeleteMarkers", [])
            assert 1 <= len(rows) <= size and page["MaxKeys"] == size
            seen += [(r["Key"], r["VersionId"]) for r in rows]
            if not page["IsTruncated"]:
                break
            more = {"KeyMarker": page["NextKeyMarker"],
                    "VersionIdMarker": page["NextVersionIdMarker"]}
        assert len(seen) == len(set(seen)) == 16
        assert {row[:2] for row in everything} == set(seen)
    grouped = client.list_object_versions(Bucket=versioned, Delimiter="/", MaxKeys=4)
    assert [p["Prefix"] for p in grouped["CommonPrefixes"]] == ["b/"]
    assert grouped["IsTruncated"] and grouped["NextKeyMarker"] == "b/"
    rest = client.list_object_versions(Bucket=versioned, Delimiter="/", KeyMarker="b/")
    assert {row["Key"] for row in rest["Versions"]} == {"c d", "é"}
    assert [row["Key"] for row in rest["DeleteMarkers"]] == ["c d"]
    behind = client.list_object_versions(Bucket=versioned, Prefix="b/", KeyMarker="b/1")
    assert {row["Key"] for row in behind["Versions"]} == {"b/2"}
    wrong = {"Bucket": versioned, "VersionIdMarker": "null"}
    refused(client.list_object_versions, 400, "InvalidArgument", **wrong)
    wrong = {"Bucket": versioned, "KeyMarker": "a", "VersionIdMarker": "no id"}
    refused(client.list_object_versions, 400, "InvalidArgument", **wrong)


def test_batches_of_versions(client, versioned):
    ids = [put(client, versioned, "k", b"%d" % n) for n in range(3)]
    objects = [{"Key": "k", "VersionId": ids[0]}, {"Key": "k"}, {"Key": "none"},
               {"Key": "k", "VersionId": "no id"}]
    answer = client.delete_objects(Bucket=versioned, Delete={"Objects": objects})
    removed, covered, never = answer["Deleted"]
    assert removed == {"Key": "k", "VersionId": ids[0]}
    assert covered["DeleteMarker"] and never["DeleteMarker"]
    assert [e["Code"] for e in answer["Errors"]] == ["NoSuchVersion"]
    marker = covered["DeleteMarkerVersionId"]
    answer = client.delete_objects(
        Bucket=versioned, Delete={"Objects": [{"Key": "k", "VersionId": marker}]})
    assert answer["Deleted"] == [{"Key": "k", "VersionId": marker, "DeleteMarker": True,
                                  "DeleteMarkerVersionId": marker}]
    assert read(client, versioned, "k") == b"2"


def test_a_bucket_goes_when_its_last_version_has_gone(client, versioned):
    marker = client.delete_object(Bucket=versioned, Key="k")["VersionId"]
    refused(client.delete_bucket, 409, "BucketNotEmpty", Bucket=versioned)
    client.delete_object(Bucket=versioned, Key="k", VersionId=marker)
    client.delete_bucket(Bucket=versioned)
    client.create_bucket(Bucket=versioned)
    assert "Status" not in client.get_bucket_versioning(Bucket=versioned)


def test_wrong_requests(client, versioned):
    key = {"Bucket": versioned, "Key": "k"}
    put(client, versioned, "k", b"x")
    for call in (client.get_object, client.head_object, client.delete_object):
        with pytest.raises(ClientError) as caught:
            call(**key, VersionId="no-version")
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    refused(client.get_object, 404, "NoSuchVersion", **key, VersionId="f" * 32)
    assert client.delete_object(**key, VersionId="f" * 32)["VersionId"] == "f" * 32
    mfa = {"Status": "Enabled", "MFADelete": "Enabled"}
    refused(client.put_bucket_versioning, 403, "AccessDenied",
            Bucket=versioned, VersioningConfiguration=mfa)
    refused(client.put_bucket_versioning, 400, "MalformedXML",
            Bucket=versioned, VersioningConfiguration={"Status": "On"})
    refused(client.put_bucket_versioning, 400, "IllegalVersioningConfigurationException",
            Bucket=versioned, VersioningConfiguration={})
    assert client.get_bucket_versioning(Bucket=versioned)["Status"] == "Enabled"


def test_history_survives_a_kill(own_store):
    client = make_client(own_store.endpoint())
    client.create_bucket(Bucket="history")
    set_versioning(client, "history", "Enabled")
    bodies = [body_of(size, 1) for size in (10, 300_000, 2 * MIB)]
    ids = [put(client, "history", "k", body) for body in bodies]
    marker = client.delete_object(Bucket="history", Key="k")["VersionId"]
    own_store.kill()
    own_store.start()
    client = make_client(own_store.endpoint())
    assert [read(client, "history", "k", version) for version in ids] == bodies
    headers = refused(client.get_object, 404, "NoSuchKey", Bucket="history", Key="k")
    assert headers["x-amz-version-id"] == marker
    client.delete_object(Bucket="history", Key="k", VersionId=marker)
    assert read(client, "history", "k") == bodies[-1]
