"""aws-cli, versions 1 and 2: the high-level s3 commands and s3api."""

import json
import sys
from pathlib import Path

import pytest

from ops import body_of

V1 = Path(sys.executable).with_name("aws")
V2 = Path("/usr/bin/aws")


@pytest.fixture(params=["v1", "v2"])
def aws(request, tool):
    """A function that runs the client: aws("s3", "ls")."""
    path = V1 if request.param == "v1" else V2
    if not path.exists():
        pytest.skip(f"{path} is not installed")

    def run(*arguments, **options):
        return tool.run(path, "--endpoint-url", tool.endpoint.url, *arguments, **options)
    return run


def test_bucket_life(aws, bucket):
    name = f"{bucket}-made"
    aws("s3", "mb", f"s3://{name}")
    assert name in aws("s3", "ls").stdout
    aws("s3", "rb", f"s3://{name}")
    assert name not in aws("s3", "ls").stdout


def test_copy_up_and_down(aws, bucket, samples, tmp_path):
    for name, path in samples.items():
        aws("s3", "cp", path, f"s3://{bucket}/{name}")
        aws("s3", "cp", f"s3://{bucket}/{name}", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == path.read_bytes()
    listed = aws("s3", "ls", f"s3://{bucket}/").stdout
    assert len(listed.splitlines()) == len(samples)


def test_sync_awkward_names(aws, bucket, tree, tmp_path, same_files):
    aws("s3", "sync", tree, f"s3://{bucket}/t")
    assert aws("s3", "sync", tree, f"s3://{bucket}/t").stdout.strip() == ""
    aws("s3", "sync", f"s3://{bucket}/t", tmp_path / "back")
    same_files(tree, tmp_path / "back")
    aws("s3", "rm", "--recursive", f"s3://{bucket}/")
    assert aws("s3", "ls", "--recursive", f"s3://{bucket}/", ok=False).stdout == ""


def test_move_and_server_side_copy(aws, bucket, samples, tmp_path):
    aws("s3", "cp", samples["multipart"], f"s3://{bucket}/one")
    aws("s3", "cp", f"s3://{bucket}/one", f"s3://{bucket}/two +x")
    aws("s3", "mv", f"s3://{bucket}/two +x", f"s3://{bucket}/three")
    aws("s3", "cp", f"s3://{bucket}/three", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == samples["multipart"].read_bytes()
    assert "two" not in aws("s3", "ls", f"s3://{bucket}/").stdout


def test_streams(aws, bucket, tool, tmp_path):
    body = body_of(12 << 20).hex()
    aws("s3", "cp", "-", f"s3://{bucket}/stream", input=body)
    assert aws("s3", "cp", f"s3://{bucket}/stream", "-").stdout == body


def test_api_metadata_range_and_checksums(aws, bucket, samples, tmp_path):
    aws("s3api", "put-object", "--bucket", bucket, "--key", "k", "--body", samples["seam"],
        "--metadata", "colour=gruen,n=1", "--content-type", "text/x",
        "--checksum-algorithm", "SHA256")
    head = json.loads(aws("s3api", "head-object", "--bucket", bucket, "--key", "k",
                          "--checksum-mode", "ENABLED").stdout)
    assert head["Metadata"] == {"colour": "gruen", "n": "1"} and head["ContentType"] == "text/x"
    assert head["ChecksumSHA256"]
    got = json.loads(aws("s3api", "get-object", "--bucket", bucket, "--key", "k", "--range",
                         "bytes=1048570-1048576", tmp_path / "part").stdout)
    assert got["ContentRange"] == "bytes 1048570-1048576/1048577"
    assert (tmp_path / "part").read_bytes() == samples["seam"].read_bytes()[1048570:]


def test_api_multipart(aws, bucket, samples, tmp_path):
    names = ("--bucket", bucket, "--key", "k")
    upload = json.loads(aws("s3api", "create-multipart-upload", *names).stdout)["UploadId"]
    names += ("--upload-id", upload)
    parts = []
    for number in (1, 2):
        answer = aws("s3api", "upload-part", *names, "--part-number", str(number), "--body",
                     samples["multipart" if number == 1 else "small"])
        parts.append({"PartNumber": number, "ETag": json.loads(answer.stdout)["ETag"]})
    listed = json.loads(aws("s3api", "list-parts", *names).stdout)
    assert [p["PartNumber"] for p in listed["Parts"]] == [1, 2]
    aws("s3api", "complete-multipart-upload", *names, "--multipart-upload",
        json.dumps({"Parts": parts}))
    aws("s3", "cp", f"s3://{bucket}/k", tmp_path / "back")
    wanted = samples["multipart"].read_bytes() + samples["small"].read_bytes()
    assert (tmp_path / "back").read_bytes() == wanted


def test_presigned_url(aws, bucket, samples, tool, tmp_path):
    aws("s3", "cp", samples["small"], f"s3://{bucket}/a b+c")
    url = aws("s3", "presign", f"s3://{bucket}/a b+c").stdout.strip()
    ca = ["--cacert", tool.endpoint.ca_file] if tool.endpoint.tls else []
    tool.run("curl", "-sSf", "-o", tmp_path / "back", *ca, url)
    assert (tmp_path / "back").read_bytes() == samples["small"].read_bytes()
