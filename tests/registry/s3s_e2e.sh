#!/usr/bin/env bash
# The s3s-e2e suite from crates.io, a version that this toolchain builds.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=0.14.1
root=$PWD/target/s3s-e2e
if ! [ -x "$root/bin/s3s-e2e" ]; then
    cargo install -q s3s-e2e --version "$version" --locked --debug --root "$root" \
        --target-dir "$root/build"
fi
report=$PWD/target/test-logs/s3s-e2e.json
mkdir -p "$(dirname "$report")"
rm -f "$report"
target/venv/bin/python tests/with_server.py "$root/bin/s3s-e2e" --json "$report" || true
target/venv/bin/python tests/registry/s3s_e2e.py "$report"
