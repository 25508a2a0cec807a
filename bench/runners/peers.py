"""Any S3 endpoints beside ours: uploads and hot GETs by size and concurrency, presigned.

  bench/run peers --peer weed=http://127.0.0.1:8333,ACCESSKEY,SECRETKEY --peer ...
"""

from common import (HOT_OPTIONS, MAIN, Goblin, Results, Workplace, load, parser, rotate, size_of,
                    spread)


def arguments(words):
    p = parser(__doc__, rounds=5, seconds=1.0)
    p.add_argument("--peer", action="append", default=[], metavar="NAME=URL,KEY,SECRET")
    p.add_argument("--cells", default="4K:1,4K:16,128K:1,128K:16,1M:1,1M:16,16M:1,16M:16",
                   help="SIZE:CONNECTIONS,...")
    p.add_argument("--bucket", default="goblin-bench")
    p.add_argument("--sign", default="presigned", choices=("presigned", "header"))
    return p.parse_args(words)


def main(words):
    args = arguments(words)
    results = Results("peers", args, "S3 servers on one machine. GETs are of objects that were "
                      "just uploaded. Ours flushes every upload before its answer; what a peer "
                      "does is its default.")
    with Workplace(args) as place:
        ours = place.start(Goblin(place.path / "store", HOT_OPTIONS))
        sides = {"ours": (ours.url, MAIN.access_key, MAIN.secret_key)}
        for peer in args.peer:
            name, _, rest = peer.partition("=")
            sides[name] = tuple(rest.split(","))
        cells = [cell.split(":") for cell in args.cells.split(",")]
        for size in dict.fromkeys(size for size, _ in cells):
            for url, key, secret in sides.values():
                # Every object is there, however few a timed upload gets done.
                load("put", f"{url}/{args.bucket}", "--create-bucket", *objects_of(size),
                     "-c", 4, "--sign", args.sign, "--timeout", 120, user=key, secret=secret)
        for number in range(args.rounds):
            for size, c in cells:
                for op in ("put", "get"):
                    for side in rotate(sides, number):
                        one(results, args, number, op, size, c, side, sides[side],
                            ours.pids() if side == "ours" else None)
    lines = results.table("ours")
    lines += ["", *against_best(results)]
    results.write(lines)


def one(results, args, number, op, size, c, side, where, pids):
    url, key, secret = where
    watch = ["--server-pid", pids] if pids else []
    results.measure(number, f"{op} {size} c={c}", side, lambda: load(
        op, f"{url}/{args.bucket}", *objects_of(size), "-c", c, "--sign", args.sign,
        "--duration", args.seconds, "--timeout", 120,
        *(["--warmup", 0.1] if op == "get" else []), *watch, user=key, secret=secret))


def objects_of(size):
    objects = max(1, min(64, (256 << 20) // size_of(size)))
    return ["--objects", objects, "--size", size, "--prefix", f"{size}/"]


def against_best(results):
    """Ours over the best peer, by cell."""
    lines = []
    for cell in dict.fromkeys(c for c, _ in results.cells()):
        peers = [s for c, s in results.cells() if c == cell and s != "ours"]
        ratios = [results.ratios(cell, "ours", side) for side in peers]
        if ratios:
            least = [min(r) for r in zip(*ratios)]
            lines.append(f"- {cell}: ours over the best peer: {spread(least)}")
    return lines
