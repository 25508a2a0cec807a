"""The shipped nginx configuration keeps the rules that signatures and big bodies depend on."""

import re
import subprocess

import pytest

from harness import ROOT, Nginx

CONF = ROOT / "nginx" / "goblin-store.conf"


def directives(name):
    text = re.sub(r"#.*", "", CONF.read_text())
    return [" ".join(m.split()) for m in re.findall(rf"^\s*{name}\s+([^;]+);", text, re.MULTILINE)]


def test_NGX_01_the_host_goes_through_with_its_port():
    text = re.sub(r"#.*", "", CONF.read_text())
    assert not re.search(r"\$host\b|\$server_name\b|\$proxy_host\b", text)
    assert "Host $http_host" in directives("proxy_set_header")


def test_NGX_02_no_uri_part_and_no_rewrite():
    assert directives("proxy_pass")
    for target in directives("proxy_pass"):
        assert re.fullmatch(r"http://[A-Za-z0-9_.:-]+", target), target
    assert not directives("rewrite") and not directives("try_files") and not directives("alias")
    assert directives("location /") or "location / {" in CONF.read_text()


@pytest.mark.parametrize("name, value", [
    ("proxy_request_buffering", "off"),
    ("proxy_buffering", "off"),
    ("proxy_cache", "off"),
    ("proxy_http_version", "1.1"),
    ("client_max_body_size", "0"),
    ("proxy_buffer_size", "64k"),
    ("proxy_max_temp_file_size", "0"),
    ("underscores_in_headers", "on"),
    ("ignore_invalid_headers", "off"),
    ("merge_slashes", "off"),
    ("ssl_protocols", "TLSv1.2 TLSv1.3"),
])
def test_NGX_04_nothing_is_buffered_or_limited(name, value):
    assert directives(name) == [value]


def test_upstream_connections_are_kept():
    assert directives("keepalive") and 'Connection ""' in directives("proxy_set_header")


@pytest.mark.parametrize("upstream", ["127.0.0.1:1", "unix:/tmp/goblin-lint.sock"])
def test_nginx_accepts_the_configuration(tmp_path, upstream):
    front = Nginx(tmp_path, upstream).start()
    try:
        result = subprocess.run(
            ["nginx", "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"),
             "-e", str(tmp_path / "test.log")], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
    finally:
        front.stop()
