"""Heads and buffers of unusual sizes: each setting that is accepted serves every object."""

import pytest

import ops
from harness import MAIN, Store
from ops import MIB, check
from raw import Client

SETTINGS = {
    "head-above-a-read": ["--ram-head", "4M"],
    "head-above-a-buffer": ["--write-io-chunk", "256K"],
    "head-below-a-buffer": ["--ram-head", "64K"],
    "one-upload-at-a-time": ["--write-io-chunk", "16M", "--upload-memory", "8M"],
}
SIZES = [300_000, MIB, MIB + MIB // 2, 4 * MIB, 4 * MIB + 1, 9 * MIB]


@pytest.mark.parametrize("options", SETTINGS.values(), ids=SETTINGS)
def test_every_size_from_ram_and_from_disk(tmp_path, options):
    store = Store(tmp_path, options).start()
    try:
        client = Client(store.endpoint(), MAIN)
        check(client.put("/sizes"), 200)
        for size in SIZES:
            ops.put(client, "sizes", str(size), ops.body_of(size))
        for _ in range(2):
            for size in SIZES:
                body = ops.body_of(size)
                assert ops.get(client, "sizes", str(size)).body == body
                part = ops.get(client, "sizes", str(size), {"Range": f"bytes={size // 2}-"})
                assert part.body == body[size // 2:]
            client.close()
            store.restart()
            client = Client(store.endpoint(), MAIN)
    finally:
        store.stop()
