"""restic (minio-go inside): the round of a backup tool (LIST-12)."""

import shutil

import pytest


def test_restic_backup_check_restore(tool, bucket, tree, tmp_path, same_files):
    if not shutil.which("restic"):
        pytest.skip("restic is not installed")
    tool.env |= {"RESTIC_PASSWORD": "x", "RESTIC_REPOSITORY": f"s3:{tool.endpoint.url}/{bucket}/r"}
    ca = ["--cacert", tool.endpoint.ca_file] if tool.endpoint.tls else []
    tool.run("restic", *ca, "init")
    tool.run("restic", *ca, "backup", ".", cwd=tree)
    tool.run("restic", *ca, "check", "--read-data")
    tool.run("restic", *ca, "restore", "latest", "--target", tmp_path / "back")
    same_files(tree, tmp_path / "back")
