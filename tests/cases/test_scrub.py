"""scrub with the real binary: beside the server and without it, damaged and sound, interrupted."""

import json
import signal
import subprocess
import time

import pytest

import ops
from harness import MAIN, clean_environment
from ops import MIB, check
from raw import Client, Connection, head_bytes
from test_recover import OK, PROBLEMS, blob_files, command, flip

BIG = 5 * MIB
BLOCK = 128 * 1024


@pytest.fixture
def client(own_store):
    client = Client(own_store.endpoint(), MAIN)
    check(client.put("/scrub"), 200)
    ops.put(client, "scrub", "small", ops.body_of(50_000, 1))
    ops.put(client, "scrub", "dir/big", ops.body_of(BIG, 2))
    check(client.put("/scrub/copy", headers={"x-amz-copy-source": "scrub/dir/big"}), 200)
    yield client
    client.close()


def cold(store, client):
    """Nothing is in RAM any more."""
    store.restart()
    client.close()


def test_a_sound_store_is_found_sound(own_store, client):
    code, state = command(own_store, "scrub", "--rate", "0")
    assert code == OK and state["phase"] == "finished"
    assert (state["blobs_done"], state["damaged_total"], state["problems"]) == (2, 0, [])
    assert state["bytes_done"] >= BIG + 50_000
    assert own_store.metrics()["goblin_scrub_finished_time_seconds"] > 0
    own_store.stop()
    code, state = command(own_store, "scrub")
    assert code == OK and state["blobs_done"] == 2


def test_damage_is_listed_and_costs_only_what_touches_it(own_store, client):
    small, big = ops.body_of(50_000, 1), ops.body_of(BIG, 2)
    own_store.stop()
    [path] = blob_files(own_store)
    flip(path, 3 * MIB + 77, 5)
    segment = next(s for s in (own_store.data / "log").glob("*.seg")
                   if small[:64] in s.read_bytes())
    flip(segment, segment.read_bytes().index(small[:64]) + 1000, 2)
    own_store.start()
    client.close()
    code, state = command(own_store, "scrub", "--rate", "0")
    assert code == PROBLEMS and state["damaged_total"] == 2, state
    objects = sorted(name for found in state["damaged"] for name in found["objects"])
    assert objects == ["scrub/copy", "scrub/dir/big", "scrub/small"]
    told = {found["place"].split("/")[0]: found["damage"] for found in state["damaged"]}
    assert f"block {3 * MIB // BLOCK}" in told["blobs"] and "checksum" in told["log"]
    [problem] = state["problems"]
    assert f"log segment {int(segment.stem)} is damaged" in problem
    assert own_store.metrics()["goblin_scrub_damaged"] == 3

    # No wrong byte goes out: the small object is refused, the big one is cut in front of the block.
    check(client.get("/scrub/small"), 500)
    for key in ("dir/big", "copy"):
        headers = client.signed_headers("GET", f"/scrub/{key}", "")
        connection = Connection(own_store.endpoint())
        connection.send(head_bytes("GET", f"/scrub/{key}", "", headers))
        got = connection.read_until_closed()
        connection.close()
        body = got.split(b"\r\n\r\n", 1)[1]
        assert body == big[:len(body)] and MIB <= len(body) <= 3 * MIB
    # All of the object but that block is served.
    for first, last in ((0, 3 * MIB - 1), (3 * MIB + BLOCK, BIG - 1)):
        answer = ops.get(client, "scrub", "dir/big", {"Range": f"bytes={first}-{last}"})
        assert answer.body == big[first:last + 1]
    assert own_store.metrics()["goblin_checksum_failures_total"] >= 3
    ops.put(client, "scrub", "small", b"mended")
    ops.put(client, "scrub", "dir/big", b"mended")
    check(client.delete("/scrub/copy"), 204)
    code, state = command(own_store, "scrub", "--rate", "0")
    assert state["damaged_total"] == 0, state


def test_an_interrupted_scrub_goes_on(own_store, client):
    for number in range(30):
        ops.put(client, "scrub", f"n{number}", ops.body_of(MIB, number))
    client.close()
    own_store.stop()
    process = subprocess.Popen(
        [*own_store.command, "scrub", "--data-dir", str(own_store.data), "--json", "--rate", "8M"],
        env=clean_environment(), stdout=subprocess.PIPE, text=True)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    state = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode == OK and "blobs" in state["phase"]
    done = state["blobs_done"]
    assert 0 < done < 32
    # The server goes on by itself, is killed, and another command finishes.
    own_store.options += ["--scrub-rate", "4M"]
    own_store.start()
    deadline = time.monotonic() + 60
    while command(own_store, "scrub", "--status")[1]["blobs_done"] <= done:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert command(own_store, "scrub", "--stop")[1]["phase"] != "finished"
    own_store.restart(kill=True)
    code, state = command(own_store, "scrub", "--rate", "0")
    assert code == OK and state["phase"] == "finished"
    assert state["blobs_done"] == 32


def test_scrub_runs_by_schedule(own_store, client):
    assert command(own_store, "scrub", "--rate", "0")[0] == OK
    own_store.stop()
    path = own_store.data / "scrub.json"
    state = json.loads(path.read_text())
    state["finished_ms"] -= 2 * 3600 * 1000
    path.write_text(json.dumps(state))
    own_store.options += ["--scrub-every-hours", "1"]
    own_store.start()
    client.close()
    deadline = time.monotonic() + 60
    while True:
        now = command(own_store, "scrub", "--status")[1]
        if now["phase"] == "finished" and now["started_ms"] > state["started_ms"]:
            break
        assert time.monotonic() < deadline, now
        time.sleep(0.2)
