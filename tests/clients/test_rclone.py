"""rclone: copy with its own check of every checksum, in both directions (MPU-16)."""

import pytest

from harness import MAIN, REGION


@pytest.fixture
def rclone(tool, tmp_path):
    config = tmp_path / "rclone.conf"
    config.write_text(
        "[s]\ntype = s3\nprovider = Other\nforce_path_style = true\n"
        f"access_key_id = {MAIN.access_key}\nsecret_access_key = {MAIN.secret_key}\n"
        f"region = {REGION}\nendpoint = {tool.endpoint.url}\n")
    tool.env.pop("AWS_CA_BUNDLE", None)  # rclone 1.60 refuses to start with it.
    ca = ["--ca-cert", tool.endpoint.ca_file] if tool.endpoint.tls else []

    def run(*arguments, **options):
        return tool.run("rclone", "--config", config, "--retries", "1", *ca, *arguments, **options)
    return run


def test_copy_both_ways_and_check(rclone, bucket, tree, samples, tmp_path, same_files):
    root = samples["small"].parent
    for name, source in (("t", tree), ("s", root)):
        rclone("copy", "--s3-chunk-size", "5M", "--s3-upload-cutoff", "6M", source,
               f"s:{bucket}/{name}")
        rclone("check", source, f"s:{bucket}/{name}")
        rclone("copy", f"s:{bucket}/{name}", tmp_path / "back" / name)
        same_files(source, tmp_path / "back" / name)


def test_sync_moves_nothing_the_second_time(rclone, bucket, tree):
    rclone("sync", tree, f"s:{bucket}/t")
    again = rclone("sync", "-v", "--stats-log-level", "NOTICE", tree, f"s:{bucket}/t")
    assert "Copied" not in again.stderr


def test_server_side_copy_list_and_delete(rclone, bucket, tree):
    rclone("copy", tree, f"s:{bucket}/one")
    rclone("copy", f"s:{bucket}/one", f"s:{bucket}/two")
    rclone("check", f"s:{bucket}/one", f"s:{bucket}/two")
    assert rclone("lsf", f"s:{bucket}/").stdout.split() == ["one/", "two/"]
    rclone("delete", f"s:{bucket}/two")
    assert rclone("lsf", f"s:{bucket}/").stdout.split() == ["one/"]


def test_stream_of_unknown_size(rclone, bucket):
    text = "streamed " * 2_000_000
    rclone("rcat", f"s:{bucket}/stream", input=text)
    assert rclone("cat", f"s:{bucket}/stream").stdout == text


def test_range(rclone, bucket, tmp_path):
    (tmp_path / "digits").write_text("0123456789" * 200_000)
    rclone("copyto", tmp_path / "digits", f"s:{bucket}/k")
    part = rclone("cat", "--offset", "1048575", "--count", "7", f"s:{bucket}/k")
    assert part.stdout == "5678901"
