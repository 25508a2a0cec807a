"""Nothing leaks: the disk holds what the catalog holds, and no more (HTTP-10, MPU-08, DUR-06)."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import ops
from harness import MAIN, Store
from ops import MIB, check
from raw import Client, Connection, head_bytes
from sign import UNSIGNED

CLEANER_SECS = 40


@pytest.fixture
def client(own_store):
    client = Client(own_store.endpoint(), MAIN)
    check(client.put("/space"), 200)
    yield client
    client.close()


def blobs(store):
    return [p for p in (store.data / "blobs").rglob("*") if p.is_file()]


def wait_for_blobs(store, count):
    deadline = time.monotonic() + CLEANER_SECS
    while len(blobs(store)) != count and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(blobs(store)) == count, [str(p) for p in blobs(store)][:5]


def started_put(store, client, path, size, sent, query=""):
    headers = client.signed_headers("PUT", path, query, payload=UNSIGNED)
    connection = Connection(store.endpoint())
    connection.send(head_bytes("PUT", path, query, [*headers, ("Content-Length", str(size))])
                    + b"s" * sent)
    return connection


def test_HTTP_10_cut_off_uploads_leave_no_file(own_store, client):
    ops.put(client, "space", "old", b"o" * (2 * MIB))
    before = (ops.get(client, "space", "old").etag, len(blobs(own_store)))
    upload = ops.create_upload(client, "space", "part")
    for path, query in (("/space/new", ""), ("/space/old", ""),
                        ("/space/part", ops.part_query(upload, 1))):
        for sent in (1, MIB, 5 * MIB):
            connection = started_put(own_store, client, path, 8 * MIB, sent, query)
            connection.reset() if sent == MIB else connection.close()
    wait_for_blobs(own_store, before[1])
    assert ops.get(client, "space", "old").etag == before[0]
    check(client.head("/space/new"), 404)


def test_MPU_08_aborted_uploads_leave_no_file(own_store, client):
    for _ in range(10):
        upload = ops.create_upload(client, "space", "k")
        ops.upload_part(client, "space", "k", upload, 1, b"a" * MIB)
        connection = started_put(own_store, client, "/space/k", 2 * MIB, MIB,
                                 ops.part_query(upload, 2))
        check(ops.abort(client, "space", "k", upload), 204)
        try:
            connection.send(b"s" * MIB)
            assert connection.response("PUT").status in (200, 404)
        except (OSError, EOFError):
            pass
        connection.close()
    assert check(client.get("/space", "uploads="), 200).all("Upload") == []
    wait_for_blobs(own_store, 0)


def test_DUR_06_a_failed_overwrite_keeps_the_old_object(own_store, client):
    body = ops.body_of(4 * MIB)
    ops.put(client, "space", "k", body, {"x-amz-meta-a": "1", "Cache-Control": "no-cache"})
    before = client.head("/space/k")
    wrong = {"x-amz-checksum-crc32": "AAAAAA=="}
    assert client.put("/space/k", b"z" * (3 * MIB), wrong).status == 400
    assert client.put("/space/k", b"z" * 10, {"Content-MD5": "A" * 22 + "=="}).status == 400
    started_put(own_store, client, "/space/k", 4 * MIB, 2 * MIB).close()
    connection = started_put(own_store, client, "/space/k", 4 * MIB, 2 * MIB)
    own_store.restart(kill=True)
    connection.close()
    client.close()
    after = client.head("/space/k")
    for name in ("etag", "last-modified", "x-amz-meta-a", "cache-control", "content-length"):
        assert after.header(name) == before.header(name)
    assert ops.get(client, "space", "k").body == body
    wait_for_blobs(own_store, 1)


def test_overwrites_and_deletes_give_the_space_back(own_store, client):
    for number in range(60):
        ops.put(client, "space", "k", ops.body_of(MIB + number, number))
    wait_for_blobs(own_store, 1)
    check(client.put("/space/copy", headers={"x-amz-copy-source": "space/k"}), 200)
    check(client.delete("/space/k"), 204)
    time.sleep(8)
    assert len(blobs(own_store)) == 1
    assert len(ops.get(client, "space", "copy").body) == MIB + 59
    check(client.delete("/space/copy"), 204)
    wait_for_blobs(own_store, 0)


def disk_bytes(store):
    """What the data directory takes, as du counts."""
    return sum(p.stat().st_blocks * 512 for p in store.data.rglob("*") if p.is_file())


def test_ten_thousand_overwrites_leave_disk_use_flat(tmp_path):
    store = Store(tmp_path / "store", options=["--log-segment", "16M"]).start()

    def overwrite(number):
        client = Client(store.endpoint(), MAIN)
        for turn in range(2500):
            ops.put(client, "flat", f"k{number}-{turn % 5}", ops.body_of(16_384, turn))
        client.close()

    try:
        client = Client(store.endpoint(), MAIN)
        check(client.put("/flat"), 200)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(overwrite, range(4)))
        # 200 MB went through the log. Four segments may wait for a snapshot, one is written.
        limit, deadline = 7 * 16 * MIB, time.monotonic() + CLEANER_SECS
        while disk_bytes(store) > limit and time.monotonic() < deadline:
            time.sleep(0.5)
        assert disk_bytes(store) <= limit
        for number in range(4):
            for last in range(2495, 2500):
                key = f"k{number}-{last % 5}"
                assert ops.get(client, "flat", key).body == ops.body_of(16_384, last)
        client.close()
    finally:
        store.kill()


def test_a_graceful_stop_ends_at_once_and_loses_nothing(own_store, client):
    ops.put(client, "space", "k", b"kept")
    start = time.monotonic()
    assert own_store.stop() == 0
    assert time.monotonic() - start < 10
    own_store.start()
    client.close()
    assert ops.get(client, "space", "k").body == b"kept"
    assert own_store.data.stat().st_mode & 0o077 == 0
