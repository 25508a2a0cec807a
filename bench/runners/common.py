"""What every runner shares: servers and peers, rounds that alternate, CSV and Markdown results.

A runner measures *cells* (what is asked for) on *sides* (who is asked). Each round visits every cell,
and within a cell every side in turn, beginning with another one each round. Ratios are made within a
round and only then their median is taken, so that a machine that is slow for a while is slow for all.
"""

import argparse
import csv
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from harness import MAIN, REGION, Process, Store, clean_environment, free_port, wait_for_port  # noqa: E402,F401

MIB = 1 << 20
# Enough for every object of the hot cells to stay in RAM.
HOT_OPTIONS = ("--memory", "1G", "--small-memory", "256M", "--request-log", "off",
               "--log-segment", "256M")


def size_of(text):
    """4096, 100K, 1M, 1G in bytes."""
    return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]] if text[-1] in "KMG" \
        else int(text)


def bench_binary():
    if path := os.environ.get("GOBLIN_BENCH"):
        return path
    found = [ROOT / "target" / p / "goblin-bench" for p in ("release", "debug")]
    found = [p for p in found if p.exists()]
    if not found:
        raise SystemExit("no goblin-bench: cargo build --release --locked -p goblin-bench")
    return str(found[0])


class Failed(RuntimeError):
    """The load generator counted errors or could not run."""


def load(command, url, *options, user=MAIN, secret=None):
    """One run of goblin-bench; its report. Any failed request fails the run."""
    done = subprocess.run(
        [bench_binary(), command, "--url", url, "--json", *map(str, options)],
        env=clean_environment(AWS_ACCESS_KEY_ID=getattr(user, "access_key", user),
                              AWS_SECRET_ACCESS_KEY=secret or user.secret_key, AWS_REGION=REGION,
                              RUST_BACKTRACE="0"),
        capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"goblin-bench {command} {url}: {done.stderr.strip()[-1500:]}")
    return json.loads(done.stdout)


def write_files(directory, *options):
    subprocess.run([bench_binary(), "files", "--out", str(directory), *map(str, options)],
                   check=True)


class Nginx(Process):
    """nginx as a static server: sendfile, no access log, open files cached."""

    def __init__(self, directory, www, workers=1, core=None):
        super().__init__()
        self.directory, self.port = Path(directory), free_port()
        self.directory.mkdir(parents=True, exist_ok=True)
        affinity = f"worker_cpu_affinity {1 << core:b};" if core is not None else ""
        config = self.directory / "nginx.conf"
        config.write_text(f"""
worker_processes {workers}; {affinity} daemon off; pid {self.directory}/pid;
error_log {self.directory}/error.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off; sendfile on; tcp_nopush on; tcp_nodelay on;
    keepalive_requests 1000000000; keepalive_timeout 600s;
    open_file_cache max=100000 inactive=600s; open_file_cache_valid 600s;
    client_body_temp_path {self.directory}/tmp;
    server {{ listen 127.0.0.1:{self.port}; root {www}; }}
}}
""")
        self.config = config

    def start(self):
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        log = self.directory / "out.log"
        self.spawn([nginx, "-p", str(self.directory), "-c", str(self.config)], log)
        wait_for_port(self.port, self.process, "nginx", log)
        return self

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def pids(self):
        """The workers; the master does nothing."""
        out = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True,
                             text=True, check=True).stdout
        return ",".join(out.split())


class Varnish(Process):
    """varnishd with a malloc store, in front of nginx."""

    def __init__(self, directory, backend_port):
        super().__init__()
        self.directory, self.port = Path(directory), free_port()
        self.directory.mkdir(parents=True, exist_ok=True)
        # Its own user reads the working directory.
        self.directory.chmod(0o755)
        self.vcl = self.directory / "default.vcl"
        self.vcl.write_text(f"""vcl 4.1;
backend default {{ .host = "127.0.0.1"; .port = "{backend_port}"; }}
sub vcl_backend_response {{ set beresp.ttl = 1h; }}
""")

    def start(self):
        log = self.directory / "out.log"
        # No -n directory of ours: varnishd wants one that it can own.
        self.spawn(["varnishd", "-F", "-n", str(self.directory / "work"), "-f", str(self.vcl),
                    "-a", f"127.0.0.1:{self.port}", "-s", "malloc,2G", "-t", "3600"], log)
        wait_for_port(self.port, self.process, "varnishd", log)
        return self

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def pids(self):
        out = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True,
                             text=True, check=True).stdout
        return ",".join(out.split())


class Goblin(Store):
    """Our server, durable as by default, optionally on one core."""

    def __init__(self, directory, options=HOT_OPTIONS, core=None):
        binary = os.environ.get("GOBLIN_BIN") or str(ROOT / "target" / "release" / "goblin-store")
        if not os.access(binary, os.X_OK):
            raise SystemExit("no goblin-store: cargo build --release --locked")
        command = [binary] if core is None else ["taskset", "-c", str(core), binary]
        super().__init__(directory, options, command=command)

    @property
    def url(self):
        return self.endpoint().url

    def pids(self):
        return str(self.process.pid)

    def rss_bytes(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no VmRSS")


def busy_seconds():
    """CPU time of the whole machine that was not idle, in seconds."""
    numbers = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(numbers[:8]) - numbers[3] - numbers[4]) / os.sysconf("SC_CLK_TCK")


class Results:
    """Rows of measurements, and what they come to."""

    def __init__(self, name, args, question):
        self.name, self.args, self.question = name, args, question
        self.rows, self.notes = [], []
        self.started = time.strftime("%Y-%m-%d %H:%M")

    def measure(self, round_number, cell, side, run):
        """Runs `run`, which returns a goblin-bench report, and keeps it as one row."""
        busy, start = busy_seconds(), time.monotonic()
        report = run()
        wall = time.monotonic() - start
        kind = report["kinds"][0]
        ours = (report["client_cores"] + (report["server_cores"] or 0)) * report["seconds"]
        foreign = max(0.0, busy_seconds() - busy - ours) / wall / os.cpu_count()
        self.rows.append({
            "round": round_number, "cell": cell, "side": side, "op": kind["op"],
            "req_s": kind["requests_per_second"], "mb_s": kind["megabytes_per_second"],
            "ttfb_p50_us": kind["first_byte_us"]["p50"], "ttfb_p99_us": kind["first_byte_us"]["p99"],
            "p50_us": kind["total_us"]["p50"], "p95_us": kind["total_us"]["p95"],
            "p99_us": kind["total_us"]["p99"], "server_us": report["server_us_per_request"],
            "client_busy": report["busiest_loop"], "foreign": foreign})
        return report

    def add(self, **row):
        """A row of a runner that measures in its own way."""
        self.rows.append(row)

    def note(self, text):
        self.notes.append(text)

    def cells(self):
        return list(dict.fromkeys((r["cell"], r["side"]) for r in self.rows))

    def values(self, cell, side, column):
        return [r[column] for r in self.rows
                if (r["cell"], r["side"]) == (cell, side) and r[column] is not None]

    def ratios(self, cell, side, reference, column="req_s"):
        """side over reference, round by round."""
        base = {r["round"]: r[column] for r in self.rows
                if (r["cell"], r["side"]) == (cell, reference)}
        return [r[column] / base[r["round"]] for r in self.rows
                if (r["cell"], r["side"]) == (cell, side) and base.get(r["round"])
                and r[column] is not None]

    def table(self, reference=None):
        head = "| cell | side | req/s | MB/s | p50 us | p99 us | TTFB p50 us | server us/req | " \
               "client busy | foreign |"
        head += f" vs {reference} | CPU vs {reference} |" if reference else ""
        lines = [head, "|---" * (head.count("|") - 1) + "|"]
        for cell, side in self.cells():
            def med(column, cell=cell, side=side):
                return spread(self.values(cell, side, column))
            line = f"| {cell} | {side} | {med('req_s')} | {med('mb_s')} | {med('p50_us')} | " \
                   f"{med('p99_us')} | {med('ttfb_p50_us')} | {med('server_us')} | " \
                   f"{med('client_busy')} | {med('foreign')} |"
            if reference:
                same = side == reference
                # The reference's CPU time a request over this side's: more is better, and other
                # programs on the machine move it less than they move the rates.
                cpu = [1 / r for r in self.ratios(cell, side, reference, "server_us") if r]
                line += f" {'1' if same else spread(self.ratios(cell, side, reference))} |" \
                        f" {'1' if same else spread(cpu)} |"
            lines.append(line)
        return lines

    def write(self, lines):
        """The CSV of all rows and the Markdown report."""
        out = Path(self.args.out)
        out.mkdir(parents=True, exist_ok=True)
        with open(out / f"{self.name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)
        text = [f"# {self.name}", "", self.question, "", *machine(self.started, self.args), "",
                *lines, "", *[f"- {n}" for n in self.notes]]
        report = out / f"{self.name}.md"
        report.write_text("\n".join(text) + "\n", encoding="utf-8")
        print("\n".join(lines + self.notes))
        print(f"written: {report} and {self.name}.csv")


def spread(values):
    """Median (least-most)."""
    if not values:
        return ""
    if len(values) == 1:
        return short(values[0])
    return f"{short(statistics.median(values))} ({short(min(values))}-{short(max(values))})"


def short(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def machine(started, args):
    cpu = next((line.split(":")[1].strip() for line in
                Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")),
               platform.machine())
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False).stdout.strip()
    words = [w for w in sys.argv[1:]]
    load1 = os.getloadavg()[0]
    return [f"`bench/run {' '.join(words)}`", "",
            f"{started}, commit {commit or 'unknown'}, {cpu}, {os.cpu_count()} processors, "
            f"Linux {platform.release()}, load average at the end {load1:.1f}. Values are "
            f"medians (least-most) of {getattr(args, 'rounds', 1)} rounds; `foreign` is the share "
            "of all processors that others used; ratios are made within a round."]


def rotate(items, by):
    items = list(items)
    by %= len(items)
    return items[by:] + items[:by]


def parser(description, rounds=5, seconds=1.5):
    p = argparse.ArgumentParser(description=description,
                                formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--rounds", type=int, default=rounds)
    p.add_argument("--seconds", type=float, default=seconds, help="of each measurement")
    p.add_argument("--out", default="target/bench", help="directory for CSV and Markdown")
    p.add_argument("--dir", default=None,
                   help="directory for the server's data, on the disk to measure")
    return p


class Workplace:
    """A directory that is removed, and processes that are ended, when the runner is over."""

    def __init__(self, args):
        if args.dir:
            Path(args.dir).mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix="goblin-bench-", dir=args.dir))
        # Static files come from RAM, as an object in the arena does.
        shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.ram = Path(tempfile.mkdtemp(prefix="goblin-bench-", dir=shm))
        # nginx's workers and varnish have users of their own when started by root.
        self.path.chmod(0o755)
        self.ram.chmod(0o755)
        self.processes = []

    def __enter__(self):
        return self

    def start(self, process):
        self.processes.append(process)
        return process.start()

    def __exit__(self, *_):
        for process in self.processes:
            if process.running():
                process.stop()
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.rmtree(self.ram, ignore_errors=True)
