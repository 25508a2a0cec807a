"""Input made to break out: of the data directory, of a log line, of the parser's memory."""

import json

import pytest

import ops
from harness import MAIN
from ops import check
from raw import Client, Connection, head_bytes


@pytest.fixture
def client(own_store):
    client = Client(own_store.endpoint(), MAIN)
    check(client.put("/hostile"), 200)
    yield client
    client.close()


ESCAPES = ("../../../../tmp/goblin-escaped", "..%2F..%2Fgoblin-escaped", "a/../../b", "/etc/passwd",
           "..", "%2e%2e/%2e%2e/x", "....//....//x", "a\\..\\..\\b", "blobs/00/x.blob")


def test_keys_are_no_paths(own_store, client):
    names = {p.relative_to(own_store.directory) for p in own_store.directory.rglob("*")
             if p.suffix not in (".blob", ".seg")}
    for size in (10, 300_000):
        for number, key in enumerate(ESCAPES):
            body = ops.body_of(size, number)
            ops.put(client, "hostile", key, body)
            assert ops.get(client, "hostile", key).body == body
    assert sorted(ops.keys_of(client, "hostile")) == sorted(ESCAPES)
    for bucket in ("..", "%2e%2e", ".well-known"):
        assert client.put(f"/{bucket}/x", b"x").status in (400, 403, 404)
    now = {p.relative_to(own_store.directory) for p in own_store.directory.rglob("*")
           if p.suffix not in (".blob", ".seg")}
    assert now <= names | {p for p in now if p.name.startswith("catalog.sqlite")}


def test_a_log_line_stays_one_line(own_store, client):
    own_store.options += ["--log-format", "json"]
    own_store.restart()
    client.close()
    forged = 'x\n{"level":"ERROR","fields":{"message":"forged"}}\r\n\x1b[31mred'
    path = "/hostile/" + "".join(f"%{b:02X}" for b in forged.encode())
    check(client.put(path, b"x"), 200)
    check(client.get(path), 200)
    check(client.get("/hostile/missing%0A%7B%22level%22:%22ERROR%22%7D"), 404)
    headers = [("Host", "x"), ("User-Agent", "a\tb {\"forged\":1} \x7f"), ("Connection", "close")]
    connection = Connection(own_store.endpoint())
    connection.send(head_bytes("GET", "/hostile%0aERROR forged", "", headers))
    connection.read_until_closed()
    connection.close()
    own_store.stop()
    text = own_store.log.read_text()
    lines = [line for line in text.splitlines() if line.startswith("{")]
    assert len(lines) > 5 and "\x1b" not in text
    for line in lines:
        record = json.loads(line)
        assert "forged" not in (record.get("message"), record.get("fields", {}).get("message"))
    assert not any(line.lstrip().startswith('{"level":"ERROR","fields":{"message":"forged"')
                   for line in text.split("\n"))


BOMB = ('<?xml version="1.0"?><!DOCTYPE lol [<!ENTITY a "lollollollol">' + "".join(
    f'<!ENTITY {chr(b + 1)} "{f"&{chr(b)};" * 10}">' for b in range(ord("a"), ord("j")))
    + ']><Delete><Object><Key>&j;</Key></Object></Delete>')
DEEP = "<Delete>" + "<a>" * 100_000 + "</a>" * 100_000 + "</Delete>"
EXTERNAL = ('<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
            '<Delete><Object><Key>&e;</Key></Object></Delete>')


@pytest.mark.parametrize("body", [BOMB, DEEP, EXTERNAL, "<Delete>" + "x" * (8 << 20)],
                         ids=["entities", "deep", "external", "huge"])
def test_xml_bombs_are_refused(own_store, client, body):
    before = own_store.metrics()["process_resident_memory_bytes"]
    answer = client.post("/hostile", "delete=", body.encode(),
                         [("x-amz-checksum-sha256", sha256_base64(body.encode()))])
    assert 400 <= answer.status < 500, answer
    assert b"root:" not in answer.body
    assert own_store.metrics()["process_resident_memory_bytes"] < before + (64 << 20)
    check(client.get("/hostile", "list-type=2"), 200)


def sha256_base64(data):
    import base64
    import hashlib
    return base64.b64encode(hashlib.sha256(data).digest()).decode()
