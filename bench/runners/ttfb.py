"""Time to the first byte: a small object, and a large one whose head is in RAM and tail on disk."""

import csv
import statistics

from common import Goblin, Results, Workplace, load, parser, rotate, size_of, spread

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
        manifests(place.path, args)
        for number in range(args.rounds):
            for cell in rotate(("alternating", "small"), number):
                if cell == "alternating":
                    # In turn, so that both find the machine and its caches in the same state.
                    in_turn(results, number, url, place.path, args)
                else:
                    results.measure(number, args.small, f"c={args.connections}", lambda: load(
                        "get", url, *small, "-c", args.connections, "--duration", args.seconds,
                        "--warmup", 0.2))
    base = {r["round"]: r["ttfb_p50_us"] for r in results.rows
            if (r["cell"], r["side"]) == (args.small, "in turn")}
    over = [r["ttfb_p50_us"] / base[r["round"]] for r in results.rows if r["cell"] == args.large]
    tail = [r["ttfb_p99_us"] / r["ttfb_p50_us"] for r in results.rows
            if (r["cell"], r["side"]) == (args.small, f"c={args.connections}")]
    results.write(results.table() + [
        "", f"- TTFB of {args.large} over {args.small}, in turn: {spread(over)}",
        f"- p99 over p50 at {args.connections} connections: {spread(tail)}",
        f"- TTFB p50 of {args.small}: {statistics.median(base.values()):.0f} us"])


def manifests(directory, args):
    """One small and one large object, asked for in turn."""
    (directory / "population.csv").write_text(
        f"key,bytes\nsmall/00000000,{size_of(args.small)}\nlarge/00000000,{size_of(args.large)}\n")
    (directory / "measured.csv").write_text(
        "op,key\n" + "get,small/00000000\nget,large/00000000\n" * args.gets)


def in_turn(results, number, url, directory, args):
    out = directory / "requests.csv"
    report = load("get", url, "--population", directory / "population.csv", "--measured",
                  directory / "measured.csv", "-c", 1, "--discard", "--timeout", 300, "--csv", out)
    with open(out, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for cell, prefix in ((args.small, "small/"), (args.large, "large/")):
        mine = [r for r in rows if r["key"].startswith(prefix)]
        first = [(int(r["first_byte_ns"]) - int(r["start_ns"])) / 1e3 for r in mine]
        total = [(int(r["last_byte_ns"]) - int(r["start_ns"])) / 1e3 for r in mine]
        results.rows.append({
            "round": number, "cell": cell, "side": "in turn", "op": "get",
            "req_s": len(mine) / report["seconds"],
            "mb_s": sum(int(r["bytes"]) for r in mine) / sum(total),
            "ttfb_p50_us": statistics.median(first), "ttfb_p99_us": max(first),
            "p50_us": statistics.median(total), "p95_us": max(total), "p99_us": max(total),
            "server_us": None, "client_busy": report["busiest_loop"], "foreign": None})
