"""s3cmd of Debian."""

import pytest

from harness import MAIN
from ops import md5


@pytest.fixture
def s3cmd(tool, tmp_path):
    config = tmp_path / "s3cfg"
    tls = tool.endpoint.tls
    config.write_text(
        f"[default]\naccess_key = {MAIN.access_key}\nsecret_key = {MAIN.secret_key}\n"
        f"host_base = {tool.endpoint.host_header}\nhost_bucket = {tool.endpoint.host_header}\n"
        f"use_https = {tls}\nca_certs_file = {tool.endpoint.ca_file or ''}\n"
        "multipart_chunk_size_mb = 5\n")

    def run(*arguments, **options):
        return tool.run("s3cmd", "-c", config, *arguments, **options)
    return run


def test_buckets(s3cmd, bucket):
    s3cmd("mb", f"s3://{bucket}-made")
    assert f"s3://{bucket}-made" in s3cmd("ls").stdout
    s3cmd("rb", f"s3://{bucket}-made")


def test_put_get_list_delete(s3cmd, bucket, samples, tmp_path):
    for name, path in samples.items():
        s3cmd("put", path, f"s3://{bucket}/{name}")
        s3cmd("get", "--force", f"s3://{bucket}/{name}", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == path.read_bytes()
    assert len(s3cmd("ls", f"s3://{bucket}/").stdout.splitlines()) == len(samples)
    s3cmd("del", "--recursive", "--force", f"s3://{bucket}/")
    assert s3cmd("ls", f"s3://{bucket}/").stdout == ""


def test_copy_move_and_info(s3cmd, bucket, samples):
    s3cmd("put", "--add-header=x-amz-meta-colour:blue", samples["seam"], f"s3://{bucket}/one")
    s3cmd("cp", f"s3://{bucket}/one", f"s3://{bucket}/two +x")
    s3cmd("mv", f"s3://{bucket}/two +x", f"s3://{bucket}/three")
    info = s3cmd("info", f"s3://{bucket}/three").stdout
    assert md5(samples["seam"].read_bytes()) in info and "blue" in info
    listed = s3cmd("ls", f"s3://{bucket}/").stdout
    assert "three" in listed and "two" not in listed


def test_sync(s3cmd, bucket, tree, tmp_path, same_files):
    s3cmd("sync", f"{tree}/", f"s3://{bucket}/t/")
    again = s3cmd("sync", f"{tree}/", f"s3://{bucket}/t/").stdout
    assert "upload:" not in again
    (tmp_path / "back").mkdir()
    s3cmd("sync", f"s3://{bucket}/t/", f"{tmp_path}/back/")
    same_files(tree, tmp_path / "back")


def test_signature_version_2(s3cmd, bucket, samples, tmp_path):
    s3cmd("--signature-v2", "put", samples["small"], f"s3://{bucket}/k")
    s3cmd("--signature-v2", "get", f"s3://{bucket}/k", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == samples["small"].read_bytes()
