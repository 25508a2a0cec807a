"""Adds up the test counts in the logs of tests/run and prints one line."""

import re
import sys
from pathlib import Path

PATTERNS = (
    # pytest: "3 failed, 120 passed in 5.00s"; cargo test: "ok. 12 passed; 0 failed; ..."
    # nextest: "Summary [ 1.2s] 12 tests run: 12 passed, 0 skipped"
    ("passed", re.compile(r"\b(\d+) passed\b")),
    ("failed", re.compile(r"\b(\d+) (?:failed|errors?)\b")),
)
CLOSING = re.compile(r"^(=+ )?\d+ (passed|failed|errors?|skipped)\b.* in [\d.]+s|"
                     r"^test result: |^\s*Summary \[|^(total: )?\d+ passed, \d+ failed$")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def count(text):
    totals = {"passed": 0, "failed": 0}
    for line in COLOUR.sub("", text).splitlines():
        if CLOSING.search(line):
            for name, pattern in PATTERNS:
                totals[name] += sum(map(int, pattern.findall(line)))
    return totals


def main():
    logs, sections = Path(sys.argv[1]), sys.argv[2:]
    found = [count((logs / f"{s}.log").read_text(errors="replace")) for s in sections]
    print(f"total: {sum(f['passed'] for f in found)} passed, "
          f"{sum(f['failed'] for f in found)} failed")


if __name__ == "__main__":
    main()
