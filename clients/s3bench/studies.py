"""The two studies against what runs here: our server behind the shipped nginx, and nginx alone."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench" / "runners"))

import clients  # noqa: E402
import common  # noqa: E402
import corpus  # noqa: E402
import harness  # noqa: E402
import plots  # noqa: E402
from monitor import Monitor  # noqa: E402
from sigv4 import Keys  # noqa: E402
from transfer import Handle  # noqa: E402

KEYS = Keys(harness.MAIN.access_key, harness.MAIN.secret_key, harness.REGION)
COLUMNS = ("requests", "mb_s", "req_s", "ttfb_p50_us", "ttfb_p95_us", "total_p50_us",
           "total_p95_us", "in_flight", "new_connections")


def study(args):
    """Part 1: serial up and down through TLS. Part 2: a sweep. Part 3: nginx from RAM, as control."""
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    results, runs = [], {}
    with common.Workplace(args) as place:
        files = place.ram / "www"
        objects = corpus.make(files, args.scale, args.sizes, args.objects)
        ours = place.start(common.Goblin(place.path / "store"))
        front = place.start(harness.Nginx(place.path / "tls", f"127.0.0.1:{ours.port}"))
        control = place.start(common.Nginx(place.path / "control", place.ram))
        tls = front.endpoint()

        def through_tls(worker=0):
            return Handle(tls.url, "study", KEYS, tls.ca_file, worker)

        with Monitor(out / "study-monitor.csv", [ours.process.pid]):
            handle = through_tls()
            handle.make_bucket()
            for number in range(args.rounds):
                for name, run in (
                        ("serial upload", lambda: clients.upload(handle, files, objects)),
                        ("serial download", lambda: clients.download(handle, objects))):
                    keep(results, runs, name, number, 1, run())
            for c in map(int, args.sweep.split(",")):
                requests = max(len(objects), 4 * c)
                for number in range(args.rounds):
                    for name, make in (
                            ("sweep", through_tls),
                            ("control from RAM", lambda worker=0: Handle(
                                control.url, "www", None, None, worker))):
                        keep(results, runs, name, number, c,
                             clients.concurrent(make, objects, c, requests))
    clients.write_csv(out / "study-requests.csv", [r for rs in runs.values() for r in rs])
    pictures(out, results, runs)
    report(out / "study.md", "First study", args, results)
    return 1 if any(r["failed"] for r in results) else 0


def keep(results, runs, name, number, concurrency, records):
    row = {"part": name, "concurrency": concurrency, "round": number}
    results.append(row | clients.summary(records))
    runs.setdefault(name, []).extend(records)
    print(name, concurrency, {k: round(v) for k, v in results[-1].items() if k in COLUMNS},
          flush=True)


def pictures(out, results, runs):
    as_rows = {name: [vars(r) for r in records] for name, records in runs.items()}
    plots.completion(out / "study-completion.png", as_rows)
    plots.first_bytes(out / "study-ttfb.png", as_rows)
    plots.throughput(out / "study-throughput.png", {
        name: medians(results, name) for name in ("sweep", "control from RAM")})


def medians(results, part):
    """One row for each concurrency, of the median of each column over the rounds."""
    points = []
    for c in dict.fromkeys(r["concurrency"] for r in results if r["part"] == part):
        rows = [r for r in results if (r["part"], r["concurrency"]) == (part, c)]
        points.append({"concurrency": c} | {
            k: clients.nearest_rank([r[k] for r in rows], 50) for k in COLUMNS})
    return points


def report(path, title, args, results):
    lines = [f"# {title}", "", *common.machine("", args), "",
             "| part | connections | " + " | ".join(COLUMNS) + " |",
             "|---" * (len(COLUMNS) + 2) + "|"]
    for part in dict.fromkeys(r["part"] for r in results):
        for point in medians(results, part):
            values = " | ".join(common.short(point[k]) for k in COLUMNS)
            lines.append(f"| {part} | {point['concurrency']} | {values} |")
    lines += ["", "Percentiles by nearest rank; `in_flight` is the summed durations over the span. "
              "The control says what this client can take from nginx's static files in RAM."]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines[4:]))


def cache_study(args):
    """Downloads of one synthetic trace at growing concurrency: ours, and nginx static beside it."""
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    results = []
    with common.Workplace(args) as place:
        common.subprocess.run(
            [common.bench_binary(), "trace", "--objects", str(args.trace_objects), "--requests",
             str(args.trace_objects * 20), "--size-max", "16M", "--out", str(place.path)],
            check=True)
        population = ["--population", place.path / "population.csv"]
        measured = [*population, "--measured", place.path / "measured.csv"]
        www = place.ram / "www"
        ours = place.start(common.Goblin(place.path / "store"))
        nginx = place.start(common.Nginx(place.path / "nginx", www, 2))
        url = f"{ours.url}/cache"
        common.load("put", url, "--create-bucket", *population, "--header",
                    "x-amz-acl: public-read")
        common.write_files(www, *population)
        sides = {"ours": (url, ours.pids()), "nginx": (nginx.url, nginx.pids())}
        with Monitor(out / "cache-study-monitor.csv", [ours.process.pid]):
            for number in range(args.rounds):
                for c in map(int, args.sweep.split(",")):
                    for side in common.rotate(sides, number):
                        where, pids = sides[side]
                        one = common.load("get", where, *measured, "--sign", "none", "-c", c,
                                          "--duration", args.seconds, "--buffer", "32K",
                                          "--server-pid", pids)
                        results.append(row_of(one, side, c, number))
    plots.throughput(out / "cache-study.png", {s: medians(results, s) for s in sides})
    clients.write_rows(out / "cache-study.csv", results)
    report(out / "cache-study.md", "Cache study", args, results)
    return 0


def row_of(load_report, side, concurrency, number):
    kind = load_report["kinds"][0]
    first, total = kind["first_byte_us"], kind["total_us"]
    return {"part": side, "concurrency": concurrency, "round": number,
            "requests": kind["requests"], "mb_s": kind["megabytes_per_second"],
            "req_s": kind["requests_per_second"], "ttfb_p50_us": first["p50"],
            "ttfb_p95_us": first["p95"], "total_p50_us": total["p50"],
            "total_p95_us": total["p95"], "in_flight": load_report["in_flight_mean"],
            "new_connections": concurrency + load_report["reconnects"], "failed": 0}
