"""Runs a command against a server of its own, with the usual AWS variables set.

Usage: with_server.py [--bucket NAME] COMMAND [ARGUMENT...]
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import MAIN, REGION, Store, clean_environment  # noqa: E402
from raw import Client  # noqa: E402


def main():
    command = sys.argv[1:]
    bucket = None
    if command[:1] == ["--bucket"]:
        bucket, command = command[1], command[2:]
    directory = Path(tempfile.mkdtemp(prefix="goblin-with-"))
    store = Store(directory)
    try:
        endpoint = store.start().endpoint()
        if bucket:
            Client(endpoint, MAIN).put(f"/{bucket}")
        status = subprocess.run(command, env=clean_environment(
            AWS_ENDPOINT=endpoint.url, AWS_ENDPOINT_URL=endpoint.url, AWS_REGION=REGION,
            AWS_DEFAULT_REGION=REGION, AWS_ACCESS_KEY_ID=MAIN.access_key,
            AWS_SECRET_ACCESS_KEY=MAIN.secret_key, AWS_ALLOW_HTTP="true",
            AWS_EC2_METADATA_DISABLED="true"), check=False).returncode
    finally:
        store.stop()
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
