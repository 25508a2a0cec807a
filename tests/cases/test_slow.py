"""Clients that stall or flood (HTTP-11, HTTP-12), against servers with short time limits."""

import os
import time

import pytest

import ops
from harness import MAIN, Store
from ops import MIB, check
from raw import Client, Connection, head_bytes
from sign import UNSIGNED


@pytest.fixture(scope="module")
def impatient(workdir):
    if os.environ.get("GOBLIN_TEST_HOST"):
        pytest.skip("needs a server with short limits")
    server = Store(workdir / "impatient", options=[
        "--body-timeout-secs", "2", "--header-timeout-secs", "2", "--connections-max", "600"])
    yield server.start()
    server.stop()


@pytest.fixture
def client(impatient):
    client = Client(impatient.endpoint(), MAIN)
    check(client.put("/slow"), 200)
    yield client
    client.close()


def upload_head(client, path, length):
    headers = client.signed_headers("PUT", path, payload=UNSIGNED)
    return head_bytes("PUT", path, "", headers + [("Content-Length", str(length))])


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_HTTP_11_stalled_uploads_end(client, impatient):
    before = descriptors(impatient)
    held = []
    for number in range(200):
        connection = Connection(impatient.endpoint())
        connection.send(upload_head(client, f"/slow/stall{number}", MIB) + b"s" * 1024)
        held.append(connection)
    start = time.monotonic()
    ops.put(client, "slow", "healthy", b"x")
    assert time.monotonic() - start < 1
    answer = None
    try:
        answer = held[0].response("PUT")
    except EOFError:
        pass
    assert 1.5 < time.monotonic() - start < 6
    assert answer is None or (answer.status, answer.code) == (400, "RequestTimeout"), answer
    deadline = time.monotonic() + 15
    for connection in held:
        connection.sock.settimeout(max(0.1, deadline - time.monotonic()))
        while connection.sock.recv(65536):
            pass
        connection.close()
    while descriptors(impatient) > before + 10 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert descriptors(impatient) <= before + 10
    check(client.head("/slow/stall0"), 404)


def test_HTTP_11_a_slow_but_moving_client_is_served(client, impatient):
    with Connection(impatient.endpoint()) as connection:
        connection.send(upload_head(client, "/slow/steady", 8192))
        for _ in range(8):
            connection.send(b"m" * 1024)
            time.sleep(0.5)
        check(connection.response("PUT"), 200)
    assert ops.get(client, "slow", "steady").body == b"m" * 8192


def test_HTTP_12_header_trickle_ends(client, impatient):
    with Connection(impatient.endpoint()) as connection:
        start = time.monotonic()
        try:
            for byte in b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"y" * 100:
                connection.send(bytes([byte]))
                time.sleep(0.1)
            connection.response()
        except (OSError, EOFError):
            pass
        assert time.monotonic() - start < 8
    check(client.head("/slow"), 200)


def test_HTTP_12_connection_flood_leaves_others_alive(client, impatient):
    held = []
    for _ in range(1500):
        try:
            held.append(Connection(impatient.endpoint()))
        except OSError:
            break
    start = time.monotonic()
    ops.put(client, "slow", "flood", b"x")
    assert time.monotonic() - start < 3
    for connection in held:
        connection.close()
    time.sleep(1)
    fresh = Client(impatient.endpoint(), MAIN)
    check(fresh.head("/slow"), 200)
    fresh.close()


def test_HTTP_12_huge_headers_are_refused(client, impatient):
    with Connection(impatient.endpoint()) as connection:
        try:
            connection.send(b"GET / HTTP/1.1\r\nHost: x\r\nX-Big: " + b"z" * MIB + b"\r\n\r\n")
        except OSError:
            pass
        try:
            answer = connection.response()
            assert answer.status in (400, 431), answer
        except (EOFError, ConnectionError):
            pass
    check(client.head("/slow"), 200)


SMUGGLING = [
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\nContent-Length: 6\r\n",
    b"Content-Length: +5\r\n", b"Content-Length: 0x5\r\n",
    b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding : chunked\r\n",
]


@pytest.mark.parametrize("framing", SMUGGLING)
def test_HTTP_request_smuggling_ends_the_connection(client, impatient, framing):
    """The bytes behind an ambiguous body are never taken for a second request."""
    headers = client.signed_headers("PUT", "/slow/smuggle", payload=UNSIGNED)
    head = head_bytes("PUT", "/slow/smuggle", "", headers)[:-2] + framing + b"\r\n"
    with Connection(impatient.endpoint()) as connection:
        connection.send(head + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            answer = connection.response("PUT")
            assert answer.status < 500 or answer.status == 501, answer
        except (EOFError, ConnectionError):
            return
        assert connection.stray(1) == b"", "a second answer"
