"""The load generator against the real server: what it sends, checks, counts and refuses."""

import csv

import pytest

SMALL = ("--objects", 50, "--size", 5000, "--concurrency", 4)


@pytest.fixture(scope="module", autouse=True)
def uploaded(load):
    report = load.report("put", "--create-bucket", *SMALL, "--header", "x-amz-acl: public-read")
    kind = report["kinds"][0]
    assert (kind["op"], kind["requests"], kind["bytes"]) == ("put", 50, 250_000)
    assert report["errors"] == []


@pytest.mark.parametrize("sign", ["header", "presigned", "none"])
@pytest.mark.parametrize("check", [("--verify", "content"), ("--verify", "md5"), ("--discard",)])
def test_downloads_are_verified_with_every_kind_of_signature(load, sign, check):
    report = load.report("get", *SMALL, "--sign", sign, *check)
    assert report["kinds"][0]["requests"] == 50
    assert report["kinds"][0]["bytes"] == 250_000


@pytest.mark.parametrize("size", ["0", "1", "300K", "9M"])
def test_every_size_goes_up_and_comes_back(load, size):
    options = ("--objects", 3, "--size", size, "--prefix", f"s{size}/", "-c", 2)
    load.report("put", *options, "--payload", "signed")
    assert load.report("get", *options, "--verify", "content")["kinds"][0]["requests"] == 3
    assert load.report("get", *options, "--discard")["kinds"][0]["requests"] == 3


def fails_with(done, ending, count):
    assert done.returncode == 1
    assert f'["{ending}",{count}]' in done.stdout, done.stdout
    return done.stderr


def test_wrong_bytes_wrong_lengths_and_refusals_are_errors(load):
    fails_with(load.run("get", *SMALL, "--seed", 2, "--verify", "content"), "content", 50)
    fails_with(load.run("get", *SMALL, "--size", 4999), "length", 50)
    assert "SignatureDoesNotMatch" in fails_with(
        load.run("get", *SMALL, secret="wrong"), "status", 50)
    assert "NoSuchKey" in fails_with(load.run("get", *SMALL, "--prefix", "x"), "status", 50)
    # Refused uploads with a body still on its way do not disturb the next request.
    fails_with(load.run("put", *SMALL, "--size", "9M", "--objects", 3, secret="wrong"),
               "status", 3)


def test_what_cannot_be_done_is_said(load):
    assert "TLS" in load.run("get", url="https://127.0.0.1:1/b").stderr
    assert "exclude" in load.run("get", "--discard", "--verify", "md5").stderr
    assert "secret-key" in load.run("get", secret="").stderr


def test_the_csv_has_every_request_in_order(load, here):
    out = here / "requests.csv"
    report = load.report("mixed", *SMALL, "--get-share", 0.5, "--count", 200, "--csv", out,
                         "--loops", 2)
    with open(out, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(r["row"]) for r in rows] == list(range(200))
    assert {r["op"] for r in rows} == {"get", "put"}
    assert {int(r["connection"]) for r in rows} == {0, 1, 2, 3}
    counts = {k["op"]: k["requests"] for k in report["kinds"]}
    for op in counts:
        assert counts[op] == sum(r["op"] == op for r in rows)
    assert report["loops"] == 2
    for row in rows:
        assert int(row["start_ns"]) < int(row["first_byte_ns"]) <= int(row["last_byte_ns"])


def test_a_trace_is_uploaded_once_and_replayed(load, tool, here):
    tool("trace", "--objects", 40, "--requests", 300, "--size-max", "1M", "--out", here)
    population, measured = here / "population.csv", here / "measured.csv"
    put = load.report("put", "--population", population)
    assert put["kinds"][0]["requests"] == 40
    got = load.report("get", "--population", population, "--measured", measured,
                      "--verify", "content")
    assert got["kinds"][0]["requests"] == 300


def test_a_duration_ends_a_run_and_the_server_is_watched(load):
    report = load.report("get", *SMALL, "--duration", 0.5, "--warmup", 0.2,
                         "--server-pid", load.store.process.pid)
    assert report["kinds"][0]["requests"] > 50
    assert report["server_us_per_request"] > 0
    assert 0 < report["in_flight_mean"] <= 4.001


def test_files_for_a_static_server_are_the_same_objects(load, tool, here):
    tool("files", "--objects", 2, "--size", 5000, "--out", here)
    file = (here / "bench" / "00000001").read_bytes()
    from harness import MAIN
    from raw import Client
    answer = Client(load.store.endpoint(), MAIN).get("/load/bench/00000001")
    assert answer.body == file
