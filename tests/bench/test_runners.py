"""Every runner in a form of seconds: it measures each cell, without errors, and writes its report.

How fast anything was is never looked at.
"""

import csv
import os
import shutil
import subprocess
import sys

import pytest

from harness import ROOT, bench_binary, binary

QUICK = ("--rounds", 2, "--seconds", 0.2)

RUNS = {
    "hot-get": ("--sizes", "4K,100K", "--connections", "4", *QUICK),
    "put": ("--sizes", "4K", "--connections", "1,4", "--stream", "8M", *QUICK),
    "cold-get": ("--large", "8M", "--objects", 10, "--connections", "4", *QUICK),
    "ttfb": ("--large", "8M", "--gets", 2, "--connections", "4", *QUICK),
    "scale": ("--rows", "500,2000", "--seconds", 0.2),
    "memory": ("--readers", 20, "--size", "4M", "--hold", 3),
    "peers": ("--cells", "4K:2,300K:2", *QUICK),
}
# Cells times sides that must be in the CSV; the number of rows where there are no sides.
EXPECTED = {"hot-get": 8, "ttfb": 3, "peers": 4, "scale": 2}


@pytest.mark.parametrize("name", RUNS)
def test_a_runner_measures_every_cell_and_writes_its_report(name, tmp_path):
    if name == "cold-get" and not shutil.which("fio"):
        pytest.skip("fio is not installed")
    env = os.environ | {"GOBLIN_BIN": str(binary()), "GOBLIN_BENCH": bench_binary()}
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "run"), name, *map(str, RUNS[name]),
         "--out", str(tmp_path)], env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    with open(tmp_path / f"{name}.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    report = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    assert f"bench/run {name}" in report
    if name in EXPECTED:
        cells = {(r.get("cell") or r.get("rows"), r.get("side")) for r in rows}
        assert len(cells) == EXPECTED[name]
    assert len(rows) >= 2
    if name == "memory":
        assert rows[-1]["open_streams"] == "20" or float(rows[-1]["received_mib"]) > 0
