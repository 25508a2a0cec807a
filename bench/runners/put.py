"""Durable uploads by size and concurrency; one large stream beside the MD5 rate and the disk."""

import json
import re
import shutil
import subprocess

from common import HOT_OPTIONS, Goblin, Results, Workplace, load, parser, rotate, size_of, spread


def arguments(words):
    p = parser(__doc__)
    p.add_argument("--sizes", default="4K,128K,1M")
    p.add_argument("--connections", default="1,16,64")
    p.add_argument("--stream", default="1G", help="size of the single stream; 0 leaves it out")
    p.add_argument("--payload", default="unsigned", choices=("unsigned", "signed"))
    return p.parse_args(words)


def main(words):
    args = arguments(words)
    results = Results("put", args, "Uploads: every one is flushed to disk before its answer. `md5` "
                      "is one core's MD5 rate (openssl), `disk` fio's sequential O_DIRECT write "
                      "to the same file system.")
    with Workplace(args) as place:
        ours = place.start(Goblin(place.path / "store", HOT_OPTIONS))
        url = f"{ours.url}/put"
        cells = [(s, c) for s in args.sizes.split(",") for c in args.connections.split(",")]
        load("put", url, "--create-bucket", "--objects", 1)
        for number in range(args.rounds):
            for size, c in rotate(cells, number):
                results.measure(number, f"{size} c={c}", "ours", lambda: load(
                    "put", url, "--objects", objects_for(size), "--size", size, "-c", c,
                    "--prefix", f"{size}/", "--duration", args.seconds, "--payload",
                    args.payload, "--server-pid", ours.pids()))
            if args.stream != "0":
                stream(results, number, args, place, ours, url)
    lines = results.table() + ["", *conclusions(results, args)]
    results.write(lines)


def objects_for(size):
    """Distinct keys, at most 256 MiB of them; they are overwritten in turn."""
    return max(4, min(1000, (256 << 20) // size_of(size)))


def stream(results, number, args, place, ours, url):
    cell = f"{args.stream} c=1"
    sides = {
        "ours": lambda: results.measure(number, cell, "ours", lambda: load(
            "put", url, "--objects", 1, "--size", args.stream, "-c", 1, "--prefix", "stream/",
            "--server-pid", ours.pids(), "--timeout", 300)),
        "md5": lambda: beside(results, number, cell, "md5", md5_rate()),
        "disk": lambda: beside(results, number, cell, "disk", disk_rate(place.path, args.stream)),
    }
    for side in rotate(sides, number):
        sides[side]()


def beside(results, number, cell, side, mb_s):
    if mb_s is not None:
        row = dict.fromkeys(results.rows[0])
        row.update(round=number, cell=cell, side=side, op="put", mb_s=mb_s)
        results.rows.append(row)


def md5_rate():
    """MB/s of one core."""
    if not shutil.which("openssl"):
        return None
    out = subprocess.run(["openssl", "speed", "-seconds", "1", "-bytes", "1048576", "-evp", "md5"],
                         capture_output=True, text=True, check=True).stdout
    return float(re.findall(r"([\d.]+)k\s*$", out)[-1]) * 1000 / 1e6


def disk_rate(directory, size):
    """MB/s of sequential O_DIRECT writes of 1 MiB, flushed at the end."""
    if not shutil.which("fio"):
        return None
    out = subprocess.run(
        ["fio", "--name=w", f"--filename={directory}/fio", f"--size={size}", "--bs=1M",
         "--rw=write", "--direct=1", "--ioengine=io_uring", "--iodepth=8", "--end_fsync=1",
         "--output-format=json"], capture_output=True, text=True, check=True).stdout
    (directory / "fio").unlink()
    return json.loads(out)["jobs"][0]["write"]["bw_bytes"] / 1e6


def conclusions(results, args):
    lines = []
    for size in args.sizes.split(","):
        connections = args.connections.split(",")
        base, top = f"{size} c={connections[0]}", f"{size} c={connections[-1]}"
        by_round = {r["round"]: r["req_s"] for r in results.rows if r["cell"] == base}
        ratios = [r["req_s"] / by_round[r["round"]] for r in results.rows if r["cell"] == top]
        lines.append(f"- {size}: c={connections[-1]} over c={connections[0]}: {spread(ratios)}")
    cell = f"{args.stream} c=1"
    if args.stream != "0":
        for side in ("md5", "disk"):
            ratios = results.ratios(cell, "ours", side, "mb_s")
            lines.append(f"- one {args.stream} stream over {side}: {spread(ratios)}")
    return lines
