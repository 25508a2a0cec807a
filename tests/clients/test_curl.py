"""curl: presigned uploads and downloads, and its own SigV4."""

import re

import pytest

from harness import MAIN, REGION
from ops import body_of, md5
from sign import V2, now


@pytest.fixture
def curl(tool):
    def run(*arguments, **options):
        ca = ["--cacert", tool.endpoint.ca_file] if tool.endpoint.tls else []
        return tool.run("curl", "-sS", *ca, *arguments, **options)
    return run


def presigned(s3, method, bucket, key, query=""):
    host = [("Host", s3.endpoint.host_header)]
    path = f"/{bucket}/{key}"
    return f"{s3.endpoint.url}{path}?" + s3.v4.presign(method, path, query, host)


def test_presigned_upload_and_download(curl, s3, bucket, samples, tmp_path):
    for name, path in samples.items():
        curl("-f", "-T", path, presigned(s3, "PUT", bucket, name))
        back = tmp_path / "back"
        curl("-f", "-o", back, presigned(s3, "GET", bucket, name))
        found = back.read_bytes() if back.exists() else b""
        assert found == path.read_bytes()
        back.unlink(missing_ok=True)


def test_presigned_version_2(curl, s3, bucket):
    v2, stamp = V2(MAIN), int(now().timestamp()) + 60
    path = f"/{bucket}/a%20b"
    # curl sends the size and nothing else; an empty content type is what was signed.
    put = v2.presign("PUT", path, "", expires_at=stamp)
    curl("-f", "-X", "PUT", "-d", "hello", "-H", "Content-Type:", f"{s3.endpoint.url}{path}?{put}")
    get = v2.presign("GET", path, "", expires_at=stamp)
    assert curl("-f", f"{s3.endpoint.url}{path}?{get}").stdout == "hello"


def test_resume_and_ranges(curl, s3, bucket, tmp_path):
    body = body_of(3 << 20)
    s3.put(f"/{bucket}/k", body)
    back = tmp_path / "back"
    back.write_bytes(body[:1_500_000])
    curl("-f", "-C", "-", "-o", back, presigned(s3, "GET", bucket, "k"))
    assert back.read_bytes() == body
    shown = curl("-f", "-r", "5-9", "-o", back, "-D", "-", presigned(s3, "GET", bucket, "k"))
    assert re.search(rf"content-range: bytes 5-9/{3 << 20}", shown.stdout, re.IGNORECASE)
    assert back.read_bytes() == body[5:10]


SIGV4 = ["--aws-sigv4", f"aws:amz:{REGION}:s3", "--user", f"{MAIN.access_key}:{MAIN.secret_key}"]
UNSIGNED = ["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]


def test_aws_sigv4(curl, s3, bucket, samples, tmp_path):
    url = f"{s3.endpoint.url}/{bucket}/k"
    for name, path in samples.items():
        curl("-f", *SIGV4, *UNSIGNED, "-T", path, url)
        assert s3.head(f"/{bucket}/k").etag.strip('"') == md5(path.read_bytes()), name
        curl("-f", *SIGV4, *UNSIGNED, "-o", tmp_path / "back", url)
        assert (tmp_path / "back").read_bytes() == path.read_bytes()
        (tmp_path / "back").unlink()
    listed = curl("-f", *SIGV4, *UNSIGNED,
                  f"{s3.endpoint.url}/{bucket}?delimiter=%2F&list-type=2&prefix=").stdout
    assert "<Key>k</Key>" in listed
    curl("-f", *SIGV4, *UNSIGNED, "-X", "DELETE", url)
    assert s3.head(f"/{bucket}/k").status == 404


def test_errors_are_readable(curl, s3, bucket):
    url = f"{s3.endpoint.url}/{bucket}/none"
    assert "<Code>NoSuchKey</Code>" in curl(*SIGV4, *UNSIGNED, url).stdout
    assert "<Code>AccessDenied</Code>" in curl(url).stdout


def test_http2_through_tls(curl, s3, bucket, endpoint):
    if not endpoint.tls:
        pytest.skip("HTTP/2 needs TLS")
    s3.put(f"/{bucket}/k", b"hello")
    shown = curl("-f", "--http2", "-w", "%{http_version}", presigned(s3, "GET", bucket, "k"))
    assert shown.stdout == "hello2"
