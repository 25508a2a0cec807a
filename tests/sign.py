"""Signatures, written from the S3 documentation: SigV4 (header, presigned, chunk chain) and SigV2.

Works on the raw request target, so that a test decides what goes over the wire and what is signed.
Nothing here opens a socket.
"""

import base64
import datetime
import hashlib
import hmac
from urllib.parse import quote, unquote_to_bytes

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
UNSIGNED = "UNSIGNED-PAYLOAD"
STREAMING = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
STREAMING_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"

# Query parameters that SigV2 signs as a part of the resource.
V2_SUBRESOURCES = {
    "acl", "cors", "delete", "lifecycle", "location", "logging", "notification", "partNumber",
    "policy", "requestPayment", "response-cache-control", "response-content-disposition",
    "response-content-encoding", "response-content-language", "response-content-type",
    "response-expires", "tagging", "torrent", "uploadId", "uploads", "versionId", "versioning",
    "versions", "website",
}


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def amz_date(when):
    return when.strftime("%Y%m%dT%H%M%SZ")


def http_date(when):
    return when.strftime("%a, %d %b %Y %H:%M:%S GMT")


def encode(text, safe="-_.~"):
    return quote(text, safe=safe)


def canonical_path(raw_path):
    """Decode once, encode once; no other normalisation (the S3 rule)."""
    return quote(unquote_to_bytes(raw_path), safe="-_.~/")


def query_pairs(raw_query):
    pairs = []
    for item in filter(None, raw_query.split("&")):
        name, _, value = item.partition("=")
        pairs.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    return pairs


def canonical_query(raw_query):
    pairs = [(encode(n), encode(v)) for n, v in query_pairs(raw_query) if n != b"X-Amz-Signature"]
    return "&".join(f"{n}={v}" for n, v in sorted(pairs))


def as_latin(value):
    """Header values travel as bytes; str values are UTF-8 on the wire."""
    data = value if isinstance(value, bytes) else str(value).encode()
    return data.decode("latin-1")


def canonical_headers(headers, signed):
    """`headers` is a list of (name, value); repeats are joined and inner spaces folded."""
    lines = []
    for name in signed:
        values = [" ".join(as_latin(v).split()) for n, v in headers if n.lower() == name]
        lines.append(f"{name}:{','.join(values)}\n")
    return "".join(lines)


class V4:
    """One signing identity: access key, secret, region and service."""

    def __init__(self, user, region="us-east-1", service="s3"):
        self.user, self.region, self.service = user, region, service

    def scope(self, when):
        return f"{when:%Y%m%d}/{self.region}/{self.service}/aws4_request"

    def key(self, when):
        key = ("AWS4" + self.user.secret_key).encode()
        for part in (f"{when:%Y%m%d}", self.region, self.service, "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return key

    def sign(self, text, when):
        return hmac.new(self.key(when), text.encode("latin-1"), hashlib.sha256).hexdigest()

    def request_signature(self, method, path, query, headers, signed, payload_hash, when):
        canonical = "\n".join([
            method, canonical_path(path), canonical_query(query),
            canonical_headers(headers, signed), ";".join(signed), payload_hash,
        ])
        digest = hashlib.sha256(canonical.encode("latin-1")).hexdigest()
        return self.sign(
            f"AWS4-HMAC-SHA256\n{amz_date(when)}\n{self.scope(when)}\n{digest}", when)

    def authorization(self, method, path, query, headers, payload_hash, when, signed=None):
        """The Authorization value; by default host, x-amz-*, content-md5 and -type are signed."""
        if signed is None:
            signed = sorted({n.lower() for n, _ in headers if is_signed_by_default(n.lower())})
        signature = self.request_signature(
            method, path, query, headers, signed, payload_hash, when)
        return (f"AWS4-HMAC-SHA256 Credential={self.user.access_key}/{self.scope(when)}, "
                f"SignedHeaders={';'.join(signed)}, Signature={signature}")

    def presign(self, method, path, query, headers, *, expires=3600, when=None, signed=("host",)):
        """The query with the X-Amz-* parameters and the signature; `headers` are those signed."""
        when = when or now()
        extra = [
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", f"{self.user.access_key}/{self.scope(when)}"),
            ("X-Amz-Date", amz_date(when)),
            ("X-Amz-Expires", str(expires)),
            ("X-Amz-SignedHeaders", ";".join(signed)),
        ]
        query = "&".join(filter(None, [query] + [f"{n}={encode(v)}" for n, v in extra]))
        signature = self.request_signature(
            method, path, query, headers, list(signed), UNSIGNED, when)
        return f"{query}&X-Amz-Signature={signature}"

    def chunks(self, pieces, seed, when, trailers=None):
        """Signed aws-chunked framing of `pieces` (the empty last one is added), as one bytes."""
        out, previous = [], seed
        for piece in [*pieces, b""]:
            text = "\n".join([
                "AWS4-HMAC-SHA256-PAYLOAD", amz_date(when), self.scope(when), previous,
                EMPTY_SHA256, hashlib.sha256(piece).hexdigest()])
            previous = self.sign(text, when)
            out.append(b"%x;chunk-signature=%s\r\n" % (len(piece), previous.encode()))
            if piece:
                out.append(piece + b"\r\n")
        for name, value in trailers or []:
            out.append(f"{name}:{value}\r\n".encode())
        if trailers:
            text = "".join(f"{n}:{v}\n" for n, v in trailers)
            digest = hashlib.sha256(text.encode()).hexdigest()
            signature = self.sign("\n".join([
                "AWS4-HMAC-SHA256-TRAILER", amz_date(when), self.scope(when), previous, digest]),
                when)
            out.append(f"x-amz-trailer-signature:{signature}\r\n".encode())
        out.append(b"\r\n")
        return b"".join(out)


def unsigned_chunks(pieces, trailers=None):
    """Unsigned aws-chunked framing, as STREAMING-UNSIGNED-PAYLOAD-TRAILER sends it."""
    out = [b"%x\r\n%s\r\n" % (len(p), p) for p in pieces if p] + [b"0\r\n"]
    out += [f"{n}:{v}\r\n".encode() for n, v in trailers or []]
    return b"".join(out) + b"\r\n"


def is_signed_by_default(name):
    return name in ("host", "content-md5", "content-type") or name.startswith("x-amz-")


class V2:
    """The older signature: HMAC-SHA1 over method, some headers and the resource."""

    def __init__(self, user):
        self.user = user

    def signature(self, method, path, query, headers, date):
        amz = {}
        plain = {n.lower(): as_latin(v).strip() for n, v in headers}
        for name, value in headers:
            if name.lower().startswith("x-amz-"):
                amz.setdefault(name.lower(), []).append(as_latin(value).strip())
        resource = path
        sub = sorted(
            item for item in filter(None, query.split("&"))
            if item.partition("=")[0] in V2_SUBRESOURCES)
        if sub:
            decoded = []
            for item in sub:
                name, equals, value = item.partition("=")
                decoded.append(name + equals + unquote_to_bytes(value).decode("latin-1"))
            resource += "?" + "&".join(decoded)
        text = "\n".join([
            method, plain.get("content-md5", ""), plain.get("content-type", ""), date,
            "".join(f"{n}:{','.join(v)}\n" for n, v in sorted(amz.items())) + resource])
        mac = hmac.new(self.user.secret_key.encode(), text.encode("latin-1"), hashlib.sha1)
        return base64.b64encode(mac.digest()).decode()

    def authorization(self, method, path, query, headers, date):
        return f"AWS {self.user.access_key}:{self.signature(method, path, query, headers, date)}"

    def presign(self, method, path, query, headers=(), expires_at=0):
        signature = self.signature(method, path, query, list(headers), str(expires_at))
        extra = (f"AWSAccessKeyId={encode(self.user.access_key)}&Expires={expires_at}"
                 f"&Signature={encode(signature)}")
        return "&".join(filter(None, [query, extra]))
