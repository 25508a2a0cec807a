"""nginx in front: the shipped configuration changes neither host, path nor body."""

import re
import socket
import subprocess
import threading

import pytest

import ops
from harness import MAIN, Nginx, free_port
from ops import MIB, check
from raw import Client, Connection, head_bytes


class Recorder:
    """An upstream that answers 200 and keeps the request heads that it saw."""

    def __init__(self):
        self.seen, self.port = [], free_port()
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        data = b""
        while chunk := sock.recv(65536):
            data += chunk
            while b"\r\n\r\n" in data:
                head, data = data.split(b"\r\n\r\n", 1)
                self.seen.append(head.decode("latin-1"))
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@pytest.fixture(scope="module")
def recorder():
    upstream = Recorder()
    yield upstream
    upstream.listener.close()


@pytest.fixture(scope="module")
def recording(workdir, recorder):
    front = Nginx(workdir / "recording-nginx", f"127.0.0.1:{recorder.port}").start()
    yield front.endpoint()
    front.stop()


TARGETS = ["/t/a//b", "/t/./x", "/t/a/../c", "/t/%2E%2E/x", "/t/a%2Fb", "/t/a%2bb+c%20d", "/t/%61",
           "/t/k?x=a%20b+c&y=%2F;z&delete", "//t//k"]


@pytest.mark.parametrize("target", TARGETS)
def test_NGX_02_the_target_arrives_byte_for_byte(recording, recorder, target):
    with Connection(recording) as connection:
        connection.send(f"GET {target} HTTP/1.1\r\nHost: h.test:8443\r\n\r\n".encode())
        check(connection.response(), 200)
    assert recorder.seen[-1].split("\r\n")[0] == f"GET {target} HTTP/1.1"


@pytest.mark.parametrize("host", ["h.test", "h.test:8443", "H.Test:443"])
def test_NGX_01_the_host_arrives_as_sent(recording, recorder, host):
    with Connection(recording) as connection:
        connection.send(f"GET /t/k HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        check(connection.response(), 200)
    assert re.search(rf"^host: {re.escape(host)}\r?$", recorder.seen[-1],
                     re.MULTILINE | re.IGNORECASE), recorder.seen[-1]


def test_NGX_01_headers_with_unusual_names_arrive(recording, recorder):
    with Connection(recording) as connection:
        connection.send(b"GET /t/k HTTP/1.1\r\nHost: h\r\nx-amz-meta-a_b: 1\r\n"
                        b"x-amz-meta-c.d: 2\r\nx-amz-meta-u: \xc3\xa9\r\n\r\n")
        check(connection.response(), 200)
    head = recorder.seen[-1].encode("latin-1")
    for line in (b"x-amz-meta-a_b: 1", b"x-amz-meta-c.d: 2", b"x-amz-meta-u: \xc3\xa9"):
        assert line in head


@pytest.mark.parametrize("host", ["h.test", "h.test:8443"])
def test_NGX_01_signed_for_the_outside_name(nginx, store, host):
    for index in range(2):
        client = Client(nginx.endpoint(index), MAIN)
        check(client.get("/", host=host), 200)
        client.close()


@pytest.mark.parametrize("size", [1_500_000, 64 * MIB])
@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_NGX_04_bodies_are_not_buffered_to_disk(nginx, store, tmp_path, size, version):
    """6 GiB go the same way in tests/main_job.py."""
    endpoint = nginx.endpoint()
    client = Client(endpoint, MAIN)
    bucket = f"ngx-{size}{version[2:].replace('.', '')}"
    check(client.put(f"/{bucket}"), 200)
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(ops.body_of(size))
    host = [("Host", endpoint.host_header)]
    curl = ["curl", "-sS", "-f", version, "--cacert", endpoint.ca_file, "-w", "%{http_version}"]
    url = f"{endpoint.url}/{bucket}/k?"
    put = client.v4.presign("PUT", f"/{bucket}/k", "", host)
    sent = subprocess.run([*curl, "-T", str(source), url + put], capture_output=True, text=True)
    assert sent.returncode == 0 and sent.stdout in ("1.1", "2"), sent
    get = client.v4.presign("GET", f"/{bucket}/k", "", host)
    subprocess.run([*curl, "-o", str(back), url + get], check=True, capture_output=True)
    assert back.read_bytes() == source.read_bytes()
    assert client.head(f"/{bucket}/k").etag.strip('"') == ops.md5(source.read_bytes())
    for folder in ("client_body_temp", "proxy_temp"):
        assert [p for p in (nginx.directory / folder).rglob("*") if p.is_file()] == []
    errors = (nginx.directory / "error.log").read_text()
    assert "buffered to a temporary file" not in errors
    client.close()


def test_NGX_04_the_first_body_byte_goes_up_at_once(workdir):
    """With request buffering off the upstream sees the head long before the body is complete."""
    recorder = Recorder()
    front = Nginx(workdir / "first-byte-nginx", f"127.0.0.1:{recorder.port}").start()
    try:
        with Connection(front.endpoint()) as connection:
            connection.send(head_bytes("PUT", "/t/k", "", [
                ("Host", "h"), ("Content-Length", str(MIB))]) + b"x" * 1000)
            connection.sock.settimeout(2)
            check(connection.response("PUT"), 200)
        assert recorder.seen[-1].startswith("PUT /t/k HTTP/1.1")
    finally:
        front.stop()
        recorder.listener.close()


def test_NGX_unix_socket_upstream(workdir, own_store_with_socket):
    server, path = own_store_with_socket
    front = Nginx(workdir / "socket-nginx", f"unix:{path}").start()
    try:
        client = Client(front.endpoint(), MAIN)
        check(client.put("/sock"), 200)
        body = ops.body_of(2 * MIB)
        ops.put(client, "sock", "k", body)
        assert ops.get(client, "sock", "k").body == body
        client.close()
    finally:
        front.stop()


def test_CACHE_10_a_cancelled_put_is_not_reused_dirty(nginx, store, s3, bucket):
    """The client goes away in the middle of an upload; the next requests are all right."""
    endpoint = nginx.endpoint()
    for _ in range(100):
        headers = s3.signed_headers("PUT", f"/{bucket}/k", payload="UNSIGNED-PAYLOAD",
                                    host=endpoint.host_header)
        connection = Connection(endpoint)
        connection.send(head_bytes("PUT", f"/{bucket}/k", "", [
            *headers, ("Content-Length", "100000")]) + b"c" * 100)
        connection.close()
        check(s3.head(f"/{bucket}/k"), 404)
