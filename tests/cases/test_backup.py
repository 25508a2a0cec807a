"""backup beside a busy server, restore into a new directory: the state of one moment, whole."""

import json
import shutil
import subprocess
import threading

import pytest

import ops
from harness import MAIN, Store, clean_environment
from ops import MIB, check
from raw import Client
from test_recover import OK, PROBLEMS, blob_files, command, contents, fill, started_contents


@pytest.fixture
def filled(own_store):
    client = Client(own_store.endpoint(), MAIN)
    fill(client)
    yield own_store, client
    client.close()


def restored(backup, tmp_path, name="again"):
    """A store that was made of the backup, not started yet."""
    store = Store(tmp_path / name)
    result = subprocess.run(
        [*store.command, "restore", "--from", str(backup), "--data-dir", str(store.data)],
        env=clean_environment(), capture_output=True, text=True, check=False, timeout=120)
    return store, result


def test_a_backup_is_restored(filled, tmp_path):
    store, client = filled
    wanted = contents(client)
    code, summary = command(store, "backup", "--to", str(tmp_path / "copy"))
    assert code == OK and summary["files_copied"] == 4 and summary["blobs"] >= 11
    lines = [json.loads(line) for line in open(tmp_path / "copy" / "manifest.jsonl")]
    assert len(lines) == summary["blobs"]
    assert all((tmp_path / "copy" / line["file"]).exists() for line in lines)
    # Everything that happens later is not in it, and takes nothing away from it.
    check(client.delete("/bkt/k7"), 204)
    check(client.delete("/bkt/copy"), 204)
    ops.put(client, "bkt", "later", ops.body_of(MIB))
    again, result = restored(tmp_path / "copy", tmp_path)
    assert result.returncode == OK and "all agrees" in result.stdout, result
    assert started_contents(again) == wanted
    assert command(again, "scrub")[0] == OK
    # Its catalog can be lost like any other.
    for path in again.data.glob("catalog.sqlite*"):
        path.unlink()
    assert started_contents(again) == wanted


def test_a_second_backup_copies_what_is_new(filled, tmp_path):
    store, client = filled
    to = str(tmp_path / "copy")
    assert command(store, "backup", "--to", to)[1]["files_copied"] == 4
    ops.put(client, "bkt", "later", ops.body_of(MIB, 9))
    store.stop()
    code, summary = command(store, "backup", "--to", to)
    assert code == OK and summary["files_copied"] == 1
    client.close()
    again, result = restored(to, tmp_path)
    assert result.returncode == OK
    assert started_contents(again) == started_contents(store)


def test_a_backup_under_load_is_of_one_moment(filled, tmp_path):
    store, _ = filled
    stop, acknowledged = threading.Event(), []

    def write():
        client, number = Client(store.endpoint(), MAIN), 0
        while not stop.is_set():
            size = (MIB + number, 3000)[number % 2]
            ops.put(client, "bkt", f"busy{number % 8}", ops.body_of(size, number))
            acknowledged.append(number)
            number += 1
        client.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while len(acknowledged) < 20:
            stop.wait(0.05)
        before = len(acknowledged)
        code, summary = command(store, "backup", "--to", str(tmp_path / "copy"))
        while len(acknowledged) < before + 40:
            stop.wait(0.05)
    finally:
        stop.set()
        writer.join()
    assert code == OK, summary
    again, result = restored(tmp_path / "copy", tmp_path)
    assert result.returncode == OK, result
    seen = started_contents(again)
    found = []
    for slot in range(8):
        body = seen[f"busy{slot}"][0]
        numbers = [n for n in range(slot, acknowledged[-1] + 2, 8)
                   if body == ops.body_of((MIB + n, 3000)[n % 2], n)]
        assert len(numbers) == 1
        found += numbers
    # Eight writes in a row: no key is of another moment.
    assert max(found) - min(found) == 7 and min(found) >= before - 9


def test_a_backup_that_is_not_whole_is_refused(filled, tmp_path):
    store, client = filled
    code, _ = command(store, "backup", "--to", str(tmp_path / "copy"), "--without-blobs")
    assert code == OK and not (tmp_path / "copy" / "blobs").exists()
    again, result = restored(tmp_path / "copy", tmp_path)
    assert result.returncode == 1 and "4 files are missing" in result.stderr
    assert not again.data.exists()
    # The operator copies the files himself.
    wanted = contents(client)
    shutil.copytree(store.data / "blobs", tmp_path / "copy" / "blobs")
    again, result = restored(tmp_path / "copy", tmp_path)
    assert result.returncode == OK, result
    assert started_contents(again) == wanted
    blob_files(again)[0].unlink()
    assert command(again, "check")[0] == PROBLEMS


def test_a_backup_goes_nowhere_else(filled, tmp_path):
    store, _ = filled
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    code, message = command(store, "backup", "--to", str(tmp_path / "mine"))
    assert code == 1 and "holds no backup" in message
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
