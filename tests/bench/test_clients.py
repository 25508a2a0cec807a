"""The libcurl clients and the studies, small: right bytes, right columns, right signatures."""

import csv
import datetime
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from harness import MAIN, REGION, ROOT, Store, bench_binary, binary, clean_environment

CLIENTS = ROOT / "clients" / "s3bench"
sys.path.insert(0, str(CLIENTS))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("clients")).start()
    yield store
    store.stop()


def s3bench(*words, ok=True, **env):
    done = subprocess.run(
        [sys.executable, str(CLIENTS / "s3bench.py"), *map(str, words)],
        env=clean_environment(AWS_ACCESS_KEY_ID=MAIN.access_key, AWS_REGION=REGION,
                              AWS_SECRET_ACCESS_KEY=MAIN.secret_key, GOBLIN_BIN=str(binary()),
                              GOBLIN_BENCH=bench_binary(), **env),
        capture_output=True, text=True, timeout=110, check=False)
    if ok:
        assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpus")
    s3bench("corpus", "--out", directory, "--scale", 0.001, "--objects", 30)
    return directory


def test_the_corpus_is_seeded_scaled_and_spread():
    import corpus
    full, small = corpus.sizes(1), corpus.sizes(0.001)
    assert len(full) == 590 and full == corpus.sizes(1)
    assert min(full) < 101_000 and max(full) > 4_900_000_000
    assert all(abs(s - f * 0.001) <= 1 for s, f in zip(small, full))


def test_up_down_and_at_once_with_every_byte_verified(store, files, tmp_path):
    where = ("--endpoint", store.endpoint().url, "--bucket", "curl", "--corpus", files)
    out = tmp_path / "r.csv"
    s3bench("upload", *where, "--create-bucket", "--csv", out)
    got = json.loads(s3bench("download", *where, "--csv", out, "--monitor-pid",
                             store.process.pid).stdout)["get"]
    assert (got["requests"], got["failed"]) == (30, 0)
    # One connection for all of them.
    assert got["new_connections"] == 1
    with open(out, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert int(row["start_us"]) < int(row["stop_us"])
            assert 0 < int(row["ttfb_us"]) <= int(row["total_us"])
    with open(f"{out}.monitor.csv", newline="", encoding="utf-8") as file:
        assert int(next(csv.DictReader(file))["rss_bytes"]) > 1 << 20
    many = json.loads(s3bench("concurrent", *where, "--csv", out, "--concurrency", 4,
                              "--requests", 90).stdout)["get"]
    assert (many["requests"], many["failed"], many["new_connections"]) == (90, 0, 4)
    whole = json.loads(s3bench("all-in-one", *where, "--csv", out).stdout)
    assert {op: whole[op]["requests"] for op in whole} == {"put": 30, "get": 30, "delete": 30}
    assert "404" in s3bench("download", *where, "--csv", out, ok=False).stderr


def test_wrong_bytes_fail_a_download(store, files, tmp_path):
    where = ("--endpoint", store.endpoint().url, "--bucket", "wrong", "--corpus")
    s3bench("upload", *where, files, "--create-bucket", "--csv", tmp_path / "r.csv")
    manifest = (files / "manifest.csv").read_text()
    first = manifest.splitlines()[1].rsplit(",", 1)[1]
    (tmp_path / "manifest.csv").write_text(manifest.replace(first, "0" * 64))
    done = s3bench("download", *where, tmp_path, "--csv", tmp_path / "r.csv", ok=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["get"]["failed"] == 1


def test_an_express_session_signs_with_its_own_keys(files, tmp_path):
    seen = []

    class Express(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            seen.append((self.path, dict(self.headers)))
            body = b"<CreateSessionResult><Credentials><SessionToken>tok</SessionToken>" \
                   b"<SecretAccessKey>sec</SecretAccessKey><AccessKeyId>SESS</AccessKeyId>" \
                   b"</Credentials></CreateSessionResult>"
            self.answer(200, body)

        def do_PUT(self):
            seen.append((self.path, dict(self.headers)))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(200, b"")

        def answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Express)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        s3bench("upload", "--endpoint", f"http://127.0.0.1:{server.server_port}", "--bucket",
                "b--use1-az4--x-s3", "--corpus", files, "--csv", tmp_path / "r.csv", "--express")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    path, headers = seen[0]
    assert path == "/b--use1-az4--x-s3?session="
    assert f"Credential={MAIN.access_key}/" in headers["Authorization"]
    assert len(seen) == 31
    for _, headers in seen[1:]:
        assert headers["x-amz-s3session-token"] == "tok"
        assert "Credential=SESS/" in headers["Authorization"]
        assert "/s3express/aws4_request" in headers["Authorization"]


def test_the_published_signature():
    import sigv4
    keys = sigv4.Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    lines = sigv4.headers(
        keys, "GET", "https://examplebucket.s3.amazonaws.com/test.txt",
        payload=sigv4.EMPTY_SHA256, extra=[("Range", "bytes=0-9")],
        when=datetime.datetime(2013, 5, 24, tzinfo=datetime.timezone.utc))
    assert lines[-1].endswith(
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")


def test_both_studies_run_and_draw(tmp_path):
    s3bench("study", "--scale", 0.0001, "--objects", 12, "--rounds", 1, "--sweep", "1,2",
            "--out", tmp_path)
    s3bench("cache-study", "--rounds", 1, "--sweep", "2,4", "--seconds", 0.2,
            "--trace-objects", 50, "--out", tmp_path)
    names = {p.name for p in tmp_path.iterdir()}
    assert {"study.md", "study-requests.csv", "study-monitor.csv", "study-completion.png",
            "study-ttfb.png", "study-throughput.png", "cache-study.md", "cache-study.csv",
            "cache-study.png"} <= names
    assert "| control from RAM | 2 |" in (tmp_path / "study.md").read_text(encoding="utf-8")
