"""Tags of objects and of their versions with boto3."""

import pytest
from botocore.exceptions import ClientError

from ops import MIB, body_of
from test_boto3 import make_client
from test_versions import put, refused, remove_all, set_versioning


@pytest.fixture
def client(endpoint):
    return make_client(endpoint)


def tag_set(**tags):
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tags_of(client, bucket, key, **version):
    found = client.get_object_tagging(Bucket=bucket, Key=key, **version)["TagSet"]
    return {tag["Key"]: tag["Value"] for tag in found}


def tag(client, bucket, key, tags, **version):
    return client.put_object_tagging(
        Bucket=bucket, Key=key, Tagging={"TagSet": tags}, **version)


def test_tags_come_go_and_are_counted(client, bucket):
    client.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="a=1&b%20c=%C3%A9&empty=")
    assert tags_of(client, bucket, "k") == {"a": "1", "b c": "é", "empty": ""}
    assert client.head_object(Bucket=bucket, Key="k")["TagCount"] == 3
    before = client.head_object(Bucket=bucket, Key="k")
    tag(client, bucket, "k", tag_set(only="one"))
    assert tags_of(client, bucket, "k") == {"only": "one"}
    after = client.get_object(Bucket=bucket, Key="k")
    assert after["TagCount"] == 1 and after["LastModified"] == before["LastModified"]
    assert after["ETag"] == before["ETag"]
    client.delete_object_tagging(Bucket=bucket, Key="k")
    assert tags_of(client, bucket, "k") == {}
    assert "TagCount" not in client.head_object(Bucket=bucket, Key="k")
    client.put_object(Bucket=bucket, Key="k", Body=b"y", Tagging="new=1")
    client.put_object(Bucket=bucket, Key="k", Body=b"z")
    assert tags_of(client, bucket, "k") == {}


def test_each_version_has_its_tags(client, bucket):
    put(client, bucket, "k", b"before")
    set_versioning(client, bucket, "Enabled")
    version = put(client, bucket, "k", b"one")
    newest = put(client, bucket, "k", b"two")
    assert tag(client, bucket, "k", tag_set(n="old"), VersionId=version)["VersionId"] == version
    assert tag(client, bucket, "k", tag_set(n="new"))["VersionId"] == newest
    tag(client, bucket, "k", tag_set(n="null"), VersionId="null")
    assert tags_of(client, bucket, "k", VersionId=version) == {"n": "old"}
    assert tags_of(client, bucket, "k", VersionId="null") == {"n": "null"}
    assert tags_of(client, bucket, "k") == {"n": "new"}
    client.delete_object_tagging(Bucket=bucket, Key="k", VersionId=version)
    assert tags_of(client, bucket, "k", VersionId=version) == {}
    marker = client.delete_object(Bucket=bucket, Key="k")["VersionId"]
    wanted = {"Bucket": bucket, "Key": "k", "Tagging": {"TagSet": []}}
    refused(client.put_object_tagging, 404, "NoSuchKey", **wanted)
    refused(client.put_object_tagging, 405, "MethodNotAllowed", VersionId=marker, **wanted)
    refused(client.put_object_tagging, 404, "NoSuchVersion", VersionId="e" * 32, **wanted)
    remove_all(client, bucket)


def test_copies_and_multipart_carry_tags(client, bucket):
    client.put_object(Bucket=bucket, Key="from", Body=b"x", Tagging="a=1")
    source = {"Bucket": bucket, "Key": "from"}
    client.copy_object(Bucket=bucket, Key="kept", CopySource=source, Tagging="ignored=1")
    assert tags_of(client, bucket, "kept") == {"a": "1"}
    client.copy_object(Bucket=bucket, Key="replaced", CopySource=source, Tagging="b=2",
                       TaggingDirective="REPLACE")
    assert tags_of(client, bucket, "replaced") == {"b": "2"}
    client.copy_object(Bucket=bucket, Key="bare", CopySource=source, TaggingDirective="REPLACE")
    assert tags_of(client, bucket, "bare") == {}
    client.copy_object(Bucket=bucket, Key="meta", CopySource=source, Metadata={"m": "1"},
                       MetadataDirective="REPLACE")
    assert tags_of(client, bucket, "meta") == {"a": "1"}
    upload = client.create_multipart_upload(Bucket=bucket, Key="mp", Tagging="m=p")["UploadId"]
    part = client.upload_part(Bucket=bucket, Key="mp", UploadId=upload, PartNumber=1,
                              Body=body_of(MIB))
    client.complete_multipart_upload(
        Bucket=bucket, Key="mp", UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    assert tags_of(client, bucket, "mp") == {"m": "p"}


@pytest.mark.parametrize("tags, code", [
    ([("k" * 129, "")], "InvalidTag"), ([("k", "v" * 257)], "InvalidTag"),
    ([("k", "1"), ("k", "2")], "InvalidTag"),
    ([("aws:k", "1")], "InvalidTag"), ([("k<", "1")], "InvalidTag"),
    ([(f"k{n}", "") for n in range(11)], "BadRequest"),
])
def test_what_is_no_tag_is_refused_and_changes_nothing(client, bucket, tags, code):
    client.put_object(Bucket=bucket, Key="k", Body=b"x", Tagging="old=1")
    pairs = [{"Key": key, "Value": value} for key, value in tags]
    refused(client.put_object_tagging, 400, code,
            Bucket=bucket, Key="k", Tagging={"TagSet": pairs})
    assert tags_of(client, bucket, "k") == {"old": "1"}
    if len(tags) > 1:
        header = "&".join(f"{key}={value}" for key, value in tags)
        refused(client.put_object, 400, code, Bucket=bucket, Key="k", Body=b"y", Tagging=header)
        assert client.get_object(Bucket=bucket, Key="k")["Body"].read() == b"x"


def test_the_limits_fit(client, bucket):
    client.put_object(Bucket=bucket, Key="k", Body=b"x")
    tags = {f"{n}" + "ü" * 127: "ñ" * 256 for n in range(10)}
    tag(client, bucket, "k", tag_set(**tags))
    assert tags_of(client, bucket, "k") == tags


def test_tags_of_nothing(client, bucket):
    with pytest.raises(ClientError) as caught:
        client.get_object_tagging(Bucket=bucket, Key="none")
    assert caught.value.response["Error"]["Code"] == "NoSuchKey"
    refused(client.delete_object_tagging, 404, "NoSuchKey", Bucket=bucket, Key="none")
    refused(client.put_object_tagging, 404, "NoSuchKey",
            Bucket=bucket, Key="none", Tagging={"TagSet": []})
