"""How listings, GETs, RAM and the restart behave as the number of objects grows."""

import os
import time
import urllib.parse

from common import MAIN, Goblin, Results, Workplace, load, parser, short

from raw import Client  # noqa: E402  (found through common)

OPTIONS = ("--memory", "128M", "--small-memory", "64M", "--request-log", "off")
PAGE = 1000


def arguments(words):
    p = parser(__doc__, rounds=1)
    p.add_argument("--rows", default="10000,100000,1000000")
    p.add_argument("--connections", default="64", help="while the objects are made")
    p.add_argument("--pages", type=int, default=200, help="pages of a listing to read, at most")
    return p.parse_args(words)


def main(words):
    args = arguments(words)
    results = Results("scale", args, "Each column at a growing number of objects of one byte.")
    with Workplace(args) as place:
        ours = place.start(Goblin(place.path / "store", OPTIONS))
        url = f"{ours.url}/scale"
        made = first = 0
        for rows in map(int, args.rows.split(",")):
            while made < rows:
                # In steps, each with names of its own.
                step = min(rows - made, 100_000)
                load("put", url, "--create-bucket", "--objects", step, "--size", 1,
                     "--prefix", f"n{made:09}/", "-c", args.connections, "--loops", 1)
                made += step
                first = first or step
            before = ours.rss_bytes()
            start = time.monotonic()
            ours.restart()
            client = Client(ours.endpoint(), MAIN)
            assert client.get("/scale/n000000000/00000000").status == 200
            restart = time.monotonic() - start
            gets = load("get", url, "--objects", first, "--size", 1, "-c", 1,
                        "--prefix", "n000000000/", "--duration", args.seconds, "--order", "random",
                        "--warmup", 0.5)["kinds"][0]
            page_ms, keys_s = list_pages(client, args.pages)
            results.add(rows=rows, page_ms_p50=page_ms, keys_per_second=keys_s,
                        get_p50_us=gets["total_us"]["p50"], get_p99_us=gets["total_us"]["p99"],
                        rss_mib=before / 2**20, rss_after_restart_mib=ours.rss_bytes() / 2**20,
                        restart_seconds=restart,
                        disk_mib=disk_bytes(ours.data) / 2**20)
    columns = list(results.rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(short(r[c]) for c in columns) + " |" for r in results.rows]
    results.write(lines)


def list_pages(client, pages_max):
    """Median milliseconds of a page of 1,000 keys, and keys listed a second."""
    token, times, keys = None, [], 0
    for _ in range(pages_max):
        query = {"list-type": "2", "max-keys": str(PAGE)}
        if token:
            query["continuation-token"] = token
        start = time.monotonic()
        answer = client.get("/scale", urllib.parse.urlencode(query, quote_via=urllib.parse.quote))
        times.append(time.monotonic() - start)
        assert answer.status == 200, answer.body[:500]
        keys += int(answer.text("KeyCount"))
        token = answer.text("NextContinuationToken")
        if not token:
            break
    return sorted(times)[len(times) // 2] * 1e3, keys / sum(times)


def disk_bytes(directory):
    return sum(os.stat(os.path.join(path, name)).st_blocks * 512
               for path, _, names in os.walk(directory) for name in names)
