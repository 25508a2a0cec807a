"""One transfer by libcurl, timed by libcurl's own counters; hashing happens outside of it.

Owns a curl handle and its connection, which is kept from one transfer to the next.
"""

import hashlib
import time
from dataclasses import dataclass, fields

import pycurl

import sigv4

RECEIVE_BYTES = 512 << 10


@dataclass
class Record:
    """One transfer. Stamps are microseconds since 1970, durations microseconds."""
    op: str
    key: str
    bytes: int
    start_us: int
    stop_us: int
    # To the first byte of the answer, and to its last, by libcurl.
    ttfb_us: int
    total_us: int
    connect_us: int
    tls_us: int
    new_connections: int
    status: int
    ok: bool
    worker: int = 0

    @staticmethod
    def columns():
        return [f.name for f in fields(Record)]


class Failed(RuntimeError):
    pass


class Handle:
    """A curl handle for one endpoint. Not shared between threads."""

    def __init__(self, endpoint, bucket, keys, ca_file=None, worker=0):
        self.endpoint, self.bucket, self.keys, self.worker = endpoint, bucket, keys, worker
        self.curl = pycurl.Curl()
        self.ca_file = ca_file

    def close(self):
        self.curl.close()

    def put(self, key, body, payload=sigv4.UNSIGNED):
        """Uploads bytes; the record."""
        view, at = memoryview(body), 0

        def read(count):
            nonlocal at
            piece = view[at:at + count]
            at += len(piece)
            return bytes(piece)

        def options(curl):
            curl.setopt(pycurl.UPLOAD, 1)
            curl.setopt(pycurl.INFILESIZE_LARGE, len(body))
            curl.setopt(pycurl.READFUNCTION, read)
            curl.setopt(pycurl.UPLOAD_BUFFERSIZE, RECEIVE_BYTES)

        record, answer = self._perform("PUT", key, options, len(body), payload)
        if record.status != 200:
            raise Failed(f"PUT {key}: {record.status} {bytes(answer[:300])}")
        return record

    def get(self, key, size):
        """Downloads an object of `size` bytes; the record and the bytes, not yet verified."""
        def options(curl):
            curl.setopt(pycurl.HTTPGET, 1)
        record, body = self._perform("GET", key, options, size, sigv4.EMPTY_SHA256)
        if record.status != 200:
            raise Failed(f"GET {key}: {record.status} {bytes(body[:300])}")
        return record, body

    def delete(self, key):
        def options(curl):
            curl.setopt(pycurl.CUSTOMREQUEST, "DELETE")
        record, answer = self._perform("DELETE", key, options, 0, sigv4.EMPTY_SHA256)
        if record.status not in (200, 204):
            raise Failed(f"DELETE {key}: {record.status} {bytes(answer[:300])}")
        return record

    def make_bucket(self):
        """Makes the bucket; one that exists is fine."""
        def options(curl):
            curl.setopt(pycurl.UPLOAD, 1)
            curl.setopt(pycurl.INFILESIZE_LARGE, 0)
            curl.setopt(pycurl.READFUNCTION, lambda _: b"")
        record, answer = self._perform("PUT", "", options, 0, sigv4.EMPTY_SHA256)
        if record.status not in (200, 409):
            raise Failed(f"PUT bucket: {record.status} {bytes(answer[:300])}")

    def create_session(self):
        """Trades the long-lived keys for those of an S3 Express session."""
        record, answer = self._perform("GET", "", lambda c: c.setopt(pycurl.HTTPGET, 1), 0,
                                       sigv4.EMPTY_SHA256, query="session=")
        if record.status != 200:
            raise Failed(f"CreateSession: {record.status} {bytes(answer[:300])}")
        self.keys = sigv4.session_keys(bytes(answer).decode(), self.keys.region)

    def _perform(self, method, key, options, size, payload, query=""):
        url = sigv4.object_url(self.endpoint, self.bucket, key) if key else \
            f"{self.endpoint.rstrip('/')}/{self.bucket}"
        curl, body = self.curl, bytearray()
        # Keeps the connection, forgets everything else.
        curl.reset()
        curl.setopt(pycurl.URL, url + ("?" + query if query else ""))
        lines = [*sigv4.headers(self.keys, method, url, query, payload)] if self.keys else []
        curl.setopt(pycurl.HTTPHEADER, [*lines, "Expect:", "Content-Type:"])
        curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        curl.setopt(pycurl.BUFFERSIZE, RECEIVE_BYTES)
        curl.setopt(pycurl.TCP_NODELAY, 1)
        curl.setopt(pycurl.WRITEFUNCTION, body.extend)
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.CONNECTTIMEOUT, 30)
        # Stalled for a minute is failed.
        curl.setopt(pycurl.LOW_SPEED_LIMIT, 1)
        curl.setopt(pycurl.LOW_SPEED_TIME, 60)
        if self.ca_file:
            curl.setopt(pycurl.CAINFO, self.ca_file)
        options(curl)
        start = time.time_ns() // 1000
        curl.perform()
        stop = time.time_ns() // 1000
        micros = {name: curl.getinfo(getattr(pycurl, code)) for name, code in (
            ("ttfb_us", "STARTTRANSFER_TIME_T"), ("total_us", "TOTAL_TIME_T"),
            ("connect_us", "CONNECT_TIME_T"), ("tls_us", "APPCONNECT_TIME_T"))}
        record = Record(
            op=method.lower(), key=key, bytes=size, start_us=start, stop_us=stop, **micros,
            new_connections=curl.getinfo(pycurl.NUM_CONNECTS),
            status=curl.getinfo(pycurl.RESPONSE_CODE), ok=True, worker=self.worker)
        return record, body


def verify(record, body, sha256):
    """Sets `ok`; called between transfers, never during one."""
    record.ok = len(body) == record.bytes and hashlib.sha256(body).hexdigest() == sha256
    return record.ok
