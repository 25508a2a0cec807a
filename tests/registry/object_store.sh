#!/usr/bin/env bash
# The conformance functions of the object_store crate (clients/object-store-check).
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build -q --locked --manifest-path clients/object-store-check/Cargo.toml \
    --target-dir target/object-store-check
target/venv/bin/python tests/with_server.py --bucket object-store \
    target/object-store-check/debug/object-store-check object-store
