#!/usr/bin/env bash
# The s3s-e2e suite from crates.io. STS is no part of the store yet; nor are tags.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=0.14.1
root=$PWD/target/s3s-e2e
if ! [ -x "$root/bin/s3s-e2e" ]; then
    cargo install -q s3s-e2e --version "$version" --locked --root "$root"
fi
mkdir -p target/test-logs
target/venv/bin/python tests/with_server.py "$root/bin/s3s-e2e" \
    > target/test-logs/s3s-e2e.txt 2>&1 || true
target/venv/bin/python tests/registry/s3s_e2e.py target/test-logs/s3s-e2e.txt
