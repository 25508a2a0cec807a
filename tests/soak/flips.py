"""Damage of every kind to the files of a store, and then every object is read through the server.

Bits are flipped, sectors of 512 bytes and pages of 4 KiB are zeroed, files are cut short. What comes
back is the object as it was, or no whole answer; the server never dies of it.
"""

import hashlib
import shutil
import subprocess

import ops
from harness import MAIN, clean_environment
from raw import Client, Connection, head_bytes

SIZES = (1, 4096, 60_000, 262_144, 262_145, 1_048_577, 3_000_000)


class Violation(AssertionError):
    """A wrong byte went out, or the server did not survive."""


def fill(store):
    """Objects of all sizes; their bytes by key."""
    client, wanted = Client(store.endpoint(), MAIN), {}
    ops.check(client.put("/flips"), 200)
    for number, size in enumerate(SIZES):
        key, body = f"k{number}", ops.body_of(size, number)
        ops.put(client, "flips", key, body)
        wanted[key] = body
    client.close()
    return wanted


def damage(rng, path):
    """Changes the file; says how."""
    size = path.stat().st_size
    with open(path, "r+b") as file:
        data = file.read()
        # Where something stands: preallocated zeros are no target.
        used = len(data.rstrip(b"\0")) or 1
        kind = rng.choice(("bit", "bit", "bit", "bit", "sector", "page", "cut"))
        at = rng.randrange(used)
        if kind == "bit":
            file.seek(at)
            file.write(bytes([data[at] ^ (1 << rng.randrange(8))]))
        elif kind == "cut":
            file.truncate(at)
        else:
            length = 512 if kind == "sector" else 4096
            at -= at % length
            file.seek(at)
            file.write(bytes(min(length, size - at)))
    return f"{kind} at {at} of {path.name}"


def read(store, client, key):
    """What a client gets of an object, however it ends; None for an error answer."""
    headers = client.signed_headers("GET", f"/flips/{key}", "", [("Connection", "close")])
    connection = Connection(store.endpoint())
    connection.send(head_bytes("GET", f"/flips/{key}", "", headers))
    received = connection.read_until_closed()
    connection.close()
    head, _, body = received.partition(b"\r\n\r\n")
    return body if head.startswith(b"HTTP/1.1 200") else None


def one(store, sound, wanted, rng):
    """One damage; returns (bytes verified, whether it was noticed)."""
    shutil.rmtree(store.data)
    shutil.copytree(sound, store.data)
    files = [*store.data.glob("blobs/*/*.blob"), *store.data.glob("log/*.seg"),
             *store.data.glob("catalog.sqlite"), *store.data.glob("catalog.sqlite-wal")]
    kinds = {path.suffix: [p for p in files if p.suffix == path.suffix] for path in files}
    path = rng.choice(kinds[rng.choice(sorted(kinds))])
    what = damage(rng, path)
    try:
        store.start()
    except RuntimeError:
        # Refused with a reason, or it is a crash.
        text = store.log.read_text(errors="replace")
        if "panicked" in text or "damaged" not in text:
            raise Violation(f"{what}: {text[-2000:]}") from None
        return 0, True
    verified, noticed = 0, False
    client = Client(store.endpoint(), MAIN)
    try:
        for key, body in wanted.items():
            got = read(store, client, key)
            if got is None:
                noticed = True
            elif got == body:
                verified += len(body)
            elif body.startswith(got):
                noticed = True
            else:
                digest = hashlib.md5(got).hexdigest()
                raise Violation(f"{what}: {key} came back as {len(got)} bytes {digest}")
        if not store.running() or "panicked" in store.log.read_text(errors="replace"):
            raise Violation(f"{what}: the server panicked")
    finally:
        client.close()
        store.kill()
    return verified, noticed or tells(store)


def tells(store):
    """Damage that no object needs is for check to tell."""
    result = subprocess.run([*store.command, "check", "--data-dir", str(store.data)],
                            env=clean_environment(), capture_output=True, check=False, timeout=120)
    return result.returncode != 0 or "damaged" in store.log.read_text(errors="replace")
