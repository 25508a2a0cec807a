"""Concurrent clients on single keys: is there an order of the operations that explains every answer?

Each client puts values of its own, reads and deletes. An operation takes effect at one moment between
its start and its answer; a put or delete without an answer may take effect later or never. The search
is that of Wing and Gong, with a memory of states seen.
"""

import random
import threading
import time

from raw import Client

from harness import MAIN

ABSENT = None


class Violation(AssertionError):
    """No order explains what the clients saw."""


def explains(history):
    """Whether some order does. `history` has (start, end, kind, value); end is None without an
    answer. Kinds: "write" (value ABSENT for a delete) and "read"."""
    order = sorted(history, key=lambda op: op[0])
    count = len(order)
    must = [i for i, op in enumerate(order) if op[1] is not None]
    all_must = sum(1 << i for i in must)
    seen, stack = set(), [(0, ABSENT)]
    while stack:
        done, value = stack.pop()
        if done & all_must == all_must:
            return True
        if (done, value) in seen:
            continue
        seen.add((done, value))
        # Only what starts before the first open answer can be next.
        limit = min(order[i][1] for i in must if not done >> i & 1)
        for i in range(count):
            start, end, kind, of_op = order[i]
            if done >> i & 1:
                continue
            if start > limit:
                break
            if kind == "read" and (end is None or of_op != value):
                continue
            stack.append((done | 1 << i, of_op if kind == "write" else value))
    return False


class Worker(threading.Thread):
    def __init__(self, endpoint, bucket, keys, number, seed, steps):
        super().__init__(daemon=True)
        self.endpoint, self.bucket, self.keys = endpoint, bucket, keys
        self.number, self.rng, self.steps = number, random.Random(seed), steps
        self.history = {key: [] for key in keys}
        self.bytes = 0
        self.problem = None

    def run(self):
        client = Client(self.endpoint, MAIN)
        try:
            for step in range(self.steps):
                self.one(client, self.rng.choice(self.keys), step)
        except Exception as error:  # pylint: disable=broad-except
            self.problem = error
        finally:
            client.close()

    def one(self, client, key, step):
        path, kind = f"/{self.bucket}/{key}", self.rng.choice("ppggggd")
        start = time.monotonic()
        if kind == "p":
            # The value names its writer, and is large enough for a torn one to show.
            value = f"{self.number}-{step}"
            size = self.rng.choice((40, 5000, 300_000))
            body = (value + ";").encode() * (size // (len(value) + 1) + 1)
            status = client.put(path, body).status
            event = ("write", value)
        elif kind == "d":
            status = client.delete(path).status
            event = ("write", ABSENT)
        else:
            answer = client.get(path)
            status = 200 if answer.status == 404 else answer.status
            event = ("read", ABSENT)
            if answer.status == 200:
                value = answer.body.split(b";")[0]
                if answer.body != (value + b";") * answer.body.count(b";"):
                    raise Violation(f"{key}: a mix of values")
                self.bytes += len(answer.body)
                event = ("read", value.decode())
        if status not in (200, 204):
            raise Violation(f"{kind} of {key} was answered {status}")
        self.history[key].append((start, time.monotonic(), *event))


def round_of(endpoint, bucket, seed, clients=5, keys=3, steps=60):
    """One round on fresh keys; returns (operations, bytes read)."""
    names = [f"lin-{seed}-{n}" for n in range(keys)]
    workers = [Worker(endpoint, bucket, names, n, seed * 100 + n, steps) for n in range(clients)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        if worker.problem:
            raise worker.problem
    for name in names:
        history = [event for worker in workers for event in worker.history[name]]
        if not explains(history):
            raise Violation(f"{name}: no order explains {sorted(history)}")
    return clients * steps, sum(worker.bytes for worker in workers)


def self_test():
    """The checker itself: it accepts what may be and refuses what may not."""
    write, read = "write", "read"
    assert explains([(0, 1, write, "a"), (2, 3, read, "a")])
    assert explains([(0, 9, write, "a"), (1, 2, read, ABSENT), (3, 4, read, "a")])
    assert explains([(0, None, write, "a"), (1, 2, read, ABSENT), (5, 6, read, "a")])
    assert not explains([(0, 1, write, "a"), (2, 3, read, ABSENT)])
    assert not explains([(0, 9, write, "a"), (1, 2, read, "a"), (3, 4, read, ABSENT)])
    assert not explains([(0, 1, write, "a"), (2, 3, write, "b"), (4, 5, read, "a")])
