"""Hot GETs, all from RAM: ours unsigned, signed in the header, presigned; nginx static; varnish."""

from common import (HOT_OPTIONS, Goblin, Nginx, Results, Varnish, Workplace, load, parser, rotate,
                    write_files)

OBJECTS = 64


def arguments(words):
    p = parser(__doc__)
    p.add_argument("--sizes", default="4K,100K,1M")
    p.add_argument("--connections", default="1,16,64")
    p.add_argument("--sides", default="nginx,unsigned,header,presigned",
                   help="of nginx, varnish, unsigned, header, presigned")
    p.add_argument("--reference", default="nginx", help="the side that ratios are made to")
    p.add_argument("--pin", action="store_true",
                   help="servers on processor 0, the client on processor 1")
    p.add_argument("--discard", action="store_true",
                   help="the client does not copy bodies, so that it is not the limit")
    p.add_argument("--name", default="hot-get", help="of the result files")
    return p.parse_args(words)


def main(words):
    args = arguments(words)
    sides, sizes = args.sides.split(","), args.sizes.split(",")
    if args.pin and "varnish" in sides:
        raise SystemExit("varnish has many threads: compare it without --pin")
    results = Results(args.name, args, "Hot GETs: requests per second of each server.")
    core = 0 if args.pin else None
    client = ["--pin", 1] if args.pin else []
    if args.discard:
        client.append("--discard")
    with Workplace(args) as place:
        servers, urls = {}, {}
        ours = place.start(Goblin(place.path / "store", HOT_OPTIONS, core))
        if {"nginx", "varnish"} & set(sides):
            www = place.ram / "www"
            servers["nginx"] = place.start(
                Nginx(place.path / "nginx", www, 1 if args.pin else 2, core))
        if "varnish" in sides:
            servers["varnish"] = place.start(
                Varnish(place.path / "varnish", servers["nginx"].port))
        for side in sides:
            server = servers.setdefault(side, ours)
            urls[side] = f"{ours.url}/hot" if server is ours else server.url
        for size in sizes:
            what = ["--objects", OBJECTS, "--size", size, "--prefix", f"{size}/"]
            load("put", f"{ours.url}/hot", "--create-bucket", *what,
                 "--header", "x-amz-acl: public-read")
            if "nginx" in servers:
                write_files(www, *what)
            for side in sides:
                # All into RAM, and the right bytes.
                load("get", urls[side], *what, *sign(side), "--verify", "content")
        for number in range(args.rounds):
            for size in sizes:
                for c in args.connections.split(","):
                    for side in rotate(sides, number):
                        results.measure(number, f"{size} c={c}", side, lambda: load(
                            "get", urls[side], "--objects", OBJECTS, "--size", size,
                            "--prefix", f"{size}/", *sign(side), "-c", c, "--duration",
                            args.seconds, "--warmup", 0.2, *client,
                            "--server-pid", servers[side].pids()))
    results.write(results.table(args.reference))


def sign(side):
    return ["--sign", side if side in ("header", "presigned") else "none"]
