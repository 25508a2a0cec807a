"""Tests the tests: each defect of docs/reliability.md must make the tests that are named there fail.

The defects are in the unit tests' binary and are switched on by GOBLIN_SABOTAGE, so nothing is built
anew for each. Usage: sabotage.py [DEFECT...]; exit status 1 when a defect goes unnoticed.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN_SECS = 240


def table():
    """(defect, filter) of each row."""
    page = (ROOT / "docs" / "reliability.md").read_text()
    return re.findall(r"^\| I\d \| `([a-z-]+)` \|.*\| `([a-z_0-9:]+)` \|$", page, re.MULTILINE)


def unit_tests():
    """The binary of the library's unit tests."""
    command = ["cargo", "test", "--locked", "--lib", "--no-run", "--message-format", "json"]
    output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = [line for line in map(json.loads, output.splitlines())
             if line.get("executable") and line["target"]["kind"] == ["lib"]]
    return found[-1]["executable"]


def run(binary, wanted, defect=None):
    """Whether the tests passed, and how many there were."""
    environment = {k: v for k, v in os.environ.items() if k != "GOBLIN_SABOTAGE"}
    # Failures that proptest finds are not to be kept.
    environment["PROPTEST_FAILURE_PERSISTENCE"] = "off"
    if defect:
        environment["GOBLIN_SABOTAGE"] = defect
    with tempfile.TemporaryDirectory(prefix="goblin-sabotage-") as directory:
        environment["TMPDIR"] = directory
        try:
            result = subprocess.run([binary, wanted], env=environment, cwd=directory, text=True,
                                    capture_output=True, check=False, timeout=RUN_SECS)
        except subprocess.TimeoutExpired:
            return False, 1
    counts = re.findall(r"(\d+) passed; (\d+) failed", result.stdout)
    ran = sum(int(n) for n in counts[-1]) if counts else 1  # A crash is a failure, too.
    return result.returncode == 0, ran


def main():
    rows = table()
    if not rows:
        sys.exit("docs/reliability.md has no table of defects")
    chosen = sys.argv[1:]
    binary = unit_tests()
    unnoticed, sound = [], {}
    for defect, wanted in rows:
        if chosen and defect not in chosen:
            continue
        if wanted not in sound:
            sound[wanted] = run(binary, wanted)
        passed, ran = sound[wanted]
        caught = not run(binary, wanted, defect)[0]
        ok = passed and ran > 0 and caught
        print(f"{defect}: {'caught by' if ok else 'NOT CAUGHT by'} {wanted}"
              f" ({ran} tests, {'which pass' if passed else 'WHICH FAIL'} without it)", flush=True)
        if not ok:
            unnoticed.append(defect)
    print(f"total: {len(rows) - len(unnoticed)} passed, {len(unnoticed)} failed")
    sys.exit(1 if unnoticed else 0)


if __name__ == "__main__":
    main()
