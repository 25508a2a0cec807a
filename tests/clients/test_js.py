"""The AWS SDK for JavaScript v3: one program (clients/js/check.mjs), one process per endpoint."""

import shutil

from harness import MAIN, ROOT


def test_js_sdk(tool, bucket, node_modules):
    program = node_modules / "check.mjs"
    shutil.copyfile(ROOT / "clients" / "js" / "check.mjs", program)
    result = tool.run("node", program, tool.endpoint.url, bucket, MAIN.access_key, MAIN.secret_key,
                      cwd=node_modules)
    assert "all checks passed" in result.stdout, result
