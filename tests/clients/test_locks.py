"""Object lock with boto3, as backup programs use it."""

import datetime
import time

import pytest

import ops
from ops import MIB, body_of
from test_boto3 import make_client
from test_versions import put, read, refused, remove_all, set_versioning

UTC = datetime.timezone.utc


@pytest.fixture
def client(endpoint):
    return make_client(endpoint)


@pytest.fixture
def locked(client, bucket):
    """A bucket with object lock, whose name is that of the test's own bucket and a letter."""
    name = bucket + "l"
    client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    yield name
    client.put_object_lock_configuration(
        Bucket=name, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled"})
    remove_all(client, name, BypassGovernanceRetention=True)
    client.delete_bucket(Bucket=name)


def later(seconds):
    return (datetime.datetime.now(UTC) + datetime.timedelta(seconds=seconds)).replace(microsecond=0)


def retention(mode, until):
    return {"Mode": mode, "RetainUntilDate": until}


def default(mode, **period):
    return {"ObjectLockEnabled": "Enabled",
            "Rule": {"DefaultRetention": {"Mode": mode, **period}}}


def test_a_bucket_made_with_lock(client, locked):
    assert client.get_bucket_versioning(Bucket=locked)["Status"] == "Enabled"
    found = client.get_object_lock_configuration(Bucket=locked)["ObjectLockConfiguration"]
    assert found == {"ObjectLockEnabled": "Enabled"}
    refused(client.put_bucket_versioning, 409, "InvalidBucketState", Bucket=locked,
            VersioningConfiguration={"Status": "Suspended"})
    wanted = default("GOVERNANCE", Days=3)
    client.put_object_lock_configuration(Bucket=locked, ObjectLockConfiguration=wanted)
    found = client.get_object_lock_configuration(Bucket=locked)["ObjectLockConfiguration"]
    assert found == wanted


def test_a_bucket_without_lock(client, bucket):
    put(client, bucket, "k", b"x")
    missing = "ObjectLockConfigurationNotFoundError"
    refused(client.get_object_lock_configuration, 404, missing, Bucket=bucket)
    refused(client.put_object_lock_configuration, 409, "InvalidBucketState", Bucket=bucket,
            ObjectLockConfiguration=default("GOVERNANCE", Days=1))
    key = {"Bucket": bucket, "Key": "k"}
    refused(client.get_object_retention, 400, "InvalidRequest", **key)
    refused(client.get_object_legal_hold, 400, "InvalidRequest", **key)
    refused(client.put_object_legal_hold, 400, "InvalidRequest", LegalHold={"Status": "ON"}, **key)
    refused(client.put_object_retention, 400, "InvalidRequest",
            Retention=retention("GOVERNANCE", later(99)), **key)
    refused(client.put_object, 400, "InvalidRequest", Body=b"y", ObjectLockMode="GOVERNANCE",
            ObjectLockRetainUntilDate=later(99), **key)
    assert read(client, bucket, "k") == b"x"
    set_versioning(client, bucket, "Enabled")
    client.put_object_lock_configuration(
        Bucket=bucket, ObjectLockConfiguration=default("GOVERNANCE", Years=1))
    version = put(client, bucket, "k", b"y")
    mode = client.head_object(**key)["ObjectLockMode"]
    assert mode == "GOVERNANCE"
    client.delete_object(**key, VersionId=version, BypassGovernanceRetention=True)
    remove_all(client, bucket)


def test_what_a_backup_program_does(client, locked):
    """Locks each block while it is written, makes the time longer, deletes when it has passed."""
    until = later(4)
    block = body_of(MIB + 5)
    version = client.put_object(
        Bucket=locked, Key="Veeam/blk", Body=block, ObjectLockMode="COMPLIANCE",
        ObjectLockRetainUntilDate=until)["VersionId"]
    head = client.head_object(Bucket=locked, Key="Veeam/blk", VersionId=version)
    assert head["ObjectLockMode"] == "COMPLIANCE" and head["ObjectLockRetainUntilDate"] == until
    until = until + datetime.timedelta(seconds=1)
    named = {"Bucket": locked, "Key": "Veeam/blk", "VersionId": version}
    client.put_object_retention(Retention=retention("COMPLIANCE", until), **named)
    assert client.get_object_retention(**named)["Retention"] == retention("COMPLIANCE", until)
    for bypass in ({}, {"BypassGovernanceRetention": True}):
        refused(client.delete_object, 403, "AccessDenied", **named, **bypass)
    shorter = retention("COMPLIANCE", until - datetime.timedelta(seconds=1))
    refused(client.put_object_retention, 403, "AccessDenied", Retention=shorter, **named)
    answer = client.delete_objects(Bucket=locked, BypassGovernanceRetention=True, Delete={
        "Objects": [{"Key": "Veeam/blk", "VersionId": version}]})
    assert [e["Code"] for e in answer["Errors"]] == ["AccessDenied"]
    # Writing over it and deleting it without a version only cover it.
    put(client, locked, "Veeam/blk", b"other")
    client.delete_object(Bucket=locked, Key="Veeam/blk")
    assert read(client, locked, "Veeam/blk", version) == block
    while datetime.datetime.now(UTC) <= until:
        time.sleep(0.2)
    client.delete_object(**named)
    refused(client.get_object, 404, "NoSuchVersion", **named)


def test_governance_and_its_bypass(client, locked):
    version = put(client, locked, "k", b"x")
    named = {"Bucket": locked, "Key": "k", "VersionId": version}
    client.put_object_retention(Retention=retention("GOVERNANCE", later(5000)), **named)
    refused(client.delete_object, 403, "AccessDenied", **named)
    shorter = retention("GOVERNANCE", later(100))
    refused(client.put_object_retention, 403, "AccessDenied", Retention=shorter, **named)
    client.put_object_retention(Retention=shorter, BypassGovernanceRetention=True, **named)
    assert client.get_object_retention(**named)["Retention"] == shorter
    client.put_object_legal_hold(LegalHold={"Status": "ON"}, **named)
    assert client.get_object_legal_hold(**named)["LegalHold"] == {"Status": "ON"}
    refused(client.delete_object, 403, "AccessDenied", BypassGovernanceRetention=True, **named)
    client.put_object_legal_hold(LegalHold={"Status": "OFF"}, **named)
    assert client.head_object(**named)["ObjectLockLegalHoldStatus"] == "OFF"
    client.delete_object(BypassGovernanceRetention=True, **named)


def test_copies_and_multipart_are_locked_as_asked(client, locked):
    put(client, locked, "from", b"x")
    until = later(5000)
    source = {"Bucket": locked, "Key": "from"}
    client.copy_object(Bucket=locked, Key="to", CopySource=source, ObjectLockMode="GOVERNANCE",
                       ObjectLockRetainUntilDate=until, ObjectLockLegalHoldStatus="OFF")
    head = client.head_object(Bucket=locked, Key="to")
    assert head["ObjectLockRetainUntilDate"] == until and head["ObjectLockLegalHoldStatus"] == "OFF"
    client.copy_object(Bucket=locked, Key="again", CopySource={"Bucket": locked, "Key": "to"})
    assert "ObjectLockMode" not in client.head_object(Bucket=locked, Key="again")
    upload = client.create_multipart_upload(
        Bucket=locked, Key="mp", ObjectLockMode="GOVERNANCE",
        ObjectLockRetainUntilDate=until)["UploadId"]
    part = client.upload_part(Bucket=locked, Key="mp", UploadId=upload, PartNumber=1, Body=b"p")
    done = client.complete_multipart_upload(
        Bucket=locked, Key="mp", UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    named = {"Bucket": locked, "Key": "mp", "VersionId": done["VersionId"]}
    assert client.get_object_retention(**named)["Retention"] == retention("GOVERNANCE", until)
    refused(client.delete_object, 403, "AccessDenied", **named)


def test_wrong_locks_are_refused(client, locked, s3):
    put(client, locked, "k", b"x")
    key = {"Bucket": locked, "Key": "k"}
    missing = "NoSuchObjectLockConfiguration"
    refused(client.get_object_retention, 404, missing, **key)
    refused(client.get_object_legal_hold, 404, missing, **key)
    past = retention("GOVERNANCE", later(-5))
    refused(client.put_object_retention, 400, "InvalidArgument", Retention=past, **key)
    wrong = {"Mode": "governance", "RetainUntilDate": later(99)}
    refused(client.put_object_retention, 400, "MalformedXML", Retention=wrong, **key)
    refused(client.put_object_legal_hold, 400, "MalformedXML", LegalHold={"Status": "?"}, **key)
    refused(client.put_object, 400, "InvalidArgument", Body=b"y", ObjectLockMode="GOVERNANCE", **key)
    refused(client.put_object, 400, "InvalidArgument", Body=b"y",
            ObjectLockLegalHoldStatus="on", **key)
    refused(client.put_object, 400, "InvalidArgument", Body=b"y", ObjectLockMode="GOVERNANCE",
            ObjectLockRetainUntilDate=later(-5), **key)
    answer = s3.put(f"/{locked}/k", b"y", {"x-amz-object-lock-legal-hold": "ON"})
    ops.check(answer, 400, "InvalidRequest")
    for period, code in (({"Days": 0}, "InvalidRetentionPeriod"), ({}, "MalformedXML"),
                         ({"Days": 1, "Years": 1}, "MalformedXML")):
        refused(client.put_object_lock_configuration, 400, code, Bucket=locked,
                ObjectLockConfiguration=default("GOVERNANCE", **period))
    assert read(client, locked, "k") == b"x"


def test_locks_survive_a_kill(own_store):
    client = make_client(own_store.endpoint())
    client.create_bucket(Bucket="locks", ObjectLockEnabledForBucket=True)
    client.put_object_lock_configuration(
        Bucket="locks", ObjectLockConfiguration=default("COMPLIANCE", Days=1))
    version = put(client, "locks", "k", b"x")
    own_store.kill()
    own_store.start()
    client = make_client(own_store.endpoint())
    named = {"Bucket": "locks", "Key": "k", "VersionId": version}
    refused(client.delete_object, 403, "AccessDenied", BypassGovernanceRetention=True, **named)
    assert client.head_object(**named)["ObjectLockMode"] == "COMPLIANCE"
    refused(client.put_bucket_versioning, 409, "InvalidBucketState", Bucket="locks",
            VersioningConfiguration={"Status": "Suspended"})
