"""Samples processes and the machine each second: CPU, RSS, I/O, pressure, memory by NUMA node."""

import csv
import os
import re
import threading
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
COLUMNS = ["time_us", "cpu_cores", "rss_bytes", "read_bytes", "write_bytes", "machine_cores",
           "pressure_cpu_avg10", "pressure_io_avg10", "pressure_memory_avg10", "node_bytes"]


class Monitor(threading.Thread):
    """Writes one CSV row a second until `stop`; of all `pids` together."""

    def __init__(self, path, pids, every=1.0):
        super().__init__(daemon=True)
        self.path, self.pids, self.every = path, list(pids), every
        self.ended = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()

    def run(self):
        before, at = cpu_seconds(self.pids), time.monotonic()
        machine = machine_seconds()
        with open(self.path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            ended = False
            # One more row after the end, so that a short run has one too.
            while not ended:
                ended = self.ended.wait(self.every)
                now, cpu, all_cpu = time.monotonic(), cpu_seconds(self.pids), machine_seconds()
                wall = max(now - at, 1e-9)
                read, written = io_bytes(self.pids)
                writer.writerow([
                    time.time_ns() // 1000, round((cpu - before) / wall, 3),
                    sum(rss_bytes(pid) for pid in self.pids), read, written,
                    round((all_cpu - machine) / wall, 3),
                    *(pressure(what) for what in ("cpu", "io", "memory")),
                    " ".join(f"{n}:{b}" for n, b in sorted(node_bytes(self.pids).items()))])
                file.flush()
                before, at, machine = cpu, now, all_cpu


def text_of(path):
    """Empty when the process or the kernel's feature is not there."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def cpu_seconds(pids):
    total = 0
    for pid in pids:
        fields = text_of(f"/proc/{pid}/stat").rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12]) if fields else 0
    return total / TICKS


def machine_seconds():
    numbers = [int(n) for n in text_of("/proc/stat").splitlines()[0].split()[1:]]
    return (sum(numbers[:8]) - numbers[3] - numbers[4]) / TICKS


def rss_bytes(pid):
    found = re.search(r"VmRSS:\s+(\d+)", text_of(f"/proc/{pid}/status"))
    return int(found[1]) * 1024 if found else 0


def io_bytes(pids):
    read = written = 0
    for pid in pids:
        text = text_of(f"/proc/{pid}/io")
        if text:
            read += int(re.search(r"read_bytes: (\d+)", text)[1])
            written += int(re.search(r"\nwrite_bytes: (\d+)", text)[1])
    return read, written


def pressure(what):
    found = re.search(r"some avg10=([\d.]+)", text_of(f"/proc/pressure/{what}"))
    return found[1] if found else ""


def node_bytes(pids):
    """Resident bytes on each NUMA node, of all pids together."""
    nodes = {}
    for pid in pids:
        for line in text_of(f"/proc/{pid}/numa_maps").splitlines():
            page = int((re.search(r"kernelpagesize_kB=(\d+)", line) or [0, 4])[1]) * 1024
            for node, pages in re.findall(r"\bN(\d+)=(\d+)", line):
                nodes[node] = nodes.get(node, 0) + int(pages) * page
    return nodes
