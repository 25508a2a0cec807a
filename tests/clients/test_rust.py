"""The AWS SDK for Rust: clients/rust, which `tests/run install` builds with GOBLIN_FULL or CI."""

import os

import pytest

from harness import ROOT

PROGRAM = ROOT / "target" / "rust-client" / "debug" / "rust-client-check"


def test_rust_sdk(tool, bucket):
    if not PROGRAM.exists():
        assert not os.environ.get("CI"), f"{PROGRAM} was not built"
        pytest.skip("not built: GOBLIN_FULL=1 tests/run install")
    # The SDK reads certificates of the machine; this adds ours.
    if tool.endpoint.tls:
        tool.env["SSL_CERT_FILE"] = tool.endpoint.ca_file
    result = tool.run(PROGRAM, tool.endpoint.url, bucket)
    assert "all checks passed" in result.stdout, result
