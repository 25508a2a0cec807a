"""A corpus of files: 590 objects of seeded random bytes, at any scale, with a manifest.

Sizes are spread log-uniformly from 100 KB to 5 GB at full scale (`--scale 1`), unless `--sizes` names a
CSV file with one size in bytes a line, for instance that of a published corpus.
"""

import csv
import hashlib
import math
import random
from pathlib import Path

OBJECTS = 590
LEAST, MOST = 100e3, 5e9
PIECE = 1 << 20


def sizes(scale, file=None, objects=OBJECTS, seed=1):
    if file:
        with open(file, encoding="utf-8") as lines:
            full = [int(line) for line in lines if line.strip()]
    else:
        # Evenly over the logarithm, in random order: no two runs differ.
        step = (math.log(MOST) - math.log(LEAST)) / max(1, objects - 1)
        full = [int(LEAST * math.exp(step * i)) for i in range(objects)]
        random.Random(seed).shuffle(full)
    return [max(1, round(size * scale)) for size in full]


def make(directory, scale, file=None, objects=OBJECTS, seed=1):
    """Writes the files and `manifest.csv`; its rows."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, size in enumerate(sizes(scale, file, objects, seed)):
        key, hashed, rest = f"object-{number:04}", hashlib.sha256(), size
        source = random.Random(f"{seed}/{number}")
        with open(directory / key, "wb") as out:
            while rest:
                piece = source.randbytes(min(rest, PIECE))
                hashed.update(piece)
                out.write(piece)
                rest -= len(piece)
        rows.append({"key": key, "bytes": size, "sha256": hashed.hexdigest()})
    with open(directory / "manifest.csv", "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, ["key", "bytes", "sha256"])
        writer.writeheader()
        writer.writerows(rows)
    return rows


def read(directory):
    with open(Path(directory) / "manifest.csv", newline="", encoding="utf-8") as file:
        return [row | {"bytes": int(row["bytes"])} for row in csv.DictReader(file)]
