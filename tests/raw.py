"""A raw HTTP/1.1 client: it sends exactly the bytes that a test gives and parses answers strictly.

`Connection` is one socket (TLS or not). `Client` signs requests of one user and keeps a connection.
Client libraries clean paths, add headers and hide stray bytes; this one does not.
"""

import hashlib
import re
import socket
import ssl
import xml.etree.ElementTree as ElementTree

from sign import EMPTY_SHA256, UNSIGNED_TRAILER, V4, amz_date, now, unsigned_chunks

TIMEOUT_SECS = 20


class ProtocolError(AssertionError):
    """The peer sent something that is not a well-formed HTTP/1.1 answer."""


class Response:
    """`headers` has lower-case names, repeats joined by comma; `raw_headers` keeps the list."""

    def __init__(self, status, raw_headers, body):
        self.status, self.raw_headers, self.body = status, raw_headers, body
        self.headers = {}
        for name, value in raw_headers:
            name = name.lower()
            self.headers[name] = f"{self.headers[name]},{value}" if name in self.headers else value

    def header(self, name):
        return self.headers.get(name.lower())

    @property
    def etag(self):
        return self.headers.get("etag")

    @property
    def xml(self):
        """The body as an element tree without namespaces."""
        text = re.sub(rb'\sxmlns="[^"]*"', b"", self.body)
        return ElementTree.fromstring(text)

    @property
    def code(self):
        """The S3 error code, or None when the body is not an Error document."""
        try:
            root = self.xml
        except ElementTree.ParseError:
            return None
        return root.findtext("Code") if root.tag == "Error" else None

    def all(self, path):
        """Texts of all elements at `path`; an empty element is an empty string."""
        return [e.text or "" for e in self.xml.findall(path)]

    def text(self, path):
        return self.xml.findtext(path)

    def __repr__(self):
        return f"<{self.status} {self.code or ''} {self.headers} {self.body[:160]!r}>"


class Connection:
    """One socket to an endpoint, with a strict parser and its left-over bytes."""

    def __init__(self, endpoint, timeout=TIMEOUT_SECS):
        sock = socket.create_connection((endpoint.host, endpoint.port), timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if endpoint.tls:
            context = ssl.create_default_context(cafile=endpoint.ca_file)
            sock = context.wrap_socket(sock, server_hostname="localhost")
        self.sock, self.buffer = sock, b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.sock.sendall(data)

    def close(self):
        self.sock.close()

    def reset(self):
        """Closes with RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def _more(self):
        data = self.sock.recv(65536)
        if not data:
            raise EOFError(f"closed with {self.buffer[:200]!r} pending")
        self.buffer += data

    def _line(self):
        while b"\r\n" not in self.buffer:
            self._more()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line.decode("latin-1")

    def _exactly(self, count):
        parts, have = [self.buffer], len(self.buffer)
        self.buffer = b""
        while have < count:
            data = self.sock.recv(min(1 << 20, max(65536, count - have)))
            if not data:
                raise EOFError(f"body cut after {have} of {count}")
            parts.append(data)
            have += len(data)
        joined = b"".join(parts)
        self.buffer = joined[count:]
        return joined[:count]

    def _chunked(self):
        body = []
        while True:
            size = int(self._line().split(";")[0], 16)
            if size == 0:
                while self._line():
                    pass
                return b"".join(body)
            body.append(self._exactly(size))
            if self._exactly(2) != b"\r\n":
                raise ProtocolError("chunk without CRLF behind it")

    def _head(self):
        status_line = self._line()
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) ?.*", status_line)
        if not match:
            raise ProtocolError(f"status line {status_line!r}")
        headers = []
        while line := self._line():
            name, colon, value = line.partition(":")
            if not colon or name != name.strip():
                raise ProtocolError(f"header line {line!r}")
            headers.append((name, value.strip()))
        return int(match[1]), headers

    def response(self, method="GET", want_continue=False):
        """The next answer. 100 Continue is skipped unless asked for."""
        status, headers = self._head()
        while status == 100 and not want_continue:
            status, headers = self._head()
        found = {n.lower(): v for n, v in headers}
        if method == "HEAD" or status in (100, 204, 304):
            body = b""
        elif "chunked" in found.get("transfer-encoding", ""):
            body = self._chunked()
        elif "content-length" in found:
            body = self._exactly(int(found["content-length"]))
        else:
            body = self._to_end()
        return Response(status, headers, body)

    def _to_end(self):
        try:
            while True:
                self._more()
        except EOFError:
            body, self.buffer = self.buffer, b""
            return body

    def read_until_closed(self):
        """Whatever still comes, for responses that are cut short."""
        received = self.buffer
        try:
            while data := self.sock.recv(1 << 16):
                received += data
        except ConnectionResetError:
            pass
        self.buffer = b""
        return received

    def stray(self, seconds=0.15):
        """Bytes that nobody asked for, waiting at most `seconds`; b"" also when the peer closed."""
        self.sock.settimeout(seconds)
        try:
            return self.buffer + self.sock.recv(65536)
        except (TimeoutError, ssl.SSLWantReadError, ConnectionError):
            return self.buffer
        finally:
            self.sock.settimeout(TIMEOUT_SECS)


def head_bytes(method, path, query, headers):
    """Request line and headers as bytes; str values are written as UTF-8."""
    target = f"{path}?{query}" if query else path
    out = [f"{method} {target} HTTP/1.1\r\n".encode("latin-1")]
    for name, value in headers:
        value = value if isinstance(value, bytes) else str(value).encode()
        out.append(name.encode() + b": " + value + b"\r\n")
    return b"".join(out) + b"\r\n"


def header_list(headers):
    return list(headers.items()) if isinstance(headers, dict) else list(headers or [])


class Client:
    """Signed requests of one user over one kept-alive connection, opened when needed.

    Without a user the requests have no signature.
    """

    def __init__(self, endpoint, user, region="us-east-1"):
        self.endpoint, self.user = endpoint, user
        self.v4 = V4(user, region) if user else None
        self.connection = None

    def close(self):
        if self.connection:
            self.connection.close()
            self.connection = None

    def signed_headers(self, method, path, query="", headers=None, body=b"", *, payload=None,
                       when=None, signed=None, host=None, sign_path=None, v4=None):
        """The headers to send; `payload` overrides the payload hash, `sign_path` what is signed."""
        if not (self.v4 or v4):
            return [("Host", host or self.endpoint.host_header), *header_list(headers)]
        when = when or now()
        if payload is None:
            payload = hashlib.sha256(body).hexdigest() if body else EMPTY_SHA256
        out = [("Host", host or self.endpoint.host_header)]
        out += [("x-amz-date", amz_date(when)), ("x-amz-content-sha256", payload)]
        out += header_list(headers)
        value = (v4 or self.v4).authorization(
            method, sign_path or path, query, out, payload, when, signed)
        return out + [("Authorization", value)]

    def request(self, method, path, query="", headers=None, body=b"", **signing):
        """One signed request with a Content-Length body; reconnects when the server closed."""
        out = self.signed_headers(method, path, query, headers, body, **signing)
        names = {n.lower() for n, _ in out}
        if "content-length" not in names and (body or method in ("PUT", "POST")):
            out.append(("Content-Length", str(len(body))))
        return self.exchange(method, head_bytes(method, path, query, out), body)

    def exchange(self, method, head, body=b""):
        """Sends raw bytes and reads the answer; retries once when a kept connection was dead."""
        reused = self.connection is not None
        if not reused:
            self.connection = Connection(self.endpoint)
        try:
            try:
                self.connection.send(head + body if len(body) < 65536 else head)
                if len(body) >= 65536:
                    self.connection.send(body)
            except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
                pass  # The answer may have come before the body was taken.
            answer = self.connection.response(method)
        except (EOFError, ConnectionError):
            self.close()
            if not reused:
                raise
            return self.exchange(method, head, body)
        if (answer.header("connection") or "").lower() == "close":
            self.close()
        return answer

    def get(self, path, query="", headers=None, **signing):
        return self.request("GET", path, query, headers, **signing)

    def head(self, path, query="", headers=None, **signing):
        return self.request("HEAD", path, query, headers, **signing)

    def put(self, path, body=b"", headers=None, query="", **signing):
        return self.request("PUT", path, query, headers, body, **signing)

    def post(self, path, query="", body=b"", headers=None, **signing):
        return self.request("POST", path, query, headers, body, **signing)

    def delete(self, path, query="", headers=None, **signing):
        return self.request("DELETE", path, query, headers, **signing)

    def put_streaming(self, path, pieces, headers=None, *, payload, framed=None, trailers=None,
                      decoded=None, query=""):
        """An aws-chunked PUT; `framed` replaces the framed body, `decoded` the declared length."""
        when = now()
        extra = header_list(headers)
        names = {n.lower() for n, _ in extra}
        if decoded is None:
            decoded = sum(map(len, pieces))
        if "content-encoding" not in names:
            extra.append(("Content-Encoding", "aws-chunked"))
        extra.append(("x-amz-decoded-content-length", str(decoded)))
        if trailers and "x-amz-trailer" not in names:
            extra.append(("x-amz-trailer", ",".join(n for n, _ in trailers)))
        out = self.signed_headers("PUT", path, query, extra, payload=payload, when=when)
        if framed is None:
            framed = self.framed(pieces, out, payload, when, trailers)
        out.append(("Content-Length", str(len(framed))))
        return self.exchange("PUT", head_bytes("PUT", path, query, out), framed)

    def framed(self, pieces, headers, payload, when, trailers):
        if payload == UNSIGNED_TRAILER:
            return unsigned_chunks(pieces, trailers)
        seed = dict(headers)["Authorization"].rsplit("Signature=", 1)[1]
        return self.v4.chunks(pieces, seed, when, trailers)
