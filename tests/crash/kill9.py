"""kill -9 in the middle of writes, many times over, and then a look at every key.

Threads put, overwrite, delete, copy and upload in parts, each on keys of its own. At a random
moment the server is killed and started again. Then:
  - every acknowledged write is there, whole, with its metadata; deleted keys stay deleted;
  - a write without an answer is wholly there or wholly not;
  - the listing says the same as the GETs;
  - at the end nothing is left of what was aborted, overwritten or deleted.

Usage: kill9.py [--rounds N] [--seed N] [--threads N]; prints what it did; exit status 1 on a loss.
"""

import argparse
import hashlib
import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import MAIN, Store  # noqa: E402
from ops import MIB, body_of, create_upload, parts_xml, part_query, query  # noqa: E402
from raw import Client  # noqa: E402
from sign import UNSIGNED  # noqa: E402

BUCKET = "crash"
KEYS_PER_THREAD = 6
SIZES = (0, 1, 700, 4096, 100_000, 256 * 1024, 256 * 1024 + 1, MIB - 1, MIB, MIB + 1, 3 * MIB)
CLEANER_SECS = 60
ABSENT = None
UNREACHABLE = (OSError, EOFError, AssertionError)


class Lost(AssertionError):
    """A promise was broken."""


class Writer(threading.Thread):
    """Works on its keys until the server is gone; `states[key]` are what may be found there."""

    def __init__(self, endpoint, number, states, seed):
        super().__init__(daemon=True)
        self.client = Client(endpoint, MAIN)
        self.keys = [f"t{number}/k{n} +é" for n in range(KEYS_PER_THREAD)]
        self.states, self.rng = states, random.Random(seed)
        self.acknowledged = 0
        self.problem = None

    def run(self):
        try:
            while True:
                self.step()
        except UNREACHABLE:
            pass  # Killed, as planned.
        except Lost as error:
            self.problem = error
        finally:
            self.client.close()

    def step(self):
        key = self.rng.choice(self.keys)
        action = self.rng.choices((self.put, self.delete, self.multipart, self.copy),
                                  (60, 15, 15, 10))[0]
        action(key)
        self.acknowledged += 1

    def attempt(self, key, state, method, path, raw_query="", body=b"", headers=None):
        """One request that makes `state` of the key; until it is answered both are possible."""
        before = self.states[key]
        self.states[key] = before | {state}
        answer = self.client.request(method, path, raw_query, headers, body, payload=UNSIGNED)
        if answer.status in (200, 204) and answer.code is None:
            self.states[key] = {state}
        elif answer.status == 503:
            self.states[key] = before
        else:
            raise Lost(f"{method} {path} was answered {answer!r}")

    def put(self, key):
        body, tag = self.body(), str(self.rng.getrandbits(32))
        self.attempt(key, state_of(body, tag), "PUT", path_of(key), "", body,
                     [("x-amz-meta-tag", tag)])

    def delete(self, key):
        self.attempt(key, ABSENT, "DELETE", path_of(key))

    def copy(self, key):
        source = self.rng.choice(self.keys)
        if source == key or len(self.states[source]) != 1 or ABSENT in self.states[source]:
            return
        state = next(iter(self.states[source]))
        self.attempt(key, state, "PUT", path_of(key), headers=[
            ("x-amz-copy-source", path_of(source))])

    def multipart(self, key):
        bodies = [body_of(5 * MIB, self.rng.randint(0, 99))] * self.rng.randint(0, 1)
        bodies.append(self.body())
        tag = str(self.rng.getrandbits(32))
        upload = create_upload(self.client, BUCKET, key, [("x-amz-meta-tag", tag)])
        parts = []
        for number, body in enumerate(bodies, 1):
            answer = self.client.put(path_of(key), body, query=part_query(upload, number),
                                     payload=UNSIGNED)
            if answer.status != 200:
                return
            parts.append((number, answer.etag))
        if self.rng.random() < 0.15:
            return  # Left open: the round after the restart aborts it.
        self.attempt(key, state_of(b"".join(bodies), tag), "POST", path_of(key),
                     f"uploadId={upload}", parts_xml(parts))

    def body(self):
        return body_of(self.rng.choice(SIZES), self.rng.getrandbits(20))


def path_of(key):
    return f"/{BUCKET}/{key.replace(' ', '%20').replace('+', '%2B').replace('é', '%C3%A9')}"


def state_of(body, tag):
    return hashlib.md5(body).hexdigest(), len(body), tag


def found_state(client, key):
    answer = client.get(path_of(key))
    if answer.status == 404:
        return ABSENT, None
    if answer.status != 200:
        raise Lost(f"GET {key}: {answer!r}")
    return state_of(answer.body, answer.header("x-amz-meta-tag")), answer.etag


def verify(client, states):
    """Reads every key and the listing; afterwards each key has the one state that was found."""
    etags = {}
    for key in sorted(states):
        state, etag = found_state(client, key)
        if state not in states[key]:
            raise Lost(f"{key}: found {state}, may be {states[key]}")
        states[key] = {state}
        if state is not ABSENT:
            etags[key] = (etag, str(state[1]))
    page = client.get(f"/{BUCKET}", query(list_type=2))
    entries = page.xml.findall("Contents")
    listed = {e.findtext("Key"): (e.findtext("ETag"), e.findtext("Size")) for e in entries}
    if listed != etags:
        odd = {k for k in listed.keys() | etags.keys() if listed.get(k) != etags.get(k)}
        raise Lost(f"the listing differs from the GETs at {odd}")


def abort_uploads(client):
    page = client.get(f"/{BUCKET}", "uploads=")
    uploads = page.xml.findall("Upload")
    for upload in uploads:
        name = f"uploadId={upload.findtext('UploadId')}"
        answer = client.delete(path_of(upload.findtext("Key")), name)
        if answer.status != 204:
            raise Lost(f"abort of a listed upload: {answer!r}")
    return len(uploads)


def blob_files(store):
    return [p for p in (store.data / "blobs").rglob("*") if p.is_file()]


def wait_until_clean(store, client, states):
    """Deletes everything and waits for the cleaner."""
    abort_uploads(client)
    for key in states:
        client.delete(path_of(key))
    if client.delete(f"/{BUCKET}").status != 204:
        raise Lost("the emptied bucket cannot be deleted")
    deadline = time.monotonic() + CLEANER_SECS
    while (left := blob_files(store)) and time.monotonic() < deadline:
        time.sleep(0.5)
    if left:
        raise Lost(f"{len(left)} blob files are left, such as {left[0]}")


def one_round(store, states, rng, threads):
    writers = [Writer(store.endpoint(), n, states, rng.getrandbits(64)) for n in range(threads)]
    for writer in writers:
        writer.start()
    time.sleep(rng.choice((0.05, 0.2, 0.5, 0.9)) * rng.uniform(0.5, 1.5))
    store.kill()
    for writer in writers:
        writer.join(30)
        if writer.is_alive():
            raise Lost("a writer hangs although the server is gone")
        if writer.problem:
            raise writer.problem
    store.start()
    if rng.random() < 0.1:  # Killed again while it recovers.
        time.sleep(rng.uniform(0, 0.05))
        store.restart(kill=True)
    return sum(w.acknowledged for w in writers)


def run(options):
    rng = random.Random(options.seed)
    directory = Path(tempfile.mkdtemp(prefix="goblin-kill9-"))
    store = Store(directory).start()
    acknowledged = aborted = 0
    states = {f"t{t}/k{n} +é": {ABSENT} for t in range(options.threads)
              for n in range(KEYS_PER_THREAD)}
    started = time.monotonic()
    try:
        client = Client(store.endpoint(), MAIN)
        if client.put(f"/{BUCKET}").status != 200:
            raise Lost("no bucket")
        for number in range(1, options.rounds + 1):
            client.close()
            acknowledged += one_round(store, states, rng, options.threads)
            verify(client, states)
            aborted += abort_uploads(client)
            if number % 10 == 0:
                print(f"round {number}: {acknowledged} acknowledged writes, all there", flush=True)
        wait_until_clean(store, client, states)
    except Lost as error:
        print(f"LOST (seed {options.seed}, data kept in {directory}): {error}")
        print("total: 0 passed, 1 failed")
        store.kill()
        return 1
    store.stop()
    shutil.rmtree(directory, ignore_errors=True)
    print(f"{options.rounds} kills, {acknowledged} acknowledged writes, {aborted} uploads aborted, "
          f"nothing lost, nothing left behind, {time.monotonic() - started:.0f} s, "
          f"seed {options.seed}")
    print(f"total: {options.rounds} passed, 0 failed")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=6)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    sys.exit(run(parser.parse_args()))


if __name__ == "__main__":
    main()
