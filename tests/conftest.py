"""Fixtures: one server and one nginx for each test process; a fresh bucket for each test."""

import os
import shutil
import tempfile
import uuid
from pathlib import Path

import pytest

from harness import ALT, MAIN, ExternalStore, Nginx, Store, clean_environment
from raw import Client


def pytest_configure(config):
    """Client libraries in this process must not see settings that point elsewhere."""
    environment = clean_environment()
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture(scope="session")
def workdir():
    path = Path(tempfile.mkdtemp(prefix="goblin-test-"))
    yield path
    if not os.environ.get("GOBLIN_TEST_KEEP"):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def store(workdir):
    """The server that most tests share."""
    if address := os.environ.get("GOBLIN_TEST_HOST"):
        yield ExternalStore(address)
        return
    server = Store(workdir / "store").start()
    yield server
    server.stop()


@pytest.fixture
def own_store(tmp_path):
    """A server of this test alone, which may be restarted or killed."""
    if os.environ.get("GOBLIN_TEST_HOST"):
        pytest.skip("needs a server that the test may restart")
    server = Store(tmp_path / "store").start()
    yield server
    server.kill()


@pytest.fixture
def own_store_with_socket(tmp_path):
    if os.environ.get("GOBLIN_TEST_HOST"):
        pytest.skip("needs a server with a Unix socket")
    path = tmp_path / "http.sock"
    server = Store(tmp_path / "store", options=["--unix-socket", str(path)]).start()
    yield server, path
    server.stop()


@pytest.fixture(scope="session")
def nginx(workdir, store):
    front = Nginx(workdir / "nginx", f"127.0.0.1:{store.port}", ports=2).start()
    yield front
    front.stop()


@pytest.fixture(scope="session", params=["direct", "nginx"])
def endpoint(request, store):
    """The same test twice: straight to the server, and through nginx with TLS."""
    if request.param == "direct":
        return store.endpoint()
    return request.getfixturevalue("nginx").endpoint()


@pytest.fixture
def s3(endpoint):
    client = Client(endpoint, MAIN)
    yield client
    client.close()


@pytest.fixture
def alt(endpoint):
    client = Client(endpoint, ALT)
    yield client
    client.close()


@pytest.fixture
def bucket(s3):
    """The name of a new bucket of MAIN; it goes when the data directory goes."""
    name = f"t-{uuid.uuid4().hex[:16]}"
    answer = s3.put(f"/{name}")
    assert answer.status == 200, answer
    return name
