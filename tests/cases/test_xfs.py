"""On real XFS: every size and range comes back exactly, from RAM and after a restart from disk, and
the tail is read with O_DIRECT through io_uring. Needs root for a loop mount; skipped without."""

import os
import subprocess
import threading

import pytest

import ops
from harness import MAIN, Store
from ops import MIB, check
from raw import Client

KIB = 1024
ONE_SHOT = [0, 1, 4095, 4096, 4097, 256 * KIB - 1, 256 * KIB, 256 * KIB + 1, MIB - 1, MIB, MIB + 1,
            8 * MIB, 64 * MIB + 3]
PARTS = [[5 * MIB, 1], [5 * MIB + 4097, 5 * MIB, 3 * MIB + 3], [8 * MIB] * 8 + [3]]
O_DIRECT = os.O_DIRECT


@pytest.fixture(scope="module")
def mount(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("a loop mount needs root")
    folder = tmp_path_factory.mktemp("xfs")
    image, point = folder / "image", folder / "mnt"
    point.mkdir()
    with open(image, "wb") as file:
        file.truncate(4 << 30)
    subprocess.run(["mkfs.xfs", "-q", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop,noatime", image, point], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"no loop mount here: {mounted.stderr.decode().strip()}")
    yield point
    subprocess.run(["umount", point], check=True)


@pytest.fixture(scope="module")
def store(mount):
    store = Store(mount / "store").start()
    client = Client(store.endpoint(), MAIN)
    check(client.put("/xfs"), 200)
    client.close()
    yield store
    assert store.stop() == 0


def ranges(size):
    """Ranges on both sides of every border that lies inside the object."""
    edges = {0, 1, 4096, 128 * KIB, 256 * KIB, MIB - 1, MIB, MIB + 1, 5 * MIB, size // 2, size - 1}
    edges = sorted(e for e in edges if 0 <= e < size)
    found = [(e, min(e + 10, size - 1)) for e in edges] + [(max(0, e - 5), e) for e in edges]
    return found + [(0, size - 1), (size // 3, size - 1)]


def check_object(client, key, body):
    answer = check(client.get(f"/xfs/{key}"), 200)
    assert answer.body == body, f"{key}: {len(answer.body)} of {len(body)} bytes"
    if not body:
        return
    for first, last in ranges(len(body)):
        answer = check(client.get(f"/xfs/{key}", headers={"Range": f"bytes={first}-{last}"}), 206)
        assert answer.header("content-range") == f"bytes {first}-{last}/{len(body)}"
        assert answer.body == body[first:last + 1], (key, first, last)
    for form, wanted in (("bytes=-7", body[-7:]), (f"bytes={len(body) - 1}-", body[-1:])):
        assert check(client.get(f"/xfs/{key}", headers={"Range": form}), 206).body == wanted
    check(client.get(f"/xfs/{key}", headers={"Range": f"bytes={len(body)}-"}), 416)


def test_every_size_and_range_from_ram_and_from_disk(store):
    client = Client(store.endpoint(), MAIN)
    bodies = {}
    for size in ONE_SHOT:
        bodies[f"one-{size}"] = ops.body_of(size)
        ops.put(client, "xfs", f"one-{size}", bodies[f"one-{size}"])
    for number, sizes in enumerate(PARTS):
        key = f"parts-{number}"
        upload = ops.create_upload(client, "xfs", key)
        pieces = [ops.body_of(size) for size in sizes]
        parts = []
        for n, piece in enumerate(pieces, 1):
            parts.append((n, ops.upload_part(client, "xfs", key, upload, n, piece)))
        check(ops.complete(client, "xfs", key, upload, parts), 200)
        bodies[key] = b"".join(pieces)
    for key, body in bodies.items():
        check_object(client, key, body)
    client.close()
    store.restart()
    client = Client(store.endpoint(), MAIN)
    for key, body in bodies.items():
        check_object(client, key, body)
    client.close()


def open_blob_flags(pid, seen, stop):
    """Notes the open flags of every blob file that the server holds, until told to stop."""
    while not stop.is_set():
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                if "io_uring" in target:
                    seen.add("io_uring")
                if target.endswith(".blob"):
                    with open(f"/proc/{pid}/fdinfo/{fd}") as info:
                        flags = next(line for line in info if line.startswith("flags:"))
                    seen.add(int(flags.split()[1], 8) & O_DIRECT)
            except (OSError, StopIteration):
                continue


def test_the_tail_is_read_with_o_direct_through_io_uring(store):
    client = Client(store.endpoint(), MAIN)
    body = ops.body_of(64 * MIB)
    ops.put(client, "xfs", "direct", body)
    client.close()
    store.restart()
    seen, stop = set(), threading.Event()
    watcher = threading.Thread(target=open_blob_flags, args=(store.process.pid, seen, stop))
    watcher.start()
    try:
        client = Client(store.endpoint(), MAIN)
        for _ in range(3):
            assert check(client.get("/xfs/direct"), 200).body == body
        client.close()
    finally:
        stop.set()
        watcher.join()
    assert "io_uring" in seen, "the server holds an io_uring"
    assert O_DIRECT in seen and 0 not in seen, f"blob files open with O_DIRECT: {seen}"
    cached = subprocess.run(["fincore", "-b", "-n", "-o", "RES", *(store.data / "blobs").rglob("*.blob")],
                            capture_output=True, text=True, check=True).stdout.split()
    assert sum(map(int, cached)) == 0, "the page cache holds none of the blobs"
