"""What the client tests share: a prepared environment and sample files."""

import os
import subprocess
from pathlib import Path

import pytest

from awkward import AWKWARD_KEYS, NOT_FOR_FILES
from harness import MAIN, REGION, ROOT, clean_environment
from ops import MIB, body_of

SIZES = {"empty": 0, "small": 5, "seam": MIB + 1, "multipart": 17 * MIB + 3}


class Tool:
    """Runs one command-line client in an environment that names the endpoint and the keys."""

    def __init__(self, endpoint, home):
        self.endpoint, self.home = endpoint, Path(home)
        self.env = clean_environment(
            HOME=str(home), AWS_ACCESS_KEY_ID=MAIN.access_key,
            AWS_SECRET_ACCESS_KEY=MAIN.secret_key, AWS_DEFAULT_REGION=REGION,
            AWS_EC2_METADATA_DISABLED="true", AWS_PAGER="")
        if endpoint.tls:
            self.env |= {"AWS_CA_BUNDLE": endpoint.ca_file,
                         "NODE_EXTRA_CA_CERTS": endpoint.ca_file}

    def run(self, *command, ok=True, **options):
        result = subprocess.run([str(c) for c in command], env=self.env, capture_output=True,
                                text=True, timeout=100, **options)
        if ok:
            assert result.returncode == 0, (command, result.stdout[-2000:], result.stderr[-2000:])
        return result


@pytest.fixture
def tool(endpoint, tmp_path):
    return Tool(endpoint, tmp_path)


@pytest.fixture
def samples(tmp_path):
    """Files of every interesting size: name -> path."""
    folder = tmp_path / "samples"
    folder.mkdir()
    paths = {}
    for number, (name, size) in enumerate(SIZES.items()):
        paths[name] = folder / f"{name}.bin"
        paths[name].write_bytes(body_of(size, number))
    return paths


@pytest.fixture
def tree(tmp_path):
    """A directory whose file names are awkward keys."""
    root = tmp_path / "tree"
    for number, key in enumerate(k for k in AWKWARD_KEYS if k not in NOT_FOR_FILES):
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body_of(100 + number, number))
    return root


def files_of(root):
    """Relative name -> bytes of every file below `root`."""
    return {str(p.relative_to(root)): p.read_bytes() for p in Path(root).rglob("*") if p.is_file()}


@pytest.fixture
def same_files():
    def check(left, right):
        assert files_of(left) == files_of(right)
    return check


@pytest.fixture(scope="session")
def node_modules():
    path = Path(os.environ.get("GOBLIN_NODE", ROOT / "target" / "node"))
    if not (path / "node_modules").exists():
        pytest.skip("npm packages are not installed: tests/run install")
    return path
