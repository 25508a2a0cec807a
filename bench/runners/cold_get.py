"""GETs of objects that are on disk only, beside fio's O_DIRECT reads of the same disk."""

import json
import subprocess

from common import Goblin, Results, Workplace, load, parser, rotate, size_of

# Nothing of the measured objects beyond a sliver of their heads stays in RAM.
COLD = ("--memory", "64M", "--small-memory", "16M", "--request-log", "off")


def arguments(words):
    p = parser(__doc__, rounds=5)
    p.add_argument("--large", default="1G", help="size of the one large object")
    p.add_argument("--objects", type=int, default=1000, help="objects that exceed the arena")
    p.add_argument("--size", default="2M", help="of each of these")
    p.add_argument("--connections", default="16")
    p.add_argument("--block", default="256K", help="bytes of a read, of the server and of fio")
    p.add_argument("--depth", type=int, default=8, help="reads in flight of fio for one stream")
    return p.parse_args(words)


def main(words):
    args = arguments(words)
    results = Results("cold-get", args, "GETs from disk in MB/s, beside fio with the same block "
                      f"({args.block}) and O_DIRECT on the same file system.")
    with Workplace(args) as place:
        ours = place.start(Goblin(place.path / "store", (*COLD, "--io-chunk", args.block)))
        url = f"{ours.url}/cold"
        many = ["--objects", args.objects, "--size", args.size, "--prefix", "many/"]
        one = ["--objects", 1, "--size", args.large, "--prefix", "one/"]
        load("put", url, "--create-bucket", *many)
        load("put", url, *one, "--timeout", 300)
        file = place.path / "fio"
        # Written in full, so that fio reads blocks and not holes.
        fio(file, args, "write", args.depth)
        c = args.connections
        for number in range(args.rounds):
            runs = {
                ("large c=1", "ours"): lambda: load(
                    "get", url, *one, "-c", 1, "--timeout", 300, "--discard",
                    "--server-pid", ours.pids()),
                ("large c=1", "fio"): lambda: fio(file, args, "read", args.depth),
                (f"{args.objects} x {args.size} c={c}", "ours"): lambda: load(
                    "get", url, *many, "-c", c, "--order", "shuffled", "--seed", number + 1,
                    "--discard", "--server-pid", ours.pids()),
                (f"{args.objects} x {args.size} c={c}", "fio"): lambda: fio(
                    file, args, "randread", int(c), args.size),
            }
            for (cell, side) in rotate(runs, number):
                # A restart empties the arena.
                if side == "ours":
                    ours.restart()
                results.measure(number, cell, side, runs[cell, side])
    results.note("The server starts anew before each of its measurements, so nothing is in RAM.")
    results.write(by_bytes(results))


def by_bytes(results):
    lines = results.table()
    for cell in dict.fromkeys(cell for cell, _ in results.cells()):
        from common import spread
        ratios = results.ratios(cell, "ours", "fio", "mb_s")
        lines += ["", f"- {cell}: ours over fio in MB/s: {spread(ratios)}"]
    return lines


def fio(file, args, mode, depth, block=None):
    """A result in the shape of goblin-bench's report."""
    out = subprocess.run(
        ["fio", "--name=r", f"--filename={file}", f"--size={size_of(args.large)}",
         f"--bs={block or args.block}", f"--rw={mode}", "--direct=1", "--ioengine=io_uring",
         f"--iodepth={depth}", "--output-format=json"],
        capture_output=True, text=True, check=True).stdout
    job = json.loads(out)["jobs"][0]
    data = job["write" if mode == "write" else "read"]
    micros = {"p50": data["clat_ns"]["percentile"]["50.000000"] / 1e3,
              "p95": data["clat_ns"]["percentile"]["95.000000"] / 1e3,
              "p99": data["clat_ns"]["percentile"]["99.000000"] / 1e3}
    seconds = max(data["runtime"], 1) / 1e3
    return {"kinds": [{"op": "get", "requests_per_second": data["iops"],
                       "megabytes_per_second": data["bw_bytes"] / 1e6,
                       "first_byte_us": micros, "total_us": micros}],
            "client_cores": (job["usr_cpu"] + job["sys_cpu"]) / 100, "server_cores": None,
            "seconds": seconds, "server_us_per_request": None, "busiest_loop": 0.0}
