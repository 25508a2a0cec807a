"""The arena on reserved huge pages: taken when the pool has them, and the server says so.

Needs root to reserve the pages; skipped with the reason without. A host's pool is left as it was.
"""

import re
from pathlib import Path

import pytest

from harness import MAIN, Store
from ops import MIB, body_of, check
from raw import Client

POOL = Path("/proc/sys/vm/nr_hugepages")
ARENA = ["--memory", "16M", "--small-memory", "16M"]
PAGES = 32 * MIB // (2 * MIB)


def free_pages():
    return int(re.search(r"HugePages_Free:\s+(\d+)", Path("/proc/meminfo").read_text())[1])


@pytest.fixture
def reserved_pages():
    before = int(POOL.read_text())
    try:
        # More than one arena's worth: servers of other tests take from the same pool.
        POOL.write_text(str(before + 8 * PAGES))
    except OSError as error:
        pytest.skip(f"huge pages cannot be reserved here: {error}")
    try:
        if free_pages() < PAGES:
            pytest.skip(f"the kernel found only {free_pages()} of {PAGES} huge pages")
        yield
    finally:
        POOL.write_text(str(before))


def huge_kib(pid):
    return int(re.search(r"HugetlbPages:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1])


def test_the_arena_takes_reserved_huge_pages(reserved_pages, tmp_path):
    store = Store(tmp_path / "store", options=ARENA).start()
    try:
        assert huge_kib(store.process.pid) == 32 * MIB // 1024
        metrics = store.metrics()
        assert metrics["goblin_arena_huge_bytes"] == 32 * MIB
        assert metrics["goblin_arena_locked"] == 1
        client = Client(store.endpoint(), MAIN)
        check(client.put("/huge"), 200)
        body = body_of(2 * MIB + 77)
        check(client.put("/huge/object", body=body), 200)
        hits = store.metrics()["goblin_arena_hits_total"]
        assert check(client.get("/huge/object"), 200).body == body
        assert store.metrics()["goblin_arena_hits_total"] > hits
        client.close()
    finally:
        assert store.stop() == 0


def test_without_huge_pages_the_arena_steps_down_and_says_what_to_do(tmp_path):
    # More than any pool of these tests holds.
    store = Store(tmp_path / "store", options=["--memory", "768M", "--small-memory", "16M"])
    store.start()
    try:
        assert huge_kib(store.process.pid) == 0
        log = store.log.read_text()
        assert "vm.nr_hugepages" in log, log
        client = Client(store.endpoint(), MAIN)
        check(client.put("/plain"), 200)
        client.close()
    finally:
        assert store.stop() == 0
