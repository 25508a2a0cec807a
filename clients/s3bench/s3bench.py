#!/usr/bin/env python3
"""S3 benchmark clients on libcurl, and the two studies as one command each.

  s3bench.py corpus      --out DIR --scale 0.001 [--sizes FILE]
  s3bench.py upload      --endpoint URL --bucket B --corpus DIR --csv FILE
  s3bench.py download    ... the same objects back, each verified
  s3bench.py all-in-one  ... PUT, GET, verify, DELETE of each
  s3bench.py concurrent  ... --concurrency 16 --requests 1000
  s3bench.py study       serial up and down through nginx with TLS, concurrency sweep, control from RAM
  s3bench.py cache-study downloads of synthetic web traffic at 16 to 1,024 connections

Keys: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION. `--express` makes an S3
Express session first. Without keys requests are not signed. Needs pycurl; the studies also matplotlib.
"""

import argparse
import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import clients  # noqa: E402
import corpus  # noqa: E402
from monitor import Monitor  # noqa: E402
from sigv4 import Keys  # noqa: E402
from transfer import Handle  # noqa: E402


def keys_of_environment():
    access = os.environ.get("AWS_ACCESS_KEY_ID")
    if not access:
        return None
    return Keys(access, os.environ["AWS_SECRET_ACCESS_KEY"],
                os.environ.get("AWS_REGION", "us-east-1"),
                token=os.environ.get("AWS_SESSION_TOKEN"))


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(dest="command", required=True)
    make = commands.add_parser("corpus")
    make.add_argument("--out", required=True)
    for name in ("upload", "download", "all-in-one", "concurrent"):
        one = commands.add_parser(name)
        one.add_argument("--endpoint", required=True)
        one.add_argument("--bucket", required=True)
        one.add_argument("--corpus", required=True)
        one.add_argument("--csv", required=True)
        one.add_argument("--ca-file")
        one.add_argument("--create-bucket", action="store_true")
        one.add_argument("--express", action="store_true", help="S3 Express: CreateSession first")
        one.add_argument("--monitor-pid", type=int, action="append", default=[],
                         help="sample this process each second, into CSV.monitor.csv")
        if name == "concurrent":
            one.add_argument("--concurrency", type=int, default=16)
            one.add_argument("--requests", type=int, default=None)
    first = commands.add_parser("study")
    first.add_argument("--sweep", default="1,2,4,8,16,32,64", help="connections")
    second = commands.add_parser("cache-study")
    second.add_argument("--sweep", default="16,32,64,128,256,512,1024", help="connections")
    second.add_argument("--trace-objects", type=int, default=2000)
    second.add_argument("--seconds", type=float, default=2.0)
    for study in (first, second):
        study.add_argument("--out", default="target/bench")
        study.add_argument("--dir", default=None, help="for data, on the disk to measure")
        study.add_argument("--rounds", type=int, default=3)
    for sized in (make, first):
        sized.add_argument("--scale", type=float, default=0.001, help="1 is full size")
        sized.add_argument("--objects", type=int, default=corpus.OBJECTS)
        sized.add_argument("--sizes", help="file with one size in bytes a line, for scale 1")
    return p.parse_args()


def run_client(args):
    keys = keys_of_environment()

    def handle(worker=0):
        one = Handle(args.endpoint, args.bucket, keys, args.ca_file, worker)
        if args.express:
            one.create_session()
        return one

    objects = corpus.read(args.corpus)
    first = handle()
    if args.create_bucket:
        first.make_bucket()
    watch = Monitor(args.csv + ".monitor.csv", args.monitor_pid) if args.monitor_pid \
        else nullcontext()
    with watch:
        if args.command == "upload":
            records = clients.upload(first, args.corpus, objects)
        elif args.command == "download":
            records = clients.download(first, objects)
        elif args.command == "all-in-one":
            records = clients.all_in_one(first, args.corpus, objects)
        else:
            records = clients.concurrent(handle, objects, args.concurrency,
                                         args.requests or len(objects))
    clients.write_csv(args.csv, records)
    result = {op: clients.summary([r for r in records if r.op == op])
              for op in dict.fromkeys(r.op for r in records)}
    print(json.dumps(result, indent=1))
    return 1 if any(s["failed"] for s in result.values()) else 0


def main():
    args = arguments()
    if args.command == "corpus":
        rows = corpus.make(args.out, args.scale, args.sizes, args.objects)
        print(f"{len(rows)} objects, {sum(r['bytes'] for r in rows)} bytes in {args.out}")
        return 0
    if args.command in ("study", "cache-study"):
        import studies
        return studies.study(args) if args.command == "study" else studies.cache_study(args)
    return run_client(args)


if __name__ == "__main__":
    sys.exit(main())
