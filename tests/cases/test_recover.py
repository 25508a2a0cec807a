"""check and recover with the real binary: what is damaged is told, what is lost comes back."""

import base64
import hashlib
import json
import os
import random
import shutil
import subprocess

import pytest

import ops
from harness import MAIN, binary, clean_environment
from ops import MIB, check
from raw import Client

SIZES = (0, 1, 4096, 100_000, 256 * 1024, 256 * 1024 + 1, MIB + 7, 3 * MIB)
OK, FAILED, PROBLEMS = 0, 1, 3


def command(store, name, *options):
    """One command on the stopped store: exit code and what it printed, as JSON where it can be."""
    result = subprocess.run(
        [*store.command, name, "--data-dir", str(store.data), "--json", *options],
        env=clean_environment(), capture_output=True, text=True, check=False, timeout=300)
    try:
        return result.returncode, json.loads(result.stdout)
    except ValueError:
        return result.returncode, result.stderr


def fill(client, bucket="bkt", prefix="k"):
    """Objects of all kinds; what must be found later, by key."""
    check(client.put(f"/{bucket}"), 200)
    for number, size in enumerate(SIZES):
        ops.put(client, bucket, f"{prefix}{number}", ops.body_of(size, number),
                {"x-amz-meta-n": str(number)})
    ops.put(client, bucket, "over", b"old")
    ops.put(client, bucket, "over", b"new")
    ops.put(client, bucket, "gone", ops.body_of(1000))
    check(client.delete(f"/{bucket}/gone"), 204)
    check(client.put(f"/{bucket}/copy", headers={"x-amz-copy-source": f"{bucket}/{prefix}7"}), 200)
    upload = ops.create_upload(client, bucket, "parts")
    etag = ops.upload_part(client, bucket, "parts", upload, 1, ops.body_of(5 * MIB, 1))
    last = ops.upload_part(client, bucket, "parts", upload, 2, b"end")
    ops.complete(client, bucket, "parts", upload, [(1, etag), (2, last)])
    ops.upload_part(client, bucket, "open", ops.create_upload(client, bucket, "open"), 3, b"part")


CORS = (b"<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod>"
        b"<AllowedOrigin>https://example.com</AllowedOrigin></CORSRule></CORSConfiguration>")
TAGS = b"<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>"
VERSIONING = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"


def with_md5(body):
    return {"Content-MD5": base64.b64encode(hashlib.md5(body).digest()).decode()}


def fill_versioned(client, bucket="vbk"):
    """Versions, a delete marker, tags and configuration documents."""
    check(client.put(f"/{bucket}"), 200)
    check(client.put(f"/{bucket}", VERSIONING, with_md5(VERSIONING), "versioning="), 200)
    check(client.put(f"/{bucket}", CORS, with_md5(CORS), "cors="), 200)
    for number, size in enumerate((10, 400_000, 20)):
        ops.put(client, bucket, "k", ops.body_of(size, number))
    check(client.put(f"/{bucket}/k", TAGS, with_md5(TAGS), "tagging="), 200)
    ops.put(client, bucket, "marked", b"x")
    check(client.delete(f"/{bucket}/marked"), 204)


def versions(client, bucket="vbk"):
    """Everything of a versioned bucket that a client can see."""
    listing = check(client.get(f"/{bucket}", "versions="), 200)
    seen = {}
    for entry in listing.xml.findall("Version") + listing.xml.findall("DeleteMarker"):
        fields = {child.tag: child.text for child in entry if len(child) == 0}
        key, version = fields["Key"], fields["VersionId"]
        body = client.get(f"/{bucket}/{key}", f"versionId={version}").body
        seen[key, version] = (entry.tag, fields, body if entry.tag == "Version" else None)
    seen["cors"] = check(client.get(f"/{bucket}", "cors="), 200).body
    seen["versioning"] = check(client.get(f"/{bucket}", "versioning="), 200).body
    seen["tags"] = check(client.get(f"/{bucket}/k", "tagging="), 200).body
    return seen


def contents(client, bucket="bkt"):
    """Everything that a client can see of a bucket."""
    listing = check(client.get(f"/{bucket}", "list-type=2"), 200)
    uploads = check(client.get(f"/{bucket}", "uploads="), 200)
    seen = {"uploads": [(u.findtext("Key"), u.findtext("UploadId"))
                        for u in uploads.xml.findall("Upload")]}
    for entry in listing.xml.findall("Contents"):
        key = entry.findtext("Key")
        answer = ops.get(client, bucket, key)
        seen[key] = (answer.body, answer.etag, answer.header("last-modified"),
                     answer.header("x-amz-meta-n"), entry.findtext("Size"))
    return seen


@pytest.fixture
def filled(own_store):
    client = Client(own_store.endpoint(), MAIN)
    fill(client)
    wanted = contents(client)
    assert len(wanted) == len(SIZES) + 4
    client.close()
    own_store.kill()
    return own_store, wanted


def started_contents(store):
    store.start()
    client = Client(store.endpoint(), MAIN)
    try:
        return contents(client)
    finally:
        client.close()
        store.kill()


def blob_files(store):
    return sorted(p for p in (store.data / "blobs").rglob("*.blob"))


def flip(path, offset, bit=0):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ (1 << bit)]))


def test_a_killed_store_is_sound(filled):
    store, wanted = filled
    code, report = command(store, "check")
    assert (code, report["ok"], report["problems"]) == (OK, True, [])
    assert report["objects"] == len(SIZES) + 3
    assert report["parts_of_uploads"] == 1
    assert report["blob_files"] == 4 and report["packed_blobs"] >= 7
    assert started_contents(store) == wanted


def test_a_running_store_is_not_checked(own_store):
    code, message = command(own_store, "check")
    assert code == FAILED and "in use by process" in message


def test_what_the_disk_lost_is_told(filled):
    store, _ = filled
    assert command(store, "check")[0] == OK
    files = blob_files(store)
    files[0].unlink()
    flip(files[1], files[1].stat().st_size - 1)
    os.truncate(files[2], files[2].stat().st_size - 4096)
    (files[2].parent / "notes.txt").write_text("x")
    orphan = files[2].with_name(files[2].name[:2] + "f" * 30 + ".blob")
    orphan.write_bytes(b"nobody's")
    code, report = command(store, "check")
    assert code == PROBLEMS and report["problems_total"] == 5, report
    told = "\n".join(report["problems"])
    for name in (files[0].stem, files[1].stem, files[2].stem, "notes.txt", orphan.stem):
        assert name in told


def test_a_damaged_record_of_the_log_is_told(filled):
    store, _ = filled
    segment = min((store.data / "log").glob("*.seg"))
    data = segment.read_bytes()
    for at in (4096 + 8, data.index(ops.body_of(100_000, 3)[:64])):
        flip(segment, at)
        code, report = command(store, "check")
        assert code == PROBLEMS and report["problems_total"] >= 1
        told = report["problems"][-1]
        assert f"segment {int(segment.stem)} is damaged" in told or "data of commit" in told
        flip(segment, at)
    assert command(store, "check")[0] == OK


def damage(name, data):
    database = data / "catalog.sqlite"
    size = database.stat().st_size
    if name == "deleted":
        for path in data.glob("catalog.sqlite*"):
            path.unlink()
    elif name == "file deleted, log of it kept":
        database.unlink()
    elif name == "empty":
        os.truncate(database, 0)
    elif name == "cut":
        os.truncate(database, size // 2)
    elif name == "garbage":
        database.write_bytes(random.Random(1).randbytes(50_000))
    elif name == "sector":
        whole = bytearray(database.read_bytes())
        at = next(at for at in range(8192, size, 512) if any(whole[at:at + 512]))
        whole[at:at + 512] = bytes(512)
        database.write_bytes(whole)
    else:
        for page in range(size // 8192):
            flip(database, page * 8192 + 4000 + page, page % 8)


@pytest.mark.parametrize("name", ["deleted", "file deleted, log of it kept", "empty", "cut",
                                  "garbage", "sector", "bits"])
def test_a_damaged_catalog_is_made_again(filled, name):
    store, wanted = filled
    # Checkpointed, so that the file has everything.
    assert command(store, "check")[0] == OK
    damage(name, store.data)
    # A file that is missing or empty is made again at every start.
    if name in ("cut", "garbage", "sector", "bits"):
        code, report = command(store, "check")
        assert code == PROBLEMS and "recover" in report["problems"][0], report
    code, report = command(store, "recover")
    assert (code, report["problems"]) == (OK, [])
    assert started_contents(store) == wanted
    former = list(store.data.glob("catalog.sqlite.former-*"))
    assert bool(former) == (name not in ("deleted", "file deleted, log of it kept"))


def test_versions_tags_and_configuration_come_back(own_store):
    client = Client(own_store.endpoint(), MAIN)
    fill_versioned(client)
    wanted = versions(client)
    assert len(wanted) == 5 + 3
    client.close()
    own_store.kill()
    assert command(own_store, "check")[1]["other_versions"] == 4
    damage("bits", own_store.data)
    code, report = command(own_store, "recover")
    assert (code, report["problems"]) == (OK, [])
    own_store.start()
    client = Client(own_store.endpoint(), MAIN)
    assert versions(client) == wanted
    client.close()
    code, summary = command(own_store, "backup", "--to", str(own_store.directory / "copy"))
    assert code == OK and summary["blobs"] == 4


def test_a_deleted_catalog_is_made_again_at_the_start(filled):
    store, wanted = filled
    damage("deleted", store.data)
    assert started_contents(store) == wanted


def test_a_start_without_catalog_and_log_touches_nothing(filled):
    store, _ = filled
    damage("deleted", store.data)
    shutil.rmtree(store.data / "log")
    before = blob_files(store)
    result = subprocess.run([str(binary()), "serve", "--data-dir", str(store.data), "--http-port",
                             "0"], env=clean_environment(), capture_output=True, text=True,
                            timeout=60, check=False)
    assert result.returncode == 1 and "neither catalog.sqlite nor a commit log" in result.stderr
    assert blob_files(store) == before
