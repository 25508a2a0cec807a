"""Time to the first byte: a small object, and a large one whose head is in RAM and tail on disk."""

import statistics

from common import Goblin, Results, Workplace, load, parser, rotate, spread

OPTIONS = ("--memory", "128M", "--small-memory", "64M", "--request-log", "off")


def arguments(words):
    p = parser(__doc__)
    p.add_argument("--small", default="4K")
    p.add_argument("--large", default="1G")
    p.add_argument("--gets", type=int, default=5, help="downloads of the large object a round")
    p.add_argument("--connections", default="16", help="for the spread of small GETs")
    return p.parse_args(words)


def main(words):
    args = arguments(words)
    results = Results("ttfb", args, "Microseconds from the request to the first byte.")
    with Workplace(args) as place:
        ours = place.start(Goblin(place.path / "store", OPTIONS))
        url = f"{ours.url}/ttfb"
        small = ["--objects", 64, "--size", args.small, "--prefix", "small/"]
        large = ["--objects", 1, "--size", args.large, "--prefix", "large/", "--timeout", 300]
        load("put", url, "--create-bucket", *small)
        load("put", url, *large)
        for what in (small, large):
            load("get", url, *what, "-c", 1)
        cells = {
            (args.small, "c=1"): lambda: load("get", url, *small, "-c", 1, "--count", 2000),
            (args.large, "c=1"): lambda: load("get", url, *large, "-c", 1, "--count", args.gets,
                                              "--discard"),
            (args.small, f"c={args.connections}"): lambda: load(
                "get", url, *small, "-c", args.connections, "--duration", args.seconds,
                "--warmup", 0.2),
        }
        for number in range(args.rounds):
            for (cell, side) in rotate(cells, number):
                results.measure(number, cell, side, cells[cell, side])
    base = {r["round"]: r["ttfb_p50_us"] for r in results.rows
            if (r["cell"], r["side"]) == (args.small, "c=1")}
    over = [r["ttfb_p50_us"] / base[r["round"]] for r in results.rows if r["cell"] == args.large]
    tail = [r["ttfb_p99_us"] / r["ttfb_p50_us"] for r in results.rows
            if (r["cell"], r["side"]) == (args.small, f"c={args.connections}")]
    results.write(results.table() + [
        "", f"- TTFB of {args.large} over {args.small}: {spread(over)}",
        f"- p99 over p50 at {args.connections} connections: {spread(tail)}",
        f"- TTFB p50 of {args.small}: {statistics.median(base.values()):.0f} us"])
