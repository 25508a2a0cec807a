"""A server for the load generator, and the load generator."""

import json
import subprocess
from pathlib import Path

import pytest

from harness import MAIN, REGION, Store, bench_binary, clean_environment


class Load:
    """Runs goblin-bench against one bucket."""

    def __init__(self, store):
        self.store = store
        self.url = f"{store.endpoint().url}/load"

    def run(self, command, *options, secret=MAIN.secret_key, url=None):
        """The finished process; never raises."""
        return subprocess.run(
            [bench_binary(), command, "--url", url or self.url, "--json", *map(str, options)],
            env=clean_environment(AWS_ACCESS_KEY_ID=MAIN.access_key, AWS_REGION=REGION,
                                  AWS_SECRET_ACCESS_KEY=secret),
            capture_output=True, text=True, timeout=120, check=False)

    def report(self, command, *options, **named):
        """The report of a run that must succeed."""
        done = self.run(command, *options, **named)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("bench")).start()
    yield Load(store)
    store.stop()


@pytest.fixture
def tool():
    def run(*words):
        subprocess.run([bench_binary(), *map(str, words)], check=True, timeout=120,
                       stdin=subprocess.DEVNULL)
    return run


@pytest.fixture
def here(tmp_path) -> Path:
    return tmp_path
